//! Connection set-up and disconnect through librdmacm.
//!
//! | File | Contents |
//! |---|---|
//! | `machine` | the states of a connection, without I/O |
//! | `connection` | the machine with its id and queue pair |
//! | `bound_socket` | consumers' sockets on which two devices agree to connect |
//! | `frames` | the frames on such a socket |
//! | `armed` | consumers' sockets that wait for a Request |
//! | `listen` | listening services |
//! | `request` | a peer's request, until it is answered |
//! | `retries` | the time during which a refused request is sent again |
//! | `rules` | the differences between transports and devices |
//! | `ready` | the steps of a queue pair to full operation |
//! | `id` | librdmacm's ids and their event channel |
//! | `blocking` | threads for calls that block in the kernel |
//! | `timers` | the next time at which each connection has something to do |
//!
//! `qp` creates queue pairs, not librdmacm; an id refers to its queue pair by number. The verbs
//! device is opened here too, separately from librdmacm's. For its own queue pairs librdmacm makes
//! the state transitions on InfiniBand, and the kernel makes them on iWARP. For the queue pairs of
//! this provider `ready` makes them.
//!
//! # Threads
//!
//! The engine's thread reads the event channel and the clock. Calls of consumers go to the
//! connection manager directly. On iWARP two calls block in the kernel, and librdmacm has no other
//! form of them. `rdma_connect` asks the host's port mapper, and siw connects TCP within it. The
//! destruction of an id waits for the answer to its request, up to ten seconds on siw. `blocking`
//! makes these calls on threads, and each call that blocks occupies one. A single thread would not
//! do: a peer that does not answer blocks its call for up to two minutes, and would delay all other
//! connects.
//!
//! # Locks, in order
//!
//! The connection, then the queue pair, then the tables of [`Cm`]. No upcall is made under any of
//! them.

pub(crate) mod armed;
mod blocking;
mod bound_socket;
mod connection;
mod frames;
mod id;
pub(crate) mod listen;
mod machine;
mod ready;
pub(crate) mod request;
mod retries;
mod rules;
mod timers;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use host::threads::catch_panic;
use rnic::socket::ConsumerSocket;
use rnic::{
    AsyncEvent, ConnectParams, NamedAttr, QpToken, Resource, RnicError, SocketFault, net_device,
};
use verbs_dl::types::RDMA_CM_EVENT_DEVICE_REMOVAL;

use armed::Armed;
use blocking::Blocking;
use connection::{Connection, own_depth};
use host::locks::lock;
use id::{Channel, CmEvent, ConnParam, Id, Key};
use listen::Listener;
use timers::Timers;

use crate::device::Device;
use crate::engine::Source;
use crate::qp::Qp;
use crate::shared::Shared;

/// The timer key for reading the event channel again.
const CHANNEL: Key = Key(0);
/// The key of the id that watches the device, which has no target.
const WATCH: Key = Key(1);
/// The time until the next read after a failed read. Most failures are lack of memory.
const READ_AGAIN: Duration = Duration::from_millis(50);

/// The connection manager of one RNIC.
#[derive(Debug)]
pub(crate) struct Cm {
    shared: Arc<Shared>,
    /// The event channel; present from the opening of the device to the shutdown.
    channel: Mutex<Option<Arc<Channel>>>,
    /// An id that is bound to the adapter's address and has no other use. It receives the removal
    /// event of the device if there is no connection or service that would.
    watch: Mutex<Option<Id>>,
    targets: Mutex<HashMap<Key, Target>>,
    /// The last connection of each queue pair, or the attempt to connect it.
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    timers: Mutex<Timers>,
    blocking: Arc<Blocking>,
    next_key: AtomicUsize,
}

/// The receiver of an id's events.
#[derive(Debug, Clone)]
enum Target {
    Connection(Arc<Connection>),
    Listener(Arc<Listener>),
    /// A consumer's socket that waits for a Request. Only the engine and the clock have events for
    /// it.
    Armed(Arc<Armed>),
}

