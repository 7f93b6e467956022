//! The times for which written bytes have to wait, by reason.

/// An obstacle at which the sending direction stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
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
}

impl Stalls {
    /// The sending direction has stopped at `now`, or has not stopped. `before` is the obstacle at
    /// which it stopped last.
    pub(super) fn on_obstacle(&mut self, before: Option<Obstacle>, now: Option<Obstacle>) {
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
                };
                assert_eq!(stalls, expected, "{before:?}, {now:?}");
            }
        }
    }
}
