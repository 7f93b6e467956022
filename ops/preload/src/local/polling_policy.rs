//! Decides which waits of a thread poll first. Makes no system calls.
//!
//! A poll costs the thread's share of a processor. On a busy machine the poll takes that share from
//! the peer, or from the thread's own next wake-up. A `sched_yield` there lasts a whole time slice
//! of another thread, some milliseconds. So the thread skips some waits after a poll that found
//! nothing, and pauses for some time after a poll during which another thread ran. Both become
//! longer as long as polls find nothing.

use std::time::Duration;

/// The largest number of consecutive waits without a poll after polls that found nothing.
const SKIPPED_MAX: u32 = 64;

/// The first pause after another thread has run during a poll.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause. A poll that another thread interrupts costs some milliseconds, so such polls
/// cost less than a hundredth of the time.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The number of polls that find the event between two interruptions after which the next pause is
/// [`PAUSE_MIN`] again: each such poll saves a wake-up.
const FOUND_ENOUGH: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polled {
    /// The awaited event occurred.
    Found,
    /// The time to poll has passed without the event.
    Nothing,
    /// Another thread ran on the processor.
    Interrupted,
}

/// The state of a thread.
///
/// ```text
///            Nothing                          Interrupted
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
    state: State,
    /// The number of waits to skip after the next poll that finds nothing.
    skipped: u32,
    /// The length of the last pause.
    pause: Duration,
    /// The end of the last pause.
    resumed_at: Duration,
    /// The number of polls since the last interruption that have found the event.
    found: u32,
}

impl PollingPolicy {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Polls,
            skipped: 1,
            pause: Duration::ZERO,
            resumed_at: Duration::ZERO,
            found: 0,
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
            Polled::Found => {
                self.state = State::Polls;
                self.skipped = 1;
                self.found = self.found.saturating_add(1);
            }
            Polled::Nothing => {
                self.state = State::Skips(self.skipped);
                self.skipped = (2 * self.skipped).min(SKIPPED_MAX);
            }
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
            ..PollingPolicy::new()
        }
    }

    #[test]
    fn every_event_in_every_state() {
        use State::{Pauses, Polls, Skips};
        type Event = fn(&mut PollingPolicy) -> bool;
        let now = ms(100);
        let events: [Event; 4] = [
            |policy| policy.on_wait(|| ms(100)),
            |policy| {
                policy.on_polled(Polled::Found, ms(100));
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
            (Polls, [(Polls, true), (Polls, false), (Skips(1), false)]),
            (
                Skips(1),
                [(Polls, false), (Polls, false), (Skips(1), false)],
            ),
            (
                Skips(3),
                [(Skips(2), false), (Polls, false), (Skips(1), false)],
            ),
            (
                Pauses(now),
                [(Polls, true), (Polls, false), (Skips(1), false)],
            ),
            (
                Pauses(later),
                [(Pauses(later), false), (Polls, false), (Skips(1), false)],
            ),
        ] {
            let after = after.into_iter().chain([(Pauses(later), false)]);
            for (event, (expected, polls)) in events.into_iter().zip(after) {
                let mut policy = policy(state);
                assert_eq!(event(&mut policy), polls, "{state:?}");
                assert_eq!(policy.state, expected, "{state:?}");
            }
        }
    }

    /// Counts the polls among these waits, which all end with this result.
    fn polls_among(waits: usize, every: Duration, result: Polled) -> usize {
        let mut policy = PollingPolicy::new();
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
        assert_eq!(polls_among(10_000, every, Polled::Found), 10_000);
        let empty = polls_among(10_000, every, Polled::Nothing);
        assert!((100..200).contains(&empty), "{empty}");
        // In the 100 s of these waits, the pauses grow to a second.
        let interrupted = polls_among(100_000, ms(1), Polled::Interrupted);
        assert!((90..120).contains(&interrupted), "{interrupted}");
    }

    #[test]
    fn one_poll_that_finds_the_event_ends_the_skipping() {
        let mut policy = PollingPolicy::new();
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
        let mut policy = PollingPolicy::new();
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
