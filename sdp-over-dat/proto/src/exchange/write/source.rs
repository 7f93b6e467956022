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
    owes_ack: bool,
    left: Left,
}

/// The last time that this end left pipelined mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Never, or the peer has acknowledged the ModeChange.
    Long,
    /// The ModeChange has this number, and the count was `counted` when it was sent. Advertisements
    /// that do not acknowledge it are retired by the peer.
    At { seq: Seq, counted: u32 },
}

/// The meaning of a SinkAvail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The memory may be written.
    Valid,
    /// A message with data has used it up.
    Stale,
    /// The peer retires it when it receives the ModeChange.
    Retired,
}

impl Exchange {
    /// The peer has advertised nothing.
    pub(crate) const fn new() -> Self {
        Self {
            held: VecDeque::new(),
            counted: 0,
            owes_ack: false,
            left: Left::Long,
        }
    }

    /// SinkAvail was received, acknowledging messages up to `ack`. At most `crossing` messages with
    /// data may have crossed it.
    pub(crate) fn on_offered(
        &mut self,
        advert: SinkAvail,
        ack: Seq,
        crossing: usize,
    ) -> Result<Verdict, ProtocolError> {
        let then = match &mut self.left {
            Left::At { seq, counted } if !ack.covers(*seq) => Some(counted),
            Left::At { .. } | Left::Long => None,
        };
        let is_late = then.is_some();
        let found = advert.non_discards;
        let expected = then.as_ref().map_or(self.counted, |counted| **counted);
        let crossed = expected.wrapping_sub(found);
        if crossed as usize > crossing {
            return Err(ProtocolError::NonDiscards { found, expected });
        }
        if crossed > 0 {
            if let Some(counted) = then {
                *counted = counted.wrapping_sub(1);
            }
            self.counted = self.counted.wrapping_sub(1);
            return Ok(Verdict::Stale);
        }
        if is_late {
            return Ok(Verdict::Retired);
        }
        self.held.push_back(advert);
        Ok(Verdict::Valid)
    }

    /// A message with data is being sent. It uses up the oldest advertisement.
    pub(crate) fn on_data_sent(&mut self) {
        if self.held.pop_front().is_none() {
            self.counted = self.counted.wrapping_add(1);
        }
    }

    /// The oldest advertisement is being written and reported.
    pub(crate) fn on_written(&mut self) -> Option<SinkAvail> {
        self.held.pop_front()
    }

    /// SinkAvailCancel was received.
    pub(crate) fn on_cancel(&mut self) {
        self.owes_ack |= !self.held.is_empty();
        self.held.clear();
    }

    /// SinkCancelAck is being sent. Returns true if it is due.
    pub(crate) fn on_ack_sent(&mut self) -> bool {
        std::mem::take(&mut self.owes_ack)
    }

    /// This end leaves pipelined mode with message `seq`.
    pub(crate) fn on_left(&mut self, seq: Seq) {
        self.left = Left::At {
            seq,
            counted: self.counted,
        };
    }

    /// A message was received that acknowledges messages up to `ack`.
    pub(crate) fn on_acknowledged(&mut self, ack: Seq) {
        if let Left::At { seq, .. } = self.left
            && ack.covers(seq)
        {
            self.left = Left::Long;
        }
    }

    /// This end has ended its stream, which retires all advertisements.
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

    /// True if pipelined mode may be entered: no advertisement of an earlier time can be received.
    pub(crate) const fn may_enter(&self) -> bool {
        matches!(self.left, Left::Long)
    }

    /// True if a SinkAvail that acknowledges messages up to `ack` was sent before the peer knew
    /// that this end had left pipelined mode.
    pub(crate) const fn is_late(&self, ack: Seq) -> bool {
        matches!(self.left, Left::At { seq, .. } if !ack.covers(seq))
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

    fn exchange(held: &[u32], owes_ack: bool, left: Left) -> Exchange {
        Exchange {
            held: held.iter().map(|stag| advert(*stag, 4)).collect(),
            counted: 4,
            owes_ack,
            left,
        }
    }

    const AT: Left = Left::At {
        seq: Seq(9),
        counted: 4,
    };

    fn states() -> [Exchange; 6] {
        [
            exchange(&[], false, Left::Long),
            exchange(&[1], false, Left::Long),
            exchange(&[1, 2], false, Left::Long),
            exchange(&[], true, Left::Long),
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
            for ack in [8, 9] {
                let is_late = before.left == AT && ack == 8;
                assert_eq!(before.is_late(Seq(ack)), is_late);
                let mut same = before.clone();
                let verdict = same.on_offered(advert(3, 4), Seq(ack), 1);
                let expected = if is_late { Retired } else { Valid };
                assert_eq!(verdict, Ok(expected), "{before:?}");
                let held = with(&before, |it| it.held.push_back(advert(3, 4)));
                assert_eq!(same, if is_late { before.clone() } else { held });

                let mut stale = before.clone();
                let verdict = stale.on_offered(advert(3, 3), Seq(ack), 1);
                assert_eq!(verdict, Ok(Stale), "{before:?}");
                let expected = with(&before, |it| {
                    it.counted = 3;
                    if let Left::At { counted, .. } = &mut it.left
                        && is_late
                    {
                        *counted = 3;
                    }
                });
                assert_eq!(stale, expected);

                for lie in [2, 5, 0x8000_0000] {
                    let mut after = before.clone();
                    let verdict = after.on_offered(advert(3, lie), Seq(ack), 1);
                    assert!(verdict.is_err(), "{lie} in {before:?}");
                    assert_eq!(after, before);
                }
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
                it.owes_ack |= !it.held.is_empty();
                it.held.clear();
            }),
            (
                "ack sent",
                |it| {
                    it.on_ack_sent();
                },
                |it| it.owes_ack = false,
            ),
            ("left", |it| it.on_left(Seq(9)), |it| it.left = AT),
            (
                "acknowledged",
                |it| it.on_acknowledged(Seq(9)),
                |it| {
                    it.left = Left::Long;
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
    fn what_each_state_owes_and_permits() {
        let rooms = states().map(|state| state.room());
        assert_eq!(rooms, [None, Some(100), Some(100), None, None, None]);
        let lens = states().map(|state| state.len());
        assert_eq!(lens, [0, 1, 2, 0, 0, 0]);
        let may_enter = states().map(|state| state.may_enter());
        assert_eq!(may_enter, [true, true, true, true, false, false]);
        let owes = states().map(|mut state| state.on_ack_sent());
        assert_eq!(owes, [false, false, false, true, false, true]);
    }
}
