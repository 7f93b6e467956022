//! The static registry: entries of `dat.conf` and the libraries loaded for them.
//!
//! Entries with the same key form one group; their libraries are tried in file order until one
//! registers the key. A group's first reference loads the library, and its last release unloads it.

use std::ffi::CString;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::{self, ThreadId};

use dat_abi::*;
use dat_conf::{Entry, Parsed, Source};
use host::locks::IgnorePoison as _;

use super::load::ProviderLibrary;
use super::{NOT_REGISTERED, builtin, dynamic};
use crate::key::Key;

/// Maximum number of bad lines that are reported; more errors usually have one cause.
const REPORTS_MAX: usize = 50;

/// A library that may serve a group.
#[derive(Debug)]
struct Candidate {
    lib_path: CString,
    ia_params: CString,
    line: u32,
}

#[derive(Debug)]
enum State {
    /// Nothing is loaded.
    Idle,
    /// A thread loads or unloads, without holding the lock; other threads wait.
    Busy(ThreadId),
    /// Loaded and initialised.
    Loaded {
        library: ProviderLibrary,
        references: usize,
    },
}

#[derive(Debug)]
struct Group {
    key: Key,
    candidates: Vec<Candidate>,
    state: State,
}

/// The static registry.
#[derive(Debug, Default)]
pub struct StaticRegistry {
    groups: Mutex<Vec<Group>>,
    /// Signalled when a group is no longer busy.
    settled: Condvar,
}

/// The static registry of this process, read on first use.
pub fn global() -> &'static StaticRegistry {
    static GLOBAL: OnceLock<StaticRegistry> = OnceLock::new();
    GLOBAL.get_or_init(|| StaticRegistry::from_source(Source::of_process()))
}

impl StaticRegistry {
    /// Builds the registry and reports the errors of its source.
    #[must_use]
    pub fn from_source(source: Source) -> Self {
        match source {
            Source::File { path, content } => {
                let parsed = dat_conf::parse(&content);
                report(&path, &parsed);
                Self::from_entries(parsed.entries)
            }
            Source::Builtin => match builtin::entries() {
                Ok(entries) => {
                    tracing::info!(
                        count = entries.len(),
                        "no dat.conf: local interfaces serve as registry"
                    );
                    Self::from_entries(entries)
                }
                Err(error) => {
                    tracing::error!(
                        %error,
                        "no dat.conf, and the local interfaces cannot be listed"
                    );
                    Self::default()
                }
            },
            Source::Unusable {
                path,
                error,
                is_override: true,
            } => {
                // The first part is OFA's message, which scripts may search for; the explanation
                // follows it.
                tracing::error!(
                    %error,
                    "DAT Registry: DAT_OVERRIDE, bad filename - {}, aborting (the registry stays \
                     empty: name a file that can be read, or unset DAT_OVERRIDE)", path.display()
                );
                Self::default()
            }
            Source::Unusable {
                path,
                error,
                is_override: false,
            } => {
                tracing::error!(%error, path = %path.display(), "registry file cannot be read");
                Self::default()
            }
        }
    }

    fn from_entries(entries: Vec<Entry>) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        for entry in entries.into_iter().filter(Entry::is_registered) {
            let thread_safe = if entry.thread_safe {
                DAT_TRUE
            } else {
                DAT_FALSE
            };
            let Some(key) = Key::new(&entry.ia_name, entry.major, entry.minor, thread_safe) else {
                continue;
            };
            let candidate = Candidate {
                lib_path: entry.lib_path,
                ia_params: entry.ia_params,
                line: entry.line,
            };
            match groups.iter_mut().find(|group| group.key == key) {
                Some(group) => group.candidates.push(candidate),
                None => groups.push(Group {
                    key,
                    candidates: vec![candidate],
                    state: State::Idle,
                }),
            }
        }
        Self {
            groups: Mutex::new(groups),
            settled: Condvar::new(),
        }
    }

    /// Returns the keys in file order.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        self.lock().iter().map(|group| group.key.clone()).collect()
    }

    /// Returns true if the file has the key.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        self.lock().iter().any(|group| group.key == *key)
    }

    /// Takes a reference to the library of a key. The first reference loads the library.
    ///
    /// # Errors
    /// [`NOT_REGISTERED`] if the file does not have the key or none of its libraries serves it;
    /// `DAT_INVALID_STATE` if called from the init or fini function of the same key.
    pub fn acquire(&self, key: &Key) -> Result<(), DatReturn> {
        let (mut groups, index) = self.wait_until_idle(key)?;
        if let State::Loaded { references, .. } = &mut groups[index].state {
            *references += 1;
            return Ok(());
        }
        let candidates = std::mem::take(&mut groups[index].candidates);
        groups[index].state = State::Busy(thread::current().id());
        drop(groups);

        let library = candidates
            .iter()
            .find_map(|candidate| load_and_init(key, candidate));

        let mut groups = self.lock();
        let group = &mut groups[index];
        group.candidates = candidates;
        group.state = State::Idle;
        let loaded = library.is_some();
        if let Some(library) = library {
            group.state = State::Loaded {
                library,
                references: 1,
            };
        }
        self.settled.notify_all();
        if loaded { Ok(()) } else { Err(NOT_REGISTERED) }
    }

    /// Returns the reason why the library of a key failed to open an IA on this thread, if the
    /// library is loaded and reports one.
    #[must_use]
    pub fn open_error(&self, key: &Key) -> Option<String> {
        let groups = self.lock();
        let group = groups.iter().find(|group| group.key == *key)?;
        match &group.state {
            State::Loaded { library, .. } => library.open_error(),
            State::Idle | State::Busy(_) => None,
        }
    }

    /// Releases a reference; the last release unloads the library.
    ///
    /// OFA's provider does not wait until its threads have returned, so an unload may crash the
    /// process. But a provider that stayed loaded would make later children of a `fork` hang: its
    /// destructor, which `exit` calls, waits for a thread that the child does not have.
    ///
    /// # Errors
    /// [`NOT_REGISTERED`] if the file does not have the key or nothing is loaded for it.
    pub fn release(&self, key: &Key) -> Result<(), DatReturn> {
        let (mut groups, index) = self.wait_until_idle(key)?;
        let group = &mut groups[index];
        match &mut group.state {
            State::Loaded { references, .. } if *references > 1 => {
                *references -= 1;
                return Ok(());
            }
            State::Loaded { .. } => {}
            State::Idle | State::Busy(_) => return Err(NOT_REGISTERED),
        }
        let last = std::mem::replace(&mut group.state, State::Busy(thread::current().id()));
        drop(groups);

        if let State::Loaded { library, .. } = last {
            library.fini(key);
            drop(library);
        }

        self.lock()[index].state = State::Idle;
        self.settled.notify_all();
        Ok(())
    }

    /// Finds a group and waits until no other thread loads or unloads it. Groups are never removed,
    /// so the index stays valid.
    fn wait_until_idle(&self, key: &Key) -> Result<(MutexGuard<'_, Vec<Group>>, usize), DatReturn> {
        let mut groups = self.lock();
        let index = groups
            .iter()
            .position(|group| group.key == *key)
            .ok_or(NOT_REGISTERED)?;
        while let State::Busy(by) = groups[index].state {
            if by == thread::current().id() {
                return Err(DatReturn::error(DAT_INVALID_STATE, DAT_NO_SUBTYPE));
            }
            groups = self.settled.wait(groups).ignore_poison();
        }
        Ok((groups, index))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Group>> {
        // Code under this lock changes the groups by assignments, between which nothing panics.
        self.groups.lock().ignore_poison()
    }
}

