//! A sleep that the caller sleeps itself.

/// What an RNIC waits for in the place of its own threads, while a thread of the consumer sleeps on
/// it. Dropped when that thread has woken, or another one knows that it sleeps no more.
pub trait ExternalSleep: Send {
    /// Does the work that may have come up. *May call up.*
    fn work(&self);
}
