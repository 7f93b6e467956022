//! How two queue pairs that name each other connect.
//!
//! ```text
//!                  RTR, own name is smaller
//!   APART ───────────────────────────────────> CONNECTING
//!    | \
//!    |  '-- RTR, the peer has asked ---------> MET
//!    |                                          ^
//!    '- RTR ──> EXPECTING ── the peer asks ─────'
//! ```
//!
//! A queue pair that names itself connects and is then EXPECTING.
//!
//! RESET leads from every state to APART. A request of a queue pair that the program has not named
//! is dropped, which refuses it. Before RTR the program has named no peer, so requests are kept.

use crate::adapter::Name;

/// The most requests that are kept before RTR. The oldest one is dropped for a new one.
const REQUESTS_MAX: usize = 8;

/// The state of a meeting; see the module's documentation. `R` is a request.
#[derive(Debug)]
pub(super) enum Meeting<R> {
    Apart { requests: Vec<(Name, R)> },
    Connecting,
    Expecting { peer: Name },
    Met,
}

/// The action that an event requires.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action<R> {
    Wait,
    Connect,
    Accept(R),
}

impl<R> Default for Meeting<R> {
    fn default() -> Self {
        Self::Apart {
            requests: Vec::new(),
        }
    }
}

impl<R> Meeting<R> {
    /// Called when the program has named the peer, in RTR. Requests of others are dropped.
    pub(super) fn on_named(&mut self, own: Name, peer: Name) -> Action<R> {
        let Self::Apart { requests } = self else {
            return Action::Wait;
        };
        if own == peer {
            *self = Self::Expecting { peer };
            return Action::Connect;
        }
        if own < peer {
            *self = Self::Connecting;
            return Action::Connect;
        }
        let mut requests = std::mem::take(requests).into_iter();
        match requests.find(|(from, _)| *from == peer) {
            Some((_, request)) => {
                *self = Self::Met;
                Action::Accept(request)
            }
            None => {
                *self = Self::Expecting { peer };
                Action::Wait
            }
        }
    }

    /// Called when a peer asks for a connection.
    pub(super) fn on_request(&mut self, from: Name, request: R) -> Action<R> {
        match self {
            Self::Apart { requests } => {
                requests.retain(|(other, _)| *other != from);
                if requests.len() == REQUESTS_MAX {
                    requests.remove(0);
                }
                requests.push((from, request));
                Action::Wait
            }
            Self::Expecting { peer } if *peer == from => {
                *self = Self::Met;
                Action::Accept(request)
            }
            Self::Expecting { .. } | Self::Connecting | Self::Met => Action::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Gid;

    fn name(number: u32) -> Name {
        let gid = Gid::of("192.0.2.1".parse().unwrap());
        Name { gid, number }
    }

    #[test]
    fn the_smaller_name_connects_and_the_other_accepts() {
        let mut smaller = Meeting::<u8>::default();
        assert_eq!(smaller.on_named(name(1), name(2)), Action::Connect);
        let mut larger = Meeting::default();
        assert_eq!(larger.on_named(name(2), name(1)), Action::Wait);
        assert_eq!(larger.on_request(name(1), 'r'), Action::Accept('r'));
    }

    #[test]
    fn a_request_before_rtr_is_accepted_at_rtr() {
        let mut meeting = Meeting::default();
        assert_eq!(meeting.on_request(name(7), 'x'), Action::Wait);
        assert_eq!(meeting.on_request(name(1), 'r'), Action::Wait);
        assert_eq!(meeting.on_named(name(9), name(1)), Action::Accept('r'));
    }

    #[test]
    fn a_queue_pair_that_the_program_has_not_named_is_refused() {
        let mut meeting = Meeting::default();
        meeting.on_named(name(9), name(1));
        assert_eq!(meeting.on_request(name(2), 'x'), Action::Wait);
        assert!(matches!(meeting, Meeting::Expecting { .. }));
        assert_eq!(meeting.on_request(name(1), 'r'), Action::Accept('r'));
        assert_eq!(meeting.on_request(name(1), 'r'), Action::Wait, "a replay");
        assert_eq!(meeting.on_named(name(9), name(1)), Action::Wait);
    }

    #[test]
    fn a_queue_pair_connects_to_itself() {
        let mut meeting = Meeting::default();
        assert_eq!(meeting.on_named(name(1), name(1)), Action::Connect);
        assert_eq!(meeting.on_request(name(1), 'r'), Action::Accept('r'));
    }

    #[test]
    fn a_smaller_name_accepts_nobody() {
        let mut meeting = Meeting::default();
        meeting.on_named(name(1), name(2));
        assert_eq!(meeting.on_request(name(2), 'x'), Action::Wait);
        assert!(matches!(meeting, Meeting::Connecting));
    }

    #[test]
    fn requests_before_rtr_are_limited() {
        let mut meeting = Meeting::default();
        for number in 0..100 {
            meeting.on_request(name(number), number);
            meeting.on_request(name(number), number);
        }
        let Meeting::Apart { requests } = &meeting else {
            panic!("{meeting:?}");
        };
        assert_eq!(requests.len(), REQUESTS_MAX);
        assert_eq!(meeting.on_named(name(200), name(99)), Action::Accept(99));
    }
}
