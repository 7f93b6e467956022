//! Write Zcopy: the sink advertises, the source writes.

pub(crate) mod sink;
pub(crate) mod source;
