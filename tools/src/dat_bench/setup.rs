//! The environment that all contenders share: a network of their own, congestion control, one CPU
//! each.

use std::cell::OnceCell;
use std::fmt;
use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, sched_setaffinity, unshare};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Pid;
use tempfile::NamedTempFile;
use tool_args::bench::case::Wire;

use crate::cable::{self, Cable, Lane};
use crate::net_space::{self, CONGESTION, RENO};

/// The environment variable that names the registry file.
const OVERRIDE: &str = "DAT_OVERRIDE";

/// The network that the connections use.
#[derive(Debug)]
pub(crate) enum Network {
    /// A network namespace of our own, where this program chose the default congestion control.
    Own,
    /// The caller's network, for the reason given.
    Callers(String),
}

/// The environment that has been prepared for both contenders.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) network: Network,
    /// The congestion control that is set on both connections; `None` keeps the default.
    pub(crate) congestion: Option<&'static str>,
    /// The registry file of this run, if this program wrote it.
    registry: Option<NamedTempFile>,
    /// The second networks, made on first use.
    fast: OnceCell<Cable>,
    shaped: OnceCell<Cable>,
    /// The registry for processes in a second network, made on first use.
    far_registry: OnceCell<NamedTempFile>,
}

/// Processors, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cpus {
    /// The processor of the second process.
    pub(crate) theirs: usize,
    /// The processor of this process.
    pub(crate) ours: usize,
    /// A processor that neither process is bound to.
    pub(crate) spare: Option<usize>,
}

/// The end of a cable that a registry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Near,
    Far,
}

/// The network of the second process.
#[derive(Debug)]
pub(crate) enum FarEnd<'a> {
    /// The network of the first process.
    Here,
    /// At the other end of a cable, with a registry that names the device there.
    There {
        cable: &'a Cable,
        registry: &'a NamedTempFile,
    },
}

impl Environment {
    /// Chooses network, congestion control and registry. `ia` is the adapter that the caller asked
    /// for.
    ///
    /// Must be called while the process has one thread and has not loaded the registry library.
    pub(crate) fn prepare(stay: bool, ia: Option<&str>) -> Result<Self> {
        let network = match stay {
            true => Network::Callers("asked not to leave it".into()),
            false => own_network(),
        };
        let congestion = match network {
            Network::Own => None,
            Network::Callers(_) => congestion_to_set(),
        };
        if ia.is_some() {
            return Ok(Self::new(network, None, None));
        }
        let registry = write_dat_conf(End::Near, congestion)?;
        // SAFETY: this process has one thread, so no other thread reads the environment meanwhile.
        unsafe { std::env::set_var(OVERRIDE, registry.path()) };
        Ok(Self::new(network, congestion, Some(registry)))
    }

    fn new(
        network: Network,
        congestion: Option<&'static str>,
        registry: Option<NamedTempFile>,
    ) -> Self {
        Self {
            network,
            congestion,
            registry,
            fast: OnceCell::new(),
            shaped: OnceCell::new(),
            far_registry: OnceCell::new(),
        }
    }

    /// Prepares the second process's network for this wire. Returns the reason if it cannot be set
    /// up.
    pub(crate) fn far_end(&self, wire: Wire) -> Result<FarEnd<'_>> {
        if wire == Wire::Local {
            return Ok(FarEnd::Here);
        }
        ensure!(
            self.registry.is_some(),
            "--ia names the adapter, which is on this place only"
        );
        let (cell, lane) = match wire {
            Wire::Local | Wire::Tcp | Wire::TcpNoCrc => return Ok(FarEnd::Here),
            Wire::Veth | Wire::VethSegments => (&self.fast, &cable::FAST),
            Wire::Shaped => (&self.shaped, &cable::SHAPED),
            Wire::Network => bail!("the name of the other host is missing"),
        };
        if let Network::Callers(why) = &self.network {
            bail!("{why}");
        }
        Ok(FarEnd::There {
            cable: get_or_make(cell, || Cable::lay(lane))?,
            registry: get_or_make(&self.far_registry, || write_dat_conf(End::Far, None))?,
        })
    }

    /// The congestion control of the DAT connection, as far as this process can determine it.
    pub(crate) fn dat_congestion(&self) -> String {
        match self.congestion {
            Some(name) => name.to_owned(),
            None => format!("{} (the default)", default_congestion()),
        }
    }
}

