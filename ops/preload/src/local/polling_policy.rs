//! Decides which waits of a thread poll first. Makes no system calls.
//!
//! A poll costs the thread's share of a processor. On a busy machine the poll takes that share from
//! the peer, or from the thread's own next wake-up. A `sched_yield` there lasts a whole time slice
//! of another thread, some milliseconds. So the thread skips some waits after a poll that found
//! nothing, and pauses for some time after a poll during which another thread ran. Both become
//! longer as long as polls find nothing.
//!
//! An [eager](Mode::Eager) thread polls from its first wait on. A [thrifty](Mode::Thrifty) thread
//! tries one wait in many, and continues only while polls are shorter than the work of a sleep and
//! a wake-up: then they save the processor's time too.

use std::time::Duration;

/// The number of polls in a row that find the event late, after which a thrifty thread skips waits.
/// If the peer's thread begins to poll within this time, the polls of both become short.
const LATE_MAX: u32 = 16;

/// The first pause after another thread has run during a poll.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause. A poll that another thread interrupts costs some milliseconds, so such polls
/// cost less than a hundredth of the time.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The number of polls that find the event between two interruptions after which the next pause is
/// [`PAUSE_MIN`] again: each such poll saves a wake-up.
const FOUND_ENOUGH: u32 = 16;

/// How readily a thread polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Polls wherever an event may be found, as `opsrun --spin` asks.
    Eager,
    /// Polls while that takes less of the processor's time than to sleep.
    Thrifty,
}

impl Mode {
    /// The number of waits that are skipped before the first poll of a thrifty thread, and after
    /// the first poll that finds nothing.
    fn skipped_min(self) -> u32 {
        match self {
            Self::Eager => 1,
            Self::Thrifty => 16,
        }
    }

    /// The largest number of consecutive waits without a poll after polls that found nothing.
    fn skipped_max(self) -> u32 {
        match self {
            Self::Eager => 64,
            Self::Thrifty => 1024,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polled {
    /// The awaited event occurred before a sleep and a wake-up would have been worthwhile.
    Found,
    /// The awaited event occurred after that time.
    FoundLate,
    /// The time to poll has passed without the event.
    Nothing,
    /// Another thread ran on the processor.
    Interrupted,
}

/// The state of a thread.
///
/// ```text
///     Nothing, FoundLate too often            Interrupted
///   Polls ─────────────> Skips      Polls ─────────────> Pauses
///         <─────────────                  <─────────────
///          enough waits                    the end of the pause
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The next wait polls.
    Polls,
    /// This number of waits, at least 1, does not poll.
    Skips(u32),
    /// No wait polls until this time.
    Pauses(Duration),
}

/// The policy of a thread. Times are durations since any fixed moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PollingPolicy {
    mode: Mode,
    state: State,
    /// The number of waits to skip after the next poll that finds nothing.
    skipped: u32,
    /// The length of the last pause.
    pause: Duration,
    /// The end of the last pause.
    resumed_at: Duration,
    /// The number of polls since the last interruption that have found the event.
    found: u32,
    /// The number of polls in a row that have found the event late.
    late: u32,
}

impl PollingPolicy {
    pub(super) fn new(mode: Mode) -> Self {
        let skipped = mode.skipped_min();
        Self {
            mode,
            state: match mode {
                Mode::Eager => State::Polls,
                Mode::Thrifty => State::Skips(skipped),
            },
            skipped,
            pause: Duration::ZERO,
            resumed_at: Duration::ZERO,
            found: 0,
            late: 0,
        }
    }

    /// Called when a call begins that may wait. Returns true if the call must poll first. `now` is
    /// called only during a pause.
    pub(super) fn on_wait(&mut self, now: impl FnOnce() -> Duration) -> bool {
        match self.state {
            State::Polls => {}
            State::Skips(left) if left > 1 => self.state = State::Skips(left - 1),
            State::Skips(_) => {
                self.state = State::Polls;
                return false;
            }
            State::Pauses(until) if now() >= until => self.state = State::Polls,
            State::Pauses(_) => {}
        }
        self.state == State::Polls
    }

    /// Called when a poll has ended.
    pub(super) fn on_polled(&mut self, polled: Polled, now: Duration) {
        match polled {
            Polled::FoundLate if self.mode == Mode::Thrifty => self.on_found_late(),
            Polled::Found | Polled::FoundLate => {
                self.state = State::Polls;
                self.skipped = self.mode.skipped_min();
                self.found = self.found.saturating_add(1);
                self.late = 0;
            }
            Polled::Nothing => self.skip(),
            Polled::Interrupted => {
                // The processor was still busy if the interruption follows soon after a pause.
                let is_soon = now.saturating_sub(self.resumed_at) < self.pause;
                self.pause = if is_soon && self.found < FOUND_ENOUGH {
                    (4 * self.pause).min(PAUSE_MAX)
                } else {
                    PAUSE_MIN
                };
                self.found = 0;
                self.resumed_at = now + self.pause;
                self.state = State::Pauses(self.resumed_at);
            }
        }
    }

    fn on_found_late(&mut self) {
        self.late += 1;
        if self.late < LATE_MAX {
            self.state = State::Polls;
        } else {
            self.skip();
        }
    }