impl Cm {
    /// Opens the event channel, which the engine's thread reads, and watches the device.
    pub(crate) fn open(shared: Arc<Shared>) -> Result<Arc<Self>, RnicError> {
        let channel = Arc::new(Channel::open(&shared.device.libraries).map_err(refused)?);
        let events = channel.as_fd().as_raw_fd();
        shared.engine.watch(events, Source::Cm)?;
        let watch = match channel.new_watch(WATCH, shared.device.address) {
            // A device in software that is never removed, by a library without this port space.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => None,
            watch => Some(watch.map_err(refused)?),
        };
        let cm = Self::new(shared);
        *lock(&cm.watch) = watch;
        *lock(&cm.channel) = Some(channel);
        Ok(Arc::new(cm))
    }

    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            channel: Mutex::default(),
            watch: Mutex::default(),
            targets: Mutex::default(),
            connections: Mutex::default(),
            timers: Mutex::default(),
            blocking: Arc::default(),
            next_key: AtomicUsize::new(WATCH.0 + 1),
        }
    }

    /// Returns the time by which the engine must call [`on_deadline`](Self::on_deadline).
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        lock(&self.timers).next()
    }

    /// Reads all events of the channel, which may be readable, on the engine's thread.
    pub(crate) fn on_readable(&self) {
        let Some(channel) = lock(&self.channel).clone() else {
            return;
        };
        loop {
            match channel.next() {
                Ok(Some(event)) => catch_panic(|| self.dispatch(event)),
                Ok(None) => return,
                Err(why) => {
                    // The poller has reported these events, and will not report them again.
                    tracing::warn!(%why, "the event channel cannot be read");
                    let again = Instant::now() + READ_AGAIN;
                    self.set_timer(CHANNEL, Some(again));
                    return;
                }
            }
        }
    }

    fn dispatch(&self, event: CmEvent) {
        // Software devices report removal only here, and wait until this process has closed them.
        if event.kind == RDMA_CM_EVENT_DEVICE_REMOVAL && self.on_device_removed() {
            tracing::warn!(device = %self.shared.device.name, "the device is being removed");
            self.shared.upcall.async_event(AsyncEvent::DeviceFatal);
        }
        let target = lock(&self.targets).get(&event.key).cloned();
        match target {
            Some(Target::Connection(connection)) => connection.on_cm(event),
            Some(Target::Listener(listener)) => listener.on_cm(event),
            Some(Target::Armed(_)) => {}
            // The event is for an id that was destroyed meanwhile. The id of a request is dropped
            // with the event, and the peer is refused.
            None => {}
        }
    }

    /// Handles everything that is due at `now`, on the engine's thread.
    pub(crate) fn on_deadline(&self, now: Instant) {
        while let Some(key) = self.take_due(now) {
            if key == CHANNEL {
                self.on_readable();
                continue;
            }
            let target = lock(&self.targets).get(&key).cloned();
            catch_panic(|| match target {
                Some(Target::Connection(connection)) => connection.on_time(now),
                Some(Target::Armed(armed)) => armed.check(),
                Some(Target::Listener(_)) | None => {}
            });
        }
    }

    /// Handles the readiness of the consumer's socket of this key, on the engine's thread.
    pub(crate) fn on_socket(&self, key: usize) {
        let target = lock(&self.targets).get(&Key(key)).cloned();
        match target {
            Some(Target::Connection(connection)) => connection.on_socket(),
            Some(Target::Armed(armed)) => armed.check(),
            Some(Target::Listener(_)) | None => {}
        }
    }

    fn take_due(&self, now: Instant) -> Option<Key> {
        lock(&self.timers).take_due(now)
    }

    /// Called on the engine's thread when a work request or, by report of the device, the queue
    /// pair has failed. An established connection ends in `Broken`.
    pub(crate) fn on_qp_failed(&self, qp: QpToken) {
        if let Some(connection) = self.connection(qp) {
            connection.on_failed();
        }
    }

    /// Called on the engine's thread when the device is being removed. Every established connection
    /// ends in `Broken`. Returns `false` on later calls.
    pub(crate) fn on_device_removed(&self) -> bool {
        if self.shared.is_device_removed.swap(true, Ordering::Relaxed) {
            return false;
        }
        // The device waits until its ids are destroyed.
        let watch = lock(&self.watch).take();
        drop(watch);
        let all: Vec<Target> = lock(&self.targets).values().cloned().collect();
        for target in all {
            match target {
                Target::Connection(connection) => connection.on_device_removed(),
                Target::Listener(listener) => listener.on_device_removed(),
                Target::Armed(armed) => armed.check(),
            }
        }
        true
    }

    /// Destroys everything that still lingers. The engine's thread has ended before.
    pub(crate) fn shutdown(&self) {
        let targets = std::mem::take(&mut *lock(&self.targets));
        drop(targets);
        let watch = lock(&self.watch).take();
        drop(watch);
        lock(&self.channel).take();
    }

    /// [`Rnic::connect`](rnic::Rnic::connect).
    pub(crate) fn connect(
        self: &Arc<Self>,
        qp: &Arc<Qp>,
        params: &ConnectParams<'_>,
    ) -> Result<(), RnicError> {
        check_private_data(&self.shared, params.private_data)?;
        check_route(self.shared.device.address, params.remote)?;
        qp.begin_attempt()?;
        let param = ConnParam::of(qp, own_depth(qp), params.private_data);
        Connection::connect(self, qp, params.remote, param, params.timeout).map_err(|error| {
            qp.abandon_attempt();
            refused(error)
        })
    }

    /// [`Rnic::connect_socket`](rnic::Rnic::connect_socket).
    pub(crate) fn connect_socket(
        self: &Arc<Self>,
        qp: &Arc<Qp>,
        number: RawFd,
        params: &ConnectParams<'_>,
    ) -> Result<(), SocketFault> {
        qp.begin_attempt().map_err(|_| SocketFault::QpNotIdle)?;
        self.take(number)
            .and_then(|socket| Connection::connect_on_socket(self, qp, socket, params))
            .inspect_err(|_| qp.abandon_attempt())
    }

    /// Takes a consumer's socket that is routed through the adapter.
    fn take(&self, number: RawFd) -> Result<ConsumerSocket, SocketFault> {
        let adapter = self.shared.device.address.ip();
        ConsumerSocket::take(number, |local| net_device::routes(adapter, local.ip()))
    }

    /// [`Rnic::disconnect`](rnic::Rnic::disconnect).
    pub(crate) fn disconnect(&self, qp: QpToken, abrupt: bool) {
        if let Some(connection) = self.connection(qp) {
            connection.disconnect(abrupt);
        }
    }

    /// Disconnects a queue pair that is about to be destroyed. A queue pair that has replaced it
    /// has the same token, and may be connected already.
    pub(crate) fn remove_qp(&self, qp: &Arc<Qp>) {
        let token = qp.token;
        let own = self.connection(token).filter(|it| it.is_of(qp));
        let Some(own) = own else { return };
        own.disconnect(true);
        let mut connections = lock(&self.connections);
        if connections
            .get(&token.0)
            .is_some_and(|it| Arc::ptr_eq(it, &own))
        {
            connections.remove(&token.0);
        }
    }

    fn connection(&self, qp: QpToken) -> Option<Arc<Connection>> {
        lock(&self.connections).get(&qp.0).cloned()
    }

    fn connection_of_key(&self, key: Key) -> Option<Arc<Connection>> {
        match lock(&self.targets).get(&key) {
            Some(Target::Connection(connection)) => Some(connection.clone()),
            _ => None,
        }
    }

    /// The event channel; an error after the shutdown.
    fn channel(&self) -> io::Result<Arc<Channel>> {
        let no_device = || io::Error::from_raw_os_error(libc::ENODEV);
        lock(&self.channel).clone().ok_or_else(no_device)
    }

    fn new_key(&self) -> Key {
        Key(self.next_key.fetch_add(1, Ordering::Relaxed))
    }

    fn register(&self, key: Key, connection: Arc<Connection>) {
        lock(&self.connections).insert(connection.token().0, connection.clone());
        lock(&self.targets).insert(key, Target::Connection(connection));
    }

    /// Removes `key`: no event and no timer refers to it any more.
    fn forget(&self, key: Key) {
        lock(&self.timers).set(key, None);
        lock(&self.targets).remove(&key);
    }

    fn set_timer(&self, key: Key, time: Option<Instant>) {
        if lock(&self.timers).set(key, time) {
            self.shared.engine.wake();
        }
    }
}

