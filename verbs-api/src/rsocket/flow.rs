//! How much each end may send.
//!
//! A receive buffer has two halves. The receiver names a half to the sender when the program has
//! read as many bytes, and the sender fills the halves in turn. So the data is a ring.

/// A part of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) at: u32,
    pub(super) len: u32,
}

/// The receiving direction.
#[derive(Debug)]
pub(super) struct Incoming {
    half: u32,
    /// The number of messages that the receive queue holds.
    queue: u16,
    /// The bytes that the program has not read, and the place of the first one.
    readable: u32,
    read_at: u32,
    /// The bytes that the peer may write.
    granted: u32,
    /// The bytes that the program has read and the peer may not write yet.
    free: u32,
    /// The next half that is granted.
    grant_at: u32,
    /// The number of messages received, and that number at the last update.
    received: u16,
    reported: u16,
}

/// An update for the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Update {
    /// The sender may send messages up to this number.
    pub(super) limit: u16,
    /// The half that the sender may fill.
    pub(super) half: Option<Part>,
}

/// The peer has sent more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Excess;

impl Incoming {
    /// The receiver of a buffer with halves of this length, of which the first is granted.
    pub(super) fn new(half: u32, queue: u16) -> Self {
        Self {
            half,
            queue,
            readable: 0,
            read_at: 0,
            granted: half,
            free: half,
            grant_at: half,
            received: 0,
            reported: 0,
        }
    }

    /// Called when the peer has written `len` bytes.
    pub(super) fn on_data(&mut self, len: u32) -> Result<(), Excess> {
        self.granted = self.granted.checked_sub(len).ok_or(Excess)?;
        self.readable += len;
        self.received = self.received.wrapping_add(1);
        Ok(())
    }

    pub(super) fn is_readable(&self) -> bool {
        self.readable > 0
    }

    /// The next bytes to read, at most `max`.
    pub(super) fn next(&self, max: u32) -> Part {
        let to_the_end = 2 * self.half - self.read_at;
        Part {
            at: self.read_at,
            len: self.readable.min(max).min(to_the_end),
        }
    }

    /// Called when the program has read `len` bytes, which [`next`](Self::next) has returned.
    pub(super) fn on_read(&mut self, len: u32) {
        self.readable -= len;
        self.read_at = (self.read_at + len) % (2 * self.half);
        self.free += len;
    }

    /// Returns an update if the sender needs one.
    pub(super) fn update(&mut self) -> Option<Update> {
        let unreported = self.received.wrapping_sub(self.reported);
        let has_half = self.free >= self.half;
        if !has_half && unreported < self.queue.div_ceil(2) {
            return None;
        }
        self.reported = self.received;
        let half = has_half.then(|| {
            let at = self.grant_at;
            self.free -= self.half;
            self.granted += self.half;
            self.grant_at = (at + self.half) % (2 * self.half);
            Part { at, len: self.half }
        });
        Some(Update {
            limit: self.received.wrapping_add(self.queue),
            half,
        })
    }
}

/// The sending direction: the ring of copied data, and the credits of the peer.
#[derive(Debug)]
pub(super) struct Outgoing {
    size: u32,
    /// The bytes of the ring that no Write uses, and the place of the first one.
    free: u32,
    write_at: u32,
    /// The number of messages sent, and the number up to which the peer has given credits.
    sent: u16,
    limit: u16,
}

impl Outgoing {
    pub(super) fn new(size: u32) -> Self {
        Self {
            size,
            free: size,
            write_at: 0,
            sent: 0,
            limit: 0,
        }
    }

    pub(super) fn on_credits(&mut self, limit: u16) {
        self.limit = limit;
    }

    pub(super) fn has_credit(&self) -> bool {
        self.sent != self.limit
    }

    pub(super) fn has_room(&self) -> bool {
        self.free > 0
    }

    /// Called when a message was sent.
    pub(super) fn on_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Takes at most `max` bytes of the ring; `None` if it is full.
    pub(super) fn take(&mut self, max: u32) -> Option<Part> {
        let len = max.min(self.free).min(self.size - self.write_at);
        if len == 0 {
            return None;
        }
        let at = self.write_at;
        self.write_at = (at + len) % self.size;
        self.free -= len;
        Some(Part { at, len })
    }

    /// Called when a Write has completed. Writes complete in the order of their data.
    pub(super) fn on_completed(&mut self, len: u32) {
        self.free = (self.free + len).min(self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_of_a_buffer_are_granted_in_turn() {
        let mut incoming = Incoming::new(100, 8);
        let second = Some(Part { at: 100, len: 100 });
        assert_eq!(
            incoming.update(),
            Some(Update {
                limit: 8,
                half: second
            })
        );
        assert_eq!(incoming.update(), None);
        incoming.on_data(60).unwrap();
        incoming.on_data(90).unwrap();
        assert_eq!(incoming.next(1000), Part { at: 0, len: 150 });
        incoming.on_read(90);
        assert_eq!(incoming.update(), None, "no half is free");
        incoming.on_read(10);
        let first = Some(Part { at: 0, len: 100 });
        assert_eq!(
            incoming.update(),
            Some(Update {
                limit: 10,
                half: first
            })
        );
        incoming.on_data(150).unwrap();
        assert_eq!(incoming.next(1000), Part { at: 100, len: 100 });
        incoming.on_read(100);
        assert_eq!(incoming.next(7), Part { at: 0, len: 7 });
    }

    #[test]
    fn a_peer_that_writes_more_than_it_may_is_noticed() {
        let mut incoming = Incoming::new(100, 8);
        assert_eq!(incoming.on_data(101), Err(Excess));
        incoming.on_data(100).unwrap();
        assert_eq!(incoming.on_data(1), Err(Excess));
        assert_eq!(incoming.on_data(u32::MAX), Err(Excess));
    }

    #[test]
    fn short_messages_are_credited_before_the_queue_is_empty() {
        let mut incoming = Incoming::new(100, 8);
        incoming.update();
        for _ in 0..3 {
            incoming.on_data(1).unwrap();
            assert_eq!(incoming.update(), None);
        }
        incoming.on_data(1).unwrap();
        assert_eq!(
            incoming.update(),
            Some(Update {
                limit: 12,
                half: None
            })
        );
    }

    #[test]
    fn the_ring_of_a_sender_is_used_in_order() {
        let mut outgoing = Outgoing::new(100);
        assert!(!outgoing.has_credit());
        outgoing.on_credits(1);
        assert!(outgoing.has_credit());
        outgoing.on_sent();
        assert!(!outgoing.has_credit());
        assert_eq!(outgoing.take(60), Some(Part { at: 0, len: 60 }));
        assert_eq!(outgoing.take(60), Some(Part { at: 60, len: 40 }));
        assert_eq!(outgoing.take(1), None);
        outgoing.on_completed(60);
        assert_eq!(outgoing.take(70), Some(Part { at: 0, len: 60 }));
    }

    #[test]
    fn credits_count_past_the_largest_number() {
        let mut outgoing = Outgoing::new(100);
        outgoing.on_credits(u16::MAX);
        (0..u16::MAX).for_each(|_| outgoing.on_sent());
        assert!(!outgoing.has_credit());
        outgoing.on_credits(4);
        assert!(outgoing.has_credit());
    }
}
