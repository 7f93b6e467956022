//! An established connection and its events.

use std::io::{IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock};

use host::descriptors::OwnDescriptor;
use host::locks::IgnorePoison as _;
use ops::observe::{Counter, Meter};
use ops::{Half, MemoryDecision, OffloadStream, Watch};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use sdp_over_dat::{Decision, Options, Readiness, SdpStream, Statistics};

use crate::adapter::Adapter;
use crate::{RaiseDescriptor, errno_of};

/// An SDP connection that implements the interface of the switch.
#[derive(Debug)]
pub(crate) struct SdpOffload {
    stream: SdpStream,
    adapter: Arc<Adapter>,
    local: SocketAddr,
    peer: SocketAddr,
    meter: OnceLock<Arc<dyn Meter>>,
}

impl SdpOffload {
    /// Wraps a non-blocking stream that has both addresses.
    pub(crate) fn new(stream: SdpStream, adapter: Arc<Adapter>) -> Self {
        let peer = stream.peer_addr();
        let local = stream.local_addr().unwrap_or(peer);
        Self {
            stream,
            adapter,
            local,
            peer,
            meter: OnceLock::new(),
        }
    }

    fn receive_one(&self, into: &mut [u8], peek: bool) -> Result<usize, Errno> {
        let received = if peek {
            self.stream.peek(into)
        } else {
            self.stream.try_receive(into)
        };
        received.map_err(|error| errno_of(&error))
    }
}

impl OffloadStream for SdpOffload {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn device(&self) -> &str {
        self.adapter.shown()
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let sent = self.stream.try_send_pieces(parts);
        sent.map_err(|error| errno_of(&error))
    }

    fn send_in_place(
        &self,
        bytes: &[u8],
        decide: &mut dyn FnMut(usize) -> MemoryDecision,
    ) -> Result<Option<usize>, Errno> {
        let mut decide = |progress| decision_of(decide(progress));
        let sent = self.stream.send_in_place(bytes, &mut decide);
        sent.map_err(|error| errno_of(&error))
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
        let mut decide = |progress| decision_of(decide(progress));
        let received = self.stream.receive_in_place(into, wait_all, &mut decide);
        received.map_err(|error| errno_of(&error))
    }

    fn in_place_threshold(&self) -> usize {
        self.stream.in_place_threshold()
    }

    fn send_urgent(&self, byte: u8) -> Result<(), Errno> {
        let sent = self.stream.send_urgent(byte);
        sent.map_err(|error| errno_of(&error))
    }

