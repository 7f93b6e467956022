//! Offload protocols in shared objects, which the rule file names.
//!
//! # Design
//!
//! `ops_protocol.h` declares the table of C functions that an object returns. [`table`] loads the
//! object, copies the table once and makes every call, with the guard that sends the socket calls
//! of the object to the kernel. The other two files implement the traits of `ops` over it, by which
//! `local` and `sdp` register too, so the switch does not distinguish them.
//!
//! An object gives each of its connections and listeners a descriptor with the poll state of a
//! socket. So it needs neither a thread nor a call back into the library: the thread `ops-events`
//! watches a duplicate of the descriptor, and reports its edges to the watch of the stream.
//!
//! | Returned by an object | Check |
//! |---|---|
//! | the table | version, size, alignment of the pointer, name, no missing function |
//! | a result | a result that the header permits; anything else is `EPROTO` |
//! | a number of bytes | at most the room of the caller; a larger one aborts the connection |
//! | an object | not null |
//! | a descriptor | open; the duplicate is the library's own |
//! | an address | complete, of `AF_INET` or `AF_INET6` |
//!
//! An object is code in the process of the program, as the library itself is. It can overwrite
//! memory, and no check prevents that. So only the rule file names objects, by absolute paths.
//!
//! Over such a protocol there are no urgent bytes (`EOPNOTSUPP`).
//!
//! | File | Contents |
//! |---|---|
//! | [`protocol`] | protocol, listeners, connection attempts; changes of the network |
//! | [`stream`] | an established connection |
//! | [`table`] | the C table and its calls |

mod protocol;
mod stream;
mod table;

use std::path::Path;

pub(crate) use self::protocol::Foreign;
use self::table::Table;

/// Loads the protocol of an object. Returns it with the priority that the object wants.
///
/// # Errors
/// A text for the log.
pub(crate) fn load(path: &Path) -> Result<(Foreign, i32), String> {
    let table = Table::load(path)?;
    let priority = table.priority();
    Ok((Foreign::new(table), priority))
}
