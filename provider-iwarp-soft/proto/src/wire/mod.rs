//! Frames and headers, one file a kind: the picture of the RFC, a meaning, and its two inverse
//! functions.

pub mod carrier;
pub mod ddp;
pub mod fpdu;
pub mod marker;
pub mod mpa;
pub mod rdmap;
pub mod terminate;