    fn skip(&mut self) {
        self.state = State::Skips(self.skipped);
        self.skipped = (2 * self.skipped).min(self.mode.skipped_max());
        self.late = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn policy(state: State) -> PollingPolicy {
        PollingPolicy {
            state,
            ..PollingPolicy::new(Mode::Eager)
        }
    }

    #[test]
    fn every_event_in_every_state() {
        use State::{Pauses, Polls, Skips};
        type Event = fn(&mut PollingPolicy) -> bool;
        let now = ms(100);
        let events: [Event; 5] = [
            |policy| policy.on_wait(|| ms(100)),
            |policy| {
                policy.on_polled(Polled::Found, ms(100));
                false
            },
            |policy| {
                policy.on_polled(Polled::FoundLate, ms(100));
                false
            },
            |policy| {
                policy.on_polled(Polled::Nothing, ms(100));
                false
            },
            |policy| {
                policy.on_polled(Polled::Interrupted, ms(100));
                false
            },
        ];
        let later = now + PAUSE_MIN;
        for (state, after) in [
            (Polls, (Polls, true)),
            (Skips(1), (Polls, false)),
            (Skips(3), (Skips(2), false)),
            (Pauses(now), (Polls, true)),
            (Pauses(later), (Pauses(later), false)),
        ] {
            let polled = [Polls, Polls, Skips(1), Pauses(later)].map(|state| (state, false));
            let after = [after].into_iter().chain(polled);
            for (event, (expected, polls)) in events.into_iter().zip(after) {
                let mut policy = policy(state);
                assert_eq!(event(&mut policy), polls, "{state:?}");
                assert_eq!(policy.state, expected, "{state:?}");
            }
        }
    }

    /// Counts the polls among these waits, which all end with this result.
    fn polls_among(mode: Mode, waits: usize, every: Duration, result: Polled) -> usize {
        let mut policy = PollingPolicy::new(mode);
        let mut now = Duration::ZERO;
        let mut polls = 0;
        for _ in 0..waits {
            now += every;
            if policy.on_wait(|| now) {
                polls += 1;
                policy.on_polled(result, now);
            }
        }
        polls
    }

    #[test]
    fn polls_that_find_the_event_continue_and_all_others_become_rare() {
        let every = Duration::from_micros(10);
        let eager = |result| polls_among(Mode::Eager, 10_000, every, result);
        assert_eq!(eager(Polled::Found), 10_000);
        assert_eq!(eager(Polled::FoundLate), 10_000);
        let empty = eager(Polled::Nothing);
        assert!((100..200).contains(&empty), "{empty}");
        let thrifty = |result| polls_among(Mode::Thrifty, 10_000, every, result);
        assert_eq!(thrifty(Polled::Found), 10_000 - 16);
        let late = thrifty(Polled::FoundLate);
        assert!((200..300).contains(&late), "{late}");
        let empty = thrifty(Polled::Nothing);
        assert!((10..20).contains(&empty), "{empty}");
        for mode in [Mode::Eager, Mode::Thrifty] {
            // In the 100 s of these waits, the pauses grow to a second.
            let interrupted = polls_among(mode, 100_000, ms(1), Polled::Interrupted);
            assert!((90..120).contains(&interrupted), "{interrupted}");
        }
    }

    #[test]
    fn a_thrifty_thread_continues_if_the_event_is_early_once() {
        let mut policy = PollingPolicy::new(Mode::Thrifty);
        for _ in 0..10 {
            for _ in 1..LATE_MAX {
                policy.on_polled(Polled::FoundLate, ms(1));
            }
            assert!(policy.on_wait(|| ms(1)));
            policy.on_polled(Polled::Found, ms(1));
        }
        for _ in 0..LATE_MAX {
            policy.on_polled(Polled::FoundLate, ms(1));
        }
        assert!(!policy.on_wait(|| ms(1)));
    }

    #[test]
    fn one_poll_that_finds_the_event_ends_the_skipping() {
        let mut policy = PollingPolicy::new(Mode::Eager);
        for _ in 0..20 {
            policy.on_polled(Polled::Nothing, ms(1));
        }
        policy.on_polled(Polled::Found, ms(1));
        assert!(policy.on_wait(|| ms(1)));
        policy.on_polled(Polled::Nothing, ms(1));
        assert!(!policy.on_wait(|| ms(1)));
        assert!(policy.on_wait(|| ms(1)));
    }

    #[test]
    fn an_interruption_after_a_long_time_or_many_polls_with_a_result_begins_with_a_short_pause() {
        let mut policy = PollingPolicy::new(Mode::Eager);
        let mut now = ms(0);
        for _ in 0..20 {
            policy.on_polled(Polled::Interrupted, now);
            now = policy.resumed_at;
            // A single poll with a result does not shorten the pause.
            assert!(policy.on_wait(|| now));
            policy.on_polled(Polled::Found, now);
        }
        assert_eq!(policy.pause, PAUSE_MAX);
        let mut with_results = policy;
        policy.on_polled(Polled::Interrupted, now + PAUSE_MAX);
        assert_eq!(policy.pause, PAUSE_MIN);
        for _ in 0..FOUND_ENOUGH {
            with_results.on_polled(Polled::Found, now);
        }
        with_results.on_polled(Polled::Interrupted, now);
        assert_eq!(with_results.pause, PAUSE_MIN);
    }
}
