//! A socket that connects without blocking, while the stack that carries it is not known yet.

use std::os::fd::BorrowedFd;

/// A socket whose connection the event thread makes. The program's descriptor is one end of a pair,
/// which shows the readiness of a connecting TCP socket: none.
///
/// Once the attempt has succeeded, the table has another entry for the descriptor.
pub(crate) trait Undecided: Send + Sync {
    /// Waits for the end of the attempt, which has a time limit.
    fn settle(&self);

    /// Calls `work` with the TCP socket that keeps the options and reserves the port. The
    /// descriptor keeps its kernel object meanwhile. Returns false if the attempt has succeeded.
    /// Does not call `work` if the program has closed the number of the TCP socket.
    fn with_tcp(&self, work: &mut dyn FnMut(BorrowedFd<'_>)) -> bool;

    /// Returns the error of an attempt that has failed, and clears it; 0 if the error was returned
    /// before. `None`: the attempt has not failed.
    fn take_error(&self) -> Option<i32>;

    /// Returns false for a copy made by a fork.
    fn is_of_this_process(&self) -> bool;

    /// Ends the attempt, because the program closes the descriptor.
    fn cancel(&self);
}