    fn receive(&self, parts: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        if let [one] = parts {
            return self.receive_one(one, peek);
        }
        if peek {
            let room = parts.iter().map(|part| part.len()).sum();
            let mut bytes = vec![0; room];
            let count = self.receive_one(&mut bytes, true)?;
            let mut left = &bytes[..count];
            for part in parts {
                let some = part.len().min(left.len());
                part[..some].copy_from_slice(&left[..some]);
                left = &left[some..];
            }
            return Ok(count);
        }
        let mut done = 0;
        for part in parts {
            if part.is_empty() {
                continue;
            }
            if done > 0 && self.stream.is_at_mark() {
                break;
            }
            match self.receive_one(part, false) {
                Ok(count) => {
                    done += count;
                    if count < part.len() {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }

    fn receive_urgent(&self, peek: bool) -> Result<u8, Errno> {
        let byte = if peek {
            self.stream.peek_urgent()
        } else {
            self.stream.receive_urgent()
        };
        byte.map_err(|error| errno_of(&error))
    }

    fn set_urgent_inline(&self, inline: bool) {
        self.stream.set_options(Options {
            oob_inline: inline,
            ..self.stream.options()
        });
    }

    fn set_send_bound(&self, bytes: usize) {
        self.stream.set_options(Options {
            send_bound: Some(bytes),
            ..self.stream.options()
        });
    }

    fn set_receive_low(&self, bytes: usize) {
        self.stream.set_options(Options {
            receive_low: bytes,
            ..self.stream.options()
        });
    }

    fn shutdown(&self, half: Half) -> Result<(), Errno> {
        let how = match half {
            Half::Read => Shutdown::Read,
            Half::Write => Shutdown::Write,
            Half::Both => Shutdown::Both,
        };
        self.stream.shutdown(how).map_err(|error| errno_of(&error))
    }

    fn abort(&self) {
        self.stream.abort();
    }

    fn readiness(&self) -> Readiness {
        self.stream.readiness()
    }

    fn watch_peer_like(&self, like: BorrowedFd<'_>) -> Result<(), Errno> {
        let watched = self.stream.watch_peer_like(like);
        watched.map_err(|error| errno_of(&error))
    }

    fn unread(&self) -> usize {
        self.stream.readable()
    }

    fn unread_before_mark(&self) -> usize {
        self.stream.readable_before_mark()
    }

    fn unsent(&self) -> usize {
        self.stream.unsent()
    }

    fn is_at_mark(&self) -> bool {
        self.stream.is_at_mark()
    }

    fn watch(&self, watch: Arc<dyn Watch>) {
        self.stream.watch(Arc::new(WatchAdapter {
            watch,
            meter: self.meter.get().cloned(),
            reported: Mutex::default(),
        }));
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
        // The first meter stays; a stream is listed once.
        let _ = self.meter.set(meter);
    }
}

fn decision_of(decision: MemoryDecision) -> Decision {
    match decision {
        MemoryDecision::Continue => Decision::Continue,
        MemoryDecision::TakeBack => Decision::TakeBack,
        MemoryDecision::Return => Decision::Return,
    }
}

/// Translates readiness of a stream to events for the switch's watch.
#[derive(Debug)]
struct WatchAdapter {
    watch: Arc<dyn Watch>,
    meter: Option<Arc<dyn Meter>>,
    reported: Mutex<Readiness>,
}

/// Returns the values of [`Counter::OF_PROTOCOL`].
fn values(now: &Statistics) -> [(Counter, u64); Counter::OF_PROTOCOL.len()] {
    let received_in_sends = now.bytes_received - now.bytes_read - now.bytes_written_by_peer;
    Counter::OF_PROTOCOL.map(|counter| {
        let value = match counter {
            Counter::SentCopied => now.bytes_ring,
            Counter::SentRegistered => now.bytes_registered,
            Counter::SentRead => now.bytes_read_by_peer,
            Counter::SentWritten => now.bytes_written,
            Counter::ReceivedCopied => received_in_sends,
            Counter::ReceivedRead => now.bytes_read,
            Counter::ReceivedWritten => now.bytes_written_by_peer,
            Counter::Sources => now.sources,
            Counter::SourcesUsed => now.sources_used,
            Counter::SourcesCancelled => now.sources_cancelled,
            Counter::Sinks => now.sinks,
            Counter::SinksUsed => now.sinks_used,
            Counter::SinksCancelled => now.sinks_cancelled,
            Counter::Credits => u64::from(now.credits),
            Counter::StallsCredits => now.stalls.credits,
            Counter::StallsSends => now.stalls.sends,
            Counter::StallsRoom => now.stalls.room,
            Counter::StallsReader => now.stalls.reader,
            // The switch counts these.
            Counter::Sent
            | Counter::Received
            | Counter::AcceptedOffloaded
            | Counter::AcceptedTcp => 0,
        };
        (counter, value)
    })
}

impl sdp_over_dat::Watch for WatchAdapter {
    fn hold(&self) {
        self.watch.hold();
    }

    fn release(&self) {
        self.watch.release();
    }

    fn count(&self, now: &Statistics) {
        if let Some(meter) = &self.meter {
            meter.set(&values(now));
        }
    }

    fn show(&self, now: Readiness, arrived: bool) {
        let mut reported = self.reported.lock().ignore_poison();
        let before = std::mem::replace(&mut *reported, now);
        if now.urgent && !before.urgent {
            self.watch.urgent();
        }
        if now.readable && (arrived || !before.readable) {
            self.watch.arrived();
        } else if arrived {
            self.watch.arrived_few();
        }
        if now.failed {
            if !before.failed {
                let why = now.errno.map_or(Errno::CONNRESET, Errno::from_raw_os_error);
                self.watch.broken(why);
            }
            return;
        }
        if now.peer_ended && !before.peer_ended {
            self.watch.peer_ended();
        }
        if now.writable && !before.writable {
            self.watch.room();
        }
        if now.all_sent && !before.all_sent {
            self.watch.all_sent();
        }
    }
}

/// A descriptor that is readable after an event on any of the streams that signal it.
#[derive(Debug)]
pub(crate) struct WakeupFd(OwnDescriptor);

impl WakeupFd {
    pub(crate) fn new(raise: RaiseDescriptor) -> Result<Self, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(raise(eventfd(0, flags)?)?.into()))
    }

    pub(crate) fn descriptor(&self) -> &OwnDescriptor {
        &self.0
    }

    pub(crate) fn signal(&self) {
        self.0.count_up();
    }

    /// Clears the signal. Must be called before the streams are checked.
    pub(crate) fn clear(&self) {
        if self.0.is_lost() {
            return;
        }
        // The read fails if no signal is pending.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl sdp_over_dat::Watch for WakeupFd {
    /// Called after each check of a stream too. A stream that is still connecting must not signal,
    /// because its checks would otherwise wake their own caller again and again.
    fn show(&self, now: Readiness, _: bool) {
        if now.writable || now.failed || now.errno.is_some() {
            self.signal();
        }
    }
}

impl AsFd for WakeupFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
