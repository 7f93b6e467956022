//! The work around a `fork`, in both processes.
//!
//! The child has a copy of everything, and may use nothing of it that another thread could have
//! been changing. So the parent prepares what the child needs, and the child uses that alone.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::{Arc, MutexGuard};

use ops::PortMapperLock;

use crate::lifecycle::exiting;
use crate::listener::{InheritedListener, Listener};
use crate::process::undisturbed::Undisturbed;
use crate::process::{self, errno, guard};
use crate::setup::offer;
use crate::sharing::share;
use crate::socket::Socket;
use crate::socket::identity::{Identity, IdentityCopy};
use crate::socket::relay::{self, SharedLock};
use crate::socket::relayed::Relayed;
use crate::socket::shared_state::Place;
use crate::table::{self, Entry};
use crate::{events, switch};

/// Registers the handlers that run around a `fork`. Called before the first entry.
pub(super) fn register() {
    // SAFETY: the handlers are made to run around a fork, and at the exit.
    unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
        libc::atexit(at_exit);
    }
}

/// The guards of a thread that is about to fork, held until both processes run.
pub(crate) struct Forking {
    /// Guards of the protocols: their threads have finished what they make in common memory, and
    /// begin nothing more.
    _making: Vec<MutexGuard<'static, ()>>,
    /// Dropped last.
    _undisturbed: Option<Undisturbed>,
}

/// Prepares a `fork` that comes through a hook. Work that may take locks of the stack, or end a
/// connection that no other process has, is done here and not among the handlers: those of
/// libraries that a protocol has loaded run before ours, and this thread would wait for a lock that
/// it holds for the fork itself.
pub(crate) fn before_fork() -> Forking {
    if process::is_vforked() {
        return Forking {
            _making: Vec::new(),
            _undisturbed: None,
        };
    }
    // A signal handler that forked in the midst of this would wait for this thread.
    let undisturbed = Undisturbed::begin();
    if process::has_owner() {
        // It may open an adapter, which takes one of the guards below.
        prepare();
    }
    let protocols = switch::made().map(|switch| switch.registry().protocols());
    let held = protocols.into_iter().flatten();
    Forking {
        _making: held.filter_map(|protocol| protocol.before_fork()).collect(),
        _undisturbed: Some(undisturbed),
    }
}

impl Drop for Forking {
    fn drop(&mut self) {
        // For a fork without handlers. The error of a fork that failed stays.
        let why = errno::get();
        drop(take());
        errno::set(why);
    }
}

extern "C" fn before() {
    if FORK_STATE.get().is_null() {
        // A fork that has not come through our hook.
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
    inherit();
}

extern "C" fn at_exit() {
    exiting::await_others();
}

/// The state that a child begins with.
#[derive(Default)]
struct ForkState {
    connections: Vec<InheritedSocket>,
    /// The numbers of the program, each with the index of its connection.
    connection_numbers: Vec<(c_int, usize)>,
    listeners: Vec<InheritedListener>,
    /// The numbers of the program, each with the index of its listener.
    listener_numbers: Vec<(c_int, usize)>,
    /// The descriptors that only the owner may have.
    withheld: Vec<RawFd>,
    /// The origins of these descriptors, which are kept until the fork is done.
    sources: Option<Sources>,
}

struct Sources {
    _relays: SharedLock,
    _mapper: Option<PortMapperLock<'static>>,
}

struct InheritedSocket {
    copied: IdentityCopy,
    place: Option<Place>,
}

thread_local! {
    /// Set from before the fork to after it; the forking thread is the child's only one.
    static FORK_STATE: Cell<*mut ForkState> = const { Cell::new(ptr::null_mut()) };
}

/// Collects what the child needs, in the parent.
fn prepare() {
    let _inside = guard::enter();
    let mut state = ForkState::default();
    let mut known = HashMap::new();
    let mut known_listeners = HashMap::new();
    for fd in table::within(0, usize::MAX) {
        offer::take_over(fd);
        let (key, inherited) = match table::entry(fd) {
            Some(Entry::Socket(socket)) => (address(&socket), ForkState::of_owner(&socket)),
            Some(Entry::Relayed(relayed)) => {
                let inherited = InheritedSocket {
                    copied: relayed.identity().copied(),
                    place: relayed.place(),
                };
                (address(&relayed), Some(inherited))
            }
            Some(Entry::Listener(listener)) => {
                state.of_listener(fd, &listener, &mut known_listeners);
                continue;
            }
            Some(Entry::Local(_) | Entry::Listed(_)) | None => continue,
        };
        // A connection that cannot be shared stays the bare end of a pair in the child.
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
            place: Some(relay.place()),
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
    // SAFETY: made by `prepare` in this thread, or in the one of the parent that this is a copy of.
    (!state.is_null()).then(|| unsafe { Box::from_raw(state) })
}

/// Makes the entries of the child: it uses the connections of the parent through their pairs.
fn inherit() {
    let Some(mut state) = take() else {
        return;
    };
    // The locks are the parent's; the child never takes them again.
    std::mem::forget(state.sources.take());
    for fd in &state.withheld {
        // SAFETY: a number of the parent's that nothing here uses; the copies of what owns it in
        // the parent are forgotten below.
        drop(unsafe { OwnedFd::from_raw_fd(*fd) });
    }
    let connections: Vec<Arc<Relayed>> = state.connections.into_iter().map(relayed).collect();
    for (fd, index) in state.connection_numbers {
        replace(fd, Entry::Relayed(connections[index].clone()));
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

/// Replaces an entry. The parent's is forgotten, because its parts are the parent's.
fn replace(fd: c_int, entry: Entry) {
    if let Ok(Some(before)) = table::insert(fd, entry) {
        std::mem::forget(before);
    }
}

fn relayed(inherited: InheritedSocket) -> Arc<Relayed> {
    let identity = Arc::new(Identity::from_copy(inherited.copied));
    let relayed = Relayed::inherited(identity, inherited.place);
    Arc::new(relayed)
}
