//! The interface adapter of this process.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, getpid};
use sdp_over_dat::Stack;

use crate::Place;
use crate::settings::Settings;

/// Environment variable that names the interface adapter, as `dat.conf` lists it.
pub const ADAPTER_ENV: &str = "OPS_SDP_ADAPTER";

/// What the adapters of the software provider are called where no `dat.conf` says otherwise.
const SOFTWARE: &str = "iwarp-";

/// One that carries the connections of every local address.
const FIRST_CHOICE: &str = "iwarp-any";

/// What makes it that: an interface that is always up, and sockets of all others.
const FIRST_CHOICE_PARAMS: &str = "lo 0 sockets=any";

/// The line for it.
const FIRST_CHOICE_LINE: &str = "iwarp-any u2.0 nonthreadsafe default libdapl-iwarp.so.2 \
                                 dat-rs.1.0 \"lo 0 sockets=any\" \"\"";

/// The registry file where no variable names another.
const SYSTEM_FILE: &str = "/etc/dat.conf";

/// Environment variable that names another file than the system's `dat.conf`: what that file lists
/// is meant.
const FILE_ENV: &str = "DAT_OVERRIDE";

/// The file of the software provider.
const PROVIDER_NAME: &str = "libdapl-iwarp.so.2";

/// Where it is.
static PROVIDER: OnceLock<PathBuf> = OnceLock::new();

/// Names the directory of a DAT registry library and of the software provider, where the
/// environment and `dat.conf` name none.
pub fn prefer_libraries_in(directory: &Path) {
    let registry = directory.join(dat_api::LIBRARY_NAME);
    if registry.exists() {
        dat_api::Library::prefer(registry);
    }
    let provider = directory.join(PROVIDER_NAME);
    if provider.exists() {
        // Once is enough: a process has one.
        let _ = PROVIDER.set(provider);
    }
}

/// Held while a thread opens an adapter, which loads a library and lists it: the child of a fork in
/// the midst of it would wait for ever for the thread that it does not have.
static OPENING: Mutex<()> = Mutex::new(());

/// Keeps threads from opening an adapter.
pub(crate) fn opening() -> MutexGuard<'static, ()> {
    OPENING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The adapter: chosen when a socket asks whether there is one, opened with the first connection.
#[derive(Debug)]
pub(crate) struct Adapter {
    place: Place,
    name: OnceLock<Result<String, String>>,
    stack: Mutex<State>,
}

/// What became of it.
#[derive(Debug)]
enum State {
    /// Nobody has needed it.
    Closed,
    /// Connections use it.
    Open(Opened),
    /// It could not be opened.
    Failed { at: Instant, why: String },
}

/// One that cannot be opened is not tried again for so long: it may mean loading a library, and
/// every connection would pay for it.
const FAILED_FOR: Duration = Duration::from_secs(10);

/// An adapter belongs to the process that opened it; the child of a fork opens its own.
#[derive(Debug)]
struct Opened {
    process: Pid,
    stack: Stack,
}

/// What helps where no adapter serves an address.
pub(crate) fn advice() -> String {
    let file = file();
    format!("add to {file}: {FIRST_CHOICE_LINE} - or name another adapter in {ADAPTER_ENV}")
}

/// The registry file that is in force.
fn file() -> String {
    let named =
        host::environment::variable(FILE_ENV).map(|file| file.to_string_lossy().into_owned());
    named.unwrap_or_else(|| SYSTEM_FILE.to_owned())
}

impl Adapter {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            place,
            name: OnceLock::new(),
            stack: Mutex::new(State::Closed),
        }
    }

    /// Puts a descriptor out of the program's way.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Which one it is; `Err` says why there is none. Opens nothing.
    pub(crate) fn name(&self) -> Result<&str, &str> {
        let choose = || {
            let _opening = opening();
            Self::choose()
        };
        let name = self.name.get_or_init(choose).as_ref();
        name.map(String::as_str).map_err(String::as_str)
    }

    fn choose() -> Result<String, String> {
        if let Some(name) = host::environment::text(ADAPTER_ENV) {
            return Ok(name);
        }
        let listed = dat_api::list_providers().map_err(|error| error.to_string())?;
        let names = listed.into_iter().map(|provider| provider.ia_name);
        let mut usable: Vec<String> = names.filter(|name| name.starts_with(SOFTWARE)).collect();
        if usable.iter().any(|name| name == FIRST_CHOICE) {
            return Ok(FIRST_CHOICE.to_owned());
        }
        // No file, or one that was written for other purposes: a line for an interface would leave
        // the connections of all other addresses on TCP.
        let library = PROVIDER
            .get()
            .filter(|_| host::environment::variable(FILE_ENV).is_none());
        if let Some(library) = library {
            dat_api::register_provider(library, FIRST_CHOICE, FIRST_CHOICE_PARAMS)
                .map_err(|error| error.to_string())?;
            return Ok(FIRST_CHOICE.to_owned());
        }
        // Across hosts rather than within this one, where a file leaves the choice.
        usable.sort_by_key(|name| name == "iwarp-lo");
        let none = || format!("{} lists no adapter of the software provider", file());
        usable.into_iter().next().ok_or_else(none)
    }

    /// Whether it carries connections that have this local address, once it is open; `Err` says why
    /// not.
    pub(crate) fn serves(&self, local: IpAddr) -> Result<(), String> {
        let stack = self.stack().map_err(|error| error.to_string())?;
        if stack.takes_sockets_of(local) {
            return Ok(());
        }
        let name = self.name().unwrap_or_default();
        let own = stack.address().map(|own| own.ip().to_string());
        let own = own.unwrap_or_default();
        Err(format!(
            "{name} carries connections of {own} alone, not of {local}"
        ))
    }

    /// The adapter, opened.
    pub(crate) fn stack(&self) -> io::Result<Stack> {
        let mut state = self.stack.lock().unwrap_or_else(PoisonError::into_inner);
        let process = getpid();
        match &*state {
            State::Open(opened) if opened.process == process => return Ok(opened.stack.clone()),
            State::Failed { at, why } if at.elapsed() < FAILED_FOR => {
                return Err(io::Error::other(why.clone()));
            }
            _ => {}
        }
        let name = self.name().map_err(io::Error::other)?;
        let opening = opening();
        let opened = Stack::open(name).map_err(|error| format!("{name} cannot be opened: {error}"));
        drop(opening);
        let now = match opened.clone() {
            Ok(stack) => State::Open(Opened { process, stack }),
            Err(why) => State::Failed {
                at: Instant::now(),
                why,
            },
        };
        // A parent's adapter has no threads here and must not be closed here either.
        std::mem::forget(std::mem::replace(&mut *state, now));
        opened.map_err(io::Error::other)
    }

    /// The adapter, if this process has opened it.
    pub(crate) fn opened(&self) -> Option<Stack> {
        let state = self.stack.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            State::Open(opened) if opened.process == getpid() => Some(opened.stack.clone()),
            _ => None,
        }
    }

    /// The same, for sockets of a rule that sets something.
    pub(crate) fn stack_for(&self, settings: Settings) -> io::Result<Stack> {
        let stack = self.stack()?;
        let config = settings.applied_to(stack.config());
        stack.with_config(config)
    }

    /// Waits until what was written here has left, and gives up when none of it has for as long as
    /// `patience`.
    pub(crate) fn settle(&self, patience: Duration) {
        if let Some(stack) = self.opened() {
            stack.settle(patience);
        }
    }
}
