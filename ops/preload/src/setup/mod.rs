//! The set-up of connections: where a socket of the program comes to an offload protocol, or stays
//! on TCP.
//!
//! | File | What |
//! |---|---|
//! | [`connect`] | `connect`: an offload protocol first, within its bound, and TCP where it cannot |
//! | [`not_offered`] | services that no protocol offered a moment ago |
//! | [`offer`] | `listen`: which protocols listen next to a socket; and anew where their process ended |
//! | [`accept`] | `accept`: one queue for the connections of TCP and of all protocols |
//! | [`exec`] | listeners that leave by `exec` or `SCM_RIGHTS`, and those that came over an `exec` |

pub(crate) mod accept;
pub(crate) mod connect;
pub(crate) mod exec;
mod not_offered;
pub(crate) mod offer;
