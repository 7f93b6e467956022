//! The set-up of connections: the decision and the steps that move a socket of the program to an
//! offload protocol.
//!
//! | File | Contents |
//! |---|---|
//! | [`connect`] | `connect`: an offload protocol first, within its bound, then TCP |
//! | `attempt` | the progress of a connect without blocking |
//! | [`background`] | a connect without blocking, which continues on the event thread |
//! | `connecting` | the answers of a socket that connects without blocking |
//! | [`disconnect`] | `connect` with `AF_UNSPEC`: back to a TCP socket |
//! | [`not_offered`] | a cache of services that no protocol offers |
//! | [`offer`] | `listen`: protocols listen next to a TCP socket, and again if their process has ended |
//! | [`accept`] | `accept`: one queue for the connections of TCP and of all protocols |
//! | [`doorkeeper`] | clients that no call of this library accepts |
//! | [`inheritance`] | listeners that are passed on by `exec` or `SCM_RIGHTS`, and inherited ones |
//! | `signal_driven` | signal-driven I/O of a listener |

pub(crate) mod accept;
mod attempt;
pub(crate) mod background;
pub(crate) mod connect;
mod connecting;
pub(crate) mod disconnect;
pub(crate) mod doorkeeper;
pub(crate) mod inheritance;
mod not_offered;
pub(crate) mod offer;
pub(crate) mod signal_driven;
