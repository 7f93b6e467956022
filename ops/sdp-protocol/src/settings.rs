//! The settings of SDP in rule files.
//!
//! The sizes of a connection's buffers can be set, and the lengths from which on blocking sends and
//! receives do not copy at this end. Without a setting, the adapter's lengths apply
//! ([`Config::suited_to`]). The time limit for connecting is the rule's `within`. A program's
//! `SO_RCVBUF` may reduce the size of the receive buffers, and never raises it.

use std::fmt;

use ops::{Known, Terms};
use sdp_over_dat::Config;

use crate::NAME;

/// The length of a message header (BSDH) in bytes, which sizes in [`Config`] include.
const HEADER_LEN: u32 = 16;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

const SEND_BUFFER: &str = "send-buffer";
const RECEIVE_BUFFERS: &str = "receive-buffers";
const RECEIVE_SIZE: &str = "receive-size";
const REGISTERED: &str = "registered";
const READ_ZCOPY: &str = "read-zcopy";
const WRITE_ZCOPY: &str = "write-zcopy";

/// The known settings, for readers of rule files.
pub const SETTINGS: &[Known] = &[
    Known {
        protocol: NAME,
        key: SEND_BUFFER,
        wanted: "a size in bytes from 16K to 64M",
        takes: |text| send_buffer(text).is_some(),
    },
    Known {
        protocol: NAME,
        key: RECEIVE_BUFFERS,
        wanted: "a number from 4 to 1024",
        takes: |text| receive_buffers(text).is_some(),
    },
    Known {
        protocol: NAME,
        key: RECEIVE_SIZE,
        wanted: "a size in bytes from 4K to 1M",
        takes: |text| receive_size(text).is_some(),
    },
    Known {
        protocol: NAME,
        key: REGISTERED,
        wanted: "a size in bytes from 4K to 1024M, or off",
        takes: |text| threshold(text).is_some(),
    },
    Known {
        protocol: NAME,
        key: READ_ZCOPY,
        wanted: "a size in bytes from 4K to 1024M, or off",
        takes: |text| threshold(text).is_some(),
    },
    Known {
        protocol: NAME,
        key: WRITE_ZCOPY,
        wanted: "a size in bytes from 4K to 1024M, or off",
        takes: |text| threshold(text).is_some(),
    },
];

/// Parses the length of the shortest call that does not copy. No call reaches the value of `off`.
fn threshold(text: &str) -> Option<usize> {
    match text {
        "off" => Some(usize::MAX),
        text => size(text).filter(|size| (4 * KIB..=1024 * MIB).contains(size)),
    }
}

fn send_buffer(text: &str) -> Option<usize> {
    size(text).filter(|size| (16 * KIB..=64 * MIB).contains(size))
}

fn receive_buffers(text: &str) -> Option<u16> {
    let number = text.parse().ok()?;
    (4..=1024).contains(&number).then_some(number)
}

fn receive_size(text: &str) -> Option<u32> {
    let size = size(text).filter(|size| (4 * KIB..=MIB).contains(size))?;
    u32::try_from(size).ok()
}

/// Parses a size: a number of bytes, or a number followed by `K` or `M`.
fn size(text: &str) -> Option<usize> {
    let (digits, unit) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], KIB),
        (at, 'm' | 'M') => (&text[..at], MIB),
        _ => (text, 1),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

/// The settings in the rule of a socket, and the program's. Settings that are absent have the
/// adapter's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Settings {
    send_buffer: Option<usize>,
    receive_buffers: Option<u16>,
    receive_size: Option<u32>,
    /// The length from which on a blocking send posts messages from the program's memory.
    registered: Option<usize>,
    /// The length from which on a blocking send advertises the program's memory to the peer.
    read_zcopy: Option<usize>,
    /// The length from which on a blocking receive advertises the program's memory, and a blocking
    /// send uses memory that the peer has advertised.
    write_zcopy: Option<usize>,
    /// The bound that the program has set.
    receive_bound: Option<usize>,
}

impl Settings {
    /// Selects this protocol's settings from the terms of a socket. Invalid settings were refused
    /// with their file.
    pub(crate) fn of(terms: Terms<'_>) -> Self {
        let mut own = Self {
            receive_bound: terms.receive_bound,
            ..Self::default()
        };
        for setting in terms
            .settings
            .iter()
            .filter(|setting| setting.protocol == NAME)
        {
            let value = &setting.value;
            match setting.key.as_str() {
                SEND_BUFFER => own.send_buffer = send_buffer(value),
                RECEIVE_BUFFERS => own.receive_buffers = receive_buffers(value),
                RECEIVE_SIZE => own.receive_size = receive_size(value),
                REGISTERED => own.registered = threshold(value),
                READ_ZCOPY => own.read_zcopy = threshold(value),
                WRITE_ZCOPY => own.write_zcopy = threshold(value),
                _ => {}
            }
        }
        own
    }

