//! One interface adapter, opened by the process that uses it with its first connection.

use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use host::locks::IgnorePoison as _;
use rustix::process::{Pid, getpid};
use sdp_over_dat::Stack;

use crate::settings::Settings;

/// Held while a thread chooses or opens an adapter, which loads a library: the child of a fork in
/// the midst of it would wait for ever for the thread that it does not have. Every other lock of
/// adapters is taken under this one, so a process that forks holds all of them.
static OPENING: Mutex<()> = Mutex::new(());

/// Keeps other threads from choosing and opening adapters.
pub(crate) fn opening() -> MutexGuard<'static, ()> {
    OPENING.lock().ignore_poison()
}

/// An adapter.
#[derive(Debug)]
pub(crate) struct Adapter {
    /// The name under which the registry has it.
    ia_name: String,
    /// The name in listings: the RDMA device, or the adapter's own name.
    shown: String,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Nobody has needed it.
    Closed,
    /// Connections use it.
    Open(Opened),
    /// The adapter could not be opened.
    Failed { at: Instant, why: String },
}

/// For so long an adapter that cannot be opened is not tried again: that may mean loading a
/// library, and every connection would pay for it.
const FAILED_FOR: Duration = Duration::from_secs(10);

/// An adapter belongs to the process that opened it; the child of a fork opens its own.
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

    /// The names for an explanation: the device, and the adapter where it has another name.
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

    /// The adapter, opened.
    pub(crate) fn stack(&self) -> io::Result<Stack> {
        let _opening = opening();
        let mut state = self.state();
        let process = getpid();
        match &*state {
            State::Open(opened) if opened.process == process && !opened.stack.is_lost() => {
                return Ok(opened.stack.clone());
            }
            State::Failed { at, why } if at.elapsed() < FAILED_FOR => {
                return Err(io::Error::other(why.clone()));
            }
            _ => {}
        }
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
            // Its device is lost. Closing it may wait for sockets that are being closed.
            State::Open(lost) if lost.process == process => {
                // Without a thread it is closed here.
                drop(host::threads::spawn_quiet("sdp-lost", move || drop(lost)));
            }
            // A parent's adapter has no threads here and must not be closed here either.
            before => std::mem::forget(before),
        }
        opened.map_err(io::Error::other)
    }

    /// The adapter, if this process has opened it.
    pub(crate) fn opened(&self) -> Option<Stack> {
        let _opening = opening();
        match &*self.state() {
            State::Open(opened) if opened.process == getpid() => Some(opened.stack.clone()),
            _ => None,
        }
    }

    /// The adapter, opened, for sockets of a rule that sets something.
    pub(crate) fn stack_for(&self, settings: Settings) -> io::Result<Stack> {
        let stack = self.stack()?;
        let config = settings.applied_to(stack.config());
        stack.with_config(config)
    }
}
