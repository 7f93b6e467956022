//! Frames and headers, one file per kind: the figure of the RFC, the decoded form, and the two
//! inverse functions between them.

pub mod carrier;
pub mod ddp;
pub mod fpdu;
pub mod marker;
pub mod mpa;
pub mod rdmap;
pub mod terminate;
