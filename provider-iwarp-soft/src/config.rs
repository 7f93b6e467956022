//! The IA line: parses `ia_params` once into values that are valid by construction.
//!
//! Grammar: `<netdev|address|host> [0] [key=value ...]`. A link-local IPv6 address may name its
//! device as in `fe80::1%eth0`. The second word is the port number of other providers' lines; here
//! it has no meaning and may be omitted.
//!
//! | Key | Value | Meaning |
//! |---|---|---|
//! | `crc` | `on`, `off` | request CRC32C |
//! | `private_data` | 0 to 508 | the longest private data, in bytes |
//! | `cc` | a name | TCP congestion control of our sockets |
//! | `fpdu_max` | 128 to 64768 | the longest ULPDU, in bytes |
//! | `long_fpdus` | `on`, `off` | FPDUs longer than a segment between our own ends |
//! | `markers` | `on`, `off` | request markers in the stream that we receive |
//! | `mpa_revision` | 1, 2 | the revision of MPA in our Requests |
//! | `peer_to_peer` | `on`, `off`, `read` | request to send the first frame of a connection |
//! | `peer` | `any`, `siw` | the peers that run another implementation: any, or Linux siw |
//! | `connect_retry_ms` | 0 to 3600000 | the time for which a refused connect is retried |
//! | `mpa_timeout_ms` | 0 to 3600000 | the time in which an MPA Request must be complete |
//! | `half_open_max` | 1 to 65536 | connections of a service that have not sent their Request |
//! | `half_open_ms` | 0 to 3600000 | the time before such a connection may be closed in favour of another |
//! | `close_timeout_ms` | 0 to 3600000 | the time that a graceful disconnect waits without progress |
//! | `receive_wait_ms` | 0 to 3600000 | the time that a message waits for its receive |
//! | `sockets` | `own`, `any` | accept consumers' sockets of this adapter's address, or of any local address |
//! | `local` | `on`, `off` | move connections to peers of this host from TCP to shared memory |
//! | `local_dir` | a path | the directory for the rendezvous with other network namespaces of this host |
//! | `peer_timeout_s` | 0 to 32767 | the time that a peer may be silent; 0: TCP's own timeouts |
//!
//! `docs/man/dat.conf.5` describes the keys to users; the suite `documents` compares the two.
//!
//! `long_fpdus=off` at either end is for diagnosis: the peer is then treated as a peer that runs
//! another implementation, with one FPDU per segment. `markers=on` is also for diagnosis: markers
//! help only receivers that see segments. `peer_to_peer=read` offers only an empty Read, the one
//! kind of first frame that some hardware sends. Without this setting a peer that also accepts an
//! empty Write is never asked for a Read.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use iwarp_proto::Peer;
use iwarp_proto::mpa::Negotiated;
use iwarp_proto::wire::fpdu::{MULPDU_MAX, MULPDU_MIN};
use iwarp_proto::wire::mpa::{RtrKind, RtrKinds};
use rnic::RnicError;
use rnic::net_device::{self, Adapter, resolve};

/// 512 octets of private data (RFC 5044 section 7.1) less the four of IRD and ORD at its start in
/// the enhanced set-up (RFC 6581 section 9).
pub(crate) const PRIVATE_DATA_MAX: u32 = 508;
/// The default longest ULPDU. The copy and the checksum of 16 KiB stay in the first cache level;
/// longer frames gain nothing.
const FPDU_DEFAULT: usize = 16 * 1024 + 18;
/// The longest ULPDU between our own ends if nothing is copied or checksummed: fewer frames need
/// fewer system calls for a receiver that places frames while it receives them.
const FPDU_DIRECT: usize = MULPDU_MAX;
/// The default time for retries of a refused connect: sufficient for a peer that starts at the same
/// moment to reach its `listen`.
const CONNECT_RETRY: Duration = Duration::from_millis(3000);
/// The default number of connections that have not sent their Request. A correct peer sends its
/// Request as soon as it has connected.
const HALF_OPEN_MAX: usize = 512;
/// The default time before such a connection may be closed in favour of another. TCP retransmits a
/// lost Request within this time, after 200 ms. Every `HALF_OPEN_MAX` silent peers delay other
/// peers by this time.
const HALF_OPEN_GRACE: Duration = Duration::from_millis(250);
/// The default time for an inbound Request, which equals that of Linux siw.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The default time for a graceful disconnect without progress: a peer that is stopped for a
/// moment, or by a debugger's breakpoint, does not lose its connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);

