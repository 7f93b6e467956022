//! Numbered slots that the processes of one user share. The kernel frees those of a process that
//! ends, however it ends.
//!
//! A slot is one byte of a file, and the process that uses the slot holds a lock on the byte
//! (`F_OFD_SETLK`, fcntl(2)). The file has no content, so there is nothing that a process could
//! leave in a wrong state. Only the user can open it, so no other user can take a slot.
//!
//! The file is in `/dev/shm`, which all users can write. Another user may have taken its name.
//! The file of the user then has a random suffix, and is found by its owner.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, open, openat, unlinkat};
use rustix::io::Errno;

use crate::locks::lock;

/// The directory of the files.
pub const DIRECTORY: &str = "/dev/shm";

const PREFIX: &str = "dat-slots-";

/// The kinds of slots of a file. The bytes of a kind follow those of the kind before it.
pub const KINDS: usize = 3;
/// The number of slots of a kind.
const SLOTS: i64 = 1 << 20;

/// The slots of a user, as one process uses them.
#[derive(Debug)]
pub struct Slots<F> {
    file: F,
    /// The slots of this process, as bits. The kernel refuses no lock to the file that holds it.
    own: [Mutex<Vec<u64>>; KINDS],
}

impl<F: AsFd> Slots<F> {
    /// Uses a file that [`open_own`] has opened. A lock belongs to the open file, so the child of
    /// a fork must not keep the descriptor.
    pub fn new(file: F) -> Self {
        let own = [const { Mutex::new(Vec::new()) }; KINDS];
        Self { file, own }
    }

    /// Takes the first free slot below `max`. Returns `None` if all are taken.
    ///
    /// # Errors
    /// The error of `fcntl`.
    pub fn take(&self, kind: usize, max: u32) -> io::Result<Option<u32>> {
        let mut own = lock(&self.own[kind]);
        let mut at = 0;
        loop {
            at = first_clear(&own, at);
            if at >= max {
                return Ok(None);
            }
            let mut byte = range(kind, at.into(), i64::from(at) + 1, libc::F_WRLCK);
            match fcntl(&self.file, libc::F_OFD_SETLK, &mut byte) {
                Ok(()) => break,
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(error),
            }
            // Continues after the slots of the other process.
            let taken = locked(&self.file, kind, at.into(), i64::from(at) + 1)?;
            let end = taken.map_or(i64::from(at) + 1, |(_, end)| end);
            at = u32::try_from(end).unwrap_or(u32::MAX);
        }
        let word = at as usize / 64;
        if own.len() <= word {
            own.resize(word + 1, 0);
        }
        own[word] |= 1 << (at % 64);
        Ok(Some(at))
    }

    /// Frees a slot of this process.
    pub fn free(&self, kind: usize, slot: u32) {
        let mut own = lock(&self.own[kind]);
        if let Some(word) = own.get_mut(slot as usize / 64) {
            *word &= !(1 << (slot % 64));
        }
        let mut byte = range(kind, slot.into(), i64::from(slot) + 1, libc::F_UNLCK);
        // This fails only if the program has closed the file, and then the slot is free.
        let _ = fcntl(&self.file, libc::F_OFD_SETLK, &mut byte);
    }
}

/// Returns the number of slots below `max` that processes use, except through `file` itself.
///
/// # Errors
/// The error of `fcntl`.
pub fn taken(file: impl AsFd, kind: usize, max: u32) -> io::Result<u32> {
    let mut total = 0;
    let mut unseen = vec![(0, i64::from(max))];
    while let Some((start, end)) = unseen.pop() {
        if start < end
            && let Some((from, to)) = locked(&file, kind, start, end)?
        {
            let (from, to) = (from.max(start), to.min(end));
            total += to - from;
            unseen.extend([(start, from), (to, end)]);
        }
    }
    Ok(u32::try_from(total).unwrap_or(u32::MAX))
}

