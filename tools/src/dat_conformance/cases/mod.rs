//! All cases, by DAT object.
//!
//! | File | Object |
//! |---|---|
//! | `ia` | interface adapters |
//! | `evd` | event dispatchers without connections |
//! | `send` | Send and Receive |

mod evd;
mod ia;
mod send;

use crate::case::Case;

/// All of them, in the order in which they run.
pub(crate) fn all() -> Vec<Case> {
    [ia::cases(), evd::cases(), send::cases()].concat()
}
