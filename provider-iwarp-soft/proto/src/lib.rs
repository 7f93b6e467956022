#![forbid(unsafe_code)]
//! MPA, DDP and RDMAP without I/O.
