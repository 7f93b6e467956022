//! The `wr_id` that a work request carries through the device.

/// The number of successive device queue pairs at one place that a ticket can distinguish. When the
/// number of a queue pair is used again, that queue pair is no longer in use.
pub(crate) const EPOCHS: u16 = 1 << EPOCH_BITS;

/// The largest number of queue pairs on one completion queue.
pub(crate) const PLACES: usize = 1 << PLACE_BITS;

/// The number of shared receive queues that a ticket can distinguish.
pub(crate) const SHARED_QUEUES: u32 = 1 << (EPOCH_BITS + PLACE_BITS);

const EPOCH_BITS: u32 = 8;
const PLACE_BITS: u32 = 22;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Recv,
    /// A shared receive queue. The completion names the queue pair by its number, and the ticket
    /// names the queue ([`Ticket::of_shared`]).
    SharedRecv,
}

/// The kinds, indexed by their numbers.
const KINDS: [Kind; 3] = [Kind::Send, Kind::Recv, Kind::SharedRecv];

/// Identifies a work request when the device completes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) kind: Kind,
    pub(crate) epoch: u16,
    /// Index of the queue pair in the completion queue.
    pub(crate) place: u32,
    /// Number of the request in its queue.
    pub(crate) sequence: u32,
}

impl Ticket {
    /// The ticket of a receive in `slot` of the shared receive queue with number `queue`, which is
    /// below [`SHARED_QUEUES`].
    pub(crate) fn of_shared(queue: u32, slot: u32) -> Self {
        Self {
            kind: Kind::SharedRecv,
            epoch: (queue >> PLACE_BITS) as u16 & (EPOCHS - 1),
            place: queue & (PLACES as u32 - 1),
            sequence: slot,
        }
    }

    /// The number of the shared receive queue.
    pub(crate) fn shared_queue(self) -> u32 {
        u32::from(self.epoch) << PLACE_BITS | self.place
    }

    pub(crate) fn encode(self) -> u64 {
        (self.kind as u64) << 62
            | u64::from(self.epoch) << (32 + PLACE_BITS)
            | u64::from(self.place) << 32
            | u64::from(self.sequence)
    }

    /// Decodes a `wr_id`; `None` if its kind is not one of those above.
    pub(crate) fn decode(word: u64) -> Option<Self> {
        Some(Self {
            kind: *KINDS.get((word >> 62) as usize)?,
            epoch: (word >> (32 + PLACE_BITS)) as u16 & (EPOCHS - 1),
            place: (word >> 32) as u32 & (PLACES as u32 - 1),
            sequence: word as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_decoded_as_encoded() {
        for kind in KINDS {
            for (epoch, place, sequence) in [
                (0, 0, 0),
                (EPOCHS - 1, PLACES as u32 - 1, u32::MAX),
                (1, 2, 3),
            ] {
                let ticket = Ticket {
                    kind,
                    epoch,
                    place,
                    sequence,
                };
                assert_eq!(Ticket::decode(ticket.encode()), Some(ticket));
            }
        }
        assert_eq!(Ticket::decode(u64::MAX), None);
    }

    #[test]
    fn a_ticket_of_a_shared_queue_names_it() {
        for queue in [0, 1, PLACES as u32, SHARED_QUEUES - 1] {
            let ticket = Ticket::decode(Ticket::of_shared(queue, 7).encode()).unwrap();
            let fields = (ticket.kind, ticket.shared_queue(), ticket.sequence);
            assert_eq!(fields, (Kind::SharedRecv, queue, 7));
        }
    }
}
