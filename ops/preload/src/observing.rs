//! The records of this process's sockets, which `opsrun ss` reads.
//!
//! The stream of an offloaded connection gets a wrapper, which counts bytes and records the state.
//! A socket that stays on TCP is recorded once, with the reason; its record is removed when its
//! last descriptor in this process is closed.

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use host::locks::IgnorePoison as _;
use ops::observe::{
    Carrier, Counter, Description, Kind, Meter, Native, NativeRecord, PageRoot, ReasonText, Record,
    State, Writer,
};
use ops::{Half, MemoryDecision, OffloadStream, Readiness, Watch};
use rustix::io::Errno;

use crate::process::guard;

static WRITER: Writer = Writer::new();
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Lists a socket until the returned record is dropped.
fn list(description: &Description, state: State) -> Record {
    writer().list(description, state)
}

fn writer() -> &'static Writer {
    if !BEGUN.load(Ordering::Acquire) {
        begin();
    }
    &WRITER
}

/// Returns the record with a number of [`NativeRecord::into_number`]. Each number may be used once.
pub(crate) fn native_record(number: u32) -> Option<NativeRecord> {
    NativeRecord::from_number(&WRITER, number)
}

/// Several threads may call this at once. No thread waits for another thread, which the child of a
/// fork may lack.
fn begin() {
    WRITER.begin(PageRoot::choose(host::environment::variable));
    if !BEGUN.swap(true, Ordering::AcqRel) {
        host::forks::around(None, None, Some(in_child));
        // SAFETY: the handler may run at the exit: it removes a file.
        unsafe { libc::atexit(at_exit) };
    }
}

extern "C" fn in_child() {
    reset_after_fork();
}

/// Detaches the child of a fork from its parent's page.
pub(crate) fn reset_after_fork() {
    WRITER.forked();
}

extern "C" fn at_exit() {
    let _inside = guard::enter();
    WRITER.end();
}

/// Lists a connection, and returns a stream that counts its bytes.
pub(crate) fn connection(stream: Box<dyn OffloadStream>, protocol: &str) -> Box<dyn OffloadStream> {
    let (local, remote) = (stream.local(), stream.peer());
    let description = Description {
        kind: Kind::Connection,
        local,
        remote,
        carrier: offload(protocol, stream.device()),
    };
    let record = Arc::new(list(&description, State::Established));
    stream.measure(Arc::clone(&record) as Arc<dyn Meter>);
    Box::new(Observed {
        stream,
        record,
        state: Mutex::new(State::Established),
    })
}

/// Lists a connection within the host, whose bytes the kernel carries.
pub(crate) fn local(local: SocketAddr, remote: SocketAddr, protocol: &str) -> Record {
    let description = Description {
        kind: Kind::Connection,
        local,
        remote,
        carrier: offload(protocol, ""),
    };
    list(&description, State::Native)
}

/// Lists a listener that protocols offer.
pub(crate) fn listener(local: SocketAddr, protocol: &str, device: &str) -> Record {
    let description = Description {
        kind: Kind::Listener,
        local,
        remote: (Ipv4Addr::UNSPECIFIED, 0).into(),
        carrier: offload(protocol, device),
    };
    list(&description, State::Listening)
}

fn offload(protocol: &str, device: &str) -> Carrier {
    Carrier::Offload {
        protocol: protocol.to_owned(),
        device: device.to_owned(),
    }
}

/// Lists a listener that stays on TCP alone, with the reason.
pub(crate) fn native_listener(local: SocketAddr, reason: &ReasonText) -> Option<NativeRecord> {
    list_native(&Native {
        kind: Kind::Listener,
        local,
        remote: (Ipv4Addr::UNSPECIFIED, 0).into(),
        reason,
    })
}

/// Lists a connection over TCP, with the reason. `None`: there is no room. Makes no system call and
/// takes no lock once the process has its page.
pub(crate) fn native(remote: SocketAddr, reason: &ReasonText) -> Option<NativeRecord> {
    list_native(&Native {
        kind: Kind::Connection,
        local: (Ipv4Addr::UNSPECIFIED, 0).into(),
        remote,
        reason,
    })
}

fn list_native(socket: &Native<'_>) -> Option<NativeRecord> {
    let _inside = (!WRITER.has_page()).then(guard::enter);
    writer().list_native(socket)
}

/// A stream whose connection is listed.
#[derive(Debug)]
struct Observed {
    stream: Box<dyn OffloadStream>,
    record: Arc<Record>,
    /// The state in `record`. The lock orders the updates of the record.
    state: Mutex<State>,
}

/// The end of a direction, or of the whole connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Local,
    Peer,
    Broken,
}

/// Returns the state of a connection in state `before` after an end.
fn after(before: State, end: End) -> State {
    match (before, end) {
        (State::Established, End::Local) => State::LocalEnded,
        (State::Established, End::Peer) => State::PeerEnded,
        (State::PeerEnded, End::Local) | (State::LocalEnded, End::Peer) => State::Ended,
        (_, End::Broken) => State::Broken,
        (before, End::Local | End::Peer) => before,
    }
}