/// Returns the slots of one lock of another process among these, and its other slots next to them.
fn locked(file: &impl AsFd, kind: usize, start: i64, end: i64) -> io::Result<Option<(i64, i64)>> {
    let first = kind as i64 * SLOTS;
    let mut found = range(kind, start, end, libc::F_WRLCK);
    fcntl(file, libc::F_OFD_GETLK, &mut found)?;
    if i32::from(found.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    let from = found.l_start - first;
    let to = match found.l_len {
        // To the end of the file, which no process of this project locks.
        0 => SLOTS,
        len => from.saturating_add(len),
    };
    Ok((from < end && to > start).then_some((from, to)))
}

/// Returns the first clear bit at `at` or after it.
fn first_clear(bits: &[u64], mut at: u32) -> u32 {
    while let Some(word) = bits.get(at as usize / 64) {
        let clear = !word >> (at % 64);
        if clear != 0 {
            return at + clear.trailing_zeros();
        }
        at = (at / 64 + 1) * 64;
    }
    at
}

fn range(kind: usize, start: i64, end: i64, lock: libc::c_int) -> libc::flock {
    // SAFETY: an all-zero `flock` is a valid value of this C structure.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = lock as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = kind as i64 * SLOTS + start;
    range.l_len = end - start;
    range
}

fn fcntl(file: &impl AsFd, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: both commands take a pointer to a `flock`, which is borrowed for the call.
    match unsafe { libc::fcntl(fd, command, &raw mut *lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn is_conflict(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

/// Opens the file of the calling user, and makes it if it does not exist.
///
/// # Errors
/// The error of `open`.
pub fn open_own(directory: &Path) -> io::Result<OwnedFd> {
    let plain = plain_name();
    if let Some((file, _)) = find(directory)? {
        return Ok(file);
    }
    let suffix = RandomState::new().build_hasher().finish();
    let base = open_directory(directory)?;
    let names = [plain.clone(), format!("{plain}.{suffix:016x}")];
    let mut made = None;
    for name in names {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match openat(&base, name.as_str(), flags, Mode::RUSR | Mode::WUSR) {
            Ok(_) => {
                made = Some(name);
                break;
            }
            // Another process of the user has made the file.
            Err(Errno::EXIST) if find(directory)?.is_some() => break,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Where the plain name is another user's, processes that begin at the same time may each make
    // a file, and all use the oldest. Two of one moment may both stay in use.
    let (file, name) = find(directory)?.ok_or(Errno::NOENT)?;
    if let Some(made) = made.filter(|made| *made != name) {
        let _ = unlinkat(&base, made, AtFlags::empty());
    }
    Ok(file)
}

/// Opens the file of the calling user if it exists.
///
/// # Errors
/// The error of `open`.
pub fn open_existing(directory: &Path) -> io::Result<Option<OwnedFd>> {
    Ok(find(directory)?.map(|(file, _)| file))
}

fn plain_name() -> String {
    format!("{PREFIX}{}", rustix::process::geteuid().as_raw())
}

fn open_directory(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(open(directory, flags, Mode::empty())?)
}

/// Returns the oldest file of the user, and its name.
fn find(directory: &Path) -> io::Result<Option<(OwnedFd, String)>> {
    let base = open_directory(directory)?;
    let plain = plain_name();
    let mut oldest = None;
    for entry in Dir::read_from(&base)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        let suffix = name.strip_prefix(plain.as_str());
        if !suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('.')) {
            continue;
        }
        // NONBLOCK, because opening a pipe of this name would wait for a writer.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let Ok(file) = openat(&base, name, flags, Mode::empty())
            && let Some(age) = age_of_own(&file)
        {
            let this = (age, name.to_owned());
            if oldest.as_ref().is_none_or(|(known, _)| this < *known) {
                oldest = Some((this, file));
            }
        }
    }
    Ok(oldest.map(|((_, name), file)| (file, name)))
}

/// Returns the time of the last write, which is never after the creation, if the file is one that
/// this user has made here and no other user can open.
fn age_of_own(file: &OwnedFd) -> Option<(i64, i64)> {
    let stat = fstat(file).ok()?;
    let is_plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let closed = Mode::from_raw_mode(stat.st_mode) & (Mode::RWXG | Mode::RWXO);
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw();
    let is_made_here = stat.st_nlink == 1 && stat.st_size == 0;
    (is_plain && is_own && is_made_here && closed.is_empty())
        .then_some((stat.st_mtime as i64, stat.st_mtime_nsec as i64))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn slots(directory: &Path) -> Slots<OwnedFd> {
        Slots::new(open_own(directory).unwrap())
    }

    #[test]
    fn each_slot_is_taken_once_until_it_is_freed() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (slots(dir.path()), slots(dir.path()));
        let view = open_existing(dir.path()).unwrap().unwrap();
        for expected in 0..70 {
            let from = if expected % 3 == 0 { &one } else { &other };
            assert_eq!(from.take(1, 70).unwrap(), Some(expected));
            assert_eq!(taken(&view, 1, 70).unwrap(), expected + 1);
        }
        assert_eq!(one.take(1, 70).unwrap(), None);
        assert_eq!(other.take(1, 70).unwrap(), None);
        assert_eq!(taken(&view, 1, 50).unwrap(), 50, "those below");
        other.free(1, 64);
        one.free(1, 0);
        assert_eq!(other.take(1, 70).unwrap(), Some(0));
        assert_eq!(one.take(1, 70).unwrap(), Some(64));
        assert_eq!(
            (taken(&view, 0, 70).unwrap(), taken(&view, 2, 70).unwrap()),
            (0, 0)
        );
        assert_eq!(one.take(0, 1).unwrap(), Some(0), "another kind");
        assert_eq!(one.take(2, 0).unwrap(), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn slots_of_a_process_that_was_killed_are_free() {
        let dir = tempfile::tempdir().unwrap();
        let view = open_own(dir.path()).unwrap();
        // SAFETY: the child of this thread uses its own memory and the file, and is then killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = slots(dir.path());
            let all = (0..5).all(|_| own.take(0, 5).is_ok_and(|slot| slot.is_some()));
            assert!(all);
            loop {
                std::thread::park();
            }
        }
        while taken(&view, 0, 9).unwrap() < 5 {
            std::thread::yield_now();
        }
        let own = slots(dir.path());
        assert_eq!(own.take(0, 5).unwrap(), None);
        let mut status = 0;
        // SAFETY: the process is the child of this one, and the pointer is to a local variable.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, &raw mut status, 0);
        }
        assert_eq!(own.take(0, 5).unwrap(), Some(0));
        assert_eq!(taken(&view, 0, 9).unwrap(), 1);
    }

    #[test]
    fn a_file_that_the_user_did_not_make_here_is_replaced_by_another() {
        type Obstacle = fn(&Path, &Path);
        let obstacles: [Obstacle; 5] = [
            |name, _| {
                std::fs::write(name, "").unwrap();
                std::fs::set_permissions(name, PermissionsExt::from_mode(0o644)).unwrap();
            },
            |name, other| symlink(other, name).unwrap(),
            |name, other| std::fs::hard_link(other, name).unwrap(),
            |name, _| std::fs::create_dir(name).unwrap(),
            |name, _| {
                let mode = Mode::RUSR | Mode::WUSR;
                rustix::fs::mknodat(rustix::fs::CWD, name, FileType::Fifo, mode, 0).unwrap();
            },
        ];
        for (index, obstacle) in obstacles.into_iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            let other = dir.path().join("other");
            std::fs::write(&other, "").unwrap();
            std::fs::set_permissions(&other, PermissionsExt::from_mode(0o600)).unwrap();
            obstacle(&dir.path().join(plain_name()), &other);
            assert!(open_existing(dir.path()).unwrap().is_none(), "{index}");
            let (one, two) = (slots(dir.path()), slots(dir.path()));
            assert_eq!(one.take(0, 1).unwrap(), Some(0), "{index}");
            assert_eq!(two.take(0, 1).unwrap(), None, "{index}: the same file");
        }
    }

    #[test]
    fn processes_that_begin_at_the_same_time_use_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let all: Vec<_> = std::thread::scope(|scope| {
            let begin = || scope.spawn(|| slots(dir.path()));
            let threads: Vec<_> = (0..8).map(|_| begin()).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let got = all.iter().map(|own| own.take(0, 8).unwrap());
        assert!(got.eq((0..8).map(Some)));
    }

    #[test]
    fn without_a_directory_there_is_an_error() {
        assert!(open_own(Path::new("/nonexistent")).is_err());
    }
}
