//! Descriptors of ours that the program must not stumble over.

pub(crate) use host::descriptors::raise;