impl Observed {
    /// Updates the listed state after an end.
    fn record_end(&self, end: End) {
        let mut state = self.state.lock().ignore_poison();
        let next = after(*state, end);
        if next != *state {
            *state = next;
            self.record.set_state(next);
        }
    }

    fn record_received(
        &self,
        received: Result<usize, Errno>,
        has_room: bool,
        peek: bool,
    ) -> Result<usize, Errno> {
        let count = received.map_err(|error| self.record_failure(error))?;
        if count == 0 && has_room {
            self.record_end(End::Peer);
        }
        if !peek {
            self.record.count(Counter::Received, count);
        }
        Ok(count)
    }

    fn record_failure(&self, error: Errno) -> Errno {
        if matches!(error, Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT) {
            self.record_end(End::Broken);
        }
        error
    }
}

impl OffloadStream for Observed {
    fn local(&self) -> SocketAddr {
        self.stream.local()
    }

    fn peer(&self) -> SocketAddr {
        self.stream.peer()
    }

    fn device(&self) -> &str {
        self.stream.device()
    }

    fn receive(&self, into: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        let received = self.stream.receive(into, peek);
        let has_room = into.iter().any(|part| !part.is_empty());
        self.record_received(received, has_room, peek)
    }

    fn receives_in_place(&self, len: usize, wait_all: bool) -> bool {
        self.stream.receives_in_place(len, wait_all)
    }

    fn receive_in_place(
        &self,
        into: &mut [u8],
        wait_all: bool,
        decide: &mut dyn FnMut(usize) -> MemoryDecision,
    ) -> Result<usize, Errno> {
        let received = self.stream.receive_in_place(into, wait_all, decide);
        self.record_received(received, !into.is_empty(), false)
    }

    fn receive_urgent(&self, peek: bool) -> Result<u8, Errno> {
        let byte = self.stream.receive_urgent(peek)?;
        if !peek {
            self.record.count(Counter::Received, 1);
        }
        Ok(byte)
    }

    fn send(&self, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let sent = self.stream.send(from);
        let count = sent.map_err(|error| self.record_failure(error))?;
        self.record.count(Counter::Sent, count);
        Ok(count)
    }

    fn send_in_place(
        &self,
        bytes: &[u8],
        decide: &mut dyn FnMut(usize) -> MemoryDecision,
    ) -> Result<Option<usize>, Errno> {
        let sent = self.stream.send_in_place(bytes, decide);
        let count = sent.map_err(|error| self.record_failure(error))?;
        self.record.count(Counter::Sent, count.unwrap_or(0));
        Ok(count)
    }

    fn in_place_threshold(&self) -> usize {
        self.stream.in_place_threshold()
    }

    fn send_urgent(&self, byte: u8) -> Result<(), Errno> {
        self.stream.send_urgent(byte)?;
        self.record.count(Counter::Sent, 1);
        Ok(())
    }

    fn shutdown(&self, half: Half) -> Result<(), Errno> {
        if half != Half::Read {
            self.record_end(End::Local);
        }
        self.stream.shutdown(half)
    }

    fn readiness(&self) -> Readiness {
        self.stream.readiness()
    }

    fn set_send_bound(&self, bytes: usize) {
        self.stream.set_send_bound(bytes);
    }

    fn set_receive_low(&self, bytes: usize) {
        self.stream.set_receive_low(bytes);
    }

    fn set_urgent_inline(&self, inline: bool) {
        self.stream.set_urgent_inline(inline);
    }

    fn watch_peer_like(&self, like: BorrowedFd<'_>) -> Result<(), Errno> {
        self.stream.watch_peer_like(like)
    }

    fn unread(&self) -> usize {
        self.stream.unread()
    }

    fn unread_before_mark(&self) -> usize {
        self.stream.unread_before_mark()
    }

    fn unsent(&self) -> usize {
        self.stream.unsent()
    }

    fn is_at_mark(&self) -> bool {
        self.stream.is_at_mark()
    }

    fn watch(&self, watch: Arc<dyn Watch>) {
        self.stream.watch(watch);
    }

    fn poll_readable(&self, polls: u32) -> bool {
        self.stream.poll_readable(polls)
    }

    fn show_polled(&self) {
        self.stream.show_polled();
    }

    fn is_polled(&self) -> bool {
        self.stream.is_polled()
    }

    fn end_polling(&self) {
        self.stream.end_polling();
    }

    fn measure(&self, meter: Arc<dyn Meter>) {
        self.stream.measure(meter);
    }

    fn abort(&self) {
        self.record_end(End::Broken);
        self.stream.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::{
        End::{Broken, Local, Peer},
        *,
    };

    #[test]
    fn every_end_in_every_state() {
        // Each row: a state, and the state after the local end, the peer's end and a failure.
        for (before, expected) in [
            (State::Established, [State::LocalEnded, State::PeerEnded]),
            (State::LocalEnded, [State::LocalEnded, State::Ended]),
            (State::PeerEnded, [State::Ended, State::PeerEnded]),
            (State::Ended, [State::Ended; 2]),
            (State::Broken, [State::Broken; 2]),
        ] {
            assert_eq!([Local, Peer].map(|end| after(before, end)), expected);
            assert_eq!(after(before, Broken), State::Broken);
        }
    }
}