impl FarEnd<'_> {
    /// The address on which the second process listens for the raw connection.
    pub(crate) fn address(&self) -> IpAddr {
        match self {
            Self::Here => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Self::There { cable, .. } => cable.far_address(),
        }
    }

    /// Makes the second process start in this network.
    pub(crate) fn place(&self, mut command: Command) -> Result<Command> {
        match self {
            Self::Here => Ok(command),
            Self::There { cable, registry } => {
                command.env(OVERRIDE, registry.path());
                cable.start_far(command)
            }
        }
    }
}

/// The content of a cell, which is made by the first call that succeeds.
fn get_or_make<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(made) = cell.get() {
        return Ok(made);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("a network namespace of its own"),
            Self::Callers(why) => write!(f, "the caller's network ({why})"),
        }
    }
}

/// Moves this process, and so its children, into a network that has only a loopback device.
fn own_network() -> Network {
    match net_space::enter_new() {
        Ok(()) => Network::Own,
        Err(error) => Network::Callers(format!("{error:#}")),
    }
}

/// The congestion control that new connections get.
fn default_congestion() -> String {
    fs::read_to_string(CONGESTION).map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

/// The congestion control to set on connections in the caller's network. The default is kept unless
/// it is one that paces and another is allowed.
fn congestion_to_set() -> Option<&'static str> {
    let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let reno_allowed = allowed.is_ok_and(|list| list.split_whitespace().any(|name| name == RENO));
    (default_congestion() == "bbr" && reno_allowed).then_some(RENO)
}

/// The adapter for a wire, in a registry that this program wrote.
pub(crate) const fn adapter(wire: Wire) -> &'static str {
    match wire {
        Wire::Local => "iwarp-lo",
        Wire::Tcp => "iwarp-lo-tcp",
        Wire::TcpNoCrc => "iwarp-lo-no-crc",
        Wire::Veth => "iwarp-veth",
        Wire::VethSegments => "iwarp-veth-segments",
        Wire::Shaped => "iwarp-10g",
        Wire::Network => "iwarp-network",
    }
}

/// The settings of the adapter for a wire, at one end of it.
fn settings(wire: Wire, end: End) -> String {
    let device = |lane: &Lane| match end {
        End::Near => lane.near,
        End::Far => lane.far,
    };
    match wire {
        Wire::Local | Wire::Network => "lo 0".to_owned(),
        Wire::Tcp => "lo 0 local=off".to_owned(),
        Wire::TcpNoCrc => "lo 0 local=off crc=off".to_owned(),
        Wire::Veth => format!("{} 0", device(&cable::FAST)),
        Wire::VethSegments => format!("{} 0 long_fpdus=off", device(&cable::FAST)),
        Wire::Shaped => format!("{} 0", device(&cable::SHAPED)),
    }
}

/// A registry file with an adapter for each wire, for processes at one end of the cables.
fn write_dat_conf(end: End, congestion: Option<&str>) -> Result<NamedTempFile> {
    let cc = congestion.map_or_else(String::new, |name| format!(" cc={name}"));
    write_registry(Wire::all().map(|wire| (adapter(wire), format!("{}{cc}", settings(wire, end)))))
}

/// A registry file of adapters of the software provider, each with its settings. The file is
/// removed when the value is dropped.
fn write_registry<N: fmt::Display>(
    adapters: impl IntoIterator<Item = (N, String)>,
) -> Result<NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix("dat-bench-")
        .suffix(".conf")
        .tempfile()?;
    for (ia, settings) in adapters {
        writeln!(
            file,
            "{ia} u2.0 nonthreadsafe default libdapl-iwarp.so.2 dat-rs.1.0 \"{settings}\" \"\""
        )?;
    }
    Ok(file)
}

/// Makes these adapters the registry of this process.
///
/// Must be called while the process has one thread and has not loaded the registry library.
pub(crate) fn use_registry<N: fmt::Display>(
    adapters: impl IntoIterator<Item = (N, String)>,
) -> Result<NamedTempFile> {
    let registry = write_registry(adapters)?;
    // SAFETY: this process has one thread, so no other thread reads the environment meanwhile.
    unsafe { std::env::set_var(OVERRIDE, registry.path()) };
    Ok(registry)
}

