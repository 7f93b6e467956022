//! An interface adapter, and the thread that serves sockets while their users do something else.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dat_api::{AsyncKind, EvdId, Event, Ia, ProviderAttr};
use host::{descriptors::OwnDescriptor, locks::IgnorePoison as _};
use rustix::event::{EventfdFlags, eventfd};
use sdp_proto::{Connection, wire::WireError};

use crate::{
    Config,
    adapter::{Adapter, LONG, TICK},
    errors,
    socket::Socket,
};

/// An open interface adapter for stream sockets. Clones share it.
///
/// Bytes of a closed socket are sent after the close. Dropping the last clone, after the last
/// socket, waits until they are sent, at most [`Config::close_timeout`].
#[derive(Debug, Clone)]
pub struct Stack {
    pub(crate) inner: Arc<StackInner>,
    /// The configuration of sockets that are made with this clone.
    pub(crate) config: Config,
    // Declared last: waits for closed sockets when the last clone is dropped.
    _guard: Arc<Guard>,
}

#[derive(Debug)]
pub(crate) struct StackInner {
    pub(crate) adapter: Arc<Adapter>,
    /// The configuration that suits the adapter, or that the caller of `open_with` has chosen.
    config: Config,
    accepts_own_sockets_only: bool,
    is_lost: AtomicBool,
    sockets: Mutex<HashMap<EvdId, Arc<Socket>>>,
    doorbells: Mutex<HashMap<EvdId, Weak<OwnDescriptor>>>,
    /// An eventfd that is always readable: the descriptor of a stream that can have none of its
    /// own.
    pub(crate) always_ready: OwnDescriptor,
}

/// Waits for the last messages of closed sockets. The stack's thread then drops the adapter.
#[derive(Debug)]
struct Guard {
    stack: Arc<StackInner>,
}

impl Stack {
    /// Opens the adapter that `dat.conf` lists under `ia`, with a configuration that suits it.
    pub fn open(ia: &str) -> io::Result<Self> {
        Self::open_inner(ia, Config::suited_to)
    }

    /// Returns the stack of the adapter that has this address. Sockets that exist at the same time
    /// share one stack for each address.
    pub fn at(address: IpAddr) -> io::Result<Self> {
        /// A stack that other sockets hold, by its address.
        type Open = (IpAddr, Weak<StackInner>, Weak<Guard>);
        static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock().ignore_poison();
        open.retain(|(_, _, guard)| guard.strong_count() > 0);
        for (_, inner, guard) in open.iter().filter(|(own, ..)| *own == address) {
            if let (Some(inner), Some(guard)) = (inner.upgrade(), guard.upgrade()) {
                return Ok(Self {
                    config: inner.config,
                    inner,
                    _guard: guard,
                });
            }
        }
        let ia = Ia::open_at(address).map_err(|error| errors::of_dat(&error))?;
        let stack = Self::open(ia.name())?;
        let weak = (Arc::downgrade(&stack.inner), Arc::downgrade(&stack._guard));
        open.push((address, weak.0, weak.1));
        Ok(stack)
    }

    /// Returns the stack of the adapter at the address from which the kernel would send to `peer`,
    /// as [`Stack::at`] does. No packet is sent.
    pub fn toward(peer: SocketAddr) -> io::Result<Self> {
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(peer)?;
        Self::at(socket.local_addr()?.ip())
    }

    /// Opens the adapter that `dat.conf` lists under `ia`, with the sizes and limits of `config`.
    pub fn open_with(ia: &str, config: Config) -> io::Result<Self> {
        Self::open_inner(ia, |_| config)
    }

    fn open_inner(ia: &str, config: impl FnOnce(&ProviderAttr) -> Config) -> io::Result<Self> {
        let always_ready = host::descriptors::raise(eventfd(1, EventfdFlags::CLOEXEC)?)?.into();
        let inner = StackInner::open(ia, config, always_ready);
        let inner = inner.map_err(|error| errors::of_dat(&error))?;
        inner.config.check()?;
        let inner = Arc::new(inner);
        let served = Arc::clone(&inner);
        host::threads::spawn_quiet("sdp-stack", move || serve(&served))?;
        let guard = Guard {
            stack: Arc::clone(&inner),
        };
        Ok(Self {
            config: inner.config,
            inner,
            _guard: Arc::new(guard),
        })
    }

