//! Consumers' sockets that wait for one Request (Socket Service Points).

use std::os::fd::{AsFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rnic::socket::io::{self, Received, Unsent, send_whole};
use rnic::socket::{ConsumerSocket, NotInherited};
use rnic::{ListenToken, RequestInfo, SocketFault};

use super::frames::{self, Contact, Front, LEN_MAX};
use super::id::Key;
use super::request::{Deliver, IbRequest};
use super::{Cm, Target, lock};

/// A socket that waits. Dropping it returns the socket.
pub struct IbArmed(Arc<Armed>);

rnic::opaque_debug!(IbArmed {});

/// A consumer's socket, until its Request was received.
pub(crate) struct Armed {
    cm: Arc<Cm>,
    key: Key,
    token: ListenToken,
    deliver: Deliver,
    state: Mutex<State>,
    /// Held from the removal of the socket until its event has been delivered.
    delivery: Mutex<()>,
}

rnic::opaque_debug!(Armed { key });

struct State {
    /// `None` after the socket was passed on.
    socket: Option<ConsumerSocket>,
    /// The time by which a Request that has begun must be complete.
    deadline: Option<Instant>,
    /// True until the final streaming message is sent. The stream is not checked before that.
    is_held: bool,
}

/// The result of a check of the front of the stream.
enum Peeked {
    Waiting {
        is_begun: bool,
    },
    Request {
        peer: Contact,
        private_data: Vec<u8>,
    },
    Unusable,
}

impl IbArmed {
    /// Arms the reception of a Request, and sends the complete final streaming message before a
    /// Request is delivered. Sending is limited by `mpa_timeout_ms` in `dat.conf`; the wait for the
    /// Request has no limit.
    ///
    /// # Errors
    /// [`SocketFault::FinalMessage`] if the complete message was not sent over a connected socket.
    pub(crate) fn arm(
        cm: &Arc<Cm>,
        number: RawFd,
        final_message: &[u8],
        token: ListenToken,
        deliver: Deliver,
    ) -> Result<Self, SocketFault> {
        let socket = cm.take(number)?;
        let messenger = socket
            .as_fd()
            .try_clone_to_owned()
            .map(NotInherited::new)
            .map_err(|_| SocketFault::NoResources)?;
        let this = Self(Armed::watch(cm, socket, token, deliver)?);
        match send_whole(&messenger, final_message, cm.shared.config.request_timeout) {
            Ok(()) => this.0.release(),
            Err(Unsent::Failed) if io::is_hung_up(messenger.as_fd()) => {
                drop(this.0.take());
                cm.shared.upcall.socket_down(token);
            }
            Err(error) => {
                tracing::warn!(
                    ?error,
                    "the final streaming message was not sent completely"
                );
                drop(this.0.take());
                return Err(SocketFault::FinalMessage);
            }
        }
        Ok(this)
    }

    /// Returns the socket to its consumer. Returns `false` if a Request had taken the socket
    /// before; the event of that Request was delivered then.
    pub(crate) fn disarm(self) -> bool {
        let socket = self.0.take();
        if socket.is_none() {
            drop(lock(&self.0.delivery));
        }
        socket.is_some()
    }
}

impl Drop for IbArmed {
    /// Does not wait for an event that is being delivered, because this drop may happen within that
    /// upcall.
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

impl Armed {
    fn watch(
        cm: &Arc<Cm>,
        socket: ConsumerSocket,
        token: ListenToken,
        deliver: Deliver,
    ) -> Result<Arc<Self>, SocketFault> {
        let key = cm.new_key();
        let watched = cm.shared.engine.watch_socket(&socket, key.0);
        watched.map_err(|_| SocketFault::NoResources)?;
        let state = State {
            socket: Some(socket),
            deadline: None,
            is_held: true,
        };
        let armed = Arc::new(Self {
            cm: cm.clone(),
            key,
            token,
            deliver,
            state: Mutex::new(state),
            delivery: Mutex::default(),
        });
        lock(&cm.targets).insert(key, Target::Armed(armed.clone()));
        Ok(armed)
    }

    /// Called when the final streaming message has been sent.
    fn release(&self) {
        lock(&self.state).is_held = false;
        // The engine was notified of earlier bytes while the check was held back.
        self.cm.set_timer(self.key, Some(Instant::now()));
    }

    /// Takes the socket, if it was not passed on.
    fn take(&self) -> Option<ConsumerSocket> {
        let socket = lock(&self.state).socket.take()?;
        self.deregister(&socket);
        Some(socket)
    }

    fn deregister(&self, socket: &ConsumerSocket) {
        self.cm.shared.engine.unwatch_socket(socket);
        self.cm.forget(self.key);
    }

    /// Checks the front of the stream and the device, on the engine's thread, and delivers the
    /// event once the result is final.
    pub(super) fn check(&self) {
        let mut state = lock(&self.state);
        if state.is_held {
            return;
        }
        let Some(socket) = &state.socket else { return };
        let now = Instant::now();
        let front = match state.deadline {
            _ if self.cm.shared.is_device_removed.load(Ordering::Relaxed) => Peeked::Unusable,
            Some(deadline) if deadline <= now => Peeked::Unusable,
            _ => self.front(socket),
        };
        let request = match front {
            Peeked::Waiting { is_begun } => {
                if is_begun && state.deadline.is_none() {
                    let timeout = self.cm.shared.config.request_timeout;
                    state.deadline = timeout.and_then(|timeout| now.checked_add(timeout));
                    self.cm.set_timer(self.key, state.deadline);
                }
                return;
            }
            Peeked::Request { peer, private_data } => Some((peer, private_data)),
            Peeked::Unusable => None,
        };
        let Some(socket) = state.socket.take() else {
            return;
        };
        // No other thread takes this lock before the socket was taken, so the lock is free.
        let delivery = lock(&self.delivery);
        self.deregister(&socket);
        drop(state);
        match request {
            Some((peer, private_data)) => self.deliver_request(socket, peer, &private_data),
            None => {
                drop(socket);
                self.cm.shared.upcall.socket_down(self.token);
            }
        }
        drop(delivery);
    }

    fn front(&self, socket: &ConsumerSocket) -> Peeked {
        let device = &self.cm.shared.device;
        let mut front = [0; LEN_MAX];
        let count = match io::peek(socket.as_fd(), &mut front) {
            Received::Bytes(count) => count,
            Received::WouldBlock => return Peeked::Waiting { is_begun: false },
            Received::Eof | Received::Failed(_) => return Peeked::Unusable,
        };
        match frames::parse_request(&front[..count]) {
            Front::Incomplete if !io::is_hung_up(socket.as_fd()) => {
                Peeked::Waiting { is_begun: true }
            }
            Front::Incomplete | Front::Other => Peeked::Unusable,
            Front::Frame {
                value: peer,
                private_data,
                len,
            } => {
                let fits = peer.fits(device.address, device.transport);
                if fits && io::discard(socket.as_fd(), len) {
                    let private_data = front[private_data].to_vec();
                    Peeked::Request { peer, private_data }
                } else {
                    Peeked::Unusable
                }
            }
        }
    }

    fn deliver_request(&self, socket: ConsumerSocket, peer: Contact, private_data: &[u8]) {
        let addresses = io::local_address(&socket).zip(io::remote_address(&socket));
        let Some((local, remote)) = addresses else {
            drop(socket);
            return self.cm.shared.upcall.socket_down(self.token);
        };
        let max = self.cm.shared.device.transport.private_data_max();
        let info = RequestInfo {
            local,
            remote,
            private_data: &private_data[..private_data.len().min(max)],
            truncated: private_data.len() > max,
        };
        (self.deliver)(IbRequest::on_socket(&self.cm, socket, peer), &info);
    }
}
