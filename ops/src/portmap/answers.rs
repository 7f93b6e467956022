//! A cache of the answers of peers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::portmap::question::Answer;

/// The time for which a mapping is used.
///
/// A service may close its port, and another socket may get the port. A connection to that port
/// sends its first bytes to the wrong program. No message reports that a service has ended, so the
/// only remedy is to ask again soon. Many connections to a service still share one question, and an
/// occasional connection waits for one more exchange of datagrams. The risk remains for a service
/// that ends less than this time before the connection is made.
const MAPPED_FOR: Duration = Duration::from_secs(2);

/// The time for which a peer with a port mapper is not asked again for a service that it did not
/// offer. It is short, because the peer's program may start at any moment.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// The time for which a peer without a port mapper is not asked again.
const ABSENT_FOR: Duration = Duration::from_secs(60);

/// The maximum number of cached answers. With more answers than that, some peers are asked again.
const KEPT_MAX: usize = 4096;

/// Answers by service, and by peer where the peer can offer no service at all. Each answer is valid
/// for the route `W` by which the peer was asked: another route may lead to another host.
#[derive(Debug, Default)]
pub struct Answers<W> {
    services: BTreeMap<SocketAddr, Kept<W>>,
    peers: BTreeMap<IpAddr, Kept<W>>,
}

#[derive(Debug)]
struct Kept<W> {
    answer: Answer,
    way: W,
    until: Instant,
}

impl<W: PartialEq> Answers<W> {
    /// Returns the cached answer about the service at `peer`, if it is fresh and `way` is its
    /// route.
    #[must_use]
    pub fn get(&self, peer: SocketAddr, way: &W, now: Instant) -> Option<Answer> {
        let kept = self
            .services
            .get(&peer)
            .or_else(|| self.peers.get(&peer.ip()));
        kept.filter(|kept| now < kept.until && kept.way == *way)
            .map(|kept| kept.answer)
    }

    /// Caches an answer that was received over the route `way`.
    pub fn put(&mut self, peer: SocketAddr, answer: Answer, way: W, now: Instant) {
        self.make_room(now);
        let keep = |time: Duration| Kept {
            answer,
            way,
            until: now + time,
        };
        let kept = match answer {
            Answer::Mapped(_) => keep(MAPPED_FOR),
            Answer::Refused | Answer::Untrusted => keep(REFUSED_FOR),
            Answer::Absent | Answer::Silent => {
                self.services.retain(|service, _| service.ip() != peer.ip());
                self.peers.insert(peer.ip(), keep(ABSENT_FOR));
                return;
            }
        };
        self.services.insert(peer, kept);
        // The peer answered, so it has a port mapper.
        self.peers.remove(&peer.ip());
    }

    /// Caches the answer about a service of this host. A program of this host may start at any
    /// moment, so the absence of a port mapper is cached for a short time only.
    pub fn put_own(&mut self, service: SocketAddr, answer: Answer, way: W, now: Instant) {
        if !matches!(answer, Answer::Absent | Answer::Silent) {
            return self.put(service, answer, way, now);
        }
        self.make_room(now);
        let until = now + REFUSED_FOR;
        let kept = Kept { answer, way, until };
        self.services.insert(service, kept);
    }

    /// Removes the answer about a service, so that the peer is asked again.
    pub fn forget(&mut self, peer: SocketAddr) {
        self.services.remove(&peer);
    }

    /// Removes all answers, because each of them may be out of date.
    pub fn clear(&mut self) {
        self.services.clear();
        self.peers.clear();
    }

    fn make_room(&mut self, now: Instant) {
        if self.services.len() + self.peers.len() < KEPT_MAX {
            return;
        }
        self.services.retain(|_, kept| now < kept.until);
        self.peers.retain(|_, kept| now < kept.until);
        if self.services.len() + self.peers.len() >= KEPT_MAX {
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(host: u8, port: u16) -> SocketAddr {
        ([192, 0, 2, host], port).into()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_answer_is_kept_for_its_time_about_the_service_or_the_peer() {
        let now = Instant::now();
        let mapped = Answer::Mapped(peer(2, 41000));
        for (answer, seconds, for_peer) in [
            (mapped, 2, false),
            (Answer::Refused, 5, false),
            (Answer::Untrusted, 5, false),
            (Answer::Absent, 60, true),
            (Answer::Silent, 60, true),
        ] {
            let mut answers = Answers::default();
            answers.put(peer(2, 80), answer, 1, now);
            assert_eq!(
                answers.get(peer(2, 80), &1, now + SECOND * (seconds - 1)),
                Some(answer)
            );
            assert_eq!(answers.get(peer(2, 80), &1, now + SECOND * seconds), None);
            let other_port = answers.get(peer(2, 81), &1, now);
            assert_eq!(other_port, for_peer.then_some(answer));
            assert_eq!(answers.get(peer(3, 80), &1, now), None);
        }
    }

    #[test]
    fn the_absence_of_this_host_is_kept_as_short_as_a_refusal() {
        let now = Instant::now();
        for answer in [Answer::Absent, Answer::Silent, Answer::Refused] {
            let mut answers = Answers::default();
            answers.put_own(peer(2, 80), answer, 1, now);
            let get = |port, seconds| answers.get(peer(2, port), &1, now + SECOND * seconds);
            assert_eq!(get(80, 4), Some(answer));
            assert_eq!(get(80, 5), None);
            assert_eq!(get(81, 0), None);
        }
    }

    #[test]
    fn a_later_answer_replaces_an_earlier_one() {
        let now = Instant::now();
        let mapped = Answer::Mapped(peer(2, 41000));
        let mut answers = Answers::default();
        answers.put(peer(2, 80), Answer::Silent, 1, now);
        answers.put(peer(2, 80), mapped, 1, now);
        assert_eq!(answers.get(peer(2, 80), &1, now), Some(mapped));
        assert_eq!(answers.get(peer(2, 81), &1, now), None);
        answers.put(peer(2, 81), Answer::Absent, 1, now);
        assert_eq!(answers.get(peer(2, 80), &1, now), Some(Answer::Absent));
    }

    #[test]
    fn a_removed_answer_is_not_returned() {
        let now = Instant::now();
        let mut answers = Answers::default();
        answers.put(peer(2, 80), Answer::Refused, 1, now);
        answers.forget(peer(2, 80));
        assert_eq!(answers.get(peer(2, 80), &1, now), None);
        answers.put(peer(2, 80), Answer::Absent, 1, now);
        answers.clear();
        assert_eq!(answers.get(peer(2, 80), &1, now), None);
    }

    #[test]
    fn an_answer_is_valid_only_for_the_route_over_which_it_was_received() {
        let now = Instant::now();
        let mapped = Answer::Mapped(peer(2, 41000));
        for answer in [mapped, Answer::Refused, Answer::Silent] {
            let mut answers = Answers::default();
            answers.put(peer(2, 80), answer, 1, now);
            assert_eq!(answers.get(peer(2, 80), &2, now), None);
            assert_eq!(answers.get(peer(2, 80), &1, now), Some(answer));
            answers.put(peer(2, 80), Answer::Absent, 2, now);
            assert_eq!(answers.get(peer(2, 80), &2, now), Some(Answer::Absent));
        }
    }

    #[test]
    fn memory_is_bounded() {
        let now = Instant::now();
        let mut answers = Answers::default();
        for n in 0..20_000_u16 {
            answers.put(peer(2, n), Answer::Refused, 1, now);
        }
        assert!(answers.services.len() <= KEPT_MAX);
        assert_eq!(answers.get(peer(2, 19_999), &1, now), Some(Answer::Refused));
    }
}
