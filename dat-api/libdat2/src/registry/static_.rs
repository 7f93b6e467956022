//! The static registry: entries of `dat.conf` and the libraries loaded for them.
//!
//! Entries with the same key form one group; their libraries are tried in file order until one
//! registers the key. A group's first reference loads the library, and its last release unloads it.
//!
//! A name that no line has may still name the software provider's adapter of this host
//! ([`builtin::named`]). Its group is made by the first open, and is not listed.

use std::ffi::CString;
use std::io;
use std::path::Path;
use std::sync::{Condvar, MutexGuard, OnceLock};

use dat_abi::*;
use dat_conf::{Entry, Parsed, Source};
use host::forks::HeldLock;
use host::locks::IgnorePoison as _;
use host::threads::ThreadId;

use super::load::ProviderLibrary;
use super::{NOT_REGISTERED, builtin, dynamic};
use crate::key::Key;

/// Maximum number of bad lines that are reported; more errors usually have one cause.
const REPORTS_MAX: usize = 50;

/// A library that may serve a group.
#[derive(Debug, Clone)]
struct Candidate {
    lib_path: CString,
    ia_params: CString,
    line: u32,
}

#[derive(Debug)]
enum State {
    /// Nothing is loaded.
    Idle,
    /// A thread of this process loads or unloads, without holding the lock; other threads wait.
    Busy(ThreadId, u32),
    /// Loaded and initialised.
    Loaded {
        library: ProviderLibrary,
        references: usize,
    },
}

impl State {
    /// The state of a group while the calling thread loads or unloads.
    fn busy() -> Self {
        Self::Busy(ThreadId::current(), std::process::id())
    }
}

#[derive(Debug)]
struct Group {
    key: Key,
    candidates: Vec<Candidate>,
    state: State,
    /// False if no line of the source has the key.
    is_listed: bool,
}

impl Group {
    fn of(key: Key, entry: Entry, is_listed: bool) -> Self {
        Self {
            key,
            candidates: vec![Candidate::of(entry)],
            state: State::Idle,
            is_listed,
        }
    }
}

impl Candidate {
    fn of(entry: Entry) -> Self {
        Self {
            lib_path: entry.lib_path,
            ia_params: entry.ia_params,
            line: entry.line,
        }
    }
}

/// The key of an entry; `None` if its name is too long.
fn key_of(entry: &Entry) -> Option<Key> {
    let thread_safe = if entry.thread_safe {
        DAT_TRUE
    } else {
        DAT_FALSE
    };
    Key::new(&entry.ia_name, entry.major, entry.minor, thread_safe)
}

/// The static registry.
#[derive(Debug)]
pub struct StaticRegistry {
    groups: HeldLock<Vec<Group>>,
    /// True if there was no descriptor to read the source.
    is_unread: bool,
    /// True if there is a file, or none is necessary. A source that cannot be used gives an empty
    /// registry.
    has_source: bool,
    /// Signalled when a group is no longer busy.
    settled: Condvar,
}

/// The static registry of this process, read on the first use for which there is a descriptor.
pub fn global() -> &'static StaticRegistry {
    static UNREAD: StaticRegistry = StaticRegistry::empty(true);
    if let Some(registry) = GLOBAL.get() {
        return registry;
    }
    let registry = StaticRegistry::from_source(Source::of_process());
    if registry.is_unread {
        return &UNREAD;
    }
    let _setting = SETTING.lock();
    GLOBAL.get_or_init(|| registry)
}

static GLOBAL: OnceLock<StaticRegistry> = OnceLock::new();

/// Held while the registry is set.
static SETTING: HeldLock<()> = HeldLock::new(());

/// The locks of the registry during a fork.
pub(crate) struct Locks;

impl Locks {
    pub(crate) fn hold(&self) {
        SETTING.hold();
        if let Some(registry) = GLOBAL.get() {
            registry.groups.hold();
        }
    }

    pub(crate) fn release(&self) {
        if let Some(registry) = GLOBAL.get() {
            registry.groups.release();
        }
        SETTING.release();
    }
}

