//! The work before and after a `fork`, in parent and child.
//!
//! The child has a copy of the parent's memory, but must not use anything that another thread may
//! have been changing at the fork. So the parent prepares a separate state, and the child uses only
//! that.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_int, c_long};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::{Arc, MutexGuard};

use ops::PortMapperLock;
use rustix::io::Errno;

use crate::fd::{self, Entry};
use crate::lifecycle::exiting;
use crate::listener::{InheritedListener, Listener};
use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{self, errno, guard};
use crate::setup::doorkeeper::{self, Bridges};
use crate::setup::offer;
use crate::sharing::share;
use crate::socket::Socket;
use crate::socket::identity::{Identity, IdentityCopy};
use crate::socket::local::LocalSocket;
use crate::socket::polling;
use crate::socket::relay::{self, SharedLock};
use crate::socket::relay_client::RelayClient;
use crate::socket::shared_state::SharedStateRef;
use crate::{events, observing, switch};

/// Registers the handlers that run around a `fork`. Called before the first entry.
pub(super) fn register() {
    host::forks::around(Some(before), Some(in_parent), Some(in_child));
    // SAFETY: the handler has the signature that the C library demands, and is never unloaded.
    unsafe { libc::atexit(at_exit) };
}

/// The guards of a thread that is about to fork, held until both processes run.
pub(crate) struct Forking {
    /// Guards of the protocols. While they exist, no protocol's thread changes memory that the
    /// child uses.
    _guards: Vec<MutexGuard<'static, ()>>,
    /// Dropped last.
    _signals_blocked: Option<SignalsBlocked>,
}

/// Prepares a `fork` that a hook was called for. Work that may take locks of the stack or end a
/// connection is done here and not in the `pthread_atfork` handlers: the handlers of libraries that
/// a protocol has loaded run before ours and take locks, for which this thread would wait for ever.
pub(crate) fn before_fork() -> Forking {
    fd::on_forked();
    if process::is_vforked() {
        return Forking {
            _guards: Vec::new(),
            _signals_blocked: None,
        };
    }
    // A signal handler that interrupts this work and forks would wait for the interrupted thread.
    let signals_blocked = SignalsBlocked::begin();
    if process::has_owner() {
        // `prepare` may open an adapter, which takes one of the guards below.
        prepare();
    }
    let protocols = switch::made().map(|switch| switch.registry().protocols());
    let held = protocols.into_iter().flatten();
    Forking {
        _guards: held.filter_map(|protocol| protocol.before_fork()).collect(),
        _signals_blocked: Some(signals_blocked),
    }
}

/// Makes a child by a call that runs no handlers. Offloaded connections and listeners are inherited
/// as by a `fork`. The child keeps its later sockets on TCP, because the DAT libraries, whose
/// handlers do not run, do not work in it.
///
/// The C library does not lock its allocator for such a child. The allocator is in use at that
/// moment only if another thread frees memory of the calling thread.
pub(crate) fn fork_by_number(call: impl FnOnce() -> c_long) -> c_long {
    let forking = before_fork();
    if let Err(error) = forking.check() {
        drop(forking);
        errno::set(error.raw_os_error());
        return -1;
    }
    let is_prepared = !FORK_STATE.get().is_null();
    let made = call();
    if made == 0 && is_prepared {
        switch::keep_on_tcp();
        observing::reset_after_fork();
        in_child();
    }
    made
}

impl Forking {
    /// Returns `ENOMEM`, as `fork` does, if the child could not use a connection.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        // SAFETY: `prepare` made the box on this thread, which frees it when the fork is done.
        let state = unsafe { FORK_STATE.get().as_ref() };
        match state.is_some_and(|state| state.lacks_memory) {
            true => Err(Errno::NOMEM),
            false => Ok(()),
        }
    }
}

impl Drop for Forking {
    fn drop(&mut self) {
        // Needed for a fork that runs no handlers. `errno` of a failed fork is kept.
        let why = errno::get();
        drop(take());
        errno::set(why);
    }
}

extern "C" fn before() {
    fd::share_sets();
    if FORK_STATE.get().is_null() {
        // No hook was called for this fork.
        fd::on_forked();
        prepare();
    }
}

extern "C" fn in_parent() {
    drop(take());
}

extern "C" fn in_child() {
    fd::unlock_after_fork();
    host::descriptors::forget_own_numbers();
    process::own_table_in_child();
    events::reset_after_fork();
    relay::reset_after_fork();
    renew_locked();
    forget_undecided();
    inherit();
}

extern "C" fn at_exit() {
    exiting::await_other_processes();
}

/// The state that the parent prepares for the child.
#[derive(Default)]
struct ForkState {
    connections: Vec<InheritedSocket>,
    /// The program's descriptors, each with the index of its connection.
    connection_numbers: Vec<(c_int, usize)>,
    listeners: Vec<InheritedListener>,
    /// The program's descriptors, each with the index of its listener.
    listener_numbers: Vec<(c_int, usize)>,
    /// True if there is no memory to share a connection. The child could send bytes into the
    /// socket pair that nobody receives.
    lacks_memory: bool,
    /// The descriptors that the child must close, because only the owner may hold them.
    withheld: Vec<RawFd>,
    /// The locks that keep these descriptors open until the fork is done.
    sources: Option<Sources>,
}

struct Sources {
    _relays: SharedLock,
    _bridges: Option<MutexGuard<'static, Bridges>>,
    _mapper: Option<PortMapperLock<'static>>,
}

struct InheritedSocket {
    copied: IdentityCopy,
    shared_state: Option<SharedStateRef>,
}

