//! The exchange at the source, which writes the memory.

use std::collections::VecDeque;

use crate::{ProtocolError, Seq, wire::SinkAvail};

/// The peer's advertisements, and the count of messages with data.
///
/// The `on_*` methods are the only writers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// Valid advertisements, oldest first.
    held: VecDeque<SinkAvail>,
    /// The messages with data that used up no advertisement.
    counted: u32,
    /// True if SinkCancelAck is due.
    is_ack_due: bool,
    /// The number of the ModeChange with which this end left pipelined mode last, until the peer
    /// acknowledges it. SinkAvails may cross it.
    left_at: Option<Seq>,
}

/// The meaning of a SinkAvail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The memory may be written.
    Valid,
    /// A message with data has used it up.
    Stale,
}

impl Exchange {
    /// The peer has advertised nothing.
    pub(crate) const fn new() -> Self {
        Self {
            held: VecDeque::new(),
            counted: 0,
            is_ack_due: false,
            left_at: None,
        }
    }

    /// Called when SinkAvail was received. At most `crossing` messages with data may have crossed
    /// it.
    pub(crate) fn on_offered(
        &mut self,
        advert: SinkAvail,
        crossing: usize,
    ) -> Result<Verdict, ProtocolError> {
        let (found, expected) = (advert.non_discards, self.counted);
        let crossed = expected.wrapping_sub(found);
        if crossed as usize > crossing {
            return Err(ProtocolError::NonDiscards { found, expected });
        }
        if crossed > 0 {
            self.counted = self.counted.wrapping_sub(1);
            return Ok(Verdict::Stale);
        }
        self.held.push_back(advert);
        Ok(Verdict::Valid)
    }

    /// Called when a message with data is being sent. It uses up the oldest advertisement.
    pub(crate) fn on_data_sent(&mut self) {
        if self.held.pop_front().is_none() {
            self.counted = self.counted.wrapping_add(1);
        }
    }

    /// Called when the oldest advertisement is being written and reported.
    pub(crate) fn on_written(&mut self) -> Option<SinkAvail> {
        self.held.pop_front()
    }

    /// Called when SinkAvailCancel was received.
    pub(crate) fn on_cancel(&mut self) {
        self.is_ack_due |= !self.held.is_empty();
        self.held.clear();
    }

    /// Called when SinkCancelAck may be sent. Returns true if it is due.
    pub(crate) fn on_ack_sent(&mut self) -> bool {
        std::mem::take(&mut self.is_ack_due)
    }

    /// Called when this end leaves pipelined mode with message `seq`.
    pub(crate) const fn on_left(&mut self, seq: Seq) {
        self.left_at = Some(seq);
    }

    /// Called when a message was received that acknowledges messages up to `ack`.
    pub(crate) fn on_acknowledged(&mut self, ack: Seq) {
        self.left_at = self.left_at.filter(|seq| !ack.covers(*seq));
    }

    /// Called when this end has ended its stream, which retires all advertisements.
    pub(crate) fn on_fin_sent(&mut self) {
        self.held.clear();
    }

    /// The length of the oldest advertisement, in bytes.
    pub(crate) fn room(&self) -> Option<u32> {
        self.held.front().map(|advert| advert.len)
    }

    /// The number of advertisements.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// True if a SinkAvail may have crossed the ModeChange with which this end left pipelined mode.
    pub(crate) const fn may_be_late(&self) -> bool {
        self.left_at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::{Verdict::*, *};

    const fn advert(stag: u32, non_discards: u32) -> SinkAvail {
        SinkAvail {
            len: 100,
            stag,
            address: 0x1000,
            non_discards,
        }
    }

    fn exchange(held: &[u32], is_ack_due: bool, left_at: Option<Seq>) -> Exchange {
        Exchange {
            held: held.iter().map(|stag| advert(*stag, 4)).collect(),
            counted: 4,
            is_ack_due,
            left_at,
        }
    }

    const AT: Option<Seq> = Some(Seq(9));

    fn states() -> [Exchange; 6] {
        [
            exchange(&[], false, None),
            exchange(&[1], false, None),
            exchange(&[1, 2], false, None),
            exchange(&[], true, None),
            exchange(&[], false, AT),
            exchange(&[], true, AT),
        ]
    }

    fn with(before: &Exchange, change: impl FnOnce(&mut Exchange)) -> Exchange {
        let mut after = before.clone();
        change(&mut after);
        after
    }

    #[test]
    fn every_advertisement_in_every_state() {
        for before in states() {
            let mut valid = before.clone();
            assert_eq!(valid.on_offered(advert(3, 4), 1), Ok(Valid));
            let held = with(&before, |it| it.held.push_back(advert(3, 4)));
            assert_eq!(valid, held);

            let mut stale = before.clone();
            assert_eq!(stale.on_offered(advert(3, 3), 1), Ok(Stale));
            assert_eq!(stale, with(&before, |it| it.counted = 3));

            for invalid in [2, 5, 0x8000_0000] {
                let mut after = before.clone();
                let verdict = after.on_offered(advert(3, invalid), 1);
                assert!(verdict.is_err(), "{invalid} in {before:?}");
                assert_eq!(after, before);
            }
        }
    }

    #[test]
    fn every_other_event_in_every_state() {
        type On = fn(&mut Exchange);
        let rows: [(&str, On, On); 7] = [
            ("data sent", Exchange::on_data_sent, |it| {
                if it.held.pop_front().is_none() {
                    it.counted = 5;
                }
            }),
            (
                "written",
                |it| {
                    it.on_written();
                },
                |it| {
                    it.held.pop_front();
                },
            ),
            ("cancel", Exchange::on_cancel, |it| {
                it.is_ack_due |= !it.held.is_empty();
                it.held.clear();
            }),
            (
                "ack sent",
                |it| {
                    it.on_ack_sent();
                },
                |it| it.is_ack_due = false,
            ),
            ("left", |it| it.on_left(Seq(9)), |it| it.left_at = AT),
            (
                "acknowledged",
                |it| it.on_acknowledged(Seq(9)),
                |it| {
                    it.left_at = None;
                },
            ),
            ("fin sent", Exchange::on_fin_sent, |it| it.held.clear()),
        ];
        for (name, on, expected) in rows {
            for before in states() {
                let after = with(&before, on);
                assert_eq!(after, with(&before, expected), "{name} in {before:?}");
            }
        }
        for before in states() {
            let early = with(&before, |it| it.on_acknowledged(Seq(8)));
            assert_eq!(early, before, "an acknowledgement of earlier messages");
        }
    }

    #[test]
    fn each_state_requires_and_permits_its_messages() {
        let rooms = states().map(|state| state.room());
        assert_eq!(rooms, [None, Some(100), Some(100), None, None, None]);
        let lens = states().map(|state| state.len());
        assert_eq!(lens, [0, 1, 2, 0, 0, 0]);
        let may_be_late = states().map(|state| state.may_be_late());
        assert_eq!(may_be_late, [false, false, false, false, true, true]);
        let owes = states().map(|mut state| state.on_ack_sent());
        assert_eq!(owes, [false, false, false, true, false, true]);
    }
}
