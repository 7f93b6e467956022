//! The options of TCP and IP that this library keeps for a socket of `AF_UNIX`, which has none.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::tcp::inherited::Value;

/// The options of TCP and IP that differ from those of a new socket.
#[derive(Debug, Default, Clone)]
pub(crate) struct Kept(Vec<(c_int, c_int, Value)>);

impl Kept {
    pub(crate) fn get(&self, level: c_int, name: c_int) -> Option<Value> {
        let mut all = self.0.iter();
        all.find(|it| (it.0, it.1) == (level, name)).map(|it| it.2)
    }

    /// Sets the options on a TCP socket.
    pub(crate) fn apply(&self, tcp: BorrowedFd<'_>) {
        for (level, name, value) in &self.0 {
            value.set(tcp.as_raw_fd(), *level, *name);
        }
    }

    pub(crate) fn set(&mut self, level: c_int, name: c_int, value: Value) {
        self.0.retain(|it| (it.0, it.1) != (level, name));
        self.0.push((level, name, value));
    }
}
