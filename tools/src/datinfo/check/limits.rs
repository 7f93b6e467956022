//! Resource limits of processes.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::devices::Device;
use super::host::Privileges;
use super::item::Item;

const SUBJECT: &str = "limits";

/// The least memory, in bytes, that a program with RDMA devices must be able to register. MPI and
/// SDP register more for each connection.
const MEMLOCK_MIN: u64 = 64 << 20;
/// The least number of descriptors that a process must be able to open. An offloaded connection
/// takes up to seven.
const NOFILE_MIN: u64 = 1024;
/// The least size, in bytes, up to which a process must be able to extend a file. The limit applies
/// to shared memory too; the longest that a library creates is the page of a program under
/// `opsrun`, with 6 MiB.
const FSIZE_MIN: u64 = 16 << 20;

/// The name of the limit of descriptors in `limits.conf(5)`, and a value that is enough. The limit
/// cannot be unlimited.
const NOFILE: &str = "nofile";
const FILES: &str = "65536";

/// A limit: the value in force, and the value up to which a user may raise it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    soft: u64,
    hard: u64,
}

/// The limits that libraries depend on. A limit that cannot be read is `None`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// `RLIMIT_MEMLOCK`, in bytes.
    memlock: Option<Limit>,
    /// `RLIMIT_NOFILE`, in descriptors.
    nofile: Option<Limit>,
    /// `RLIMIT_FSIZE`, in bytes.
    fsize: Option<Limit>,
}

pub(super) fn read() -> Limits {
    let read = |resource| {
        let (soft, hard) = getrlimit(resource).ok()?;
        Some(Limit { soft, hard })
    };
    Limits {
        memlock: read(Resource::RLIMIT_MEMLOCK),
        nofile: read(Resource::RLIMIT_NOFILE),
        fsize: read(Resource::RLIMIT_FSIZE),
    }
}

pub(super) fn items(limits: &Limits, devices: &[Device], privileges: Privileges) -> Vec<Item> {
    vec![
        limits.memlock.map_or_else(
            || unreadable("RLIMIT_MEMLOCK"),
            |limit| memlock(limit, devices, privileges),
        ),
        limits
            .nofile
            .map_or_else(|| unreadable("RLIMIT_NOFILE"), nofile),
        limits
            .fsize
            .map_or_else(|| unreadable("RLIMIT_FSIZE"), fsize),
    ]
}

fn unreadable(name: &str) -> Item {
    Item::not_checked(SUBJECT, format!("{name} cannot be read"))
}

fn memlock(limit: Limit, devices: &[Device], privileges: Privileges) -> Item {
    let size = kibibytes(limit.soft);
    if devices.is_empty() {
        let text = format!("RLIMIT_MEMLOCK is {size}; no RDMA device needs locked memory");
        return Item::passed(SUBJECT, text);
    }
    if privileges.can_lock_memory {
        let text = format!("RLIMIT_MEMLOCK is {size} and does not apply (CAP_IPC_LOCK)");
        return Item::passed(SUBJECT, text);
    }
    if limit.soft >= MEMLOCK_MIN {
        return Item::passed(SUBJECT, format!("RLIMIT_MEMLOCK is {size}"));
    }
    Item::problem(
        SUBJECT,
        format!("RLIMIT_MEMLOCK is {size}, and memory that an RDMA device uses counts against it"),
        raise(limit, MEMLOCK_MIN, 'l', "memlock"),
    )
}

fn nofile(limit: Limit) -> Item {
    if limit.soft >= NOFILE_MIN {
        return Item::passed(SUBJECT, format!("RLIMIT_NOFILE is {}", count(limit.soft)));
    }
    Item::problem(
        SUBJECT,
        format!(
            "RLIMIT_NOFILE is {}, and an offloaded connection takes up to seven descriptors",
            limit.soft
        ),
        raise(limit, NOFILE_MIN, 'n', NOFILE),
    )
}

