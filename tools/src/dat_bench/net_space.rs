//! Network namespaces in which TCP behaves alike on every machine.

use std::fs;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};

/// The usual congestion control of bandwidth measurements within a host; bbr paces even on
/// loopback.
pub(crate) const RENO: &str = "reno";
/// The file with the congestion control that new connections get.
pub(crate) const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// The reason why some rows are not run.
const NO_RIGHT: &str = "no right to make network namespaces";
const PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Moves the calling thread into a new namespace.
pub(crate) fn enter_new() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).context(NO_RIGHT)?;
    set_up()
}

/// Sets up a new network namespace: a loopback device that is up, the congestion control, and
/// enough ports while the ports of closed connections are in TIME_WAIT.
fn set_up() -> Result<()> {
    set_loopback_up().context("setting the loopback device up")?;
    fs::write(PORTS, "1024 65535").context("setting the range of ports")?;
    fs::write(CONGESTION, RENO).context("setting the congestion control")
}

fn set_loopback_up() -> Result<()> {
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
    Errno::result(code)?;
    Ok(())
}
