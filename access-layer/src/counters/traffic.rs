//! Counters of dat-rs: payload of connections by transport.
//!
//! The RNIC counts. An endpoint reads the counts of its queue pair's connections, and an IA adds up
//! the counts of its endpoints, including freed endpoints.

use std::sync::Mutex;

use dat_abi::*;
use host::locks::IgnorePoison as _;

use crate::rnic::{Flow, Traffic};

/// The number of these counters.
pub(crate) const COUNT: usize = (DCNT_RS_ALL_COUNTERS - DCNT_RS_TCP_SENT) as usize;

/// The values in the order of their numbers.
pub(crate) type Figures = [u64; COUNT];

/// The traffic counters of an IA or an endpoint: totals of freed endpoints, and the values at the
/// last reset.
#[derive(Debug, Default)]
pub(crate) struct TrafficCounters(Mutex<Totals>);

#[derive(Debug, Default)]
struct Totals {
    /// For an IA: the traffic of freed endpoints.
    freed: Traffic,
    /// The values at the last reset.
    base: Figures,
}

impl TrafficCounters {
    pub(crate) fn add_freed(&self, traffic: Traffic) {
        self.lock().freed += traffic;
    }

    pub(crate) fn freed(&self) -> Traffic {
        self.lock().freed
    }

    /// Returns the values of `traffic` since the last reset. The counters in `reset` are set to 0.
    pub(crate) fn read(&self, traffic: &Traffic, reset: Option<std::ops::Range<usize>>) -> Figures {
        let now = figures(traffic);
        let mut kept = self.lock();
        let mut since = now;
        for (figure, base) in since.iter_mut().zip(kept.base) {
            // The number of connections on TCP may have fallen below its value at the reset.
            *figure = figure.saturating_sub(base);
        }
        if let Some(range) = reset {
            kept.base[range.clone()].copy_from_slice(&now[range]);
        }
        since
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Totals> {
        self.0.lock().ignore_poison()
    }
}

fn figures(traffic: &Traffic) -> Figures {
    let mut figures = [0; COUNT];
    let of_flow = |flow: Flow| {
        let Flow { sent, received } = flow;
        [sent.segments, sent.bytes, received.segments, received.bytes]
    };
    let transports = [traffic.tcp, traffic.ring, traffic.reference];
    let moved = [traffic.moved_sending, traffic.moved_receiving];
    let values = transports.into_iter().flat_map(of_flow);
    let values = values.chain(moved).chain(traffic.on_tcp);
    let values = values.chain(of_flow(traffic.direct));
    for (figure, value) in figures.iter_mut().zip(values) {
        *figure = value;
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rnic::WhyTcp;

    #[test]
    fn figures_have_their_numbers() {
        let mut traffic = Traffic {
            moved_receiving: 5,
            ..Traffic::default()
        };
        traffic.tcp.received.bytes = 3;
        traffic.reference.sent.segments = 4;
        traffic.direct.received.bytes = 6;
        traffic.add_on_tcp(WhyTcp::NoResources);
        traffic.add_on_tcp(WhyTcp::OtherImplementation);
        let mut expected = [0; COUNT];
        for (number, value) in [
            (DCNT_RS_TCP_RECV_DATA, 3),
            (DCNT_RS_REFERENCE_SENT, 4),
            (DCNT_RS_MOVED_RECV, 5),
            (DCNT_RS_TCP_OTHER_IMPLEMENTATION, 1),
            (DCNT_RS_TCP_NO_RESOURCES, 1),
            (DCNT_RS_DIRECT_READS_DATA, 6),
        ] {
            expected[(number - DCNT_RS_TCP_SENT) as usize] = value;
        }
        assert_eq!(figures(&traffic), expected);
        assert_eq!(COUNT, 18 + WhyTcp::ALL.len());
    }

    #[test]
    fn a_reset_restarts_at_0() {
        let counters = TrafficCounters::default();
        let mut traffic = Traffic::default();
        traffic.tcp.sent.bytes = 7;
        traffic.tcp.sent.segments = 1;
        let read = |traffic: &Traffic, reset| counters.read(traffic, reset)[..2].to_vec();
        assert_eq!(read(&traffic, Some(1..2)), [1, 7]);
        assert_eq!(read(&traffic, None), [1, 0]);
        traffic.tcp.sent.bytes = 9;
        assert_eq!(read(&traffic, Some(0..COUNT)), [1, 2]);
        assert_eq!(read(&traffic, None), [0, 0]);
    }
}
