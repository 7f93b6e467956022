//! The cache of kernels. An entry is either complete, because it is made by a rename, or absent.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};

/// Part of the cache's path, raised when the form of entries changes.
const FORMAT: &str = "vm-1";

/// The prefix of the name of an entry that is being made.
const UNFINISHED: &str = "unfinished-";

/// The environment variable that names the cache directory instead of the user's own.
const PLACE: &str = "DAT_VM_CACHE";

/// The cache, locked against other processes that want to fill it.
#[derive(Debug)]
pub(super) struct Cache {
    place: PathBuf,
    _lock: Flock<File>,
}

impl Cache {
    /// Opens the cache, waits for a process that is filling it, and removes the remains of a killed
    /// one.
    pub(super) fn open() -> Result<Self> {
        let place = place(|name| env::var_os(name).map(PathBuf::from))?;
        Self::at(place)
    }

    fn at(place: PathBuf) -> Result<Self> {
        fs::create_dir_all(&place).with_context(|| format!("making {}", place.display()))?;
        let file = place.join("lock");
        let lock = File::create(&file).with_context(|| format!("making {}", file.display()))?;
        let lock = match Flock::lock(lock, FlockArg::LockExclusive) {
            Ok(lock) => lock,
            Err((_, e)) => bail!("locking {}: {e}", file.display()),
        };
        let cache = Self { place, _lock: lock };
        for left in cache.entries(|name| name.starts_with(UNFINISHED))? {
            fs::remove_dir_all(&left).with_context(|| format!("removing {}", left.display()))?;
        }
        Ok(cache)
    }

    /// The entry called `name`, if it is there.
    pub(super) fn entry(&self, name: &str) -> Option<PathBuf> {
        Some(self.place.join(name)).filter(|entry| entry.is_dir())
    }

    /// The entry that was made last, if there is one.
    pub(super) fn latest(&self) -> Result<Option<PathBuf>> {
        let mut entries = Vec::new();
        for entry in self.entries(|_| true)? {
            entries.push((fs::metadata(&entry)?.modified()?, entry));
        }
        Ok(entries.into_iter().max().map(|(_, entry)| entry))
    }

    /// Makes `make` fill a directory, which becomes the entry called `name` when `make` has
    /// succeeded.
    pub(super) fn fill(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let unfinished = self.place.join(format!("{UNFINISHED}{name}"));
        fs::create_dir(&unfinished).with_context(|| format!("making {}", unfinished.display()))?;
        make(&unfinished)?;
        let entry = self.place.join(name);
        fs::rename(&unfinished, &entry)
            .with_context(|| format!("renaming to {}", entry.display()))?;
        Ok(entry)
    }

    fn entries(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.place)? {
            let path = entry?.path();
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            if path.is_dir() && wanted(name) {
                found.push(path);
            }
        }
        Ok(found)
    }
}

/// The user's directory for files that can be made again. It outlives `cargo clean` and serves
/// every checkout.
fn place(variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf> {
    if let Some(place) = variable(PLACE) {
        return Ok(place.join(FORMAT));
    }
    let user = variable("XDG_CACHE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| variable("HOME").map(|home| home.join(".cache")))
        .with_context(|| format!("set {PLACE} to a directory for the guest's kernel, or HOME"))?;
    Ok(user.join("dat-rs").join(FORMAT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_complete_or_absent() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Cache::at(dir.path().into()).unwrap();
        let failed = open().fill("one", |unfinished| {
            fs::write(unfinished.join("half"), "").unwrap();
            bail!("killed here")
        });
        assert!(failed.is_err());
        assert_eq!(open().entry("one"), None);
        assert_eq!(open().latest().unwrap(), None);
        let whole = open().fill("one", |_| Ok(())).unwrap();
        assert_eq!(open().entry("one"), Some(whole.clone()));
        assert_eq!(open().latest().unwrap(), Some(whole));
        let names = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 2, "the entry and the lock; no unfinished entry");
    }

    #[test]
    fn the_user_has_a_cache_unless_a_variable_names_one() {
        let with = |set: &'static [(&str, &str)]| {
            place(move |name| {
                let found = set.iter().find(|(key, _)| *key == name)?;
                Some(PathBuf::from(found.1))
            })
        };
        let expected = Path::new("/home/u/.cache/dat-rs").join(FORMAT);
        assert_eq!(with(&[("HOME", "/home/u")]).unwrap(), expected);
        assert_eq!(
            with(&[("HOME", "/home/u"), ("XDG_CACHE_HOME", "/c")]).unwrap(),
            Path::new("/c/dat-rs").join(FORMAT)
        );
        assert_eq!(
            with(&[("HOME", "/home/u"), (PLACE, "/big")]).unwrap(),
            Path::new("/big").join(FORMAT)
        );
        assert!(with(&[]).is_err());
    }
}
