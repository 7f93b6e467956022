//! The choice between the ring and a direct copy for a short Write.
//!
//! A peer that polls the connection has a short Write sooner from the ring: the initiator stores
//! two lines instead of making a system call. For any other peer the ring is wrong, because the
//! peer's engine would have to be woken, or has to notice that its consumer has stopped polling. So
//! each poll of a connection changes a word of the shared memory, which costs a store without a
//! locked instruction, and the initiator uses the ring while it sees this word change. The Write
//! that follows a pause of [`PAUSE`] is copied directly, because the word does not show when it has
//! changed.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::segment::Half;

/// The offset of the word, after those of [`super::direct`].
const POLLS: usize = 1408;
/// The longest Write for which the ring is chosen. The kernel copies longer ones once, which is
/// faster than the two copies of the ring.
const SHORT: u32 = 4096;
/// The time after a change of the word for which the peer counts as polling. It must not be shorter
/// than the pause between two posts of a burst.
const RECENT: Duration = Duration::from_micros(20);
/// The longest time between two looks at the word after which a change of it shows that the peer
/// polls now.
const PAUSE: Duration = Duration::from_millis(1);

/// Records that this side polls the connection; `half` is that of the records from the peer. Two
/// threads may lose a change; the word still changes.
#[inline]
pub(super) fn note_poll(half: &Half) {
    let word = half.control_word(POLLS);
    let polls = word.load(Ordering::Relaxed).wrapping_add(1);
    word.store(polls, Ordering::Relaxed);
}

/// The initiator's view of the peer's polls.
#[derive(Debug)]
pub(super) struct Attention {
    /// That of the records to the peer.
    half: Half,
    polls: u64,
    looked_at: Option<Instant>,
    polled_at: Option<Instant>,
}

impl Attention {
    pub(super) fn new(half: Half) -> Self {
        Self {
            half,
            polls: 0,
            looked_at: None,
            polled_at: None,
        }
    }

    /// Returns true if a Write of this length is to be sent by the ring.
    pub(super) fn prefers_ring(&mut self, len: u32) -> bool {
        len <= SHORT && self.is_polled_at(Instant::now())
    }

    /// Looks at the word only if the last change is not recent, because each look moves its line
    /// from the peer's processor to this one and back.
    fn is_polled_at(&mut self, now: Instant) -> bool {
        let is_within = |since: Option<Instant>, limit| {
            since.is_some_and(|since| now.saturating_duration_since(since) < limit)
        };
        if is_within(self.polled_at, RECENT) {
            return true;
        }
        let polls = self.half.control_word(POLLS).load(Ordering::Relaxed);
        let has_changed = std::mem::replace(&mut self.polls, polls) != polls;
        let is_polled = has_changed && is_within(self.looked_at, PAUSE);
        self.looked_at = Some(now);
        if is_polled {
            self.polled_at = self.looked_at;
        }
        is_polled
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::segment::{Direction, RING_LEN_MIN, SharedSegment};
    use super::*;

    #[test]
    fn a_change_shows_polls_only_if_the_word_was_looked_at_shortly_before() {
        let (segment, _) = SharedSegment::create(RING_LEN_MIN).unwrap();
        let half = Arc::new(segment).half(Direction::FromCreator);
        let mut attention = Attention::new(half.clone());
        let begin = Instant::now();
        let mut polled = |at_us, polls| {
            (0..polls).for_each(|_| note_poll(&half));
            attention.is_polled_at(begin + Duration::from_micros(at_us))
        };
        assert!(!polled(0, 5), "the polls may be old");
        assert!(polled(500, 1));
        assert!(polled(510, 0), "the last change is recent");
        assert!(!polled(530, 0));
        assert!(polled(540, 1));
        assert!(!polled(2000, 9), "the polls may be old");
        assert!(polled(2100, 1));
    }

    #[test]
    fn a_long_write_does_not_prefer_the_ring() {
        let (segment, _) = SharedSegment::create(RING_LEN_MIN).unwrap();
        let half = Arc::new(segment).half(Direction::FromCreator);
        let mut attention = Attention::new(half);
        // A poll that stays recent for as long as the test runs.
        attention.polled_at = Some(Instant::now() + Duration::from_secs(3600));
        assert!(attention.prefers_ring(SHORT));
        assert!(!attention.prefers_ring(SHORT + 1));
    }
}
