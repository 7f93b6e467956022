//! An interface adapter, which each process opens for its first connection.

use std::io;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use host::locks::IgnorePoison as _;
use rustix::process::{Pid, getpid};
use sdp_over_dat::Stack;

use crate::settings::Settings;

/// Held while a thread chooses or opens an adapter, which may load a library. A fork takes this
/// lock, because the child lacks the other threads and would wait for ever for a lock that one of
/// them holds. Every other lock of adapters is taken under this lock, so none is held at a fork.
static OPENING: Mutex<()> = Mutex::new(());

/// Prevents other threads from choosing and opening adapters.
pub(crate) fn opening() -> MutexGuard<'static, ()> {
    OPENING.lock().ignore_poison()
}

/// Returns true while a thread chooses or opens an adapter.
pub(crate) fn is_opening() -> bool {
    matches!(OPENING.try_lock(), Err(TryLockError::WouldBlock))
}

#[derive(Debug)]
pub(crate) struct Adapter {
    /// The name in the DAT registry.
    ia_name: String,
    /// The name in listings: the RDMA device, or the adapter's own name.
    shown: String,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// The adapter was not needed yet.
    Closed,
    /// Connections use it.
    Open(Opened),
    /// The adapter could not be opened.
    Failed { at: Instant, why: String },
}

/// The time after a failure in which the adapter is not opened again, because each try may load a
/// library and delays a connection.
const FAILED_FOR: Duration = Duration::from_secs(10);

/// An open adapter belongs to the process that opened it. The child of a fork opens its own.
#[derive(Debug)]
struct Opened {
    process: Pid,
    stack: Stack,
}

impl Adapter {
    pub(crate) fn new(ia_name: String, shown: String) -> Self {
        Self {
            ia_name,
            shown,
            state: Mutex::new(State::Closed),
        }
    }

    /// The name in the registry.
    pub(crate) fn ia_name(&self) -> &str {
        &self.ia_name
    }

    /// The name in listings.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// The names for an explanation: the device, and the adapter if its name differs.
    pub(crate) fn described(&self) -> String {
        if self.shown == self.ia_name {
            self.shown.clone()
        } else {
            format!("{} ({})", self.shown, self.ia_name)
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// Returns the stack of the adapter, and opens the adapter if necessary.
    pub(crate) fn stack(&self) -> io::Result<Stack> {
        let _opening = opening();
        let mut state = self.state();
        if let Some(known) = state.known() {
            return known;
        }
        let process = getpid();
        let opened = Stack::open(&self.ia_name)
            .map_err(|error| format!("{} cannot be opened: {error}", self.ia_name));
        let now = match opened.clone() {
            Ok(stack) => State::Open(Opened { process, stack }),
            Err(why) => State::Failed {
                at: Instant::now(),
                why,
            },
        };
        match std::mem::replace(&mut *state, now) {
            // The device of this adapter is lost. Closing the adapter may wait for sockets that are
            // being closed, so another thread closes it.
            State::Open(lost) if lost.process == process => {
                // If no thread can be started, the adapter is closed here.
                drop(host::threads::spawn_quiet("sdp-lost", move || drop(lost)));
            }
            // An adapter of the parent has no threads in this process, and must not be closed here.
            before => std::mem::forget(before),
        }
        opened.map_err(io::Error::other)
    }

    /// Returns the stack, or the error of a recent attempt to open the adapter. Does not wait.
    /// `None`: the adapter is to be opened, or another thread is opening an adapter.
    pub(crate) fn known(&self) -> Option<io::Result<Stack>> {
        let _opening = OPENING.try_lock().ok()?;
        self.state().known()
    }

    /// Returns the stack, if this process has opened the adapter.
    pub(crate) fn opened(&self) -> Option<Stack> {
        let _opening = opening();
        match &*self.state() {
            State::Open(opened) if opened.process == getpid() => Some(opened.stack.clone()),
            _ => None,
        }
    }

    pub(crate) fn stack_for(&self, settings: Settings) -> io::Result<Stack> {
        let stack = self.stack()?;
        let config = settings.applied_to(stack.config());
        stack.with_config(config)
    }
}

impl State {
    /// Returns the stack, or the error of a recent attempt. `None`: the adapter is to be opened.
    fn known(&self) -> Option<io::Result<Stack>> {
        match self {
            Self::Open(opened) if opened.process == getpid() && !opened.stack.is_lost() => {
                Some(Ok(opened.stack.clone()))
            }
            Self::Failed { at, why } if at.elapsed() < FAILED_FOR => {
                Some(Err(io::Error::other(why.clone())))
            }
            Self::Closed | Self::Open(_) | Self::Failed { .. } => None,
        }
    }
}