    /// Returns a clone on this adapter whose new sockets have the sizes and limits of `config`.
    pub fn with_config(&self, config: Config) -> io::Result<Self> {
        config.check()?;
        Ok(Self {
            config,
            ..self.clone()
        })
    }

    /// The sizes and limits of sockets that are made with this clone.
    #[must_use]
    pub const fn config(&self) -> Config {
        self.config
    }

    /// Waits until the peers' kernels have all bytes that were written to the stack's sockets, or
    /// until no byte was acknowledged for `patience`. Bytes that are still in this host's kernel
    /// may be lost when the process ends: the kernel answers the peer's next message with a reset,
    /// and discards the unacknowledged bytes.
    pub fn settle(&self, patience: Duration) {
        let mut least = usize::MAX;
        let mut until = Some(Instant::now());
        loop {
            let undelivered = self
                .inner
                .listed()
                .iter()
                .map(|socket| socket.undelivered())
                .sum();
            if undelivered < least {
                least = undelivered;
                until = Instant::now().checked_add(patience);
            }
            if undelivered == 0 || until.is_some_and(|until| Instant::now() >= until) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// True once the adapter has reported that its device is lost: the device was removed, or its
    /// link went down. No connection works over this stack any more; a new one has to be opened.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let stack = &self.inner;
        let reported = stack.adapter.ia.async_evd();
        while let Ok(Some(event)) = reported.dequeue() {
            if matches!(event, Event::Async(error) if error.kind == AsyncKind::IaCatastrophic) {
                stack.is_lost.store(true, Ordering::Relaxed);
            }
        }
        stack.is_lost.load(Ordering::Relaxed)
    }

    /// The adapter's address.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.inner.adapter.address
    }

    /// True if the provider makes connections over TCP sockets that have this local address. A
    /// provider that accepts only sockets of its own interface declares this by a named attribute.
    /// Any other provider is assumed to accept all sockets.
    #[must_use]
    pub fn takes_sockets_of(&self, local: IpAddr) -> bool {
        let local = local.to_canonical();
        let is_own = self.inner.adapter.address.is_none_or(|own| {
            let own = own.ip().to_canonical();
            own == local || own.is_loopback() && local.is_loopback()
        });
        is_own || local.is_unspecified() || !self.inner.accepts_own_sockets_only
    }

    /// Returns the private data of a rejection: this end's version for a peer of another version,
    /// otherwise nothing.
    pub(crate) fn refusal(&self, error: WireError) -> Vec<u8> {
        match error {
            WireError::Version { .. } => {
                let ack = Connection::introduction(self.config.of_protocol());
                // If the private data has no room for the version, the rejection carries none.
                ack.trimmed(self.inner.adapter.private_data_max)
                    .unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }
}

/// The named attribute of a provider for the sockets that it accepts: `own` or `any`.
const SOCKETS: &str = "DAT_RS_SOCKETS";

impl StackInner {
    fn open(
        ia: &str,
        config: impl FnOnce(&ProviderAttr) -> Config,
        always_ready: OwnDescriptor,
    ) -> dat_api::Result<Self> {
        let ia = Ia::open(ia)?;
        let (attr, provider) = (ia.attr()?, ia.provider_attr()?);
        Ok(Self {
            config: config(&provider),
            accepts_own_sockets_only: provider.specific(SOCKETS) == Some("own"),
            is_lost: AtomicBool::new(false),
            sockets: Mutex::default(),
            doorbells: Mutex::default(),
            always_ready,
            adapter: Arc::new(Adapter::new(ia, &attr, &provider)?),
        })
    }

    fn sockets(&self) -> MutexGuard<'_, HashMap<EvdId, Arc<Socket>>> {
        self.sockets.lock().ignore_poison()
    }

    /// Makes the stack's thread write the eventfd `doorbell` whenever the dispatcher `for_evd`
    /// triggers the adapter's CNO, until the owner of the doorbell drops it.
    pub(crate) fn ring(&self, doorbell: &Arc<OwnDescriptor>, for_evd: EvdId) {
        let mut doorbells = self.doorbells();
        doorbells.retain(|_, doorbell| doorbell.strong_count() > 0);
        doorbells.insert(for_evd, Arc::downgrade(doorbell));
        // A trigger that preceded the insertion has not written the doorbell.
        doorbell.count_up();
    }

    fn doorbells(&self) -> MutexGuard<'_, HashMap<EvdId, Weak<OwnDescriptor>>> {
        self.doorbells.lock().ignore_poison()
    }

