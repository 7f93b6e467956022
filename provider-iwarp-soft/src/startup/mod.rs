//! The start-up of a connection: the parts that both ends need before full operation.
//!
//! * [`attempt`]: an attempt to connect.
//!
//! Start-up frames are peeked at until they are complete, and exactly their bytes are then taken.
//! So data of a peer that does not use MPA remains for the consumer to read.

pub(crate) mod attempt;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use iwarp_proto::mpa::{Responder, ResponderConfig};
use rnic::QpAttr;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with, sockopt};

use crate::config::{Config, PeerTimeout};

/// The longest start-up frame: 20 bytes and 512 of private data (RFC 5044 section 7.1).
pub(crate) const STARTUP_MAX: usize = 20 + 512;

/// The time after which an incomplete start-up frame is checked again. The rest causes no readiness
/// event, because the socket stays readable while the first part is unread.
const PIECES_POLL: Duration = Duration::from_millis(1);
/// The number of times that this pause doubles, so that a slow peer costs fewer and fewer checks.
const PIECES_DOUBLINGS: u32 = 6;

/// The pause after this number of checks of an incomplete start-up frame.
pub(crate) fn pieces_pause(checks: u32) -> Duration {
    PIECES_POLL * (1 << checks.min(PIECES_DOUBLINGS))
}

/// The time after which an idle connection is probed, the pause between probes, and the number of
/// lost probes after which TCP ends the connection.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// The largest number of reads and atomics that either end has outstanding.
const DEPTH_MAX: u16 = 128;

/// Returns the IRD or ORD as start-up frames carry it.
pub(crate) fn depth(depth: u32) -> u16 {
    depth.min(u32::from(DEPTH_MAX)) as u16
}

/// The IRD up to which the peer's request may raise the IRD of this end. An IRD that the consumer
/// chose is not changed.
pub(crate) fn ird_max(attr: &QpAttr) -> u16 {
    if attr.read_depth_is_consumers {
        depth(attr.ird)
    } else {
        DEPTH_MAX
    }
}

/// Opens a TCP socket with the options of this interface adapter.
pub(crate) fn own_socket(config: &Config, peer: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if peer.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    if let Some(name) = &config.congestion
        && let Err(error) = sockopt::set_tcp_congestion(&socket, name)
    {
        tracing::warn!(%name, %error, "congestion control not set");
    }
    if let Err(error) = watch_peer(&socket, config.peer_timeout) {
        tracing::warn!(%error, "peer_timeout is refused: vanished peers are not detected");
    }
    Ok(socket)
}

/// Makes TCP detect a peer that has vanished. Accepted sockets inherit the setting from their
/// listener.
fn watch_peer(socket: &OwnedFd, timeout: PeerTimeout) -> Result<(), Errno> {
    let (idle, interval) = match timeout {
        PeerTimeout::System => return Ok(()),
        PeerTimeout::Idle => (PROBE_AFTER, PROBE_EVERY),
        PeerTimeout::Within(limit) => {
            let millis = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
            sockopt::set_tcp_user_timeout(socket, millis)?;
            let second = Duration::from_secs(1);
            ((limit / 2).max(second), (limit / 6).max(second))
        }
    };
    sockopt::set_tcp_keepidle(socket, idle)?;
    sockopt::set_tcp_keepintvl(socket, interval)?;
    sockopt::set_tcp_keepcnt(socket, PROBES)?;
    sockopt::set_socket_keepalive(socket, true)
}

/// Returns the responder of an adapter with this configuration.
pub(crate) fn responder(config: &Config) -> Responder {
    Responder::new(ResponderConfig {
        crc: config.crc,
        markers: config.markers,
        pd_length_max: 512,
        peer: config.peer,
        ..ResponderConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_frame_is_checked_at_growing_intervals() {
        let pauses: Vec<u128> = (0..9)
            .map(|checks| pieces_pause(checks).as_millis())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(pieces_pause(u32::MAX).as_millis(), 64);
    }
}
