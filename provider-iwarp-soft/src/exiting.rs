//! The end of the process by `exit(3)`, or by a return from `main`.
//!
//! The kernel continues to send what a process has written to TCP after the process has ended. But
//! if the peer sends anything to the closed socket, or has sent bytes that were not read, the
//! kernel resets the connection and discards the bytes that are not sent yet. Every peer that runs
//! this implementation answers the first FPDU of an initiator, and offers shared memory to it. So
//! the exit waits until the peers' TCP has acknowledged every byte. Otherwise the last messages of
//! a program would be lost although their Sends have completed.
//!
//! Other ends of a process (`_exit`, a signal, `execve`) are not noticed.

use std::thread;
use std::time::{Duration, Instant};

use rnic::socket;

/// The time by which peers that acknowledge nothing may delay the end of the process.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(1);

/// The loader calls this function after the program's own exit handlers, which may still send. It
/// takes no lock but that of the table of sockets, because the other threads continue to run, and
/// one of them may never release its locks.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = await_acknowledgements;

extern "C" fn await_acknowledgements() {
    let deadline = Instant::now() + PATIENCE;
    while socket::has_unacknowledged() && Instant::now() < deadline {
        thread::sleep(PAUSE);
    }
}