/// The default time that a message of a peer that runs this provider waits for its receive. OFA's
/// providers ask InfiniBand to retry without a limit, and programs rely on it while they compute.
/// The time is limited so that a missing receive is reported in the end.
const RECEIVE_WAIT: Duration = Duration::from_secs(600);

/// Settings of one interface adapter.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The network device that has `address`, or else the word in the IA line.
    pub(crate) adapter: String,
    /// The address of listeners and, unless the route forbids it, of outgoing connections.
    pub(crate) address: IpAddr,
    /// The scope of link-local IPv6 addresses on `adapter` (RFC 4007); 0 if the adapter has none.
    pub(crate) scope_id: u32,
    /// True to request CRC32C. CRC is used if either side requests it (RFC 5044 section 7.1).
    pub(crate) crc: bool,
    /// Largest private data of a consumer, in bytes.
    pub(crate) private_data_max: u32,
    /// The TCP congestion control of our sockets; `None`: the system's default.
    pub(crate) congestion: Option<String>,
    /// The largest ULPDU to send, for segments of any size; `None`: the connection's default.
    ulpdu_max: Option<usize>,
    /// True if FPDUs to peers of this provider have up to `ulpdu_max` bytes instead of the length
    /// of a segment. If false, every peer is treated as a peer that runs another implementation.
    /// This is for diagnosis, and for measurements of the performance with such a peer.
    pub(crate) long_fpdus: bool,
    /// True to request MPA markers in the received stream (RFC 5044 section 4.3), for diagnosis.
    pub(crate) markers: bool,
    /// True to use the enhanced set-up of RFC 6581, which is revision 2, in Requests.
    pub(crate) enhanced: bool,
    /// The kinds of first frame that this end offers to send; `None` does not request peer-to-peer
    /// mode.
    pub(crate) peer_to_peer: Option<RtrKinds>,
    /// The implementation of the peers, if the administrator has configured it.
    pub(crate) peer: Peer,
    /// The time for which a refused connect is retried, within the consumer's timeout.
    pub(crate) connect_retry: Duration,
    /// The time in which an inbound connection must send its complete MPA Request. In peer-to-peer
    /// mode, its first FPDU after the Reply has twice this time. `None`: no limit.
    pub(crate) request_timeout: Option<Duration>,
    /// The largest number of inbound connections of one service that have not sent their Request.
    pub(crate) half_open_max: usize,
    /// The time in which such a connection is not closed in favour of another.
    pub(crate) half_open_grace: Duration,
    /// The time after which the connection of a silent peer is broken. The peer is silent if not
    /// even its kernel answers.
    pub(crate) peer_timeout: PeerTimeout,
    /// The time for which a graceful disconnect waits for a peer without progress; `None`: no
    /// limit.
    pub(crate) close_timeout: Option<Duration>,
    /// The time that a message of a peer that runs this provider waits for its receive; `None`: a
    /// message without a receive ends the connection at once.
    pub(crate) receive_wait: Option<Duration>,
    /// True if a consumer's socket may have any local address, so that one adapter serves all
    /// addresses of a host. Otherwise the socket must be routed through this adapter.
    pub(crate) any_socket: bool,
    /// True if connections to peers of this host move from TCP to shared memory.
    pub(crate) local: bool,
    /// The directory in which peers of other network namespaces of this host rendezvous.
    pub(crate) local_dir: Option<std::path::PathBuf>,
}

