//! The exchange at the sink, whose memory is written.

use std::collections::VecDeque;

use crate::{ProtocolError, SinkAdvert, exchange::Cancel, wire::Mid};

/// The advertisements of this end's memory, and the count of messages with data.
///
/// The `on_*` methods are the only writers. A cancel ends with the last advertisement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// Advertisements for which no message was sent.
    unsent: VecDeque<SinkAdvert>,
    /// Advertisements that were sent to the peer, oldest first.
    offered: VecDeque<SinkAdvert>,
    cancel: Cancel,
    /// NonDiscards: the messages with data that used up no advertisement.
    kept: u32,
}

impl Exchange {
    /// No advertisement is outstanding.
    pub(crate) const fn new() -> Self {
        Self {
            unsent: VecDeque::new(),
            offered: VecDeque::new(),
            cancel: Cancel::None,
            kept: 0,
        }
    }

    /// Called when the engine advertises memory.
    pub(crate) fn on_added(&mut self, advert: SinkAdvert) {
        self.unsent.push_back(advert);
    }

    /// Called when SinkAvail may be sent. Returns its memory and NonDiscards, if there is memory to
    /// advertise.
    pub(crate) fn on_sent(&mut self) -> Option<(SinkAdvert, u32)> {
        let advert = self.unsent.pop_front()?;
        self.offered.push_back(advert);
        Some((advert, self.kept))
    }

    /// Called when the engine wants all memory back. Returns the memory that is free at once.
    pub(crate) fn on_cancel(&mut self) -> VecDeque<SinkAdvert> {
        if !self.offered.is_empty() && self.cancel == Cancel::None {
            self.cancel = Cancel::Due;
        }
        std::mem::take(&mut self.unsent)
    }

    /// Called when SinkAvailCancel was sent.
    pub(crate) fn on_cancel_sent(&mut self) {
        if self.cancel == Cancel::Due {
            self.cancel = Cancel::Sent;
        }
    }

    /// Called when RdmaWrCompl was received. Returns the memory, to which the peer no longer
    /// writes.
    pub(crate) fn on_written(&mut self, bytes: u32) -> Result<SinkAdvert, ProtocolError> {
        let len = self.offered.front().map_or(0, |advert| advert.len);
        if bytes == 0 || bytes > len {
            return Err(ProtocolError::WriteReport {
                reported: bytes,
                outstanding: len,
            });
        }
        let written = self.retire_oldest();
        written.ok_or(ProtocolError::Unexpected(Mid::RdmaWrCompl))
    }

    /// Called when a message with data was received. Returns the memory that it has used up.
    pub(crate) fn on_data(&mut self) -> Option<SinkAdvert> {
        let used = self.retire_oldest();
        if used.is_none() {
            self.kept = self.kept.wrapping_add(1);
        }
        used
    }

    /// Called when the next bytes of the stream are not placed in the memory whose advertisements
    /// have not been sent yet. Returns that memory.
    pub(crate) fn on_overtaken(&mut self) -> VecDeque<SinkAdvert> {
        std::mem::take(&mut self.unsent)
    }

    /// Called when SinkCancelAck was received. Returns the memory, to which the peer does not
    /// write.
    pub(crate) fn on_cancel_ack(&mut self) -> Result<VecDeque<SinkAdvert>, ProtocolError> {
        if self.cancel != Cancel::Sent {
            return Err(ProtocolError::Unexpected(Mid::SinkCancelAck));
        }
        self.cancel = Cancel::None;
        Ok(std::mem::take(&mut self.offered))
    }

    /// Called when the source has ended its stream. Returns all memory.
    pub(crate) fn on_retired(&mut self) -> VecDeque<SinkAdvert> {
        let mut all = std::mem::take(&mut self.offered);
        all.append(&mut self.unsent);
        self.cancel = Cancel::None;
        all
    }

    fn retire_oldest(&mut self) -> Option<SinkAdvert> {
        let oldest = self.offered.pop_front();
        if self.offered.is_empty() {
            self.cancel = Cancel::None;
        }
        oldest
    }

    /// True if SinkAvailCancel is due.
    pub(crate) const fn is_cancel_due(&self) -> bool {
        matches!(self.cancel, Cancel::Due)
    }

    /// True if SinkAvail is due.
    pub(crate) fn is_advert_due(&self) -> bool {
        !self.unsent.is_empty() && self.may_add()
    }

    /// True while no cancel forbids another advertisement.
    pub(crate) const fn may_add(&self) -> bool {
        matches!(self.cancel, Cancel::None)
    }

    /// The number of advertisements that the peer may hold.
    pub(crate) fn outstanding(&self) -> usize {
        self.offered.len()
    }

