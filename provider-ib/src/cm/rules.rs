//! The differences between transports and devices, each as one named rule.
//!
//! | Rule | InfiniBand, RoCE | iWARP |
//! |---|---|---|
//! | private data of a consumer | 56 bytes, the rest of the request after the addresses | 251 bytes, siw's limit |
//! | its length at the peer | the whole field of the message, padded with zeros | as sent |
//! | a consumer's reject | reason 28 and a mark in front of the private data | `ECONNREFUSED`; siw: `ECONNRESET` |
//! | no listener | reason 8 | `ECONNRESET`; siw: `ECONNREFUSED` from the call itself |
//! | local port | the connection manager's | a TCP connection to this peer may use it; another port is tried |
//! | connecting | the call returns at once | the call asks the port mapper; siw connects TCP within it |
//! | cancelling a request | at once | siw waits up to 10 s for the reply |
//! | a queue pair that failed | can be reset | siw's cannot |
//! | a queue pair whose request was cancelled | can be destroyed | siw waits as for the request |
//!
//! The removal of a device is reported as an event of its ids. rxe and siw then wait until every
//! process has closed the device. This process closes it when its consumers have closed their
//! adapters ([`Device`](crate::device::Device)'s drop).

use std::io;

use verbs_dl::types::*;

use super::machine::{Event, Refusal};
use crate::quirks::{Quirks, Transport};

/// The private data that a request carries on InfiniBand: 92 bytes, less the 36 in which the
/// connection manager sends the addresses (InfiniBand specification, annex A11).
const IB_PRIVATE_DATA_MAX: usize = 56;
/// siw stores the length of the private data of a start-up frame in 8 bits, and 4 bytes of the data
/// are the enhanced words. From 252 bytes on, siw sends a frame that its peer cannot read.
const IWARP_PRIVATE_DATA_MAX: usize = 251;

/// The mark in front of the private data of a reject on InfiniBand. A connection manager that
/// cancels a request rejects with the reason code of a consumer and without private data. OFA's
/// provider distinguishes the two cases by these four bytes, and expects them.
const REJECT_MARK: [u8; 4] = [2, 0, 2, 0];

/// Reasons of a reject on InfiniBand (InfiniBand specification, table "REJ reason codes").
mod reason {
    pub(super) const NO_QP: i32 = 1;
    pub(super) const NO_RESOURCES: i32 = 3;
    pub(super) const TIMEOUT: i32 = 4;
    pub(super) const INVALID_SERVICE_ID: i32 = 8;
    pub(super) const STALE_CONNECTION: i32 = 10;
    pub(super) const CONSUMER: i32 = 28;
}

/// The reason why an attempt ended. `is_temporary` is true if another attempt may succeed soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused<'a> {
    pub(super) refusal: Refusal,
    pub(super) is_temporary: bool,
    pub(super) private_data: &'a [u8],
}

impl Refused<'_> {
    const fn new(refusal: Refusal, is_temporary: bool) -> Self {
        Self {
            refusal,
            is_temporary,
            private_data: &[],
        }
    }

    /// Returns the machine's event. `has_time` is true if there is time for another attempt.
    pub(super) fn event(self, has_time: bool) -> Event {
        Event::Refused {
            refusal: self.refusal,
            again: self.is_temporary && has_time,
        }
    }
}

impl Transport {
    /// The largest private data of a consumer in any message, in bytes.
    pub(crate) fn private_data_max(self) -> usize {
        match self {
            Self::InfiniBand => IB_PRIVATE_DATA_MAX,
            Self::Iwarp => IWARP_PRIVATE_DATA_MAX,
        }
    }

    /// True if a peer's private data is received padded with zeros to the length of the message's
    /// field.
    pub(super) fn pads_private_data(self) -> bool {
        self == Self::InfiniBand
    }

    /// The private data of a consumer's reject, in the form that the connection manager sends.
    pub(super) fn reject_data(self, private_data: &[u8]) -> Vec<u8> {
        match self {
            Self::InfiniBand => [&REJECT_MARK, private_data].concat(),
            Self::Iwarp => private_data.to_vec(),
        }
    }

    /// True if the kernel blocks while it connects, and while it cancels a request that is not
    /// answered.
    pub(super) fn blocks(self) -> bool {
        self == Self::Iwarp
    }

    /// True if the kernel moves the queue pair to full operation and confirms.
    pub(super) fn kernel_confirms(self) -> bool {
        self == Self::Iwarp
    }

    /// Returns the meaning of a rejection.
    pub(super) fn rejected(self, quirks: Quirks, status: i32, private_data: &[u8]) -> Refused<'_> {
        match self {
            Self::InfiniBand => rejected_on_infiniband(status, private_data),
            Self::Iwarp => rejected_on_iwarp(quirks, status, private_data),
        }
    }
}

