//! The rules by which posted requests are held back so that they are sent together.

/// The number of posts that are not held back after the engine had to send once. The number
/// grows with each further time in a row.
const PENALTY: u32 = 16;
const PENALTY_FACTOR_LOG: u32 = 2;
const PENALTY_STEPS: u32 = 4;

/// The decision to hold requests back so that they are sent together.
///
/// A held request is sent by the next post or poll. Either is expected if the consumer has
/// completions to take, if the request follows another one without a poll between, or if it is the
/// first after a poll and several were posted before that poll. Only a consumer that polls is
/// trusted, because the engine takes over a tick after the last poll. A consumer that made the
/// engine send held requests is not trusted again for a while.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    /// True while posted requests are held back.
    pub(crate) is_held: bool,
    /// True if the last pass sent held requests and deferred the receive to the next pass.
    pub(crate) must_receive: bool,
    /// The number of polls of the adapter when the consumer posted last.
    polls: u32,
    /// Posts since that poll, and between the two polls before it.
    posts: u32,
    posts_before: u32,
    /// Payload bytes posted since the last transmission.
    pub(crate) bytes: u32,
    /// The number of posts that are still sent at once because trust was lost.
    pub(crate) penalty: u32,
    /// The number of times in a row that the engine had to send.
    losses: u32,
}

impl Burst {
    /// Counts payload bytes of a posted request.
    pub(crate) fn add(&mut self, bytes: u32) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Returns true if the next pass must send or receive.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_held || self.must_receive
    }

    /// Called before a pass. Returns true if the pass sends the held requests and receives nothing:
    /// the consumer polls for the completions of requests that it has just posted, and sending
    /// alone produces these. Data that the socket has queued is received in the next poll.
    pub(crate) fn defers_receive(&mut self) -> bool {
        let defers = self.is_held && !self.must_receive;
        self.must_receive |= defers;
        defers
    }

    /// Called before everything that was posted is sent.
    pub(crate) fn on_transmit(&mut self) {
        self.is_held = false;
        self.bytes = 0;
    }

    /// Called when a request is posted after this number of polls. Returns true if it is likely to
    /// be one of several without a poll between.
    pub(crate) fn on_post(&mut self, polls: u32) -> bool {
        if polls == self.polls {
            self.posts = self.posts.saturating_add(1);
        } else {
            (self.posts_before, self.posts) = (self.posts, 1);
            self.polls = polls;
        }
        self.posts > 1 || self.posts_before > 1
    }

    /// Called before a drive, which sends the held requests. Returns false if there are none. After
    /// a drive by the engine, the next posts are sent at once. Their number quadruples each further
    /// time in a row, so that requests are seldom held back for a consumer that never polls.
    pub(crate) fn on_release(&mut self, by_engine: bool) -> bool {
        if !self.is_held {
            return false;
        }
        self.losses = if by_engine {
            (self.losses + 1).min(PENALTY_STEPS)
        } else {
            0
        };
        if by_engine {
            self.penalty = PENALTY << (PENALTY_FACTOR_LOG * (self.losses - 1));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_expected_after_a_burst() {
        let mut burst = Burst::default();
        let mut post = |polls| burst.on_post(polls);
        assert!(!post(1), "the first of all");
        assert!(!post(2), "one before it");
        assert!(!post(3));
        assert!(post(3), "a second without a poll");
        assert!(post(5), "the first after two");
        assert!(!post(6), "the first after one");
    }
}