/// The rule that ends a connection whose peer has vanished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerTimeout {
    /// TCP's own timeout: `net.ipv4.tcp_retries2` limits unacknowledged data; an idle connection is
    /// never ended.
    System,
    /// An idle connection is probed three times after half a minute. Unacknowledged data has TCP's
    /// own timeout, so that a stopped peer keeps its connection.
    Idle,
    /// Both timeouts have this value. It also ends the connection of a live peer that receives
    /// nothing for this time (`tcp(7)`, `TCP_USER_TIMEOUT`).
    Within(Duration),
}

impl Config {
    /// Parses an IA line and resolves its device, address or host name.
    pub(crate) fn parse(ia_params: &str) -> Result<Self, RnicError> {
        let mut words = ia_params.split_ascii_whitespace();
        let device = words.next().ok_or_else(|| bad("no device is named"))?;
        let Adapter {
            name: adapter,
            address,
            scope_id,
        } = resolve(device)?;
        let mut config = Self {
            adapter,
            address,
            scope_id,
            crc: true,
            private_data_max: PRIVATE_DATA_MAX,
            congestion: None,
            ulpdu_max: None,
            long_fpdus: true,
            markers: false,
            enhanced: true,
            peer_to_peer: Some(RtrKinds::WRITE_READ),
            peer: Peer::Unknown,
            connect_retry: CONNECT_RETRY,
            request_timeout: Some(REQUEST_TIMEOUT),
            peer_timeout: PeerTimeout::Idle,
            half_open_max: HALF_OPEN_MAX,
            half_open_grace: HALF_OPEN_GRACE,
            close_timeout: Some(CLOSE_TIMEOUT),
            receive_wait: Some(RECEIVE_WAIT),
            any_socket: false,
            local: true,
            local_dir: None,
        };
        for (index, word) in words.enumerate() {
            match word.split_once('=') {
                Some((key, value)) => config.set(key, value)?,
                None if index == 0 && word.parse::<u32>().is_ok() => {}
                None => return Err(bad(&format!("`{word}` is not key=value"))),
            }
        }
        Ok(config)
    }

    /// The longest ULPDU toward any peer.
    pub(crate) fn ulpdu_max(&self) -> usize {
        self.ulpdu_max.unwrap_or(FPDU_DEFAULT)
    }

    /// The longest ULPDU toward a peer that is found to run this provider.
    pub(crate) fn own_ulpdu_max(&self, negotiated: &Negotiated) -> usize {
        let is_plain = !negotiated.crc && !negotiated.markers_rx && !negotiated.markers_tx;
        let default = if is_plain { FPDU_DIRECT } else { FPDU_DEFAULT };
        self.ulpdu_max.unwrap_or(default)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), RnicError> {
        match key {
            "crc" => self.crc = switch(key, value)?,
            "private_data" => {
                self.private_data_max = number(key, value, 0, u64::from(PRIVATE_DATA_MAX))? as u32;
            }
            "cc" => self.congestion = Some(value.to_owned()),
            "fpdu_max" => {
                self.ulpdu_max =
                    Some(number(key, value, MULPDU_MIN as u64, MULPDU_MAX as u64)? as usize);
            }
            "markers" => self.markers = switch(key, value)?,
            "mpa_revision" => self.enhanced = number(key, value, 1, 2)? == 2,
            "peer_to_peer" => self.peer_to_peer = first_frames(key, value)?,
            "peer" => self.peer = peer_implementation(value)?,
            "long_fpdus" => self.long_fpdus = switch(key, value)?,
            "connect_retry_ms" => self.connect_retry = millis(key, value)?,
            "peer_timeout_s" => {
                self.peer_timeout = match number(key, value, 0, 32_767)? {
                    0 => PeerTimeout::System,
                    seconds => PeerTimeout::Within(Duration::from_secs(seconds)),
                }
            }
            "mpa_timeout_ms" => self.request_timeout = limit_millis(key, value)?,
            "close_timeout_ms" => self.close_timeout = limit_millis(key, value)?,
            "receive_wait_ms" => self.receive_wait = limit_millis(key, value)?,
            "local" => self.local = switch(key, value)?,
            "local_dir" => self.local_dir = Some(absolute(key, value)?),
            "sockets" => self.any_socket = any_socket(value)?,
            "half_open_max" => self.half_open_max = number(key, value, 1, 65_536)? as usize,
            "half_open_ms" => self.half_open_grace = millis(key, value)?,
            _ => return Err(bad(&format!("unknown key `{key}`"))),
        }
        Ok(())
    }