fn rejected_on_infiniband(status: i32, private_data: &[u8]) -> Refused<'_> {
    match status {
        reason::CONSUMER => match private_data.strip_prefix(&REJECT_MARK) {
            Some(data) => by_consumer(data),
            // A request that was cancelled, or a service that is not a DAT consumer and sends no
            // data.
            None if private_data.iter().all(|byte| *byte == 0) => {
                Refused::new(Refusal::Service, false)
            }
            None => by_consumer(private_data),
        },
        // A stale connection: the peer has not been notified yet that an older connection of this
        // queue pair is over. This request notifies it.
        reason::INVALID_SERVICE_ID
        | reason::STALE_CONNECTION
        | reason::NO_QP
        | reason::NO_RESOURCES => Refused::new(Refusal::Service, true),
        reason::TIMEOUT => Refused::new(Refusal::Unreachable, false),
        _ => Refused::new(Refusal::Service, false),
    }
}

/// Returns the meaning of a rejection on iWARP. The kernel defines that `ECONNREFUSED` is a
/// consumer's reject; the drivers of hardware report a refused TCP connection as `ECONNRESET`. On
/// siw a reject, a cancelled request and a closed connection are all `ECONNRESET`; the first is by
/// far the most frequent.
fn rejected_on_iwarp(quirks: Quirks, status: i32, private_data: &[u8]) -> Refused<'_> {
    let is_refused = status == -libc::ECONNREFUSED;
    if is_refused == quirks.refuses_for_consumers {
        by_consumer(private_data)
    } else {
        Refused::new(Refusal::Service, true)
    }
}

fn by_consumer(private_data: &[u8]) -> Refused<'_> {
    Refused {
        refusal: Refusal::Consumer,
        is_temporary: false,
        private_data,
    }
}

/// Returns the meaning of a failed call that sends a request.
pub(super) fn call_failed(error: &io::Error) -> Refused<'static> {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED | libc::ECONNRESET) => Refused::new(Refusal::Service, true),
        // The connection manager tracks only the ports of its own ids, so a TCP connection may use
        // the port that it chose. Another attempt uses another port.
        Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL) => Refused::new(Refusal::Service, true),
        Some(libc::ETIMEDOUT | libc::ENETUNREACH | libc::EHOSTUNREACH) => {
            Refused::new(Refusal::Unreachable, false)
        }
        _ => Refused::new(Refusal::Service, false),
    }
}

