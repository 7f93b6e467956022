//! The counters of a socket.

/// The counters of a socket and the present sizes of its buffers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Messages of every kind that were sent.
    pub messages_sent: u64,
    /// Messages of every kind that were received.
    pub messages_received: u64,
    /// Bytes of the stream that the user has written.
    pub bytes_sent: u64,
    /// The part of `bytes_sent` that was copied into the socket.
    pub bytes_copied: u64,
    /// The part of `bytes_sent` that Sends carried from the socket's ring.
    pub bytes_ring: u64,
    /// The part of `bytes_sent` that Sends carried from the writer's registered memory.
    pub bytes_registered: u64,
    /// The part of `bytes_sent` that the peer has transferred by RDMA Read.
    pub bytes_read_by_peer: u64,
    /// Bytes of the stream that were received.
    pub bytes_received: u64,
    /// The part of `bytes_received` that was transferred by RDMA Read.
    pub bytes_read: u64,
    /// The part of `bytes_received` that the peer has transferred by RDMA Write.
    pub bytes_written_by_peer: u64,
    /// The part of `bytes_received` that was placed directly in a reader's memory.
    pub bytes_direct: u64,
    /// RDMA Reads of the peer's memory.
    pub reads: u64,
    /// The part of `bytes_sent` that was transferred by RDMA Write.
    pub bytes_written: u64,
    /// Advertisements of writers' memory to the peer.
    pub sources: u64,
    /// The part of `sources` of which the peer has read bytes.
    pub sources_used: u64,
    /// The part of `sources` that this end has cancelled.
    pub sources_cancelled: u64,
    /// Advertisements of readers' memory to the peer.
    pub sinks: u64,
    /// The part of `sinks` into which the peer has written. Nothing is written if a message
    /// was received first or the read ended.
    pub sinks_used: u64,
    /// The part of `sinks` that this end has cancelled.
    pub sinks_cancelled: u64,
    /// The times for which written bytes had to wait, by reason.
    pub stalls: Stalls,
    /// The number of messages that the peer has room for now.
    pub credits: u32,
    /// The present number of receive buffers.
    pub receive_buffers: usize,
    /// The present size of the send ring, in bytes.
    pub send_ring: usize,
}

/// An obstacle at which the sending direction stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The peer has no free receive buffers for data.
    Credits,
    /// The largest number of Sends is in progress.
    Sends,
    /// The peer has not read the advertised memory.
    Reader,
}

/// The number of times for which written bytes had to wait, by reason. Each counter is raised when
/// a wait begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stalls {
    /// The peer had announced no receive buffers for data.
    pub credits: u64,
    /// [`crate::Config::sends_max`] Sends were in progress.
    pub sends: u64,
    /// A write found no room in the send ring.
    pub room: u64,
    /// The peer had not read the memory that was advertised to it.
    pub reader: u64,
    /// A writer waited for a reader of the peer to advertise its memory.
    pub sink: u64,
}

impl Stalls {
    /// Counts the obstacle `now` at which the sending direction has stopped, unless it has stopped
    /// at the same one before.
    pub(crate) fn on_obstacle(&mut self, before: Option<Obstacle>, now: Option<Obstacle>) {
        let Some(obstacle) = now.filter(|_| now != before) else {
            return;
        };
        match obstacle {
            Obstacle::Credits => self.credits += 1,
            Obstacle::Sends => self.sends += 1,
            Obstacle::Reader => self.reader += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Obstacle::{Credits, Reader, Sends},
        *,
    };

    #[test]
    fn every_obstacle_after_every_other_is_counted_when_the_wait_begins() {
        let all = [None, Some(Credits), Some(Sends), Some(Reader)];
        for before in all {
            for now in all {
                let mut stalls = Stalls::default();
                stalls.on_obstacle(before, now);
                let is_new = |of| u64::from(now == Some(of) && now != before);
                let expected = Stalls {
                    credits: is_new(Credits),
                    sends: is_new(Sends),
                    room: 0,
                    reader: is_new(Reader),
                    sink: 0,
                };
                assert_eq!(stalls, expected, "{before:?}, {now:?}");
            }
        }
    }
}
