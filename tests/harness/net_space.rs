//! A network that belongs to the test, so that the fixed ports of the tools cannot collide.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};
use nix::sched::{CloneFlags, unshare};

use crate::{Program, Running};

/// The setting of a network for ports that the kernel must not assign to sockets without a port.
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

/// The ports on which OFA's tools listen. They are in the range from which the kernel assigns
/// ports, and a connection with such a port would keep a tool from listening.
const TOOLS_PORTS: &str = "45248-45999";

/// The interval at which the table of listeners is read again.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The time limit of the command that lists RDMA listeners.
const RDMA_DEADLINE: Duration = Duration::from_secs(60);

/// The network of the calling thread and of the children that it starts.
///
/// A namespace belongs to a thread, and a child inherits the namespace of the thread that starts
/// it. So each test, being a thread, can have its own network.
#[derive(Debug)]
pub enum NetSpace {
    /// A fresh namespace with nothing but `lo`.
    Own,
    /// The host's network, because namespaces are not permitted. One test at a time holds the lock.
    Host(Flock<File>),
}

impl NetSpace {
    /// Moves the calling thread into a namespace of its own, or waits for the host's network.
    pub fn enter() -> Result<Self> {
        if unshare(CloneFlags::CLONE_NEWNET).is_ok() {
            bring_up_loopback().context("bringing up lo")?;
            // Without this setting, one in thousands of tests fails: see `TOOLS_PORTS`.
            let _ = fs::write(RESERVED, TOOLS_PORTS);
            return Ok(Self::Own);
        }
        Self::stay()
    }

    /// Waits for the host's network and stays in it, for tests that use a device of the host.
    pub fn stay() -> Result<Self> {
        let path = std::env::temp_dir().join("dat-rs-stack-tests.lock");
        // A file of another user cannot be written, but can be read and locked.
        let file = File::open(&path).or_else(|_| File::create(&path));
        let file = file.with_context(|| format!("making {}", path.display()))?;
        match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(lock) => Ok(Self::Host(lock)),
            Err((_, e)) => bail!("locking {}: {e}", path.display()),
        }
    }

    /// Waits until `server` listens on port `port`, for TCP or on an RDMA device.
    ///
    /// # Errors
    /// When the server ends first, or at the deadline; the message holds the server's output.
    pub fn wait_for_listener_of(
        &self,
        server: &Running,
        port: u16,
        deadline: Duration,
    ) -> Result<()> {
        let end = Instant::now() + deadline;
        while !is_listening(port)? {
            let text = server.text();
            ensure!(!server.has_ended(), "ended before it listened\n{text}");
            ensure!(
                Instant::now() < end,
                "does not listen on port {port} after {deadline:?}\n{text}"
            );
            thread::sleep(RETRY_INTERVAL);
        }
        Ok(())
    }

    /// Waits until there is a listener on TCP port `port` in this network.
    pub fn wait_for_listener(&self, port: u16, deadline: Duration) -> Result<()> {
        let end = Instant::now() + deadline;
        while !is_listening(port)? {
            if Instant::now() > end {
                bail!("no program listens on TCP port {port} after {deadline:?}");
            }
            thread::sleep(RETRY_INTERVAL);
        }
        Ok(())
    }
}

fn is_listening(port: u16) -> Result<bool> {
    // Columns: slot, local address:port in hex, remote, state; state 0A is LISTEN.
    let listens = |table: &str| {
        table.lines().skip(1).any(|line| {
            let mut columns = line.split_whitespace().skip(1);
            let local = columns.next().unwrap_or_default();
            let state = columns.nth(1).unwrap_or_default();
            state == "0A" && local.ends_with(&format!(":{port:04X}"))
        })
    };
    let ipv4 = fs::read_to_string("/proc/thread-self/net/tcp").context("reading listeners")?;
    // A kernel without IPv6 has neither this table nor an IPv6 listener.
    let ipv6 = fs::read_to_string("/proc/thread-self/net/tcp6").unwrap_or_default();
    Ok(listens(&ipv4) || listens(&ipv6) || rdma_listens(port)?)
}

/// Returns true if an RDMA device of the kernel has a listener on the port; RoCE has no TCP table.
fn rdma_listens(port: u16) -> Result<bool> {
    let has_device =
        fs::read_dir("/sys/class/infiniband").is_ok_and(|mut all| all.next().is_some());
    if !has_device {
        return Ok(false);
    }
    // On a machine without this tool the tests start no RDMA listener.
    let Ok(shown) = Program::new("rdma")
        .args_line("resource show cm_id")
        .spawn()
    else {
        return Ok(false);
    };
    let shown = shown.finish(RDMA_DEADLINE)?;
    let address = format!(":{port} ");
    let is_listener = |line: &str| line.contains("state LISTEN ") && line.contains(&address);
    Ok(shown.text.lines().any(is_listener))
}

fn bring_up_loopback() -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: an all-zero ifreq is a valid value of this C structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let flags = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = i16::try_from(flags).map_err(io::Error::other)?;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which `request` is, and the descriptor is open.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
