//! The IA line: what `ia_params` says, parsed once into values that cannot be wrong.
//!
//! Grammar: `<netdev|address|host> [0] [key=value ...]`. The second word is the port number of the
//! other providers' lines; it has no meaning here and may be left out.
//!
//! | Key | Value | What |
//! |---|---|---|
//! | `crc` | `on`, `off` | whether we ask for CRC32C |
//! | `private_data` | 0 to 508 | the longest private data, in bytes |
//! | `cc` | a name | TCP congestion control of our sockets |
//! | `fpdu_max` | 128 to 64768 | the longest ULPDU, in bytes |
//! | `long_fpdus` | `on`, `off` | FPDUs longer than a segment between our own ends |
//! | `connect_retry_ms` | 0 to 3600000 | how long a refused connect is tried again |
//! | `mpa_timeout_ms` | 0 to 3600000 | how long an MPA Request may take to come whole |
//!
//! `long_fpdus=off` at either end is a diagnosis: the peer then gets what one of another make gets,
//! one FPDU a segment.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use access_layer::rnic::RnicError;

use crate::device;

/// RFC 6581 section 9.2: 512 octets of private data less the four enhanced ones.
pub(crate) const PRIVATE_DATA_MAX: u32 = 508;
/// ULPDU bound of RFC 5044 section 4.1.
const FPDU_MAX: usize = 64768;
/// What is copied and checksummed of 16 KiB stays in the first cache level; longer frames gain
/// nothing.
const FPDU_DEFAULT: usize = 16 * 1024 + 18;
/// Long enough for a peer that starts at the same moment to reach its `listen`.
const CONNECT_RETRY: Duration = Duration::from_millis(3000);
/// Linux siw waits as long for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings of one interface adapter.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Network device that holds `address`, or the word that named it.
    pub(crate) adapter: String,
    /// Where we listen and, unless the route forbids it, connect from.
    pub(crate) address: IpAddr,
    /// Whether we ask for CRC32C. It is used when either side asks (RFC 5044 section 7.1).
    pub(crate) crc: bool,
    /// Largest private data of a consumer, in bytes.
    pub(crate) private_data_max: u32,
    /// TCP congestion control of our own sockets; `None` leaves the system's choice.
    pub(crate) congestion: Option<String>,
    /// Largest ULPDU we send, however large the segments are.
    pub(crate) ulpdu_max: usize,
    /// Whether FPDUs are up to `ulpdu_max` long toward peers of this provider, and not only as long
    /// as a segment. Off, every peer is treated as one of another make: for diagnosis and to
    /// measure what such a peer gets.
    pub(crate) long_fpdus: bool,
    /// How long a refused connect is tried again, within the consumer's timeout.
    pub(crate) connect_retry: Duration,
    /// How long an inbound connection may take to send its whole MPA request.
    pub(crate) request_timeout: Duration,
}

