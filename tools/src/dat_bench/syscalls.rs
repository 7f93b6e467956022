//! Counts this process's system calls by the kernel's own trace point.

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
/// Bit 1 of the flags: threads that start later are counted too.
const INHERIT: u64 = 1 << 1;

/// Counts the system calls of all threads of this process, a while at a time.
///
/// Even an idle counter sends every system call of every process through the kernel's slow entry,
/// which would add to the figures of both contenders. So the count is taken in separate runs, and
/// no counter is open while time is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SyscallCounter {
    trace_point: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Counting(Vec<File>);

impl SyscallCounter {
    /// A counter that uses this trace point, if it is known.
    pub(crate) fn new(trace_point: Option<u64>) -> Self {
        Self { trace_point }
    }

    /// Starts to count; `None` if the kernel does not permit it.
    pub(crate) fn begin(self) -> Option<Counting> {
        let trace_point = self.trace_point?;
        let threads = std::fs::read_dir("/proc/self/task").ok()?;
        let files: Option<Vec<File>> = threads
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .map(|thread| open(trace_point, thread))
            .collect();
        files.map(Counting)
    }
}

impl Counting {
    /// Calls since `begin`; `None` if they could not be counted.
    pub(crate) fn end(mut self) -> Option<u64> {
        self.0.iter_mut().try_fold(0, |sum, file| {
            let mut bytes = [0; 8];
            file.read_exact(&mut bytes).ok()?;
            Some(sum + u64::from_ne_bytes(bytes))
        })
    }
}

fn open(trace_point: u64, thread: libc::pid_t) -> Option<File> {
    let size = u32::try_from(size_of::<PerfEventAttr>()).ok()?;
    let attr = PerfEventAttr {
        kind: PERF_TYPE_TRACEPOINT,
        size,
        config: trace_point,
        flags: INHERIT,
        ..PerfEventAttr::default()
    };
    const EVERY_CPU: libc::c_int = -1;
    const NO_GROUP: libc::c_int = -1;
    const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
    // SAFETY: the attributes are readable for the size they state.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            thread,
            EVERY_CPU,
            NO_GROUP,
            CLOSE_ON_EXEC,
        )
    };
    let fd = libc::c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the call returned a new descriptor that nothing else owns.
    Some(unsafe { File::from_raw_fd(fd) })
}
