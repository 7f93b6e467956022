//! Counts this process's system calls by the kernel's own trace point, at no cost to speak of.

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;

/// `struct perf_event_attr` in its first published length (`PERF_ATTR_SIZE_VER0`).
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

const PERF_TYPE_TRACEPOINT: u32 = 2;
/// Bit 1 of the flags: threads started later count too.
const INHERIT: u64 = 1 << 1;

/// A running count of the system calls of all threads of this process.
#[derive(Debug)]
pub(crate) struct SyscallCounter {
    file: Option<File>,
}

impl SyscallCounter {
    /// Starts to count, if `trace_point` is known and the kernel lets us. To be called before
    /// threads are started.
    pub(crate) fn start(trace_point: Option<u64>) -> Self {
        Self {
            file: trace_point.and_then(open),
        }
    }

    /// Calls so far; `None` if they cannot be counted.
    pub(crate) fn read(&mut self) -> Option<u64> {
        let mut bytes = [0; 8];
        self.file.as_mut()?.read_exact(&mut bytes).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }
}

fn open(trace_point: u64) -> Option<File> {
    let size = u32::try_from(size_of::<PerfEventAttr>()).ok()?;
    let attr = PerfEventAttr {
        kind: PERF_TYPE_TRACEPOINT,
        size,
        config: trace_point,
        flags: INHERIT,
        ..PerfEventAttr::default()
    };
    const THIS_PROCESS: libc::pid_t = 0;
    const EVERY_CPU: libc::c_int = -1;
    const NO_GROUP: libc::c_int = -1;
    const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
    // SAFETY: the attributes are readable for the size they state.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            THIS_PROCESS,
            EVERY_CPU,
            NO_GROUP,
            CLOSE_ON_EXEC,
        )
    };
    let fd = libc::c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the call returned a new descriptor that nothing else owns.
    Some(unsafe { File::from_raw_fd(fd) })
}