    /// The name of the congestion control of our sockets: the configured one, or the system's
    /// default.
    pub(crate) fn congestion_in_force(&self) -> String {
        match &self.congestion {
            Some(own) => own.clone(),
            None => std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
                .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned()),
        }
    }

    /// True if a consumer's socket with this local address is routed through the adapter.
    pub(crate) fn routes(&self, local: SocketAddr) -> bool {
        self.any_socket || net_device::routes(self.address, local.ip())
    }

    /// Address with an unspecified port.
    pub(crate) fn socket_address(&self, port: u16) -> SocketAddr {
        self.scoped(SocketAddr::new(self.address, port))
    }

    /// Adds the scope of the adapter's link to a link-local IPv6 address that has none.
    pub(crate) fn scoped(&self, mut address: SocketAddr) -> SocketAddr {
        if let SocketAddr::V6(v6) = &mut address
            && v6.ip().is_unicast_link_local()
            && v6.scope_id() == 0
        {
            v6.set_scope_id(self.scope_id);
        }
        address
    }
}

fn absolute(key: &str, value: &str) -> Result<std::path::PathBuf, RnicError> {
    let path = std::path::PathBuf::from(value);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(bad(&format!("{key}={value}: an absolute path")))
    }
}

fn any_socket(value: &str) -> Result<bool, RnicError> {
    match value {
        "any" => Ok(true),
        "own" => Ok(false),
        _ => Err(bad(&format!("sockets={value}: own or any"))),
    }
}

fn switch(key: &str, value: &str) -> Result<bool, RnicError> {
    match value {
        "on" | "yes" | "1" => Ok(true),
        "off" | "no" | "0" => Ok(false),
        _ => Err(bad(&format!("{key}={value}: on or off"))),
    }
}

fn first_frames(key: &str, value: &str) -> Result<Option<RtrKinds>, RnicError> {
    if value == "read" {
        return Ok(Some(RtrKinds::only(RtrKind::Read)));
    }
    let is_on = switch(key, value).map_err(|_| bad(&format!("{key}={value}: on, off or read")))?;
    Ok(is_on.then_some(RtrKinds::WRITE_READ))
}

fn peer_implementation(value: &str) -> Result<Peer, RnicError> {
    match value {
        "any" => Ok(Peer::Unknown),
        "siw" => Ok(Peer::Siw),
        _ => Err(bad(&format!("peer={value}: any or siw"))),
    }
}

fn number(key: &str, value: &str, min: u64, max: u64) -> Result<u64, RnicError> {
    value
        .parse::<u64>()
        .ok()
        .filter(|n| (min..=max).contains(n))
        .ok_or_else(|| bad(&format!("{key}={value}: a number from {min} to {max}")))
}

fn millis(key: &str, value: &str) -> Result<Duration, RnicError> {
    number(key, value, 0, 3_600_000).map(Duration::from_millis)
}

/// Parses a limit in milliseconds; 0 is `None`.
fn limit_millis(key: &str, value: &str) -> Result<Option<Duration>, RnicError> {
    Ok(Some(millis(key, value)?).filter(|limit| !limit.is_zero()))
}