    /// Makes the stack's thread serve this socket until its connection has ended.
    pub(crate) fn serve(&self, socket: &Arc<Socket>) {
        for evd in [&socket.evd, &socket.connections] {
            self.sockets().insert(evd.id(), Arc::clone(socket));
        }
        // Events that occurred before the socket was listed did not make the thread serve it.
        self.adapter.wake();
        socket.hand_over(&mut socket.lock());
    }

    /// Sleeps until a dispatcher triggers, and serves the socket of that dispatcher. Returns true
    /// if all sockets are to be served.
    fn wait(&self, pause: Duration) -> bool {
        match self.adapter.cno.wait(Some(pause)) {
            Ok(Some(_)) if !self.adapter.has_cno_fd => {
                // The provider may have lost the triggers of other dispatchers.
                self.adapter.wakeup.clear();
                true
            }
            Ok(Some(evd)) if evd == self.adapter.wakeup.id() => self.adapter.wakeup.clear(),
            Ok(Some(evd)) => {
                let doorbell = self.doorbells().get(&evd).and_then(Weak::upgrade);
                if let Some(doorbell) = doorbell {
                    doorbell.count_up();
                    return false;
                }
                let socket = self.sockets().get(&evd).cloned();
                // A dispatcher of a socket that is not listed yet has triggered.
                socket.is_none_or(|socket| {
                    self.serve_one(&socket, false);
                    false
                })
            }
            Ok(None) => false,
            Err(error) => {
                tracing::error!(%error, "the stack's thread cannot wait");
                thread::sleep(TICK);
                false
            }
        }
    }

    /// Returns each socket once, although both of its dispatchers are listed.
    fn listed(&self) -> Vec<Arc<Socket>> {
        let sockets = self.sockets();
        let once = sockets
            .iter()
            .filter(|(evd, socket)| **evd == socket.evd.id());
        once.map(|(_, socket)| Arc::clone(socket)).collect()
    }

    /// Serves all sockets. Only this function delivers the ticks that sockets have asked for.
    fn serve_all(&self) {
        if !self.adapter.has_cno_fd {
            // The provider may have lost the triggers of their dispatchers.
            let doorbells = self.doorbells();
            let all = doorbells.values().filter_map(Weak::upgrade);
            all.for_each(|doorbell| doorbell.count_up());
        }
        let ticks = self.adapter.ticks.swap(false, Ordering::SeqCst);
        for socket in self.listed() {
            self.serve_one(&socket, ticks);
        }
    }

    fn serve_one(&self, socket: &Socket, ticks: bool) {
        if socket.serve(ticks) {
            for evd in [&socket.evd, &socket.connections] {
                self.sockets().remove(&evd.id());
            }
        }
    }
}

/// Runs the stack's thread. It sleeps in `dat_cno_wait`, in which the provider arms its queues,
/// sleeps and makes progress.
///
/// The thread ends when it holds the last reference to the stack, and then drops the stack. No
/// other thread may drop it, because an event dispatcher cannot be freed during a wait on its CNO.
fn serve(stack: &Arc<StackInner>) {
    let mut now = Instant::now();
    let mut due = now + TICK;
    loop {
        // Sockets that trigger all the time must not delay the tick of other sockets.
        let pause = due.saturating_duration_since(now);
        // A panic must not end this thread: all connections of the process would hang.
        host::threads::catch_panic(|| {
            let wants_all = stack.wait(pause);
            now = Instant::now();
            if wants_all || due <= now {
                due = now + LONG;
                stack.serve_all();
            }
        });
        due = due.min(now + stack.adapter.pause());
        // A clone of `Stack` holds a reference to the stack, and a socket holds one to the adapter.
        if Arc::strong_count(stack) == 1 && Arc::strong_count(&stack.adapter) == 1 {
            return;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let stack = &self.stack;
        let until = Instant::now().checked_add(stack.config.close_timeout);
        while until.is_none_or(|until| Instant::now() < until)
            && stack.sockets().values().any(|socket| socket.is_closing())
        {
            stack.serve_all();
            thread::sleep(Duration::from_millis(1));
        }
        stack.sockets().clear();
    }
}