impl Config {
    /// Parses an IA line and resolves its device, address or host name.
    pub(crate) fn parse(ia_params: &str) -> Result<Self, RnicError> {
        let mut words = ia_params.split_ascii_whitespace();
        let device = words.next().ok_or_else(|| bad("names no device"))?;
        let (adapter, address) = resolve(device)?;
        let mut config = Self {
            adapter,
            address,
            crc: true,
            private_data_max: PRIVATE_DATA_MAX,
            congestion: None,
            ulpdu_max: FPDU_DEFAULT,
            long_fpdus: true,
            connect_retry: CONNECT_RETRY,
            request_timeout: REQUEST_TIMEOUT,
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

    fn set(&mut self, key: &str, value: &str) -> Result<(), RnicError> {
        match key {
            "crc" => self.crc = switch(key, value)?,
            "private_data" => {
                self.private_data_max = number(key, value, 0, u64::from(PRIVATE_DATA_MAX))? as u32;
            }
            "cc" => self.congestion = Some(value.to_owned()),
            "fpdu_max" => self.ulpdu_max = number(key, value, 128, FPDU_MAX as u64)? as usize,
            "long_fpdus" => self.long_fpdus = switch(key, value)?,
            "connect_retry_ms" => self.connect_retry = millis(key, value)?,
            "mpa_timeout_ms" => self.request_timeout = millis(key, value)?,
            _ => return Err(bad(&format!("unknown key `{key}`"))),
        }
        Ok(())
    }

    /// Which congestion control paces our sockets: ours, or the system's default.
    pub(crate) fn congestion_in_force(&self) -> String {
        match &self.congestion {
            Some(own) => own.clone(),
            None => std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
                .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned()),
        }
    }

    /// Address with an unspecified port.
    pub(crate) fn socket_address(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }
}

/// A network device, an address of this machine, or a host name that means one.
fn resolve(device: &str) -> Result<(String, IpAddr), RnicError> {
    let interfaces = device::interfaces()?;
    if let Some(address) = device::address_of(&interfaces, device) {
        return Ok((device.to_owned(), address));
    }
    let candidates: Vec<IpAddr> = match device.parse() {
        Ok(address) => vec![address],
        Err(_) => (device, 0)
            .to_socket_addrs()
            .map_err(|_| RnicError::NoDevice(device.to_owned()))?
            .map(|a| a.ip())
            .collect(),
    };
    candidates
        .into_iter()
        .filter(|address| !address.is_unspecified() && !address.is_multicast())
        .find_map(|address| {
            device::holder_of(&interfaces, address).map(|name| (name.to_owned(), address))
        })
        .ok_or_else(|| RnicError::NoDevice(device.to_owned()))
}

fn switch(key: &str, value: &str) -> Result<bool, RnicError> {
    match value {
        "on" | "yes" | "1" => Ok(true),
        "off" | "no" | "0" => Ok(false),
        _ => Err(bad(&format!("{key}={value}: on or off"))),
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

fn bad(why: &str) -> RnicError {
    RnicError::BadConfig(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_by_device_address_and_name() {
        for line in ["lo", "lo 0", "127.0.0.1 0", "localhost 0 crc=off"] {
            let config = Config::parse(line).unwrap();
            assert!(config.address.is_loopback(), "{line}");
            assert_eq!(config.adapter, "lo", "{line}");
        }
    }

    #[test]
    fn settings_are_taken() {
        let config = Config::parse(
            "lo 0 crc=off private_data=251 cc=reno fpdu_max=1442 \
             long_fpdus=off connect_retry_ms=7 mpa_timeout_ms=9",
        )
        .unwrap();
        assert!(!config.crc && !config.long_fpdus);
        assert_eq!(config.private_data_max, 251);
        assert_eq!(config.congestion.as_deref(), Some("reno"));
        assert_eq!(config.ulpdu_max, 1442);
        assert_eq!(config.connect_retry, Duration::from_millis(7));
        assert_eq!(config.request_timeout, Duration::from_millis(9));
    }

    #[test]
    fn the_congestion_control_in_force_can_be_told() {
        let told = |line| Config::parse(line).unwrap().congestion_in_force();
        assert_eq!(told("lo 0 cc=reno"), "reno");
        assert!(!told("lo 0").is_empty());
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "",
            "   ",
            "lo x",
            "lo 0 crc",
            "lo 0 crc=maybe",
            "lo 0 private_data=509",
            "lo 0 private_data=-1",
            "lo 0 fpdu_max=1",
            "lo 0 color=red",
        ] {
            assert!(
                matches!(Config::parse(line), Err(RnicError::BadConfig(_))),
                "{line}"
            );
        }
        for line in ["nodevice77", "0.0.0.0", "::", "224.0.0.1", "192.0.2.77"] {
            assert!(
                matches!(Config::parse(line), Err(RnicError::NoDevice(_))),
                "{line}"
            );
        }
    }
}
