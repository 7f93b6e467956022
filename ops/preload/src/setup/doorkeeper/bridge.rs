//! Moves the bytes between clients and their TCP connections, on the event thread.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use host::descriptors::OwnDescriptor;
use host::locks::IgnorePoison as _;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};

use crate::events::{EventHandler, event_thread};
use crate::process::per_process::PerProcess;
use crate::socket::Socket;

/// The size of one chunk, in bytes.
const CHUNK: usize = 64 * 1024;
/// The number of chunks that are moved for one client before the next client is served.
const ROUNDS: usize = 16;

const INTEREST: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::PRI);

thread_local! {
    static CHUNK_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; CHUNK]);
}

/// The two sockets of a client.
struct Ends {
    client: OwnDescriptor,
    tcp: OwnDescriptor,
}

/// One client.
struct Bridge {
    state: Mutex<State>,
    /// The connection of a client of a service.
    carried: Weak<Socket>,
    myself: Weak<Bridge>,
}

/// The clients of this process.
#[derive(Default)]
pub(crate) struct Bridges(Vec<Arc<Bridge>>);

static BRIDGES: PerProcess<Mutex<Bridges>> = PerProcess::new();

fn bridges() -> MutexGuard<'static, Bridges> {
    BRIDGES.get_or_init(Mutex::default).lock().ignore_poison()
}

/// Locks the clients of this process during a fork. `None`: there are none.
pub(crate) fn lock() -> Option<MutexGuard<'static, Bridges>> {
    BRIDGES.get().map(|all| all.lock().ignore_poison())
}

impl Bridges {
    /// Returns the descriptors that the child of a fork must not keep.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        self.0.iter().flat_map(|bridge| bridge.numbers()).collect()
    }
}

/// Moves the bytes of a client from now on. Without room for a watch, the client sees that the
/// connection has ended.
pub(super) fn begin(client: OwnedFd, tcp: OwnedFd, carried: Weak<Socket>) {
    let mut all = bridges();
    let ends = Ends {
        client: client.into(),
        tcp: tcp.into(),
    };
    if let Ok(bridge) = Bridge::begin(ends, carried) {
        all.0.push(bridge);
    }
}

struct State {
    /// `None` once both directions have ended.
    ends: Option<Ends>,
    to_tcp: Flow,
    to_client: Flow,
    is_urgent: bool,
}

/// One direction.
#[derive(Default)]
struct Flow {
    /// Bytes for which the destination has no room yet.
    waiting: Vec<u8>,
    has_ended: bool,
}

