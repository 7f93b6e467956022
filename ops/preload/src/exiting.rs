//! The end of the process: what the program has written leaves before it.
//!
//! A kernel goes on sending what a dead process wrote to its TCP sockets. Ours are part of the
//! process, so its end waits until their peers have the bytes.

use std::time::Duration;

use crate::hooks::numbers;
use crate::{guard, process, switch, table};

/// How long a peer that takes nothing may delay the end of a process. What it has not taken by then
/// is lost, which a kernel's TCP would keep for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Run by the loader when the program has returned or called `exit`, after its own handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = finish;

/// Hands over what is left. The program's sockets are closed by it.
pub(crate) extern "C" fn finish() {
    let Some(switch) = switch::made() else {
        return;
    };
    if !process::owns_table() {
        return;
    }
    let _inside = guard::enter();
    for fd in table::within(0, usize::MAX) {
        if let Some(entry) = table::remove(fd) {
            numbers::release(entry);
        }
    }
    for protocol in switch.registry().protocols() {
        protocol.settle(PATIENCE);
    }
}
