//! The interface adapter of this process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, getpid};
use sdp_over_dat::Stack;

use crate::Place;

/// Environment variable that names the interface adapter, as `dat.conf` lists it.
pub const ADAPTER_ENV: &str = "OPS_SDP_ADAPTER";

/// What the adapters of the software provider are called where no `dat.conf` says otherwise.
const SOFTWARE: &str = "iwarp-";

/// Always up.
const FIRST_CHOICE: &str = "iwarp-lo";

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

/// The adapter: chosen when a socket asks whether there is one, opened with the first connection.
#[derive(Debug)]
pub(crate) struct Adapter {
    place: Place,
    name: OnceLock<Result<String, String>>,
    stack: Mutex<Option<Opened>>,
}

/// An adapter belongs to the process that opened it; the child of a fork opens its own.
#[derive(Debug)]
struct Opened {
    process: Pid,
    stack: Stack,
}

impl Adapter {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            place,
            name: OnceLock::new(),
            stack: Mutex::new(None),
        }
    }

    /// Puts a descriptor out of the program's way.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Which one it is; `Err` says why there is none. Opens nothing.
    pub(crate) fn name(&self) -> Result<&str, &str> {
        let name = self.name.get_or_init(Self::choose).as_ref();
        name.map(String::as_str).map_err(String::as_str)
    }

    fn choose() -> Result<String, String> {
        if let Ok(name) = std::env::var(ADAPTER_ENV) {
            return Ok(name);
        }
        let listed = dat_api::list_providers().map_err(|error| error.to_string())?;
        let mut names = listed.into_iter().map(|provider| provider.ia_name);
        let mut usable: Vec<String> = names
            .by_ref()
            .filter(|name| name.starts_with(SOFTWARE))
            .collect();
        usable.sort_by_key(|name| name != FIRST_CHOICE);
        if let Some(name) = usable.into_iter().next() {
            return Ok(name);
        }
        // A file that was written for other providers only, as distributions have it.
        let library = PROVIDER
            .get()
            .filter(|_| std::env::var_os(FILE_ENV).is_none());
        let Some(library) = library else {
            return Err(format!(
                "dat.conf lists no adapter of the software provider; add the line of \
                 {FIRST_CHOICE} or name another adapter in {ADAPTER_ENV}"
            ));
        };
        dat_api::register_provider(library, FIRST_CHOICE, "lo 0")
            .map_err(|error| error.to_string())?;
        Ok(FIRST_CHOICE.to_owned())
    }

    /// The adapter, opened.
    pub(crate) fn stack(&self) -> io::Result<Stack> {
        let mut opened = self.stack.lock().unwrap_or_else(PoisonError::into_inner);
        let process = getpid();
        if let Some(opened) = opened.as_ref().filter(|one| one.process == process) {
            return Ok(opened.stack.clone());
        }
        let name = self.name().map_err(io::Error::other)?;
        let stack = Stack::open(name)?;
        let own = Opened {
            process,
            stack: stack.clone(),
        };
        // A parent's adapter has no threads here and must not be closed here either.
        std::mem::forget(opened.replace(own));
        Ok(stack)
    }

    /// Waits until what was written here has left, and gives up when none of it has for as long as
    /// `patience`.
    pub(crate) fn settle(&self, patience: Duration) {
        let opened = self.stack.lock().unwrap_or_else(PoisonError::into_inner);
        let own = opened.as_ref().filter(|one| one.process == getpid());
        if let Some(stack) = own.map(|one| one.stack.clone()) {
            drop(opened);
            stack.settle(patience);
        }
    }
}
