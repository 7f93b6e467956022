//! The behaviour that the iWARP Transport Specific Extensions for DAT 2.0 state in 3.1.1 to 3.1.4,
//! over the staged libraries and the loopback interface.
//!
//! `docs/socket-service-points.md` lists the test that covers each sentence.

mod bench;
mod raw_calls;
mod socket_connect;
mod socket_life;
mod ssp_create;
mod ssp_free;
