//! The permitted changes of the mode of a half.
//!
//! | Change | Requested by |
//! |---|---|
//! | combined to buffered | the source |
//! | buffered to combined | the sink |
//! | combined to pipelined, and back | the source |
//!
//! A change takes effect in message order and is not acknowledged, so it is either legal or a
//! violation.

use crate::{
    ProtocolError,
    wire::{Mode, ModeChange, TargetHalf},
};

/// The mode in which both halves start.
pub(crate) const START: Mode = Mode::Combined;

/// True if the peer may make this change of our half. `Receive`: the peer is the source of that
/// half. `Send`: the peer is its sink.
pub(crate) const fn may_change(half: TargetHalf, from: Mode, to: Mode) -> bool {
    matches!(
        (half, from, to),
        (TargetHalf::Receive, Mode::Combined, Mode::Buffered)
            | (TargetHalf::Receive, Mode::Combined, Mode::Pipelined)
            | (TargetHalf::Receive, Mode::Pipelined, Mode::Combined)
            | (TargetHalf::Send, Mode::Buffered, Mode::Combined)
    )
}

/// Our half's mode after the peer's `change`; `from` is its mode before.
pub(crate) const fn changed(from: Mode, change: ModeChange) -> Result<Mode, ProtocolError> {
    if may_change(change.half, from, change.mode) {
        return Ok(change.mode);
    }
    Err(ProtocolError::ModeChange {
        half: change.half,
        from,
        to: change.mode,
    })
}

/// True if an advertisement has the form that the mode requires. `len` bytes are advertised, and
/// `inline` of them were received with the message.
pub(crate) const fn admits_source(mode: Mode, len: u32, inline: u32) -> bool {
    match mode {
        Mode::Buffered => false,
        Mode::Combined => inline > 0 && len > inline,
        Mode::Pipelined => inline == 0 && len > 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Mode; 3] = [Mode::Buffered, Mode::Combined, Mode::Pipelined];

    #[test]
    fn every_change_of_every_half() {
        use TargetHalf::{Receive, Send};
        // Rows are from, columns are to, both in the order of MODES.
        let tables = [
            (
                Receive,
                [
                    [false, false, false],
                    [true, false, true],
                    [false, true, false],
                ],
            ),
            (
                Send,
                [
                    [false, true, false],
                    [false, false, false],
                    [false, false, false],
                ],
            ),
        ];
        for (half, table) in tables {
            for (from, row) in MODES.into_iter().zip(table) {
                for (mode, legal) in MODES.into_iter().zip(row) {
                    let changed = changed(from, ModeChange { half, mode });
                    assert_eq!(changed.is_ok(), legal, "{half:?}: {from:?} to {mode:?}");
                }
            }
        }
    }

    #[test]
    fn every_form_of_advertisement_in_every_mode() {
        let forms = [(0, 0), (10, 0), (10, 1), (10, 10), (10, 11)];
        let admitted = |mode| forms.map(|(len, inline)| admits_source(mode, len, inline));
        assert_eq!(admitted(Mode::Buffered), [false; 5]);
        assert_eq!(admitted(Mode::Combined), [false, false, true, false, false]);
        assert_eq!(
            admitted(Mode::Pipelined),
            [false, true, false, false, false]
        );
    }
}
