//! A consumer's thread that sleeps in a `poll` of its own and not in [`Rnic::wait`](super::Rnic).

/// While it lives, a thread of the consumer sleeps on the descriptors that
/// [`Rnic::begin_sleep`](super::Rnic::begin_sleep) returned, and the RNIC leaves their connections
/// to that thread. Dropped when the thread has woken, or when another one knows that it has.
pub trait ExternalSleep: Send {
    /// Drives these connections. *May call up.*
    fn work(&self);
}
