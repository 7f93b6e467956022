//! A test suite for every RNIC. It tests, through the provider table as a C program would, the
//! rules on which a consumer may rely.
//!
//! A provider's test is one line: `access_layer::conformance::run::<SoftRnic>("lo 0")`. Each case
//! opens an IA of its own and connects over its own address, so the suite needs no second machine.
//!
//! | File | Cases |
//! |---|---|
//! | `events` | EVDs and CNOs over real completions |
//! | `connection` | connecting, rejecting, no listener, private data |
//! | `transfer` | Send, RDMA Write, RDMA Read: data, order, lengths, errors |
//! | `ending` | disconnecting, flushing, closing |
//! | `consumer` | the consumer that all cases use |

#![allow(
    clippy::unwrap_used,
    reason = "test code: a case that cannot continue has failed"
)]

mod connection;
pub(crate) mod consumer;
mod ending;
mod events;
mod transfer;

use crate::rnic::Rnic;

/// A case: its name, and its function, which takes the `ia_params` of the RNIC and panics on
/// failure.
pub type Case = (&'static str, fn(&str));

/// Lists cases for an RNIC. The name of a case is `file::function`.
macro_rules! cases {
    ($rnic:ident: $($file:ident::{$($case:ident),+ $(,)?}),+ $(,)?) => {
        vec![$($((concat!(stringify!($file), "::", stringify!($case)), $file::$case::<$rnic>),)+)+]
    };
}

/// Returns all cases for an RNIC.
#[must_use]
pub fn cases<R: Rnic>() -> Vec<Case> {
    cases! { R:
        connection::{
            private_data_reaches_both_sides,
            a_rejection_carries_private_data,
            a_connect_without_listener_is_refused,
            an_unanswered_request_times_out,
        },
        transfer::{
            a_send_carries_every_length,
            segments_are_gathered_and_scattered,
            rdma_write_and_read_move_the_named_bytes,
            many_sends_arrive_in_order,
            foreign_memory_is_not_reached,
        },
        events::{
            a_waiter_sleeps_until_its_threshold,
            a_cno_returns_the_evd_that_triggered,
            a_suppressed_send_completes_silently,
        },
        ending::{
            each_side_is_notified_of_the_end_once,
            posted_receives_are_flushed,
            a_disconnected_endpoint_can_be_used_again,
            closing_the_ia_ends_everything,
        },
    }
}

/// Runs all cases; the output names each case before it runs.
///
/// # Panics
/// If a case fails.
pub fn run<R: Rnic>(ia_params: &str) {
    for (name, case) in cases::<R>() {
        println!("conformance: {name}");
        case(ia_params);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_rnic::FakeRnic;

    #[test]
    fn the_rnic_in_memory_conforms() {
        run::<FakeRnic>("net=conformance");
    }
}