/// The largest private data of a consumer, in bytes.
pub(crate) fn private_data_max(device: &Device) -> u32 {
    device.transport.private_data_max() as u32
}

/// The named attributes about connections for consumers.
pub(crate) fn named(device: &Device) -> Vec<NamedAttr> {
    let is_padded = device.transport.pads_private_data();
    vec![NamedAttr {
        name: "DAT_IB_PRIVATE_DATA_PADDED",
        value: if is_padded { "TRUE" } else { "FALSE" }.to_owned(),
    }]
}

fn check_private_data(shared: &Shared, private_data: &[u8]) -> Result<(), RnicError> {
    if private_data.len() <= shared.device.transport.private_data_max() {
        Ok(())
    } else {
        Err(RnicError::InvalidArgument("private data"))
    }
}

/// Refuses an address without a route at once, as TCP does. Address resolution would detect it only
/// by its timeout.
fn check_route(local: SocketAddr, remote: SocketAddr) -> Result<(), RnicError> {
    if local.is_ipv4() != remote.is_ipv4() {
        return Err(RnicError::BadAddress("not of the adapter's address family"));
    }
    let probe = UdpSocket::bind(local)?;
    // Connecting a UDP socket sends nothing. A port is required, and any port is suitable.
    probe
        .connect(SocketAddr::new(remote.ip(), 9))
        .or_else(|error| {
            // The connection manager reports other errors.
            match error.kind() {
                io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => Err(error),
                _ => Ok(()),
            }
        })?;
    Ok(())
}

/// Converts the error of a refused librdmacm call.
fn refused(error: io::Error) -> RnicError {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => RnicError::AddressInUse,
        Some(libc::EMFILE | libc::ENFILE) => RnicError::NoResources(Resource::Descriptor),
        Some(libc::ENOMEM) => RnicError::NoResources(Resource::Memory),
        _ => RnicError::Os(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_families_must_match() {
        let (v4, v6) = ("127.0.0.1:0".parse().unwrap(), "[::1]:5".parse().unwrap());
        assert!(matches!(check_route(v4, v6), Err(RnicError::BadAddress(_))));
    }

    #[test]
    fn a_route_is_checked_without_sending() {
        let local = "127.0.0.1:0".parse().unwrap();
        check_route(local, "127.0.0.1:5".parse().unwrap()).unwrap();
    }

    #[test]
    fn refusals_are_converted_to_errors() {
        let os = |code| refused(io::Error::from_raw_os_error(code));
        assert!(matches!(os(libc::EADDRINUSE), RnicError::AddressInUse));
        let descriptors = RnicError::NoResources(Resource::Descriptor);
        assert_eq!(os(libc::EMFILE).to_string(), descriptors.to_string());
        assert!(matches!(os(libc::ENODEV), RnicError::Os(_)));
    }
}
