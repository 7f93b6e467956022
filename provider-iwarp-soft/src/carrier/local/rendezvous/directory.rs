//! Sockets in a directory that is visible in several network namespaces.

use std::fs::{self, DirEntry};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FileType, Mode, OFlags};

use super::{DialError, Name, PREFIX, dial_in, file_name};

/// The age above which a socket without a listener counts as abandoned. A younger one may belong to
/// a process that is about to listen.
const STALE_AGE: Duration = Duration::from_secs(60);
/// Maximum number of directory entries that one sweep examines.
const ENTRIES_MAX: usize = 4096;

/// The file of a rendezvous.
pub(super) fn path(dir: &Path, name: &Name) -> PathBuf {
    dir.join(file_name(name))
}

/// Lets processes of all users connect; the token of a connection decides which of them is
/// accepted. If this fails, only processes of this user and of root can connect.
///
/// The file is changed through a descriptor, because another user may have put a symbolic link in
/// its place.
pub(super) fn open_to_all(path: &Path) {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else {
        return;
    };
    let is_ours = rustix::fs::fstat(&file).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::Socket
            && stat.st_uid == rustix::process::geteuid().as_raw()
    });
    if is_ours {
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        let _ = rustix::fs::chmod(link, Mode::from_raw_mode(0o666));
    }
}

/// Removes the sockets of processes that died without removing them. Files that cannot be examined
/// or removed stay.
pub(super) fn sweep(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.take(ENTRIES_MAX).flatten() {
        let Some(name) = entry.file_name().to_str().and_then(parse) else {
            continue;
        };
        if is_old_socket(&entry) && matches!(dial_in(dir, &name), Err(DialError::NotHere)) {
            let _ = rustix::fs::unlink(entry.path());
        }
    }
}

fn is_old_socket(entry: &DirEntry) -> bool {
    // These are of the entry itself, not of the target of a symbolic link.
    let Ok(metadata) = entry.metadata() else {
        return false;
    };
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since_epoch.map_or(0, |duration| duration.as_secs());
    let modified = u64::try_from(metadata.mtime()).unwrap_or(0);
    metadata.file_type().is_socket() && now.saturating_sub(modified) > STALE_AGE.as_secs()
}

/// The name that a file represents; `None` for other files.
fn parse(file: &str) -> Option<Name> {
    let digits = file.strip_prefix(PREFIX)?;
    let name = u128::from_str_radix(digits, 16).ok()?.to_be_bytes();
    (file_name(&name) == file).then_some(name)
}