/// True if a call has failed because no descriptor was free.
fn lacks_descriptor(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl StaticRegistry {
    const fn empty(is_unread: bool) -> Self {
        Self {
            groups: HeldLock::new(Vec::new()),
            is_unread,
            has_source: false,
            settled: Condvar::new(),
        }
    }

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
                    let error = io::Error::from(error);
                    tracing::error!(
                        %error,
                        "no dat.conf, and the local interfaces cannot be listed"
                    );
                    Self::empty(lacks_descriptor(&error))
                }
            },
            Source::Unusable { path, error, .. } if lacks_descriptor(&error) => {
                tracing::error!(%error, path = %path.display(), "registry file cannot be read yet");
                Self::empty(true)
            }
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
                Self::empty(false)
            }
            Source::Unusable {
                path,
                error,
                is_override: false,
            } => {
                tracing::error!(%error, path = %path.display(), "registry file cannot be read");
                Self::empty(false)
            }
        }
    }

    fn from_entries(entries: Vec<Entry>) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        for entry in entries.into_iter().filter(Entry::is_registered) {
            let Some(key) = key_of(&entry) else {
                continue;
            };
            match groups.iter_mut().find(|group| group.key == key) {
                Some(group) => group.candidates.push(Candidate::of(entry)),
                None => groups.push(Group::of(key, entry, true)),
            }
        }
        Self {
            groups: HeldLock::new(groups),
            has_source: true,
            ..Self::empty(false)
        }
    }

    /// Returns the keys of the source in its order.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        let groups = self.lock();
        let listed = groups.iter().filter(|group| group.is_listed);
        listed.map(|group| group.key.clone()).collect()
    }

    /// Adds the group of a key that no line has, if its name is that of an adapter of this host.
    fn add_unlisted(&self, key: &Key) {
        if !self.has_source || self.contains(key) {
            return;
        }
        let Some(entry) = builtin::named(key.name()) else {
            return;
        };
        let mut groups = self.lock();
        // Another thread may have added it meanwhile.
        let is_new = groups.iter().all(|group| group.key != *key);
        if is_new && key_of(&entry).as_ref() == Some(key) {
            tracing::debug!(ia = %key, "no line has the name, which is that of a local adapter");
            groups.push(Group::of(key.clone(), entry, false));
        }
    }

    /// Returns true if the source has the key, or an open has added it.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        self.lock().iter().any(|group| group.key == *key)
    }

    /// Takes a reference to the library of a key. The first reference loads the library.
    ///
    /// # Errors
    /// [`NOT_REGISTERED`] if the file does not have the key or none of its libraries serves it;
    /// `DAT_INVALID_STATE` if called from the init or fini function of the same key;
    /// `DAT_INSUFFICIENT_RESOURCES` if there was no descriptor to read the file.
    pub fn acquire(&self, key: &Key) -> Result<(), DatReturn> {
        if self.is_unread {
            return Err(DatReturn::error(
                DAT_INSUFFICIENT_RESOURCES,
                DAT_RESOURCE_DEVICE,
            ));
        }
        self.add_unlisted(key);
        let (mut groups, index) = self.wait_until_idle(key)?;
        if let State::Loaded { references, .. } = &mut groups[index].state {
            *references += 1;
            return Ok(());
        }
        let candidates = groups[index].candidates.clone();
        groups[index].state = State::busy();
        drop(groups);

        let library = candidates
            .iter()
            .find_map(|candidate| load_and_init(key, candidate));

        let mut groups = self.lock();
        let group = &mut groups[index];
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
            State::Idle | State::Busy(..) => None,
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
            State::Idle | State::Busy(..) => return Err(NOT_REGISTERED),
        }
        let last = std::mem::replace(&mut group.state, State::busy());
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
        while let State::Busy(by, process) = groups[index].state {
            if process != std::process::id() {
                // The thread was the parent's. What it had done so far stays in memory.
                groups[index].state = State::Idle;
                break;
            }
            if by == ThreadId::current() {
                return Err(DatReturn::error(DAT_INVALID_STATE, DAT_NO_SUBTYPE));
            }
            groups = self.settled.wait(groups).ignore_poison();
        }
        Ok((groups, index))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Group>> {
        // Code under this lock changes the groups by assignments, between which nothing panics.
        self.groups.lock()
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
    fn a_registry_that_could_not_be_read_reports_missing_resources() {
        for (error, ty) in [
            (libc::EMFILE, DAT_INSUFFICIENT_RESOURCES),
            (libc::ENFILE, DAT_INSUFFICIENT_RESOURCES),
            (libc::EACCES, DAT_PROVIDER_NOT_FOUND),
        ] {
            let registry = StaticRegistry::from_source(Source::Unusable {
                path: "/no/such".into(),
                error: io::Error::from_raw_os_error(error),
                is_override: true,
            });
            let refused = registry.acquire(&key(c"a")).unwrap_err();
            assert_eq!(refused.ty(), ty, "{error}");
        }
    }

    #[test]
    fn a_name_that_no_line_has_may_be_that_of_a_local_adapter() {
        let registry = registry("a u2.0 nonthreadsafe default /no/such.so d.2.0 1 p\n");
        let found = |name| {
            registry.add_unlisted(&key(name));
            registry.contains(&key(name))
        };
        assert!(found(c"127.0.0.1") && found(c"iwarp-lo"));
        assert!(!found(c"192.0.2.77") && !found(c"iwarp-none") && !found(c"lo"));
        assert_eq!(registry.keys(), [key(c"a")], "they are not listed");
        let other = Key::new(c"iwarp-lo", 1, 2, DAT_FALSE).unwrap();
        registry.add_unlisted(&other);
        assert!(!registry.contains(&other), "another version");
        let unusable = StaticRegistry::from_source(Source::choose(Some("/no/such".into()), &[]));
        unusable.add_unlisted(&key(c"iwarp-lo"));
        assert!(!unusable.contains(&key(c"iwarp-lo")));
    }

    #[test]
    fn an_unusable_override_gives_an_empty_registry() {
        let registry = StaticRegistry::from_source(Source::choose(Some("/no/such".into()), &[]));
        assert!(registry.keys().is_empty());
    }
}
