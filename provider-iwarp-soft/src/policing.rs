//! Limits of shared resources, which the administrator sets in `dat-limits.conf`
//! ([`dat_conf::limits`]).
//!
//! A [`Permit`] counts one service, connection or inbound connection until it is dropped. The
//! processes of a user share numbered slots ([`host::slots`]), which the kernel frees at the end of
//! a process. Without a limit of a resource for the user, a permit costs two atomic operations and
//! no system call.
//!
//! The limits bind programs that use this library. A user whom they must bind against the user's
//! will needs the kernel's limits in addition (`RLIMIT_NOFILE`, control groups).

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use dat_conf::limits::{Limits, Resource, Scope};
use host::forks::HeldLock;
use host::slots::{self, Slots};
use rnic::RnicError;
use rnic::socket::NotInherited;

/// The use of this process, while an adapter is open or a permit exists. The child of a fork begins
/// another.
static USE: HeldLock<Weak<Use>> = HeldLock::new(Weak::new());

host::hold_during_forks!(USE);

/// The resources that one process uses.
#[derive(Debug)]
struct Use {
    /// The process.
    pid: u32,
    /// The directory of the slots.
    directory: PathBuf,
    counts: [AtomicU32; Resource::ALL.len()],
    /// `None` if the file cannot be used. Each process is then limited by itself.
    slots: OnceLock<Option<Slots<NotInherited>>>,
    /// The resources whose limit was reached, as bits. The first refusal is a warning.
    refused: AtomicU32,
}

/// The limits as an adapter found them when it was opened, and the use of the process.
#[derive(Debug)]
pub(crate) struct Police {
    limits: Limits,
    used: Arc<Use>,
}

/// The permission to use one of a resource.
#[derive(Debug)]
pub(crate) struct Permit {
    used: Arc<Use>,
    resource: Resource,
    slot: Option<u32>,
}

impl Police {
    /// Reads the limits of the calling user.
    pub(crate) fn read() -> Self {
        let user = rustix::process::geteuid().as_raw();
        let limits = Limits::of_user(user, || host::user::name_of(user));
        for fault in &limits.faults {
            let file = limits.file();
            tracing::warn!("{}: {fault}: the line has no effect", file.display());
        }
        Self::new(limits, Use::of_process())
    }

    fn new(limits: Limits, used: Arc<Use>) -> Self {
        Self { limits, used }
    }

    /// Permits the use of one more.
    ///
    /// # Errors
    /// [`rnic::Resource::Policy`] if a limit is reached.
    pub(crate) fn permit(&self, resource: Resource) -> Result<Permit, RnicError> {
        let count = &self.used.counts[resource as usize];
        let before = count.fetch_add(1, Ordering::Relaxed);
        let mut permit = Permit {
            used: self.used.clone(),
            resource,
            slot: None,
        };
        let is_above = |scope| {
            let limit = self.limits.limit(scope, resource);
            limit.is_some_and(|limit| before >= limit.max)
        };
        if is_above(Scope::Process) {
            return Err(self.refuse(resource, Scope::Process));
        }
        if let Some(limit) = self.limits.limit(Scope::User, resource) {
            let taken = self
                .used
                .slots()
                .map(|it| it.take(resource as usize, limit.max));
            match taken {
                Some(Ok(Some(slot))) => permit.slot = Some(slot),
                Some(Ok(None)) => return Err(self.refuse(resource, Scope::User)),
                Some(Err(_)) | None if is_above(Scope::User) => {
                    return Err(self.refuse(resource, Scope::User));
                }
                Some(Err(_)) | None => {}
            }
        }
        Ok(permit)
    }

    /// Logs the limit that was reached, and where it is set.
    fn refuse(&self, resource: Resource, scope: Scope) -> RnicError {
        let bit = 1 << (scope as u32 * 8 + resource as u32);
        let is_first = self.used.refused.fetch_or(bit, Ordering::Relaxed) & bit == 0;
        if let Some(limit) = self.limits.limit(scope, resource).filter(|_| is_first) {
            tracing::warn!(
                "the limit `{} {} {}` is reached, which line {} of {} sets",
                scope.word(),
                resource.word(),
                limit.max,
                limit.line,
                self.limits.file().display()
            );
        }
        RnicError::NoResources(rnic::Resource::Policy)
    }
}

impl Use {
    fn new(directory: &str) -> Self {
        Self {
            pid: std::process::id(),
            directory: directory.into(),
            counts: [const { AtomicU32::new(0) }; Resource::ALL.len()],
            slots: OnceLock::new(),
            refused: AtomicU32::new(0),
        }
    }

