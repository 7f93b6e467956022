//! The end of a connection, as verbs report it.
//!
//! The RNIC flushes all work when the connection ends. The requester of a reliable connection
//! notices that its peer has vanished by the next send, and its receives stay posted until then.
//! So the flushed receives of a queue pair are held until a send fails, or the program itself
//! leaves the connected states.

use std::sync::Mutex;

use host::locks::lock;
use verbs_dl::types::ibv_wc;

#[derive(Debug)]
enum State<C> {
    /// No request has failed. Holds the completions of receives that the RNIC has flushed.
    Intact(Vec<C>),
    /// The queue pair is in the error state: every completion is passed on.
    Ended,
}

/// The flushed receives of one queue pair.
#[derive(Debug)]
pub(super) struct Ending<C = ibv_wc>(Mutex<State<C>>);

impl<C> Default for Ending<C> {
    fn default() -> Self {
        Self(Mutex::new(State::Intact(Vec::new())))
    }
}

impl<C> Ending<C> {
    /// Called with the completion of a flushed receive. Returns the completion if the program may
    /// see it now.
    pub(super) fn on_flushed_receive(&self, completion: C) -> Option<C> {
        match &mut *lock(&self.0) {
            State::Intact(held) => {
                held.push(completion);
                None
            }
            State::Ended => Some(completion),
        }
    }

    /// Called when a request fails, or the program modifies the queue pair to the error state.
    /// Returns the completions that were held, or `None` if the queue pair had ended before.
    pub(super) fn on_end(&self) -> Option<Vec<C>> {
        match std::mem::replace(&mut *lock(&self.0), State::Ended) {
            State::Intact(held) => Some(held),
            State::Ended => None,
        }
    }

    /// Called when the queue pair is reset.
    pub(super) fn on_reset(&self) {
        *lock(&self.0) = State::Intact(Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_are_held_until_the_end() {
        let ending = Ending::default();
        assert_eq!(ending.on_flushed_receive(1), None);
        assert_eq!(ending.on_flushed_receive(2), None);
        assert_eq!(ending.on_end(), Some(vec![1, 2]));
        assert_eq!(ending.on_flushed_receive(3), Some(3));
        assert_eq!(ending.on_end(), None, "the end is reported once");
        ending.on_reset();
        assert_eq!(ending.on_flushed_receive(4), None);
    }
}
