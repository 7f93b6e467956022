//! The parameters of an interface adapter: `ia_params` of a line of `dat.conf`.
//!
//! Grammar: `<netdev|address|host|verbs device> [port] [key=value ...]`, as in OFA's providers. The
//! port applies to a verbs device and counts from 1. In all other cases it is written 0 and has no
//! effect.
//!
//! | Key | Value | Meaning |
//! |---|---|---|
//! | `inline` | 0 to 1024 | the longest message that is copied into its work request, in bytes |
//! | `mpa_timeout_ms` | 0 to 3600000 | the time for each step of a peer on a consumer's socket; 0: none |

use std::time::Duration;

use rnic::RnicError;

/// The default longest inline message, in bytes: the value that OFA's providers request.
const INLINE_DEFAULT: u32 = 64;
/// The default of `mpa_timeout_ms`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// Network device, address, host name or verbs device.
    pub(crate) adapter: String,
    /// Port of a verbs device; `None` for any.
    pub(crate) port: Option<u8>,
    /// The inline length that is requested for each queue pair, in bytes. The device may grant
    /// less.
    pub(crate) inline_max: u32,
    /// The time in which the peer on a consumer's socket must take the final streaming message, or
    /// complete a Request.
    pub(crate) request_timeout: Option<Duration>,
}

impl Config {
    pub(crate) fn parse(ia_params: &str) -> Result<Self, RnicError> {
        let mut words = ia_params.split_ascii_whitespace();
        let adapter = words.next().ok_or_else(|| bad("no device is named"))?;
        let mut config = Self {
            adapter: adapter.to_owned(),
            port: None,
            inline_max: INLINE_DEFAULT,
            request_timeout: Some(REQUEST_TIMEOUT),
        };
        for (index, word) in words.enumerate() {
            match word.split_once('=') {
                Some((key, value)) => config.set(key, value)?,
                None if index == 0 => config.port = port(word)?,
                None => return Err(bad(&format!("`{word}` is not key=value"))),
            }
        }
        Ok(config)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), RnicError> {
        match key {
            "inline" => self.inline_max = number(key, value, 0, 1024)?,
            "mpa_timeout_ms" => {
                let millis = number(key, value, 0, 3_600_000)?;
                let limit = (millis > 0).then(|| Duration::from_millis(millis.into()));
                self.request_timeout = limit;
            }
            _ => return Err(bad(&format!("unknown key `{key}`"))),
        }
        Ok(())
    }
}

fn port(word: &str) -> Result<Option<u8>, RnicError> {
    match word.parse::<u8>() {
        Ok(0) => Ok(None),
        Ok(port) => Ok(Some(port)),
        Err(_) => Err(bad(&format!("`{word}`: a port from 1 to 255, or 0"))),
    }
}

fn number(key: &str, value: &str, min: u32, max: u32) -> Result<u32, RnicError> {
    value
        .parse::<u32>()
        .ok()
        .filter(|n| (min..=max).contains(n))
        .ok_or_else(|| bad(&format!("{key}={value}: a number from {min} to {max}")))
}

fn bad(why: &str) -> RnicError {
    RnicError::BadConfig(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_an_adapter_and_perhaps_its_port() {
        let named = |line| Config::parse(line).map(|c| (c.adapter, c.port)).unwrap();
        assert_eq!(named("v0 0"), ("v0".to_owned(), None));
        assert_eq!(named("mlx5_0 2"), ("mlx5_0".to_owned(), Some(2)));
        assert_eq!(named("10.9.9.1"), ("10.9.9.1".to_owned(), None));
        assert_eq!(Config::parse("v0").unwrap().inline_max, INLINE_DEFAULT);
        assert_eq!(Config::parse("v0 0 inline=0").unwrap().inline_max, 0);
        let timeout = |line| Config::parse(line).unwrap().request_timeout;
        assert_eq!(timeout("v0"), Some(REQUEST_TIMEOUT));
        let millis = Duration::from_millis(7);
        assert_eq!(timeout("v0 0 mpa_timeout_ms=7"), Some(millis));
        assert_eq!(timeout("v0 0 mpa_timeout_ms=0"), None);
    }

    #[test]
    fn malformed_input_is_refused() {
        for line in [
            "",
            "  ",
            "v0 x",
            "v0 256",
            "v0 -1",
            "v0 0 1",
            "v0 0 inline",
            "v0 0 inline=1025",
            "v0 0 mpa_timeout_ms=3600001",
            "v0 0 colour=red",
        ] {
            let parsed = Config::parse(line);
            assert!(
                matches!(parsed, Err(RnicError::BadConfig(_))),
                "{line}: {parsed:?}"
            );
        }
    }
}