thread_local! {
    /// Set while a fork is in progress. The forking thread is the only thread of the child.
    static FORK_STATE: Cell<*mut ForkState> = const { Cell::new(ptr::null_mut()) };
}

/// Collects, in the parent, the state that the child needs.
fn prepare() {
    polling::end_all();
    let _inside = guard::enter();
    let mut state = ForkState::default();
    let mut known = HashMap::new();
    let mut known_listeners = HashMap::new();
    for fd in fd::all() {
        // A listener that this program has inherited over an `exec` and not used is not offered.
        if Listener::of(fd).is_some_and(|it| !it.lacks_service()) {
            offer::take_over(fd);
        }
        fd::settle(fd);
        let (key, inherited) = if let Some(socket) = fd::find::<Socket>(fd) {
            (address(&socket), state.of_owner(&socket))
        } else if let Some(client) = fd::find::<RelayClient>(fd) {
            let inherited = InheritedSocket {
                copied: client.identity().copied(),
                shared_state: client.shared_state(),
            };
            (address(&client), Some(inherited))
        } else {
            if let Some(listener) = Listener::of(fd) {
                state.of_listener(fd, &listener, &mut known_listeners);
            }
            continue;
        };
        // A connection that has broken needs no entry in the child.
        let Some(inherited) = inherited else { continue };
        let index = *known.entry(key).or_insert_with(|| {
            state.connections.push(inherited);
            state.connections.len() - 1
        });
        state.connection_numbers.push((fd, index));
    }
    let relays = relay::lock();
    state.withheld.extend(relays.withheld());
    let bridges = doorkeeper::lock();
    let of_bridges = bridges.iter().flat_map(|all| all.descriptors());
    state.withheld.extend(of_bridges);
    let mapper = switch::made().map(|switch| switch.lock_port_mapper());
    let of_mapper = mapper.iter().flat_map(PortMapperLock::descriptors);
    state.withheld.extend(of_mapper);
    state.sources = Some(Sources {
        _relays: relays,
        _bridges: bridges,
        _mapper: mapper,
    });
    FORK_STATE.set(Box::into_raw(Box::new(state)));
}

fn address<T>(of: &Arc<T>) -> usize {
    Arc::as_ptr(of).addr()
}

impl ForkState {
    fn of_owner(&mut self, socket: &Arc<Socket>) -> Option<InheritedSocket> {
        let relay = match share(socket) {
            Ok(relay) => relay,
            Err(error) => {
                self.lacks_memory |= error == Errno::NOMEM;
                return None;
            }
        };
        Some(InheritedSocket {
            copied: socket.identity().copied(),
            shared_state: Some(relay.shared_state()),
        })
    }

    fn of_listener(
        &mut self,
        fd: c_int,
        listener: &Arc<Listener>,
        known: &mut HashMap<usize, usize>,
    ) {
        let index = match known.get(&address(listener)) {
            Some(index) => *index,
            None => {
                let Some(copied) = listener.copy(&mut self.withheld) else {
                    return;
                };
                self.listeners.push(copied);
                known.insert(address(listener), self.listeners.len() - 1);
                self.listeners.len() - 1
            }
        };
        self.listener_numbers.push((fd, index));
    }
}

fn take() -> Option<Box<ForkState>> {
    let state = FORK_STATE.replace(ptr::null_mut());
    // SAFETY: `prepare` made the box, in this thread or in the parent's thread of which this is the
    // copy.
    (!state.is_null()).then(|| unsafe { Box::from_raw(state) })
}

/// Makes the entries of the child, which uses the parent's connections through their pairs.
fn inherit() {
    let Some(mut state) = take() else {
        return;
    };
    // The locks belong to the parent, and the child never takes them again.
    std::mem::forget(state.sources.take());
    for fd in &state.withheld {
        // SAFETY: nothing in the child uses the number: the objects that own it in the parent are
        // forgotten below.
        drop(unsafe { OwnedFd::from_raw_fd(*fd) });
    }
    let connections: Vec<Arc<RelayClient>> =
        state.connections.into_iter().map(relay_client).collect();
    for (fd, index) in state.connection_numbers {
        fd::store_in_child(fd, Arc::clone(&connections[index]) as Entry);
    }
    let listeners: Vec<Arc<Listener>> = state
        .listeners
        .into_iter()
        .map(|copied| Arc::new(Listener::inherited(copied)))
        .collect();
    for (fd, index) in state.listener_numbers {
        fd::store_in_child(fd, Arc::clone(&listeners[index]) as Entry);
    }
}

/// Replaces the state of local connections that another thread of the parent was using: no thread
/// of the child would unlock it. Options that the parent stored there have their default values in
/// the child.
fn renew_locked() {
    if !fd::has_local() {
        return;
    }
    for fd in fd::all().filter(|fd| fd::is_local(*fd)) {
        if let Some(socket) = fd::find::<LocalSocket>(fd)
            && !socket.is_unlocked()
        {
            fd::store_in_child(fd, Arc::<LocalSocket>::default());
        }
    }
}

/// Makes plain descriptors of the sockets that another thread of the parent is connecting, because
/// the child has no part in their connections.
fn forget_undecided() {
    fd::all()
        .filter(|fd| fd::is_connecting(*fd))
        .for_each(fd::forget_copied);
}

fn relay_client(inherited: InheritedSocket) -> Arc<RelayClient> {
    let identity = Arc::new(Identity::from_copy(inherited.copied));
    let client = RelayClient::inherited(identity, inherited.shared_state);
    Arc::new(client)
}