/// Loads a library, which registers its provider. Returns `None` if the library does not serve the
/// key; the reason is logged.
fn load_and_init(key: &Key, candidate: &Candidate) -> Option<ProviderLibrary> {
    let library = match ProviderLibrary::load(&candidate.lib_path) {
        Ok(library) => library,
        Err(error) => {
            tracing::warn!(
                ia = %key,
                line = candidate.line,
                %error,
                "provider library does not load"
            );
            return None;
        }
    };
    library.init(key, &candidate.ia_params);
    if dynamic::global().contains(key) {
        tracing::debug!(ia = %key, library = ?candidate.lib_path, "provider is ready");
        return Some(library);
    }
    tracing::warn!(
        ia = %key,
        library = ?candidate.lib_path,
        params = ?candidate.ia_params,
        line = candidate.line,
        "provider did not register this name; its device may be missing"
    );
    library.fini(key);
    None
}

fn report(path: &Path, parsed: &Parsed) {
    let file = path.display();
    for diagnostic in parsed.diagnostics.iter().take(REPORTS_MAX) {
        tracing::warn!("{file}:{diagnostic}; the line is ignored");
    }
    if let Some(more) = parsed.diagnostics.len().checked_sub(REPORTS_MAX + 1) {
        tracing::warn!("{file}: {} more bad lines", more + 1);
    }
    tracing::debug!(%file, entries = parsed.entries.len(), "registry file read");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(content: &str) -> StaticRegistry {
        StaticRegistry::from_source(Source::File {
            path: "test.conf".into(),
            content: content.as_bytes().to_vec(),
        })
    }

    fn key(name: &std::ffi::CStr) -> Key {
        Key::new(name, 2, 0, DAT_FALSE).expect("short name")
    }

    #[test]
    fn equal_keys_are_listed_once_and_other_versions_separately() {
        let registry = registry(
            "b u2.0 nonthreadsafe default x.so d.2.0 1 p\n\
             a u2.0 nonthreadsafe default x.so d.2.0 1 p\n\
             b u2.0 nonthreadsafe default y.so d.2.0 2 p\n\
             b u1.2 nonthreadsafe default x.so d.2.0 3 p\n\
             b u2.0 threadsafe default x.so d.2.0 4 p\n\
             c u2.0 nonthreadsafe nondefault x.so d.2.0 5 p\n\
             d k2.0 nonthreadsafe default x.so d.2.0 6 p\n",
        );
        let listed: Vec<String> = registry.keys().iter().map(Key::to_string).collect();
        assert_eq!(
            listed,
            [
                "b u2.0 nonthreadsafe",
                "a u2.0 nonthreadsafe",
                "b u1.2 nonthreadsafe",
                "b u2.0 threadsafe",
            ]
        );
    }

    #[test]
    fn unknown_keys_and_libraries_that_do_not_load_are_not_registered() {
        let registry = registry("a u2.0 nonthreadsafe default /no/such.so d.2.0 1 p\n");
        assert_eq!(registry.acquire(&key(c"b")), Err(NOT_REGISTERED));
        assert_eq!(registry.acquire(&key(c"a")), Err(NOT_REGISTERED));
        // A failed attempt leaves no state behind, so the next one starts anew.
        assert_eq!(registry.acquire(&key(c"a")), Err(NOT_REGISTERED));
        assert_eq!(registry.release(&key(c"a")), Err(NOT_REGISTERED));
    }

    #[test]
    fn an_unusable_override_gives_an_empty_registry() {
        let registry = StaticRegistry::from_source(Source::choose(Some("/no/such".into()), &[]));
        assert!(registry.keys().is_empty());
    }
}
