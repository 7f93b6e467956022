//! Read Zcopy: the source advertises, the sink reads.

pub(crate) mod sink;
pub(crate) mod source;
