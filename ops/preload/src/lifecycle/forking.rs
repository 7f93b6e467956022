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

use crate::lifecycle::exiting;
use crate::listener::{InheritedListener, Listener};
use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{self, errno, guard};
use crate::setup::offer;
use crate::sharing::share;
use crate::socket::Socket;
use crate::socket::identity::{Identity, IdentityCopy};
use crate::socket::polling;
use crate::socket::relay::{self, SharedLock};
use crate::socket::relay_client::RelayClient;
use crate::socket::shared_state::SharedStateRef;
use crate::table::{self, Entry};
use crate::tcp::made;
use crate::{deferred_removal, events, observing, switch};

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
    deferred_removal::share_sets();
    if process::is_vforked() {
        return Forking {
            _guards: Vec::new(),
            _signals_blocked: None,
        };
    }
    made::share_all();
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
    let _forking = before_fork();
    let is_prepared = !FORK_STATE.get().is_null();
    let made = call();
    if made == 0 && is_prepared {
        switch::keep_on_tcp();
        observing::reset_after_fork();
        in_child();
    }
    made
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
    deferred_removal::share_sets();
    if FORK_STATE.get().is_null() {
        // No hook was called for this fork.
        made::share_all();
        prepare();
    }
}

extern "C" fn in_parent() {
    drop(take());
}

extern "C" fn in_child() {
    table::unlock_after_fork();
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
    /// The descriptors that the child must close, because only the owner may hold them.
    withheld: Vec<RawFd>,
    /// The locks that keep these descriptors open until the fork is done.
    sources: Option<Sources>,
}

struct Sources {
    _relays: SharedLock,
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
    for fd in table::within(0, usize::MAX) {
        // A listener that this program has inherited over an `exec` and not used is not offered.
        if table::find_listener(fd).is_some_and(|it| !it.lacks_service()) {
            offer::take_over(fd);
        }
        table::settle(fd);
        let (key, inherited) = match table::entry(fd) {
            Some(Entry::Socket(socket)) => (address(&socket), ForkState::of_owner(&socket)),
            Some(Entry::RelayClient(client)) => {
                let inherited = InheritedSocket {
                    copied: client.identity().copied(),
                    shared_state: client.shared_state(),
                };
                (address(&client), Some(inherited))
            }
            Some(Entry::Listener(listener)) => {
                state.of_listener(fd, &listener, &mut known_listeners);
                continue;
            }
            Some(Entry::Local(_) | Entry::Listed(_) | Entry::Undecided(_)) | None => continue,
        };
        // In the child, a connection that cannot be shared is a socket pair without an entry.
        let Some(inherited) = inherited else { continue };
        let index = *known.entry(key).or_insert_with(|| {
            state.connections.push(inherited);
            state.connections.len() - 1
        });
        state.connection_numbers.push((fd, index));
    }
    let relays = relay::lock();
    state.withheld.extend(relays.withheld());
    let mapper = switch::made().map(|switch| switch.lock_port_mapper());
    let of_mapper = mapper.iter().flat_map(PortMapperLock::descriptors);
    state.withheld.extend(of_mapper);
    state.sources = Some(Sources {
        _relays: relays,
        _mapper: mapper,
    });
    FORK_STATE.set(Box::into_raw(Box::new(state)));
}

fn address<T>(of: &Arc<T>) -> usize {
    Arc::as_ptr(of).addr()
}

impl ForkState {
    fn of_owner(socket: &Arc<Socket>) -> Option<InheritedSocket> {
        let relay = share(socket).ok()?;
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
        replace(fd, Entry::RelayClient(connections[index].clone()));
    }
    let listeners: Vec<Arc<Listener>> = state
        .listeners
        .into_iter()
        .map(|copied| Arc::new(Listener::inherited(copied)))
        .collect();
    for (fd, index) in state.listener_numbers {
        replace(fd, Entry::Listener(listeners[index].clone()));
    }
}

/// Replaces the state of local connections that another thread of the parent was using: no thread
/// of the child would unlock it. Options that the parent stored there have their default values in
/// the child.
fn renew_locked() {
    if !table::has_local() {
        return;
    }
    for fd in table::within(0, usize::MAX).filter(|fd| table::is_local(*fd)) {
        if let Some(Entry::Local(socket)) = table::entry(fd)
            && !socket.is_unlocked()
        {
            replace(fd, Entry::Local(Arc::default()));
        }
    }
}

/// Makes plain descriptors of the sockets that another thread of the parent is connecting, because
/// the child has no part in their connections.
fn forget_undecided() {
    let undecided = |fd: &c_int| table::undecided(*fd).is_some();
    table::within(0, usize::MAX)
        .filter(undecided)
        .for_each(table::forget_copied);
}

/// Replaces an entry. The former entry is not dropped, because its parts belong to the parent.
fn replace(fd: c_int, entry: Entry) {
    if let Ok(Some(before)) = table::insert(fd, entry) {
        std::mem::forget(before);
    }
}

fn relay_client(inherited: InheritedSocket) -> Arc<RelayClient> {
    let identity = Arc::new(Identity::from_copy(inherited.copied));
    let client = RelayClient::inherited(identity, inherited.shared_state);
    Arc::new(client)
}