/// Returns the machine's event for an event of the connection manager that carries no data in
/// addition to its type.
///
/// Replies and rejects carry private data, and requests begin a connection, so other code handles
/// them. That code passes an establishment here if its status is an error: qedr reports a failed
/// start-up to the accepting end as established, and closes the connection next. The result is
/// `None` also for events without effect: multicast, a changed link address (the path still leads
/// to the peer, or the connection fails by itself), and the end of the time in which late packets
/// of an old connection may be received (its id is destroyed by then).
pub(super) fn plain_event(kind: rdma_cm_event_type, failed: bool) -> Option<Event> {
    Some(match kind {
        RDMA_CM_EVENT_ADDR_RESOLVED => Event::AddressResolved,
        RDMA_CM_EVENT_ROUTE_RESOLVED => Event::RouteResolved,
        RDMA_CM_EVENT_ADDR_ERROR | RDMA_CM_EVENT_ROUTE_ERROR => Event::Unresolved,
        RDMA_CM_EVENT_UNREACHABLE => Refused::new(Refusal::Unreachable, false).event(false),
        RDMA_CM_EVENT_CONNECT_ERROR | RDMA_CM_EVENT_ESTABLISHED => {
            Refused::new(Refusal::Service, false).event(false)
        }
        RDMA_CM_EVENT_DISCONNECTED => Event::Disconnected { failed },
        RDMA_CM_EVENT_DEVICE_REMOVAL => Event::DeviceRemoved,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quirks::SIW_VENDOR;

    fn ib(status: i32, data: &[u8]) -> Refused<'_> {
        let transport = Transport::InfiniBand;
        transport.rejected(Quirks::of(transport, 0), status, data)
    }

    #[test]
    fn a_consumers_reject_on_infiniband_carries_a_mark() {
        let mut field = Transport::InfiniBand.reject_data(b"no");
        assert_eq!(field, b"\x02\x00\x02\x00no");
        field.resize(148, 0);
        let rejection = ib(28, &field);
        assert_eq!(
            (rejection.refusal, rejection.is_temporary),
            (Refusal::Consumer, false)
        );
        assert!(rejection.private_data.starts_with(b"no\0"));
        assert_eq!(rejection.private_data.len(), 144);
    }

    #[test]
    fn a_cancelled_request_on_infiniband_is_no_consumers_reject() {
        assert_eq!(ib(28, &[0; 148]).refusal, Refusal::Service);
        assert_eq!(ib(28, &[]).refusal, Refusal::Service);
        // The private data of a service that is not a DAT consumer is passed on unchanged.
        assert_eq!(ib(28, b"busy").private_data, b"busy");
    }

    #[test]
    fn a_service_that_may_start_soon_is_tried_again() {
        for status in [1, 3, 8, 10] {
            assert_eq!(ib(status, &[0; 148]), Refused::new(Refusal::Service, true));
        }
        for status in [2, 12, 24, 99] {
            assert_eq!(ib(status, &[]), Refused::new(Refusal::Service, false));
        }
        assert_eq!(ib(4, &[]).refusal, Refusal::Unreachable);
    }

    #[test]
    fn a_reject_on_iwarp_is_reported_by_a_code_of_the_driver() {
        const CHELSIO: u32 = 0x1425;
        let iwarp = Transport::Iwarp;
        assert_eq!(iwarp.reject_data(b"no"), b"no");
        for (vendor, reject, no_listener) in [
            (SIW_VENDOR, libc::ECONNRESET, libc::ECONNREFUSED),
            (CHELSIO, libc::ECONNREFUSED, libc::ECONNRESET),
        ] {
            let quirks = Quirks::of(iwarp, vendor);
            let rejection = iwarp.rejected(quirks, -reject, b"no");
            assert_eq!(rejection, by_consumer(b"no"), "{vendor:#x}");
            let refused = iwarp.rejected(quirks, -no_listener, &[]);
            let again = Refused::new(Refusal::Service, true);
            assert_eq!(refused, again, "{vendor:#x}");
        }
    }

    #[test]
    fn a_failed_call_has_the_meaning_of_the_event() {
        let failed = |code| call_failed(&io::Error::from_raw_os_error(code));
        assert_eq!(
            failed(libc::ECONNREFUSED),
            Refused::new(Refusal::Service, true)
        );
        for taken in [libc::EADDRINUSE, libc::EADDRNOTAVAIL] {
            assert_eq!(failed(taken), Refused::new(Refusal::Service, true));
        }
        assert_eq!(failed(libc::EHOSTUNREACH).refusal, Refusal::Unreachable);
        assert_eq!(failed(libc::EINVAL), Refused::new(Refusal::Service, false));
    }

    #[test]
    fn another_attempt_needs_time() {
        let refused = Refused::new(Refusal::Service, true);
        let again =
            |has_time| matches!(refused.event(has_time), Event::Refused { again: true, .. });
        assert!(again(true) && !again(false));
    }

    #[test]
    fn private_data_fits_every_message_that_may_carry_it() {
        // Request 56, reply 196, reject 148 less the mark.
        const { assert!(IB_PRIVATE_DATA_MAX + REJECT_MARK.len() <= 148) };
        // The length of a start-up frame's private data, with the enhanced words, must fit 8 bits.
        const { assert!(IWARP_PRIVATE_DATA_MAX + 4 <= 255) };
    }

    #[test]
    fn events_without_private_data() {
        let unreachable = Refusal::Unreachable;
        for (kind, event) in [
            (RDMA_CM_EVENT_ADDR_RESOLVED, Some(Event::AddressResolved)),
            (RDMA_CM_EVENT_ADDR_ERROR, Some(Event::Unresolved)),
            (RDMA_CM_EVENT_ROUTE_RESOLVED, Some(Event::RouteResolved)),
            (RDMA_CM_EVENT_ROUTE_ERROR, Some(Event::Unresolved)),
            (
                RDMA_CM_EVENT_UNREACHABLE,
                Some(Event::Refused {
                    refusal: unreachable,
                    again: false,
                }),
            ),
            (
                RDMA_CM_EVENT_ESTABLISHED,
                Some(Event::Refused {
                    refusal: Refusal::Service,
                    again: false,
                }),
            ),
            (
                RDMA_CM_EVENT_DISCONNECTED,
                Some(Event::Disconnected { failed: true }),
            ),
            (RDMA_CM_EVENT_DEVICE_REMOVAL, Some(Event::DeviceRemoved)),
            (RDMA_CM_EVENT_ADDR_CHANGE, None),
            (RDMA_CM_EVENT_TIMEWAIT_EXIT, None),
            (RDMA_CM_EVENT_CONNECT_REQUEST, None),
        ] {
            assert_eq!(plain_event(kind, true), event, "{kind}");
        }
    }
}
