//! An interface adapter, and the thread that serves sockets whose users do something else.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dat_api::{
    EvdId, Ia, ProviderAttr,
    abi::{DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_STATE},
};
use libc::pollfd;
use rustix::event::{EventfdFlags, eventfd};
use sdp_proto::{Connection, wire::WireError};

use crate::{
    Config,
    adapter::{Adapter, LONG, TICK},
    driver_role::IdleWatch,
    errors,
    socket::Socket,
};

/// Sockets that a thread of the program looks at while it is about to wait: each look asks the
/// provider about all of them.
const SERVED_HERE_MAX: usize = 128;

/// An open interface adapter for stream sockets. Clones share it.
///
/// Bytes of closed sockets leave behind the close; when the last clone and the last socket are
/// gone, that waits for them, at most as long as [`Config::close_timeout`].
#[derive(Debug, Clone)]
pub struct Stack {
    pub(crate) inner: Arc<StackInner>,
    /// What sockets are made of that are made with this one.
    pub(crate) config: Config,
    // Declared last: waits for closed sockets when the last clone goes.
    _guard: Arc<Guard>,
}

#[derive(Debug)]
pub(crate) struct StackInner {
    pub(crate) adapter: Arc<Adapter>,
    /// What suits the adapter, or whoever opened it.
    config: Config,
    own_sockets_only: bool,
    sockets: Mutex<HashMap<EvdId, Arc<Socket>>>,
    /// Always ready: what a stream hands out to be waited for that can have no descriptor of its
    /// own.
    pub(crate) always_ready: OwnedFd,
    /// Nobody can sleep in the place of the thread: the provider has nothing to sleep on.
    no_external_sleep: AtomicBool,
}

/// Waits for what closed sockets still have to say, and then leaves the adapter to the thread.
#[derive(Debug)]
struct Guard {
    stack: Arc<StackInner>,
}

impl Stack {
    /// Opens the adapter that `dat.conf` lists under `ia`, with a configuration that suits it.
    pub fn open(ia: &str) -> io::Result<Self> {
        Self::open_inner(ia, Config::suited_to)
    }

    /// The same with other sizes and limits.
    pub fn open_with(ia: &str, config: Config) -> io::Result<Self> {
        Self::open_inner(ia, |_| config)
    }