fn bad(why: &str) -> RnicError {
    RnicError::BadConfig(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_by_device_address_and_name() {
        for line in ["lo", "lo 0", "127.0.0.1 0", "localhost 0 crc=off"] {
            let config = Config::parse(line).unwrap();
            assert!(config.address.is_loopback(), "{line}");
            assert_eq!(config.adapter, "lo", "{line}");
        }
    }

    #[test]
    fn sockets_of_other_addresses_are_accepted_if_configured() {
        let elsewhere = "192.0.2.1:80".parse().unwrap();
        for (line, routes) in [
            ("lo 0", false),
            ("lo 0 sockets=own", false),
            ("lo 0 sockets=any", true),
        ] {
            let config = Config::parse(line).unwrap();
            assert_eq!(config.routes(elsewhere), routes, "{line}");
            assert!(config.routes("127.0.0.2:80".parse().unwrap()));
            assert!(config.routes("[::ffff:127.0.0.1]:80".parse().unwrap()));
            assert!(config.routes("0.0.0.0:0".parse().unwrap()));
        }
    }

    #[test]
    fn link_local_addresses_have_the_scope_of_the_adapter() {
        let mut config = Config::parse("lo").unwrap();
        config.address = "fe80::1".parse().unwrap();
        config.scope_id = 7;
        assert_eq!(config.socket_address(80).to_string(), "[fe80::1%7]:80");
        let scoped = |text: &str| config.scoped(text.parse().unwrap()).to_string();
        assert_eq!(scoped("[fe80::2]:1"), "[fe80::2%7]:1");
        for unchanged in ["[fe80::2%3]:1", "[2001:db8::2]:1", "192.0.2.1:1"] {
            assert_eq!(scoped(unchanged), unchanged);
        }
    }

    #[test]
    fn settings_are_taken() {
        let config = Config::parse(
            "lo 0 crc=off private_data=251 cc=reno fpdu_max=1442 \
             long_fpdus=off markers=on connect_retry_ms=7 mpa_timeout_ms=9 peer_timeout_s=20 \
             half_open_max=3 half_open_ms=5 mpa_revision=1 peer_to_peer=off peer=siw \
             close_timeout_ms=11",
        )
        .unwrap();
        assert!(!config.enhanced && config.peer_to_peer.is_none());
        assert_eq!(config.peer, Peer::Siw);
        assert!(!config.crc && !config.long_fpdus && config.markers);
        assert_eq!(config.private_data_max, 251);
        assert_eq!(config.congestion.as_deref(), Some("reno"));
        assert_eq!(config.ulpdu_max(), 1442);
        assert_eq!(config.connect_retry, Duration::from_millis(7));
        assert_eq!(config.request_timeout, Some(Duration::from_millis(9)));
        let never = Config::parse("lo 0 mpa_timeout_ms=0").unwrap();
        assert_eq!(never.request_timeout, None);
        let within = PeerTimeout::Within(Duration::from_secs(20));
        assert_eq!(config.peer_timeout, within);
        let off = Config::parse("lo 0 peer_timeout_s=0").unwrap();
        assert_eq!(off.peer_timeout, PeerTimeout::System);
        assert_eq!(config.close_timeout, Some(Duration::from_millis(11)));
        let never = Config::parse("lo 0 close_timeout_ms=0").unwrap();
        assert_eq!(never.close_timeout, None);
        assert_eq!(config.half_open_max, 3);
        assert_eq!(config.half_open_grace, Duration::from_millis(5));
    }

    #[test]
    fn the_congestion_control_in_force_can_be_queried() {
        let in_force = |line| Config::parse(line).unwrap().congestion_in_force();
        assert_eq!(in_force("lo 0 cc=reno"), "reno");
        assert!(!in_force("lo 0").is_empty());
    }

    #[test]
    fn malformed_input_is_refused() {
        for line in [
            "",
            "   ",
            "lo x",
            "lo 0 crc",
            "lo 0 crc=maybe",
            "lo 0 private_data=509",
            "lo 0 private_data=-1",
            "lo 0 fpdu_max=1",
            "lo 0 peer_timeout_s=32768",
            "lo 0 half_open_max=0",
            "lo 0 sockets=all",
            "lo 0 color=red",
            "lo 0 mpa_revision=3",
            "lo 0 peer_to_peer=1.0",
            "lo 0 peer_to_peer=send",
            "lo 0 peer=linux",
        ] {
            assert!(
                matches!(Config::parse(line), Err(RnicError::BadConfig(_))),
                "{line}"
            );
        }
        for line in [
            "nodevice77",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "192.0.2.77",
            "::1%lo",
            "fe80::1%nodevice77",
            "%",
        ] {
            assert!(
                matches!(Config::parse(line), Err(RnicError::NoDevice(_))),
                "{line}"
            );
        }
    }
}