impl Bridge {
    /// Begins to move bytes.
    fn begin(ends: Ends, carried: Weak<Socket>) -> Result<Arc<Self>, Errno> {
        let numbers = [&ends.client, &ends.tcp].map(AsRawFd::as_raw_fd);
        let bridge = Arc::new_cyclic(|myself| Self {
            state: Mutex::new(State {
                ends: Some(ends),
                to_tcp: Flow::default(),
                to_client: Flow::default(),
                is_urgent: false,
            }),
            carried,
            myself: Weak::clone(myself),
        });
        let watch = |number| {
            // SAFETY: the bridge has both descriptors, and only the event thread, which runs this,
            // closes them.
            let end = unsafe { BorrowedFd::borrow_raw(number) };
            event_thread()?.watch(end, INTEREST, Arc::clone(&bridge) as _)
        };
        match numbers.into_iter().try_for_each(watch) {
            Ok(()) => Ok(bridge),
            Err(error) => {
                bridge.close();
                Err(error)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// Returns the numbers of the descriptors.
    fn numbers(&self) -> Vec<RawFd> {
        let state = self.state();
        let ends = state.ends.iter().flat_map(|it| [&it.client, &it.tcp]);
        ends.map(AsRawFd::as_raw_fd).collect()
    }

    /// Closes both sockets.
    fn close(&self) {
        let Some(ends) = self.state().ends.take() else {
            return;
        };
        if let Ok(thread) = event_thread() {
            thread.unwatch(&ends.client);
            thread.unwatch(&ends.tcp);
        }
    }

    /// Moves bytes in both directions. Returns false once nothing is left to move.
    fn run(&self) -> bool {
        let mut state = self.state();
        CHUNK_BUFFER.with_borrow_mut(|buffer| {
            for _ in 0..ROUNDS {
                match state.round(buffer) {
                    Ok(true) => {}
                    Ok(false) => return !state.has_ended(),
                    Err(_) => {
                        state.reset();
                        if let Some(socket) = self.carried.upgrade() {
                            socket.abort_carried();
                        }
                        return false;
                    }
                }
            }
            if let (Ok(thread), Some(myself)) = (event_thread(), self.myself.upgrade()) {
                thread.run_soon(myself);
            }
            true
        })
    }
}

impl EventHandler for Bridge {
    fn ready(&self, seen: EventFlags) {
        if seen.contains(EventFlags::PRI) {
            self.state().is_urgent = true;
        }
        if !self.run()
            && let Some(myself) = self.myself.upgrade()
        {
            // The descriptors are closed with the lock held, because a fork reads their numbers.
            let mut all = bridges();
            self.close();
            all.0.retain(|it| !Arc::ptr_eq(it, &myself));
        }
    }
}

impl State {
    fn has_ended(&self) -> bool {
        self.ends.is_none() || (self.to_tcp.has_ended && self.to_client.has_ended)
    }

    /// Moves one chunk in each direction. Returns true if a byte or an end was moved.
    fn round(&mut self, buffer: &mut [u8]) -> Result<bool, Errno> {
        let Some(Ends { client, tcp }) = &self.ends else {
            return Ok(false);
        };
        let (client, tcp) = (client.as_fd(), tcp.as_fd());
        if std::mem::take(&mut self.is_urgent) {
            pass_urgent(client, tcp);
            pass_urgent(tcp, client);
        }
        let out = self.to_tcp.pump(client, tcp, buffer)?;
        let back = self.to_client.pump(tcp, client, buffer)?;
        Ok(out || back)
    }

    /// Makes the close of the TCP connection a reset, because the client has broken.
    fn reset(&self) {
        if let Some(ends) = &self.ends {
            let _ = sockopt::set_socket_linger(&ends.tcp, Some(Duration::ZERO));
        }
    }
}

impl Flow {
    /// Moves one chunk. Returns true if a byte or the end was moved.
    fn pump(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        buffer: &mut [u8],
    ) -> Result<bool, Errno> {
        if !self.waiting.is_empty() {
            let sent = send_some(to, &self.waiting)?;
            self.waiting.drain(..sent);
            return Ok(sent > 0);
        }
        if self.has_ended {
            return Ok(false);
        }
        match recv(from, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                self.has_ended = true;
                // If the other end has closed already, there is nothing to end.
                let _ = shutdown(to, Shutdown::Write);
                Ok(true)
            }
            Ok((count, _)) => {
                let sent = send_some(to, &buffer[..count])?;
                self.waiting.extend_from_slice(&buffer[sent..count]);
                Ok(true)
            }
            // TCP is not connected yet while its backlog is full.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOTCONN) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Sends as many bytes as there is room for.
fn send_some(to: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    match send(to, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Err(Errno::AGAIN | Errno::INTR | Errno::NOTCONN) => Ok(0),
        sent => sent,
    }
}

/// Passes an urgent byte, if there is one.
fn pass_urgent(from: BorrowedFd<'_>, to: BorrowedFd<'_>) {
    let mut byte = [0];
    if let Ok((1, _)) = recv(from, &mut byte[..], RecvFlags::OOB | RecvFlags::DONTWAIT) {
        let flags = SendFlags::OOB | SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // Without room the byte is lost, as is an urgent byte that another one replaces.
        let _ = send(to, &byte, flags);
    }
}