    /// The number of advertisements, sent or not.
    pub(crate) fn len(&self) -> usize {
        self.offered.len() + self.unsent.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AdvertId;

    const fn advert(id: u64) -> SinkAdvert {
        SinkAdvert {
            id: AdvertId(id),
            len: 100,
            stag: 7,
            address: 0x1000,
        }
    }

    fn exchange(offered: &[u64], unsent: &[u64], cancel: Cancel, kept: u32) -> Exchange {
        let adverts = |ids: &[u64]| ids.iter().map(|id| advert(*id)).collect();
        Exchange {
            unsent: adverts(unsent),
            offered: adverts(offered),
            cancel,
            kept,
        }
    }

    fn states() -> [Exchange; 8] {
        use Cancel::{Due, None, Sent};
        [
            exchange(&[], &[], None, 4),
            exchange(&[], &[3], None, 4),
            exchange(&[1], &[], None, 4),
            exchange(&[1, 2], &[3], None, 4),
            exchange(&[1], &[], Due, 4),
            exchange(&[1, 2], &[], Due, 4),
            exchange(&[1], &[], Sent, 4),
            exchange(&[1, 2], &[], Sent, 4),
        ]
    }

    /// The identifiers of the memory that an event returns, and the state after it. `None` for a
    /// violation, which leaves the state as it was.
    type After = (Option<Vec<u64>>, Exchange);
    type On = fn(&mut Exchange) -> Result<Vec<u64>, ProtocolError>;

    fn ids(adverts: impl IntoIterator<Item = SinkAdvert>) -> Vec<u64> {
        adverts.into_iter().map(|advert| advert.id.0).collect()
    }

    fn check(name: &str, on: On, after: [After; 8]) {
        for (before, (returned, expected)) in states().into_iter().zip(after) {
            let mut exchange = before.clone();
            assert_eq!(on(&mut exchange).ok(), returned, "{name} in {before:?}");
            assert_eq!(exchange, expected, "{name} in {before:?}");
        }
    }

    macro_rules! checks {
        ($($name:literal: $on:expr => $after:expr;)+) => { $(check($name, $on, $after);)+ };
    }

    #[test]
    fn every_event_of_this_end_in_every_state() {
        use Cancel::{Due, None, Sent};
        let s = states();
        let at = |index: usize| s[index].clone();
        let nothing = || Some(vec![]);
        checks! {
            "cancel": |e| Ok(ids(e.on_cancel()))
                => [(nothing(), at(0)), (Some(vec![3]), at(0)), (nothing(), at(4)),
                    (Some(vec![3]), at(5)), (nothing(), at(4)), (nothing(), at(5)),
                    (nothing(), at(6)), (nothing(), at(7))];
            "cancel sent": |e| { e.on_cancel_sent(); Ok(vec![]) }
                => [(nothing(), at(0)), (nothing(), at(1)), (nothing(), at(2)), (nothing(), at(3)),
                    (nothing(), at(6)), (nothing(), at(7)), (nothing(), at(6)), (nothing(), at(7))];
            "sent": |e| Ok(ids(e.on_sent().map(|(advert, _)| advert)))
                => [(nothing(), at(0)), (Some(vec![3]), exchange(&[3], &[], None, 4)),
                    (nothing(), at(2)), (Some(vec![3]), exchange(&[1, 2, 3], &[], None, 4)),
                    (nothing(), at(4)), (nothing(), at(5)), (nothing(), at(6)), (nothing(), at(7))];
        }
        assert!(
            states()
                .map(|state| state.is_cancel_due())
                .into_iter()
                .eq([false, false, false, false, true, true, false, false])
        );
        assert!(
            states()
                .map(|state| state.is_advert_due())
                .into_iter()
                .eq([false, true, false, true, false, false, false, false])
        );
        for state in states() {
            assert_eq!(state.may_add(), !matches!(state.cancel, Due | Sent));
        }
    }

    #[test]
    fn every_message_of_the_peer_in_every_state() {
        use Cancel::{Due, None, Sent};
        let s = states();
        let at = |index: usize| s[index].clone();
        checks! {
            "60 written": |e| e.on_written(60).map(|one| ids([one]))
                => [(Option::None, at(0)), (Option::None, at(1)), (Some(vec![1]), at(0)),
                    (Some(vec![1]), exchange(&[2], &[3], None, 4)), (Some(vec![1]), at(0)),
                    (Some(vec![1]), exchange(&[2], &[], Due, 4)), (Some(vec![1]), at(0)),
                    (Some(vec![1]), exchange(&[2], &[], Sent, 4))];
        }
        for (name, on) in [
            (
                "none written",
                (|e| e.on_written(0).map(|one| ids([one]))) as On,
            ),
            ("too much written", |e| {
                e.on_written(101).map(|one| ids([one]))
            }),
        ] {
            check(name, on, states().map(|state| (Option::None, state)));
        }
        checks! {
            "data": |e| Ok(ids(e.on_data()))
                => [(Some(vec![]), exchange(&[], &[], None, 5)),
                    (Some(vec![]), exchange(&[], &[3], None, 5)), (Some(vec![1]), at(0)),
                    (Some(vec![1]), exchange(&[2], &[3], None, 4)), (Some(vec![1]), at(0)),
                    (Some(vec![1]), exchange(&[2], &[], Due, 4)), (Some(vec![1]), at(0)),
                    (Some(vec![1]), exchange(&[2], &[], Sent, 4))];
            "cancelled": |e| e.on_cancel_ack().map(ids)
                => [(Option::None, at(0)), (Option::None, at(1)), (Option::None, at(2)),
                    (Option::None, at(3)), (Option::None, at(4)), (Option::None, at(5)),
                    (Some(vec![1]), at(0)), (Some(vec![1, 2]), at(0))];
        }
        for state in states() {
            let (mut retired, mut overtaken) = (state.clone(), state.clone());
            assert_eq!(retired.on_retired().len(), state.len());
            assert_eq!(retired, at(0));
            assert_eq!(overtaken.on_overtaken(), state.unsent);
            assert_eq!(overtaken.len(), state.outstanding());
        }
    }
}
