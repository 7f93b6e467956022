//! The permission to read the memory of another process of the same user, by which connections
//! within the host carry long payloads without a copy into shared memory.

use std::io;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pause};

use super::host::{Host, Privileges};
use super::item::Item;

const SUBJECT: &str = "processes";

/// The setting of Yama, a security module of the kernel.
const YAMA: &str = "proc/sys/kernel/yama/ptrace_scope";
/// The word that is read: a process that was forked has it at the same address.
static WORD: u64 = 0x6461_7469_6e66_6f21;

/// Reads a word of one child process in another child process. The inner result is that of
/// `process_vm_readv(2)`. The outer error means that the child processes could not be run.
///
/// This process must have one thread.
pub(super) fn probe() -> io::Result<io::Result<()>> {
    let read = spawn(|| {
        loop {
            pause();
        }
    })?;
    let reader = spawn(|| read_word(read));
    let status = reader.and_then(|reader| Ok(waitpid(reader, None)?));
    // The child sleeps until this signal, so both calls succeed.
    let _ = nix::sys::signal::kill(read, nix::sys::signal::Signal::SIGKILL);
    let _ = waitpid(read, None);
    Ok(match status? {
        WaitStatus::Exited(_, 0) => Ok(()),
        WaitStatus::Exited(_, code) => Err(io::Error::from_raw_os_error(code)),
        // A seccomp filter may kill the process that makes the call.
        _ => Err(io::Error::from_raw_os_error(libc::EPERM)),
    })
}

/// Runs `body` in a child process, which exits with its result.
fn spawn(body: impl FnOnce() -> i32) -> io::Result<Pid> {
    // SAFETY: this process has one thread, so the child inherits no lock of another thread; the
    // bodies make system calls only, and `_exit` runs no handler of the parent.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let code = body();
            // SAFETY: the call does not return, and the child owns nothing that needs a destructor.
            unsafe { libc::_exit(code) }
        }
    }
}

/// Reads the word of another process. Returns 0, or the number of the error.
fn read_word(other: Pid) -> i32 {
    let mut word = 0_u64;
    let len = size_of::<u64>();
    let local = libc::iovec {
        iov_base: (&raw mut word).cast(),
        iov_len: len,
    };
    let remote = libc::iovec {
        iov_base: (&raw const WORD).cast_mut().cast(),
        iov_len: len,
    };
    // SAFETY: the kernel writes at most `len` bytes to `word`, which is as long; the remote address
    // is not accessed in this process.
    let count = unsafe { libc::process_vm_readv(other.as_raw(), &local, 1, &remote, 1, 0) };
    match usize::try_from(count) {
        Ok(count) if count == len && word == WORD => 0,
        Ok(_) => libc::EFAULT,
        Err(_) => nix::errno::Errno::last_raw(),
    }
}

pub(super) fn items(
    host: &Host,
    probe: io::Result<io::Result<()>>,
    privileges: Privileges,
) -> Vec<Item> {
    let read = match probe {
        Err(error) => Item::not_checked(SUBJECT, format!("no process could be started: {error}")),
        Ok(Ok(())) => Item::passed(
            SUBJECT,
            "processes of one user may read each other's memory",
        ),
        Ok(Err(error)) => refused(host, &error, privileges),
    };
    let seccomp = if privileges.has_seccomp_filter {
        "a seccomp filter is in force"
    } else {
        "no seccomp filter is in force"
    };
    vec![read, Item::passed(SUBJECT, seccomp)]
}

fn refused(host: &Host, error: &io::Error, privileges: Privileges) -> Item {
    let scope = host.text(YAMA).and_then(|text| text.parse::<u32>().ok());
    let text = format!(
        "a process may not read the memory of another one of the same user ({error}), so long \
         payloads within the host are copied twice"
    );
    let fix = match scope {
        Some(scope @ 1..) => format!(
            "set kernel.yama.ptrace_scope to 0 (it is {scope}): `sysctl -w \
             kernel.yama.ptrace_scope=0`, if the host permits that a process reads others of its \
             user"
        ),
        _ if privileges.has_seccomp_filter => {
            "permit process_vm_readv in the seccomp profile of the container".to_owned()
        }
        _ => "ask the administrator which security module forbids process_vm_readv".to_owned(),
    };
    Item::problem(SUBJECT, text, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fix(scope: Option<&str>, has_seccomp_filter: bool) -> String {
        let file = scope.map(|scope| (YAMA, scope));
        let (_dir, host) = Host::of(file.as_slice());
        let privileges = Privileges {
            has_seccomp_filter,
            ..Privileges::default()
        };
        let refusal = Ok(Err(io::Error::from_raw_os_error(libc::EPERM)));
        let items = items(&host, refusal, privileges);
        assert!(items[0].is_problem());
        items[0].to_string()
    }

    #[test]
    fn the_cause_of_a_refusal_is_named() {
        assert!(fix(Some("1\n"), false).contains("kernel.yama.ptrace_scope to 0 (it is 1)"));
        assert!(fix(Some("2\n"), true).contains("(it is 2)"));
        assert!(fix(Some("0\n"), true).contains("in the seccomp profile"));
        assert!(fix(None, false).contains("security module"));
    }

    #[test]
    fn an_untested_item_is_not_reported_as_a_problem() {
        let (_dir, host) = Host::of(&[]);
        let failed = Err(io::Error::from_raw_os_error(libc::EAGAIN));
        let items = items(&host, failed, Privileges::default());
        let is_unchecked = items[0].to_string().starts_with("not checked: ");
        assert!(is_unchecked, "{items:?}");
    }

    #[test]
    fn an_address_without_memory_is_an_error() {
        let missing = Pid::from_raw(i32::MAX);
        assert_eq!(read_word(missing), libc::ESRCH);
    }
}
