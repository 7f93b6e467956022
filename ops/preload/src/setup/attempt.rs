//! The progress of a connect without blocking.
//!
//! ```text
//! Trying ── a protocol connects, or the number is lost ──> Over
//!   │ └──── the switch chooses TCP ──> Tcp ── connected, or unwatched ──> Over
//!   └────── neither, TCP is not permitted ──> Failed ── close, or another connect ──> Over
//! ```
//! A close leads from `Trying` to `Over` as well. In `Tcp` it closes the TCP socket itself.

/// The state, as the diagram shows it. The `on_*` methods are the only writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    Trying,
    /// TCP connects the socket, which has its number again.
    Tcp,
    /// The attempt has failed with this error, which is 0 once the program has received it.
    Failed(i32),
    Over,
}

impl Attempt {
    /// Called when TCP begins to connect the socket.
    pub(super) fn on_tcp(&mut self) {
        if *self == Self::Trying {
            *self = Self::Tcp;
        }
    }

    /// Called when neither a protocol nor TCP can connect.
    pub(super) fn on_failure(&mut self, errno: i32) {
        if *self == Self::Trying {
            *self = Self::Failed(errno);
        }
    }

    /// Called when the event thread has nothing more to do: a protocol or TCP has connected, or the
    /// program has another file at the number.
    pub(super) fn on_done(&mut self) {
        if self.is_served() {
            *self = Self::Over;
        }
    }

    /// Called when the program asks for the error. Returns it if the attempt has failed.
    pub(super) fn on_error_read(&mut self) -> Option<i32> {
        match self {
            Self::Failed(error) => Some(std::mem::take(error)),
            Self::Trying | Self::Tcp | Self::Over => None,
        }
    }

    /// Called when the program closes the descriptor. Returns true if the attempt is to be
    /// released.
    pub(super) fn on_close(&mut self) -> bool {
        let is_released = matches!(self, Self::Trying | Self::Failed(_));
        if is_released {
            *self = Self::Over;
        }
        is_released
    }

    /// True while the event thread watches the descriptors of the attempt.
    pub(super) fn is_served(self) -> bool {
        matches!(self, Self::Trying | Self::Tcp)
    }
}

#[cfg(test)]
mod tests {
    use super::Attempt::{self, Failed, Over, Tcp, Trying};

    #[test]
    fn every_event_in_every_state() {
        type Row = (&'static str, fn(&mut Attempt) -> i32, [(Attempt, i32); 5]);
        let before = [Trying, Tcp, Failed(7), Failed(0), Over];
        let same = before.map(|state| (state, 0));
        let [_, tcp, seven, zero, over] = same;
        // An event without a result returns 0, and an absent error is -1.
        macro_rules! rows {
            ($($name:literal: $event:expr => $after:expr;)+) => { [$(($name, $event, $after)),+] };
        }
        let rows: [Row; 5] = rows! {
            "tcp": |it| { it.on_tcp(); 0 } => [tcp, tcp, seven, zero, over];
            "failure": |it| { it.on_failure(7); 0 } => [seven, tcp, seven, zero, over];
            "done": |it| { it.on_done(); 0 } => [over, over, seven, zero, over];
            "error read": |it| it.on_error_read().unwrap_or(-1)
                => [(Trying, -1), (Tcp, -1), (Failed(0), 7), zero, (Over, -1)];
            "close": |it| it.on_close().into() => [(Over, 1), tcp, (Over, 1), (Over, 1), over];
        };
        for (name, event, after) in rows {
            for (before, (expected, returned)) in before.into_iter().zip(after) {
                let mut state = before;
                assert_eq!(event(&mut state), returned, "{name} in {before:?}");
                assert_eq!(state, expected, "{name} in {before:?}");
            }
        }
        assert_eq!(
            before.map(Attempt::is_served),
            [true, true, false, false, false]
        );
    }
}