    fn of_process() -> Arc<Self> {
        let mut present = USE.lock();
        match present.upgrade() {
            Some(used) if used.pid == std::process::id() => used,
            // The counts that a child has inherited are its parent's.
            parents => {
                let used = Arc::new(Self::new(slots::DIRECTORY));
                *present = Arc::downgrade(&used);
                // The last reference closes a file, for which it takes another lock.
                drop(present);
                drop(parents);
                used
            }
        }
    }

    fn slots(&self) -> Option<&Slots<NotInherited>> {
        let open = || match slots::open_own(&self.directory) {
            Ok(file) => Some(Slots::new(NotInherited::new(file))),
            Err(error) => {
                tracing::warn!(
                    "processes of this user are limited one by one, because they cannot share a \
                     file in {}: {error}",
                    self.directory.display()
                );
                None
            }
        };
        self.slots.get_or_init(open).as_ref()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.used.counts[self.resource as usize].fetch_sub(1, Ordering::Relaxed);
        // In the child of a fork the slot is still its parent's.
        if let Some(slot) = self.slot
            && self.used.pid == std::process::id()
            && let Some(slots) = self.used.slots()
        {
            slots.free(self.resource as usize, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limits of a file, for a process whose slots are in this directory.
    fn police(text: &str, directory: &str) -> Police {
        let limits = Limits::parse(text, 0, || None);
        assert!(limits.faults.is_empty(), "{:?}", limits.faults);
        Police::new(limits, Arc::new(Use::new(directory)))
    }

    #[track_caller]
    fn assert_refused(police: &Police, resource: Resource) {
        let refused = police.permit(resource);
        assert!(
            matches!(refused, Err(RnicError::NoResources(rnic::Resource::Policy))),
            "{refused:?}"
        );
    }

    #[test]
    fn without_a_limit_everything_is_permitted_and_no_file_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let free = police("", dir.path().to_str().unwrap());
        let permits: Vec<_> = (0..100)
            .flat_map(|_| Resource::ALL)
            .map(|resource| free.permit(resource).unwrap())
            .collect();
        assert_eq!(
            (permits.len(), dir.path().read_dir().unwrap().count()),
            (300, 0)
        );
    }

    #[test]
    fn a_process_may_use_as_many_as_its_limit_and_no_more() {
        let limited = police(
            "* process connections 2\n* process services 0\n",
            "/nonexistent",
        );
        let first = limited.permit(Resource::Connections).unwrap();
        let _second = limited.permit(Resource::Connections).unwrap();
        for _ in 0..3 {
            assert_refused(&limited, Resource::Connections);
            assert_refused(&limited, Resource::Services);
        }
        limited.permit(Resource::HalfOpen).unwrap();
        drop(first);
        let _third = limited.permit(Resource::Connections).unwrap();
        assert_refused(&limited, Resource::Connections);
    }

    #[test]
    fn processes_of_a_user_share_the_limit_of_the_user() {
        let dir = tempfile::tempdir().unwrap();
        let text = "* user connections 3\n* process connections 2\n* user half_open 1\n";
        let process = || police(text, dir.path().to_str().unwrap());
        let (one, other) = (process(), process());
        let first = one.permit(Resource::Connections).unwrap();
        let _second = one.permit(Resource::Connections).unwrap();
        assert_refused(&one, Resource::Connections);
        let _third = other.permit(Resource::Connections).unwrap();
        assert_refused(&other, Resource::Connections);
        let half = one.permit(Resource::HalfOpen).unwrap();
        assert_refused(&other, Resource::HalfOpen);
        drop((first, half));
        let _fourth = other.permit(Resource::Connections).unwrap();
        assert_refused(&one, Resource::Connections);
        let _half = other.permit(Resource::HalfOpen).unwrap();
    }

    #[test]
    fn without_a_directory_the_limit_of_the_user_is_that_of_each_process() {
        let alone = police("* user services 1\n", "/nonexistent");
        let _first = alone.permit(Resource::Services).unwrap();
        assert_refused(&alone, Resource::Services);
    }

    #[test]
    fn the_child_of_a_fork_frees_no_slot_of_its_parent() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().to_str().unwrap();
        let limited = police("* user services 1\n", directory);
        let permit = limited.permit(Resource::Services).unwrap();
        // SAFETY: the child drops its copy of the permit and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(permit);
            // SAFETY: the call has no preconditions.
            unsafe { libc::_exit(0) };
        }
        let mut status = 1;
        // SAFETY: the process is the child of this one, and the pointer is to a local variable.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        assert_refused(
            &police("* user services 1\n", directory),
            Resource::Services,
        );
        drop(permit);
    }
}
