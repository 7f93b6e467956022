//! What the child of a `fork` begins with.
//!
//! The child has a copy of everything, and may use nothing of it that another thread could have
//! been changing. So the parent prepares what the child needs, and the child looks at that alone.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;

use ops::PortMapperLock;

use super::relay::{self, Relay, SharedLock};
use super::relayed::{Place, Relayed};
use crate::listening::listener::{InheritedListener, Listener};
use crate::listening::offer;
use crate::socket::Socket;
use crate::socket::identity::{Identity, IdentityCopy};
use crate::table::{self, Entry};
use crate::{guard, switch};

/// What a child begins with.
#[derive(Default)]
struct ForkState {
    connections: Vec<InheritedSocket>,
    /// Numbers of the program, and which of the connections each names.
    connection_numbers: Vec<(c_int, usize)>,
    listeners: Vec<InheritedListener>,
    /// Numbers of the program, and which of the listeners each names.
    listener_numbers: Vec<(c_int, usize)>,
    /// Descriptors that are the owner's alone.
    withheld: Vec<RawFd>,
    /// Where these come from, so that they stay what they are until the fork is done.
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
    /// From before the fork to after it; the forking thread is the child's only one.
    static FORK_STATE: Cell<*mut ForkState> = const { Cell::new(ptr::null_mut()) };
}

/// Before a fork, in the parent.
pub(crate) fn prepare() {
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
        // One that cannot be shared stays the bare end of a pair in the child.
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
        let relay = Relay::of(socket).ok()?;
        Some(InheritedSocket {
            copied: socket.identity().copied(),
            place: Some(relay.shared_state()),
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

/// Whether the calling thread has what its child begins with.
pub(crate) fn is_prepared() -> bool {
    !FORK_STATE.get().is_null()
}

/// After the fork, in the parent.
pub(crate) fn drop_prepared() {
    drop(take());
}

/// After the fork, in the child: what the parent carries is used through its pair.
pub(crate) fn inherit() {
    let Some(mut state) = take() else {
        return;
    };
    // The locks are the parent's; here nobody asks for them again.
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

/// The parent's entry is forgotten: its parts are the parent's.
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
