//! Shared memory: memfds between the processes of a connection, and the pages of `opsrun ss`.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::statvfs::statvfs;
use nix::unistd::{ftruncate, geteuid};

use super::host::Host;
use super::item::Item;

const SUBJECT: &str = "memory";

/// The variable that names the directory of pages.
const PAGES: &str = "OPS_PAGES";
/// The directory of pages without the variable.
const SHARED_MEMORY: &str = "dev/shm";
/// The free bytes that a page of sockets needs at least.
const FREE_MIN: u64 = 1 << 20;

pub(super) fn items(host: &Host) -> Vec<Item> {
    let named = host::environment::variable(PAGES).filter(|path| !path.is_empty());
    vec![sealed(memfd()), pages(host, named)]
}

/// Creates sealed memory, as the software provider does for a connection within the host.
fn memfd() -> nix::Result<()> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let not_executable = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    let fd = memfd_create(c"datinfo-check", flags | not_executable)
        .or_else(|_| memfd_create(c"datinfo-check", flags))?;
    ftruncate(&fd, 1)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(())
}

fn sealed(created: nix::Result<()>) -> Item {
    match created {
        Ok(()) => Item::passed(SUBJECT, "sealed memory can be created"),
        Err(error) => Item::problem(
            SUBJECT,
            format!("memfd_create fails ({error}), so connections within the host stay on TCP"),
            match error {
                Errno::EPERM | Errno::ENOSYS => {
                    "permit memfd_create in the seccomp profile of the container"
                }
                Errno::EMFILE | Errno::ENFILE => "raise the limit of open files",
                _ => "give the process more memory (the limit of its control group)",
            },
        ),
    }
}

/// Checks the directory in which programs under `opsrun` describe their sockets.
fn pages(host: &Host, named: Option<OsString>) -> Item {
    let is_named = named.is_some();
    let base = named.map_or_else(|| host.path(SHARED_MEMORY), PathBuf::from);
    let shown = base.display();
    let effect = "`opsrun ss` shows no socket";
    let space = match statvfs(&base) {
        Ok(space) => space,
        Err(error) => {
            let problem = match error {
                Errno::ENOENT => "does not exist".to_owned(),
                error => format!("cannot be used ({error})"),
            };
            let fix = match (error, is_named) {
                (Errno::ENOENT, true) => format!("create it, or unset {PAGES}"),
                (Errno::ENOENT, false) => {
                    format!("mount it: `mount -t tmpfs -o mode=1777 tmpfs {shown}`")
                }
                (_, true) => format!("name a directory of this user, or unset {PAGES}"),
                (_, false) => format!("make {shown} a directory that this user may enter"),
            };
            return Item::problem(SUBJECT, format!("{shown} {problem}, so {effect}"), fix);
        }
    };
    let own = base.join(format!("ops-{}", geteuid()));
    if let Some(item) = own_directory(&base, &own, effect) {
        return item;
    }
    let free = space
        .blocks_available()
        .saturating_mul(space.fragment_size());
    if free < FREE_MIN {
        return Item::problem(
            SUBJECT,
            format!("{shown} has {} KiB free, so {effect}", free >> 10),
            "remove files there, or mount it again with a larger size",
        );
    }
    Item::passed(SUBJECT, format!("{shown} has {} MiB free", free >> 20))
}

/// Checks the directory of this user, or that it can be created. Returns the problem; `effect` is
/// the consequence that the text of the problem names.
fn own_directory(base: &Path, own: &Path, effect: &str) -> Option<Item> {
    use nix::unistd::{AccessFlags, access};
    let shown = own.display();
    match own.symlink_metadata() {
        Ok(found) if !found.is_dir() || found.uid() != geteuid().as_raw() => Some(Item::problem(
            SUBJECT,
            format!("{shown} is not a directory of this user, so {effect}"),
            format!("run `rm -r {shown}` as its owner or as root"),
        )),
        Ok(found) if found.mode() & 0o077 != 0 => Some(Item::problem(
            SUBJECT,
            format!("other users may enter {shown}, so {effect}"),
            format!("run `chmod 700 {shown}`"),
        )),
        Ok(_) => None,
        Err(_) => access(base, AccessFlags::W_OK | AccessFlags::X_OK)
            .err()
            .map(|error| {
                Item::problem(
                    SUBJECT,
                    format!(
                        "{} cannot be written to ({error}), so {effect}",
                        base.display()
                    ),
                    format!("run `chmod 1777 {}` as root", base.display()),
                )
            }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::item::assert_says;
    use super::*;

    #[test]
    fn a_failure_is_explained_by_its_code() {
        assert!(!sealed(memfd()).is_problem());
        let text = |error| sealed(Err(error)).to_string();
        assert!(text(Errno::EPERM).ends_with("the seccomp profile of the container"));
        assert!(text(Errno::EMFILE).ends_with("raise the limit of open files"));
        assert!(text(Errno::ENOMEM).contains("control group"));
    }

    #[test]
    fn the_directory_of_pages_is_checked() {
        let (_dir, host) = Host::of(&[]);
        let absent = pages(&host, None).to_string();
        assert_says(&absent, "fix: mount it: `mount -t tmpfs");
        let named = pages(&host, Some("/nonexistent".into())).to_string();
        assert!(named.ends_with("create it, or unset OPS_PAGES"), "{named}");
        let within_file = pages(&host, Some("/dev/null/pages".into())).to_string();
        assert_says(&within_file, "/dev/null/pages cannot be used (ENOTDIR");
        fs::create_dir_all(host.path(SHARED_MEMORY)).unwrap();
        assert!(!pages(&host, None).is_problem());
        let own = host.path(SHARED_MEMORY).join(format!("ops-{}", geteuid()));
        fs::create_dir(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!pages(&host, None).is_problem());
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        let open = pages(&host, None).to_string();
        assert_says(&open, "other users may enter");
        fs::remove_dir(&own).unwrap();
        fs::write(&own, "").unwrap();
        let file = pages(&host, None).to_string();
        assert_says(&file, "is not a directory of this user");
    }
}