fn fsize(limit: Limit) -> Item {
    if limit.soft >= FSIZE_MIN {
        let text = format!("RLIMIT_FSIZE is {}", kibibytes(limit.soft));
        return Item::passed(SUBJECT, text);
    }
    Item::problem(
        SUBJECT,
        format!(
            "RLIMIT_FSIZE is {}, and shared memory counts as a file",
            kibibytes(limit.soft)
        ),
        raise(limit, FSIZE_MIN, 'f', "fsize"),
    )
}

/// The action that raises a limit. A user can raise it up to the hard limit.
fn raise(limit: Limit, min: u64, option: char, name: &str) -> String {
    if limit.hard >= min {
        let value = match limit.hard {
            RLIM_INFINITY if name == NOFILE => FILES,
            RLIM_INFINITY => "unlimited",
            _ => "hard",
        };
        return format!("run `ulimit -S -{option} {value}` in the shell that starts the program");
    }
    let value = if name == NOFILE { FILES } else { "unlimited" };
    format!(
        "add the line `* - {name} {value}` to /etc/security/limits.conf and log in again, or set \
         the limit in the unit of the service"
    )
}

fn count(value: u64) -> String {
    match value {
        RLIM_INFINITY => "unlimited".to_owned(),
        value => value.to_string(),
    }
}

fn kibibytes(value: u64) -> String {
    match value {
        RLIM_INFINITY => "unlimited".to_owned(),
        value => format!("{} KiB", value >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::item::Outcome;

    const PLENTY: Limit = Limit {
        soft: RLIM_INFINITY,
        hard: RLIM_INFINITY,
    };

    fn all(limit: Limit) -> Limits {
        Limits {
            memlock: Some(limit),
            nofile: Some(limit),
            fsize: Some(limit),
        }
    }

    fn fixes(items: &[Item]) -> Vec<&str> {
        let fixes = items.iter().filter_map(|item| match &item.outcome {
            Outcome::Problem { fix } => Some(fix.as_str()),
            _ => None,
        });
        fixes.collect()
    }

    #[test]
    fn low_limits_are_problems() {
        let low = Limit { soft: 64, hard: 64 };
        let devices = [Device::named("mlx5_0")];
        let items_of = |limits, devices: &[Device]| items(&limits, devices, Privileges::default());
        assert!(fixes(&items_of(all(PLENTY), &devices)).is_empty());
        let items = items_of(all(low), &devices);
        let fixes_of_low = fixes(&items);
        assert_eq!(fixes_of_low.len(), 3);
        assert!(fixes_of_low[0].contains("`* - memlock unlimited`"));
        assert!(fixes_of_low[1].contains("`* - nofile 65536`"));
        assert!(fixes_of_low[2].contains("`* - fsize unlimited`"));
        let with_hard = |hard| items_of(all(Limit { hard, ..low }), &devices);
        let items = with_hard(RLIM_INFINITY);
        assert!(fixes(&items)[1].contains("`ulimit -S -n 65536`"));
        assert!(fixes(&items)[0].contains("`ulimit -S -l unlimited`"));
        assert!(fixes(&with_hard(1 << 40))[0].contains("`ulimit -S -l hard`"));
    }

    #[test]
    fn locked_memory_matters_with_devices_and_without_privileges() {
        let low = all(Limit {
            soft: 2048,
            hard: 2048,
        });
        let privileged = Privileges {
            can_lock_memory: true,
            ..Privileges::default()
        };
        let is_problem =
            |devices: &[Device], privileges| items(&low, devices, privileges)[0].is_problem();
        let devices = [Device::named("mlx5_0")];
        assert!(is_problem(&devices, Privileges::default()));
        assert!(!is_problem(&devices, privileged));
        assert!(!is_problem(&[], Privileges::default()));
    }

    #[test]
    fn the_limits_of_this_process_are_read() {
        let limits = read();
        assert!(limits.nofile.is_some() && limits.memlock.is_some() && limits.fsize.is_some());
    }
}
