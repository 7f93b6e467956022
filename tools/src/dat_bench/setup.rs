//! What all contenders have in common: a network of their own, congestion control, one CPU each.

use std::cell::OnceCell;
use std::fmt;
use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, sched_setaffinity, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use tempfile::NamedTempFile;

use crate::cable::{self, Cable};
use crate::case::Wire;

/// What bandwidth figures on one machine are usually taken with; bbr paces even on loopback.
const RENO: &str = "reno";
/// Names the registry file.
const OVERRIDE: &str = "DAT_OVERRIDE";
/// Why there are rows that are not run.
pub(crate) const NO_RIGHT: &str = "no right to make network namespaces";
const PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Where the connections run.
#[derive(Debug)]
pub(crate) enum Network {
    /// A network namespace of our own, where the default congestion control was chosen by us.
    Own,
    /// The caller's, for the reason given.
    Callers(String),
}

/// What has been prepared for both contenders.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) network: Network,
    /// What both connections are told to use; `None` leaves them the default.
    pub(crate) congestion: Option<&'static str>,
    /// The registry file of this run, if it is ours.
    registry: Option<NamedTempFile>,
    /// The second network and the registry for it, once they are needed.
    far: OnceCell<(Cable, NamedTempFile)>,
}

/// Where the second process lives.
#[derive(Debug)]
pub(crate) enum FarEnd<'a> {
    /// In the same network.
    Here,
    /// At the other end of a cable, with a registry that names the device there.
    There {
        cable: &'a Cable,
        registry: &'a NamedTempFile,
    },
}

impl Ground {
    /// Chooses network, congestion control and registry. `ia` is the adapter that the caller asked
    /// for.
    ///
    /// To be called while the process has one thread and has not loaded the registry library.
    pub(crate) fn prepare(stay: bool, ia: Option<&str>) -> Result<Self> {
        let network = match stay {
            true => Network::Callers("asked not to leave it".into()),
            false => own_network(),
        };
        let congestion = match network {
            Network::Own => None,
            Network::Callers(_) => congestion_to_set(),
        };
        if ia.is_some() || environment::variable(OVERRIDE).is_some() {
            return Ok(Self {
                network,
                congestion: None,
                registry: None,
                far: OnceCell::new(),
            });
        }
        let registry = write_dat_conf(cable::NEAR, congestion)?;
        // SAFETY: this process has one thread, so nobody reads the environment meanwhile.
        unsafe { std::env::set_var(OVERRIDE, registry.path()) };
        Ok(Self {
            network,
            congestion,
            registry: Some(registry),
            far: OnceCell::new(),
        })
    }

    /// What the second process needs for this wire; why it cannot be had otherwise.
    pub(crate) fn far_end(&self, wire: Wire) -> Result<FarEnd<'_>> {
        if wire == Wire::Loopback {
            return Ok(FarEnd::Here);
        }
        ensure!(
            self.registry.is_some(),
            "the caller's registry names the adapter"
        );
        if wire == Wire::LoopbackNoCrc {
            return Ok(FarEnd::Here);
        }
        match &self.network {
            Network::Own => {}
            Network::Callers(why) => bail!("{why}"),
        }
        if self.far.get().is_none() {
            let laid = (Cable::lay()?, write_dat_conf(cable::FAR, None)?);
            let _ = self.far.set(laid);
        }
        let (cable, registry) = self.far.get().context("the cable is laid")?;
        Ok(FarEnd::There { cable, registry })
    }

    /// What the DAT connection uses, as far as it is known from here.
    pub(crate) fn dat_congestion(&self) -> String {
        match self.congestion {
            Some(name) => name.to_owned(),
            None => format!("{} (the default)", default_congestion()),
        }
    }
}