/// The processors that this process may use: the first one for the second process, the last one
/// for this process, and one in between, if there is one.
pub(crate) fn cpus() -> Result<Cpus> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    let usable: Vec<usize> = (0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .collect();
    Cpus::among(&usable).context("no usable CPU")
}

impl Cpus {
    fn among(usable: &[usize]) -> Option<Self> {
        Some(Self {
            theirs: *usable.first()?,
            ours: *usable.last()?,
            spare: usable.get(1).filter(|_| usable.len() > 2).copied(),
        })
    }
}

/// True if this process maps memory of the kind that the provider shares with processes of this
/// host.
pub(crate) fn has_shared_memory() -> bool {
    fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains(" /memfd:"))
}

/// Raises this process's soft limit of descriptors to the hard limit: a thousand connections need
/// more than the usual limit.
pub(crate) fn lift_descriptor_limit() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}

/// Binds this process to one CPU; threads it starts later inherit it.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    Ok(pin_thread(Pid::from_raw(0), cpu)?)
}

/// The processor time that all threads of this process have used so far, in seconds.
pub(crate) fn processor_seconds() -> Result<f64> {
    let used = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: TimeVal| time.num_microseconds() as f64 / 1e6;
    Ok(seconds(used.user_time()) + seconds(used.system_time()))
}

/// Binds all threads except the calling one to one CPU; the provider's threads are among them.
pub(crate) fn pin_other_threads(cpu: usize) -> Result<()> {
    let caller = nix::unistd::gettid();
    for entry in fs::read_dir("/proc/self/task").context("listing the threads")? {
        let name = entry?.file_name();
        let thread = name.to_str().and_then(|name| name.parse().ok());
        let thread = Pid::from_raw(thread.context("a thread without a number")?);
        if thread == caller {
            continue;
        }
        match pin_thread(thread, cpu) {
            // The thread has ended since it was listed.
            Err(Errno::ESRCH) => {}
            pinned => pinned.with_context(|| format!("binding a thread to CPU {cpu}"))?,
        }
    }
    Ok(())
}

fn pin_thread(thread: Pid, cpu: usize) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(thread, &set)
}

/// Makes the kernel's trace points accessible to this process and its children, if it has the right
/// to; the system call counter needs the number of one of them.
///
/// Must be called while the process has one thread.
pub(crate) fn own_trace_points() -> Option<u64> {
    const ID: &str = "events/raw_syscalls/sys_enter/id";
    let read = |root: &str| {
        fs::read_to_string(format!("{root}/{ID}"))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    read("/sys/kernel/tracing")
        .or_else(|| read("/sys/kernel/debug/tracing"))
        .or_else(|| {
            let none: Option<&str> = None;
            // The mount below is in a mount namespace of our own: other processes do not see it,
            // and it ends with this process.
            unshare(CloneFlags::CLONE_NEWNS).ok()?;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).ok()?;
            let root = "/sys/kernel/tracing";
            mount(
                Some("tracefs"),
                root,
                Some("tracefs"),
                MsFlags::empty(),
                none,
            )
            .ok()?;
            read(root)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_processor_is_spare() {
        let cpus = |theirs, ours, spare| Cpus {
            theirs,
            ours,
            spare,
        };
        assert_eq!(Cpus::among(&[]), None);
        assert_eq!(Cpus::among(&[3]), Some(cpus(3, 3, None)));
        assert_eq!(Cpus::among(&[0, 1]), Some(cpus(0, 1, None)));
        assert_eq!(Cpus::among(&[0, 2, 4, 6]), Some(cpus(0, 6, Some(2))));
    }

    #[test]
    fn only_the_rows_of_shared_memory_leave_the_local_carrier_on() {
        for end in [End::Near, End::Far] {
            for wire in [Wire::Tcp, Wire::TcpNoCrc] {
                assert!(settings(wire, end).contains("local=off"));
            }
            assert_eq!(settings(Wire::Local, end), "lo 0");
        }
        assert_eq!(settings(Wire::Veth, End::Near), "near 0");
        assert_eq!(settings(Wire::Shaped, End::Far), "far-10g 0");
    }
}
