//! The end of a connection, as verbs report it.
//!
//! The RNIC flushes all work when the connection ends. The requester of a reliable connection
//! notices that its peer has vanished by the next send, which it repeats for a while
//! ([`super::retries`]), and its receives stay posted until then. So the flushed work of a queue
//! pair is held until the retries have ended, another failure occurs, or the program itself leaves
//! the connected states.

use std::sync::Mutex;

use host::locks::lock;
use rnic::Completion;
use verbs_dl::types::ibv_wc;

/// The flushed work that the program must not see yet.
#[derive(Debug)]
pub(super) struct Held<S = Completion, R = ibv_wc> {
    pub(super) sends: Vec<S>,
    pub(super) receives: Vec<R>,
}

#[derive(Debug)]
enum State<S, R> {
    /// No request has failed.
    Intact(Held<S, R>),
    /// The queue pair is in the error state.
    Ended {
        /// True if sends were held. They are in the completion queue, before those of the RNIC.
        held_sends: bool,
    },
}

/// The result of [`Ending::on_flushed_send`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// The send is the first one that is held.
    First,
    Later,
    /// The program may see the completion now.
    No,
}

/// The flushed work of one queue pair.
#[derive(Debug)]
pub(super) struct Ending<S = Completion, R = ibv_wc>(Mutex<State<S, R>>);

impl<S, R> Default for Held<S, R> {
    fn default() -> Self {
        Self {
            sends: Vec::new(),
            receives: Vec::new(),
        }
    }
}

impl<S, R> Default for Ending<S, R> {
    fn default() -> Self {
        Self(Mutex::new(State::Intact(Held::default())))
    }
}

impl<S, R> Ending<S, R> {
    /// Called with the completion of a flushed receive. Returns the completion if the program may
    /// see it now.
    pub(super) fn on_flushed_receive(&self, completion: R) -> Option<R> {
        match &mut *lock(&self.0) {
            State::Intact(held) => {
                held.receives.push(completion);
                None
            }
            State::Ended { .. } => Some(completion),
        }
    }

    /// Called with the completion of a flushed send that the requester repeats.
    pub(super) fn on_flushed_send(&self, completion: S) -> Kept {
        match &mut *lock(&self.0) {
            State::Intact(held) => {
                held.sends.push(completion);
                match held.sends.len() {
                    1 => Kept::First,
                    _ => Kept::Later,
                }
            }
            State::Ended { .. } => Kept::No,
        }
    }

    /// True if a send is held.
    pub(super) fn holds_sends(&self) -> bool {
        matches!(&*lock(&self.0), State::Intact(held) if !held.sends.is_empty())
    }

    /// True if sends were held, so that the completion queue has them before those of the RNIC.
    pub(super) fn has_held_sends(&self) -> bool {
        matches!(&*lock(&self.0), State::Ended { held_sends: true })
    }

    /// Called when a request fails, or the program modifies the queue pair to the error state.
    /// Passes on the work that was held, by `release`. Returns false if the queue pair had ended
    /// before.
    pub(super) fn on_end(&self, release: impl FnOnce(Held<S, R>)) -> bool {
        let mut state = lock(&self.0);
        let State::Intact(held) = &mut *state else {
            return false;
        };
        let held = std::mem::take(held);
        *state = State::Ended {
            held_sends: !held.sends.is_empty(),
        };
        // Under the lock: a send that is flushed later follows those that were held.
        release(held);
        true
    }

    /// Called when the queue pair is reset.
    pub(super) fn on_reset(&self) {
        *lock(&self.0) = State::Intact(Held::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(ending: &Ending<u8, u8>) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut released = None;
        let is_end = ending.on_end(|held| released = Some((held.sends, held.receives)));
        assert_eq!(is_end, released.is_some());
        released
    }

    #[test]
    fn receives_are_held_until_the_end() {
        let ending = Ending::default();
        assert_eq!(ending.on_flushed_receive(1), None);
        assert_eq!(ending.on_flushed_receive(2), None);
        assert!(!ending.holds_sends());
        assert_eq!(end(&ending), Some((vec![], vec![1, 2])));
        assert_eq!(ending.on_flushed_receive(3), Some(3));
        assert_eq!(end(&ending), None, "the end is reported once");
        assert!(!ending.has_held_sends());
        ending.on_reset();
        assert_eq!(ending.on_flushed_receive(4), None);
    }

    #[test]
    fn sends_are_held_until_the_retries_have_ended() {
        let ending = Ending::default();
        assert_eq!(ending.on_flushed_send(1), Kept::First);
        assert_eq!(ending.on_flushed_receive(9), None);
        assert_eq!(ending.on_flushed_send(2), Kept::Later);
        assert!(ending.holds_sends());
        assert_eq!(end(&ending), Some((vec![1, 2], vec![9])));
        assert_eq!(ending.on_flushed_send(3), Kept::No);
        assert!(ending.has_held_sends() && !ending.holds_sends());
    }
}