impl FarEnd<'_> {
    /// Where the second process listens for the raw connection.
    pub(crate) fn address(&self) -> IpAddr {
        match self {
            Self::Here => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Self::There { .. } => cable::FAR_ADDRESS,
        }
    }

    /// Has the second process start there.
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

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("a network namespace of its own"),
            Self::Callers(why) => write!(f, "the caller's network ({why})"),
        }
    }
}

/// Moves this process, and so its children, into a network with nothing but a loopback device.
fn own_network() -> Network {
    match try_own_network() {
        Ok(()) => Network::Own,
        Err(error) => Network::Callers(format!("{error:#}")),
    }
}

fn try_own_network() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).context(NO_RIGHT)?;
    furnish_network()
}

/// What a new network needs: a loopback device that is up, the congestion control, and ports for
/// more connections than end in a minute.
pub(crate) fn furnish_network() -> Result<()> {
    raise_loopback().context("raising the loopback device")?;
    fs::write(PORTS, "1024 65535").context("setting the range of ports")?;
    fs::write(CONGESTION, RENO).context("setting the congestion control")
}

fn raise_loopback() -> Result<()> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    use std::os::fd::AsRawFd;
    let probe = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the descriptor is open and the request is the structure this operation reads.
    let code = unsafe { libc::ioctl(probe.as_raw_fd(), libc::SIOCSIFFLAGS, &request) };
    nix::errno::Errno::result(code)?;
    Ok(())
}

/// The congestion control that new connections get.
fn default_congestion() -> String {
    fs::read_to_string(CONGESTION).map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

/// The congestion control to set on connections in the caller's network: the default is kept unless
/// it is one that paces and another is allowed.
fn congestion_to_set() -> Option<&'static str> {
    let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let reno_allowed = allowed.is_ok_and(|list| list.split_whitespace().any(|name| name == RENO));
    (default_congestion() == "bbr" && reno_allowed).then_some(RENO)
}

/// The adapter for a wire, in a registry that is ours.
pub(crate) const fn adapter(wire: Wire) -> &'static str {
    match wire {
        Wire::Loopback => "iwarp-lo",
        Wire::LoopbackNoCrc => "iwarp-lo-no-crc",
        Wire::Veth => "iwarp-veth",
        Wire::VethSegments => "iwarp-veth-segments",
    }
}

/// A registry file with an adapter for each wire; `device` is this end's of the cable. It goes when
/// the value is dropped.
fn write_dat_conf(device: &str, congestion: Option<&str>) -> Result<NamedTempFile> {
    let cc = congestion.map_or_else(String::new, |name| format!(" cc={name}"));
    let mut file = tempfile::Builder::new()
        .prefix("dat-bench-")
        .suffix(".conf")
        .tempfile()?;
    for wire in Wire::ALL {
        let ia = adapter(wire);
        let device = match wire {
            Wire::Loopback => "lo 0".to_owned(),
            Wire::LoopbackNoCrc => "lo 0 crc=off".to_owned(),
            Wire::Veth => format!("{device} 0"),
            Wire::VethSegments => format!("{device} 0 long_fpdus=off"),
        };
        writeln!(
            file,
            "{ia} u2.0 nonthreadsafe default libdapl-iwarp.so.2 dat-rs.1.0 \"{device}{cc}\" \"\""
        )?;
    }
    Ok(file)
}

/// Which CPU each side gets: the first and the last that this process may use.
pub(crate) fn cpus() -> Result<(usize, usize)> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    let usable: Vec<usize> = (0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .collect();
    let first = usable.first().context("no usable CPU")?;
    let last = usable.last().context("no usable CPU")?;
    Ok((*first, *last))
}

/// Allows this process as many descriptors as it may have: a thousand connections need more than
/// the usual.
pub(crate) fn lift_descriptor_limit() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}

/// Binds this process to one CPU; threads it starts later inherit it.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Makes the kernel's trace points nameable for this process and its children, where it may; the
/// system call counter needs the number of one of them.
///
/// To be called while the process has one thread.
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
            // A mount namespace of our own: the mount below is seen by nobody else and ends with
            // us.
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
