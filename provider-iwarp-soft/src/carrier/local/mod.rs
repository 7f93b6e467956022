//! Moves the DDP segments of a connection between two processes of one host without the kernel.
//!
//! | File | Contents |
//! |---|---|
//! | [`segment`] | the memory that the two processes share |

pub(crate) mod segment;
