//! Service points: the sources of connection requests (DAT 2.0 section 6.5; iWARP extensions 3.1).

mod csp;
mod psp;
mod rsp;
mod ssp;

pub use csp::Csp;
pub use psp::Psp;
pub use rsp::Rsp;
pub use ssp::{Ssp, SspState, SspWaitError};
