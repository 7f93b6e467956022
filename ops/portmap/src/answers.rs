//! What peers said lately.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::question::Answer;

/// How long a mapping is believed.
///
/// A port that the service has given back may be given to anybody, and who connects there says his
/// first words to a stranger. A peer that closes its service tells nobody, so all that can be done
/// is to ask again soon; a service to which many connect is still asked once for all of them, and
/// who connects now and then waits for one exchange of datagrams more. What is left is this time
/// for services that end, and one exchange of datagrams for an answer that was true when it left.
const MAPPED_FOR: Duration = Duration::from_secs(2);

/// How long a peer with a port mapper is not asked again for a service that it did not offer; its
/// program may start at any moment.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// How long a peer without port mapper is left alone.
const ABSENT_FOR: Duration = Duration::from_secs(60);

/// Answers that are kept; with more peers than that some are asked again.
const KEPT_MAX: usize = 4096;

/// Answers by service, and by peer where no service can be offered. Each holds for the way `W` by
/// which the peer was asked: another way may have another end.
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
    /// What is still known about the service at `peer`, to which this is the way.
    #[must_use]
    pub fn get(&self, peer: SocketAddr, way: &W, now: Instant) -> Option<Answer> {
        let kept = self
            .services
            .get(&peer)
            .or_else(|| self.peers.get(&peer.ip()));
        kept.filter(|kept| now < kept.until && kept.way == *way)
            .map(|kept| kept.answer)
    }

    /// Keeps an answer that came by this way.
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
        // Somebody answered, so the peer has a port mapper.
        self.peers.remove(&peer.ip());
    }

    /// A mapping led nowhere: it is asked for again.
    pub fn forget(&mut self, peer: SocketAddr) {
        self.services.remove(&peer);
    }

    /// Whatever was said may be untrue.
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
    fn answers_are_kept_both_ways_and_for_as_long_as_they_may_be_true() {
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
    fn what_is_forgotten_is_asked_for_again() {
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
    fn an_answer_holds_for_the_way_by_which_it_came() {
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
