//! The polls of the peer, which each side shows in shared memory without a locked instruction: a
//! word that each poll changes, and the position up to which the side has taken records.
//!
//! # The choice between the ring and a direct copy for a short Write
//!
//! A peer that polls the connection has a short Write sooner from the ring: the initiator stores
//! two lines instead of making a system call. For any other peer the ring is wrong, because the
//! peer's engine would have to be woken. So the initiator uses the ring while it sees the word
//! change. The Write that follows a pause of [`PAUSE`] is copied directly, because the word does
//! not show when it has changed.
//!
//! # A peer that has stopped polling
//!
//! A side that polls has not requested doorbells. If its consumer then makes no more calls, a
//! record would wait for the tick of its engine. So a sender that polls checks at intervals whether
//! a record of its own waits although the peer has not polled for [`UNATTENDED`], and rings.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::segment::Half;

/// The offset of the word of the polls, after those of [`super::direct`].
const POLLS: usize = 1408;
/// The offset of the position, in the same line.
const TAKEN: usize = POLLS + 8;
/// The longest Write for which the ring is chosen. The kernel copies longer ones once, which is
/// faster than the two copies of the ring.
const SHORT: u32 = 4096;
/// The time after a change of the word for which the peer counts as polling. It must not be shorter
/// than the pause between two posts of a burst.
const RECENT: Duration = Duration::from_micros(20);
/// The longest time between two looks at the word after which a change of it shows that the peer
/// polls now.
const PAUSE: Duration = Duration::from_millis(1);
/// The time without a poll after which the engine of the peer is to take a record. A wake-up of the
/// engine takes about as long.
const UNATTENDED: Duration = Duration::from_micros(10);

/// Records that this side polls the connection; `half` is that of the records from the peer. Two
/// threads may lose a change; the word still changes.
#[inline]
pub(super) fn note_poll(half: &Half) {
    let word = half.control_word(POLLS);
    let polls = word.load(Ordering::Relaxed).wrapping_add(1);
    word.store(polls, Ordering::Relaxed);
}

/// Records the position up to which this side has taken records.
#[inline]
pub(super) fn note_taken(half: &Half, position: u64) {
    half.control_word(TAKEN).store(position, Ordering::Relaxed);
}

/// This side's view of the peer's polls.
#[derive(Debug)]
pub(super) struct Attention {
    /// That of the records to the peer.
    half: Half,
    polls: u64,
    /// The time of the first look that found this value of the word.
    unchanged_since: Option<Instant>,
    looked_at: Option<Instant>,
    polled_at: Option<Instant>,
}

impl Attention {
    pub(super) fn new(half: Half) -> Self {
        Self {
            half,
            polls: 0,
            unchanged_since: None,
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
        if is_within(now, self.polled_at, RECENT) {
            return true;
        }
        let was_looked_at = is_within(now, self.looked_at, PAUSE);
        let is_polled = self.has_changed(now) && was_looked_at;
        if is_polled {
            self.polled_at = Some(now);
        }
        is_polled
    }

    /// Returns true if the peer has taken all records before this position, or claims it.
    pub(super) fn has_taken(&self, position: u64) -> bool {
        self.half.control_word(TAKEN).load(Ordering::Relaxed) == position
    }

    /// Returns true if the peer has not polled for [`UNATTENDED`]. Must be called at intervals.
    pub(super) fn is_unattended_at(&mut self, now: Instant) -> bool {
        !self.has_changed(now) && !is_within(now, self.unchanged_since, UNATTENDED)
    }

    /// Looks at the word. Returns true if it has changed since the last look.
    fn has_changed(&mut self, now: Instant) -> bool {
        let polls = self.half.control_word(POLLS).load(Ordering::Relaxed);
        let has_changed = std::mem::replace(&mut self.polls, polls) != polls;
        if has_changed || self.unchanged_since.is_none() {
            self.unchanged_since = Some(now);
        }
        self.looked_at = Some(now);
        has_changed
    }
}

/// Returns true if `since` is less than `limit` ago.
fn is_within(now: Instant, since: Option<Instant>, limit: Duration) -> bool {
    since.is_some_and(|since| now.saturating_duration_since(since) < limit)
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
    fn a_peer_whose_word_does_not_change_for_some_time_is_unattended() {
        let (segment, _) = SharedSegment::create(RING_LEN_MIN).unwrap();
        let half = Arc::new(segment).half(Direction::FromCreator);
        let mut attention = Attention::new(half.clone());
        let begin = Instant::now();
        let mut unattended = |at_us, polls| {
            (0..polls).for_each(|_| note_poll(&half));
            attention.is_unattended_at(begin + Duration::from_micros(at_us))
        };
        assert!(!unattended(0, 0), "the first look");
        assert!(!unattended(9, 0));
        assert!(unattended(10, 0));
        assert!(unattended(5000, 0));
        assert!(!unattended(6000, 1));
        assert!(!unattended(6009, 0));
        assert!(unattended(6010, 0));
        assert!(attention.has_taken(0) && !attention.has_taken(64));
        note_taken(&half, 64);
        assert!(attention.has_taken(64) && !attention.has_taken(128));
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
