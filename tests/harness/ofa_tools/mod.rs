//! OFA's own test programs, unmodified, as Debian ships them. Each case is one command line, for
//! the stack that a [`crate::StackEnv`] names.
//!
//! Exit statuses are unreliable (dtest exits with 0 after many failures), so both sides are judged
//! by their output. `STACK_TESTS_FULL=1` also runs the lines that add no new coverage, and uses the
//! iteration counts of OFA's regression lists, except under emulation.
//!
//! | File | Contents |
//! |---|---|
//! | `case` | a case, and when it is run |
//! | `line` | a line, its expected result, its conversion to a case |
//! | `dapltest` | transactions, performance, limits, functions |
//! | `dtest` | dtest, and the cross product of its options |
//! | `family` | dtestcm, dtestsrq, dtestx |

mod case;
pub mod dapltest;
pub mod dtest;
mod family;
mod line;

pub use case::{Case, When};

/// Every command line.
pub fn cases() -> Vec<Case> {
    let cases = [dapltest::cases(), dtest::cases(), family::cases()];
    cases.into_iter().flatten().collect()
}