    fn open_inner(ia: &str, config: impl FnOnce(&ProviderAttr) -> Config) -> io::Result<Self> {
        let always_ready = host::descriptors::raise(eventfd(1, EventfdFlags::CLOEXEC)?)?;
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

    /// The same adapter, for sockets of other sizes and limits.
    pub fn with_config(&self, config: Config) -> io::Result<Self> {
        config.check()?;
        Ok(Self {
            config,
            ..self.clone()
        })
    }

    /// The sizes and limits of its sockets.
    #[must_use]
    pub const fn config(&self) -> Config {
        self.config
    }

    /// Waits until what was written to its sockets is in the peers' kernels, or until nothing has
    /// moved for as long as `patience`. In the kernel of this host they are not safe: the peer says
    /// more than bytes, and its first word to a process that has ended makes the kernel throw away
    /// what that has left behind.
    pub fn settle(&self, patience: Duration) {
        let mut least = usize::MAX;
        let mut until = Instant::now();
        loop {
            let undelivered = self.inner.listed().iter().map(|it| it.undelivered()).sum();
            if undelivered < least {
                least = undelivered;
                until = Instant::now() + patience;
            }
            if undelivered == 0 || Instant::now() >= until {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Looks after the sockets in the calling thread, which is about to wait for what they tell
    /// those who watch them, and says whether something had come about. The stack's thread leaves
    /// them to such calls from now on, until none has come for a while or
    /// [`Stack::leave_to_thread`] is called. `None`: there are too many to look at.
    pub fn serve_here(&self) -> Option<bool> {
        self.inner.serve_here()
    }

    /// The calling thread, behind [`Stack::serve_here`], is about to sleep by `poll` or its kin. It
    /// goes on looking after the sockets when it has woken, by [`Stack::end_sleep`]. Fills `fds`
    /// with what it is to sleep on besides what it waits for itself, and says how many these are;
    /// none when something has come about. `None`: the stack's thread does not leave it to the
    /// caller, or not within `left`, which is how long the sleep may last.
    ///
    /// The thread need not come back: whoever knows that it does not calls the other one in its
    /// place.
    pub fn begin_sleep(&self, fds: &mut [pollfd], left: Duration) -> Option<usize> {
        let stack = &self.inner;
        if stack.no_external_sleep.load(Ordering::Relaxed) || !stack.adapter.driver.begin_wait(left)
        {
            return None;
        }
        let count = stack.adapter.cno.begin_sleep(fds);
        if !matches!(count, Ok(1..)) {
            stack.adapter.driver.end_wait();
            stack.serve_triggered();
        } else if !stack.adapter.driver.is_lent() {
            // Taken back before there was a sleep that whoever did so could have ended.
            stack.end_sleep();
            return None;
        }
        if let Err(error) = &count {
            tracing::debug!(%error, "nobody sleeps in the stack's place");
            // Where somebody waits, or there is no room for all descriptors, that is so for now.
            let is_for_now = error.is(DAT_INVALID_STATE) || error.is(DAT_INSUFFICIENT_RESOURCES);
            stack
                .no_external_sleep
                .store(!is_for_now, Ordering::Relaxed);
        }
        count.ok()
    }

    /// The thread that slept has woken: looks after what has come about. Without one it does
    /// nothing.
    pub fn end_sleep(&self) {
        self.inner.end_sleep();
    }

    /// The stack's thread looks after the sockets again: nobody else does for a while.
    ///
    /// It finds what has come about meanwhile by itself. The caller may hold locks, and ends no
    /// connection here.
    pub fn leave_to_thread(&self) {
        self.inner.adapter.driver.reclaim();
        self.inner.end_external_sleep();
    }

    /// The adapter's address.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.inner.adapter.address
    }

    /// Whether it makes connections over TCP sockets that have this local address, or says so: a
    /// provider that knows only those of its own interface tells it by a named attribute.
    #[must_use]
    pub fn takes_sockets_of(&self, local: IpAddr) -> bool {
        let local = local.to_canonical();
        let is_own = self.inner.adapter.address.is_none_or(|own| {
            let own = own.ip().to_canonical();
            own == local || own.is_loopback() && local.is_loopback()
        });
        is_own || local.is_unspecified() || !self.inner.own_sockets_only
    }

    /// What a peer is told with a refusal: whose version is another is told ours.
    pub(crate) fn refusal(&self, error: WireError) -> Vec<u8> {
        match error {
            WireError::Version { .. } => {
                let ack = Connection::introduction(self.config.of_protocol());
                // Where there is no room for it, it is refused without.
                ack.trimmed(self.inner.adapter.private_data_max)
                    .unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }
}

/// Named attribute of a provider: whose sockets it takes, `own` or `any`.
const SOCKETS: &str = "DAT_RS_SOCKETS";

impl StackInner {
    fn open(
        ia: &str,
        config: impl FnOnce(&ProviderAttr) -> Config,
        always_ready: OwnedFd,
    ) -> dat_api::Result<Self> {
        let ia = Ia::open(ia)?;
        let (attr, provider) = (ia.attr()?, ia.provider_attr()?);
        Ok(Self {
            config: config(&provider),
            own_sockets_only: provider.specific(SOCKETS) == Some("own"),
            sockets: Mutex::default(),
            always_ready,
            no_external_sleep: AtomicBool::new(false),
            adapter: Arc::new(Adapter::new(ia, &attr, &provider)?),
        })
    }

    fn sockets(&self) -> MutexGuard<'_, HashMap<EvdId, Arc<Socket>>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread serves this socket from now on, until it has ended.
    pub(crate) fn serve(&self, socket: &Arc<Socket>) {
        for evd in [&socket.evd, &socket.connections] {
            self.sockets().insert(evd.id(), Arc::clone(socket));
        }
        // Events that came before it was listed woke nobody.
        self.adapter.wake();
        socket.hand_over(&mut socket.lock());
    }

    fn serve_here(&self) -> Option<bool> {
        if self.sockets().len() > 2 * SERVED_HERE_MAX {
            return None;
        }
        if self.adapter.driver.lend() {
            self.adapter.wakeup.signal(false);
        }
        if !self.adapter.driver.is_aside() {
            // What has triggered is the thread's to take, which would sleep on without it.
            self.listed()
                .iter()
                .for_each(|it| self.serve_one(it, false));
            return Some(true);
        }
        // The first look has the provider work for all of them, the others do not.
        let Ok(Some(evd)) = self.adapter.cno.take_trigger() else {
            return Some(false);
        };
        if self.on_trigger(evd) {
            self.look_at_all();
        }
        self.serve_triggered();
        Some(true)
    }

    fn end_sleep(&self) {
        self.end_external_sleep();
        self.serve_triggered();
    }

    /// Who slept in the place of the stack's thread does so no more.
    fn end_external_sleep(&self) {
        if let Err(error) = self.adapter.cno.end_sleep() {
            tracing::error!(%error, "who slept in the place of the stack's thread does not wake");
        }
        self.adapter.driver.end_wait();
    }

    /// Looks at the sockets whose dispatchers have triggered, and no further. While the thread is
    /// there, what has triggered is its to take: it would sleep on without it.
    fn serve_triggered(&self) {
        while self.adapter.driver.is_aside()
            && let Ok(Some(evd)) = self.adapter.cno.take_what_has_triggered()
        {
            if self.on_trigger(evd) {
                self.look_at_all();
            }
        }
    }

    /// The thread: waits for an event and handles it. Whether all sockets are to be looked at.
    fn wait(&self, pause: Duration) -> bool {
        match self.adapter.cno.wait(Some(pause)) {
            Ok(Some(evd)) => self.on_trigger(evd),
            Ok(None) => false,
            Err(error) => {
                tracing::error!(%error, "the stack's thread cannot wait");
                thread::sleep(TICK);
                false
            }
        }
    }

    /// A dispatcher has triggered. Whether all sockets are to be looked at.
    fn on_trigger(&self, evd: EvdId) -> bool {
        if evd == self.adapter.wakeup.id() {
            self.adapter.wakeup.clear()
        } else {
            !self.look_at(evd)
        }
    }

    /// Looks at the socket whose dispatcher has triggered. `false`: that was none of a socket's.
    fn look_at(&self, evd: EvdId) -> bool {
        let socket = self.sockets().get(&evd).cloned();
        socket.is_some_and(|socket| {
            self.serve_one(&socket, false);
            true
        })
    }

    /// Each socket once.
    fn listed(&self) -> Vec<Arc<Socket>> {
        let sockets = self.sockets();
        let once = sockets.iter().filter(|(evd, it)| **evd == it.evd.id());
        once.map(|(_, socket)| Arc::clone(socket)).collect()
    }

    /// Looks at all sockets. One that wanted a tick gets it here and nowhere else.
    fn look_at_all(&self) {
        let ticks = self.adapter.ticks.swap(false, Ordering::SeqCst);
        for socket in self.listed() {
            self.serve_one(&socket, ticks);
        }
    }

    fn serve_one(&self, socket: &Socket, ticks: bool) {
        socket.serve(ticks);
        if socket.lock().has_ended() {
            for evd in [&socket.evd, &socket.connections] {
                self.sockets().remove(&evd.id());
            }
        }
    }
}

/// The thread: ends when nobody else has the stack any more, and is the one to let go of it. An
/// event dispatcher cannot be freed while somebody waits for its notifications, as it does here.
fn serve(stack: &Arc<StackInner>) {
    let mut now = Instant::now();
    let mut due = now + TICK;
    let mut watch = IdleWatch::default();
    loop {
        // Sockets that trigger all the time must not keep the others from their tick.
        let pause = due.saturating_duration_since(now);
        // All connections of the process hang when this thread ends.
        host::threads::survive(|| {
            let looks = if stack.adapter.driver.is_lent() {
                stack.adapter.driver.step_aside(&mut watch, pause);
                false
            } else {
                stack.wait(pause)
            };
            now = Instant::now();
            if looks || due <= now {
                due = now + LONG;
                stack.look_at_all();
            }
        });
        due = due.min(now + stack.adapter.pause());
        // A socket has the adapter, whoever has the stack has both.
        if Arc::strong_count(stack) == 1 && Arc::strong_count(&stack.adapter) == 1 {
            return;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let stack = &self.stack;
        let until = Instant::now() + stack.config.close_timeout;
        while Instant::now() < until && stack.sockets().values().any(|socket| socket.is_closing()) {
            stack.look_at_all();
            thread::sleep(Duration::from_millis(1));
        }
        stack.sockets().clear();
    }
}