    /// Returns the configuration with these settings.
    pub(crate) fn applied_to(self, config: Config) -> Config {
        let buffer_size = self.receive_size.map(|size| size + HEADER_LEN);
        let config = Config {
            send_ring: self.send_buffer.unwrap_or(config.send_ring),
            receive_buffers: self.receive_buffers.unwrap_or(config.receive_buffers),
            buffer_size: buffer_size.unwrap_or(config.buffer_size),
            send_size: buffer_size.unwrap_or(config.send_size),
            registered_threshold: self.registered.unwrap_or(config.registered_threshold),
            zcopy_threshold: self.read_zcopy.unwrap_or(config.zcopy_threshold),
            pipelined_threshold: self.write_zcopy.unwrap_or(config.pipelined_threshold),
            sink_threshold: self.write_zcopy.unwrap_or(config.sink_threshold),
            ..config
        };
        match self.receive_bound {
            Some(bytes) => config.with_receive_bound(bytes),
            None => config,
        }
    }
}

/// The settings of a configuration, written as in rules.
#[derive(Debug)]
pub(crate) struct InForce(pub(crate) Config);

impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(config) = self;
        let size = config.buffer_size.saturating_sub(HEADER_LEN);
        write!(f, "{NAME}.{SEND_BUFFER}={}", config.send_ring)?;
        write!(f, " {NAME}.{RECEIVE_BUFFERS}={}", config.receive_buffers)?;
        write!(f, " {NAME}.{RECEIVE_SIZE}={size}")?;
        for (key, threshold) in [
            (REGISTERED, config.registered_threshold),
            (READ_ZCOPY, config.zcopy_threshold),
            (WRITE_ZCOPY, config.sink_threshold),
        ] {
            match threshold {
                usize::MAX => write!(f, " {NAME}.{key}=off")?,
                size => write!(f, " {NAME}.{key}={size}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ops::Setting;

    use super::*;

    fn set(key: &str, value: &str) -> Setting {
        Setting {
            protocol: NAME.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
        }
    }

    #[test]
    fn every_setting_is_applied_and_displayed() {
        let mut all = vec![
            set(SEND_BUFFER, "2M"),
            set(RECEIVE_BUFFERS, "8"),
            set(RECEIVE_SIZE, "4k"),
            set(REGISTERED, "128K"),
            set(READ_ZCOPY, "1M"),
            set(WRITE_ZCOPY, "256K"),
        ];
        all.push(Setting {
            protocol: "other".to_owned(),
            ..set(SEND_BUFFER, "1M")
        });
        let terms = |receive_bound| Terms {
            settings: &all,
            receive_bound,
            ..Terms::default()
        };
        let config = Settings::of(terms(None)).applied_to(Config::default());
        let text = InForce(config).to_string();
        assert_eq!(
            text,
            "sdp.send-buffer=2097152 sdp.receive-buffers=8 sdp.receive-size=4096 \
             sdp.registered=131072 sdp.read-zcopy=1048576 sdp.write-zcopy=262144"
        );
        assert_eq!(config.pipelined_threshold, config.sink_threshold);
        assert_eq!(config.buffer_size, 4096 + HEADER_LEN);
        for known in SETTINGS {
            assert!(text.contains(known.key), "{}", known.key);
        }
        let unset = Settings::of(Terms::default()).applied_to(Config::default());
        assert_eq!(unset, Config::default());
        assert!(InForce(unset).to_string().ends_with("write-zcopy=off"));
        let bounded = Settings::of(terms(Some(2000))).applied_to(Config::default());
        assert_eq!(
            InForce(bounded).to_string(),
            "sdp.send-buffer=2097152 sdp.receive-buffers=5 sdp.receive-size=1000 \
             sdp.registered=131072 sdp.read-zcopy=1048576 sdp.write-zcopy=262144"
        );
    }

    #[test]
    fn values_have_bounds() {
        let takes = |key: &str, value: &str| {
            let known = SETTINGS.iter().find(|known| known.key == key);
            known.is_some_and(|known| (known.takes)(value))
        };
        for (key, good, bad) in [
            (
                SEND_BUFFER,
                ["16K", "64M", "65536"],
                ["16383", "65M", "1G", "", "K", "é"],
            ),
            (
                RECEIVE_BUFFERS,
                ["4", "16", "1024"],
                ["3", "1025", "16K", "-4", "", "x"],
            ),
            (
                RECEIVE_SIZE,
                ["4k", "1M", "5000"],
                ["4095", "2M", "1.5K", "off", "", "99999999999999999999M"],
            ),
            (
                REGISTERED,
                ["4K", "1024M", "off"],
                ["4095", "1025M", "never", "-1", "", "1G"],
            ),
        ] {
            assert!(good.iter().all(|value| takes(key, value)), "{key}");
            assert!(!bad.iter().any(|value| takes(key, value)), "{key}");
        }
    }
}
