//! The address and port of a rule.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::rules::fault::{Fault, Reason};
use crate::rules::word::Word;

/// The addresses and ports that a rule matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// The set of addresses.
    pub addresses: Addresses,
    /// The range of ports.
    pub ports: Ports,
}

/// A set of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses {
    /// Every address of both families.
    Any,
    /// The addresses that begin with the first `prefix` bits of `net`.
    Net {
        /// The address of the network; all other bits are zero.
        net: IpAddr,
        /// The number of bits that are compared.
        prefix: u8,
    },
}

/// A range of ports, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// The lowest port.
    pub first: u16,
    /// The highest port.
    pub last: u16,
}

impl Endpoints {
    pub(super) fn parse(word: Word<'_>) -> Result<Self, Fault> {
        let (addresses, ports) = word
            .split_last(':')
            // A colon within the brackets of `[::1]` or `[::1]/64` separates no port.
            .filter(|(_, port)| !port.text.contains(']'))
            .ok_or_else(|| word.refuse(Reason::NoPort))?;
        Ok(Self {
            addresses: Addresses::parse(addresses)?,
            ports: Ports::parse(ports)?,
        })
    }

    /// True if address and port are in the sets.
    #[must_use]
    pub fn holds(&self, address: &SocketAddr) -> bool {
        self.addresses.holds(address.ip()) && self.ports.holds(address.port())
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.addresses, self.ports)
    }
}

impl Addresses {
    /// Reads `*`, `ADDRESS` or `ADDRESS/PREFIX`. An IPv6 address may have brackets, which may
    /// include the prefix.
    fn parse(word: Word<'_>) -> Result<Self, Fault> {
        if word.text == "*" {
            return Ok(Self::Any);
        }
        let (plain, bracketed) = match bare(word) {
            Some(inner) => (inner, true),
            None => (word, false),
        };
        let (address, prefix) = match plain.split_last('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (plain, None),
        };
        let inner = if bracketed { None } else { bare(address) };
        let ip: IpAddr = inner
            .unwrap_or(address)
            .text
            .parse()
            .map_err(|_| word.refuse(Reason::Address))?;
        if (bracketed || inner.is_some()) && ip.is_ipv4() {
            return Err(word.refuse(Reason::Address));
        }
        let max = if ip.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(max), |prefix| {
            decimal(prefix.text)
                .filter(|bits| *bits <= max)
                .ok_or_else(|| {
                    let given = prefix.text.to_owned();
                    prefix.fault(Reason::Prefix { given, max })
                })
        })?;
        Ok(Self::net(ip, prefix))
    }

    /// Returns the addresses that share `prefix` bits with `ip`. IPv4-mapped IPv6 addresses become
    /// IPv4 addresses.
    fn net(ip: IpAddr, prefix: u8) -> Self {
        match ip {
            IpAddr::V6(v6) if prefix >= 96 && v6.to_ipv4_mapped().is_some() => {
                Self::net(v6.to_canonical(), prefix - 96)
            }
            IpAddr::V4(v4) => {
                let bits = v4.to_bits() & mask32(prefix);
                let net = IpAddr::V4(bits.into());
                Self::Net { net, prefix }
            }
            IpAddr::V6(v6) => {
                let bits = v6.to_bits() & mask128(prefix);
                let net = IpAddr::V6(bits.into());
                Self::Net { net, prefix }
            }
        }
    }

    /// True if `ip` is in the set. An IPv4-mapped IPv6 address counts as its IPv4 address.
    #[must_use]
    pub fn holds(&self, ip: IpAddr) -> bool {
        let Self::Net { net, prefix } = self else {
            return true;
        };
        match (net, ip.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => ip.to_bits() & mask32(*prefix) == net.to_bits(),
            (IpAddr::V6(net), IpAddr::V6(ip)) => ip.to_bits() & mask128(*prefix) == net.to_bits(),
            _ => false,
        }
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Net { net, prefix } => match net {
                IpAddr::V4(v4) => write!(f, "{v4}/{prefix}"),
                IpAddr::V6(v6) => write!(f, "[{v6}]/{prefix}"),
            },
        }
    }
}

impl Ports {
    /// Every port.
    pub const ANY: Self = Self {
        first: 0,
        last: u16::MAX,
    };

    fn parse(word: Word<'_>) -> Result<Self, Fault> {
        if word.text == "*" {
            return Ok(Self::ANY);
        }
        let one = |text: &str| decimal(text).ok_or_else(|| word.refuse(Reason::Port));
        let (first, last) = match word.split_first('-') {
            Some((first, last)) => (one(first.text)?, one(last.text)?),
            None => (one(word.text)?, one(word.text)?),
        };
        if first > last {
            return Err(word.fault(Reason::EmptyRange(first, last)));
        }
        Ok(Self { first, last })
    }

    /// True if `port` is in the range.
    #[must_use]
    pub fn holds(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            _ if *self == Self::ANY => f.write_str("*"),
            (first, last) if first == last => first.fmt(f),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// Returns the text between brackets, if the whole word is in brackets.
fn bare(word: Word<'_>) -> Option<Word<'_>> {
    let inside = word.text.strip_prefix('[')?.strip_suffix(']')?;
    Some(word.from(1).until(inside.len()))
}

/// Reads a number of digits only; `parse` alone would accept a sign.
pub(super) fn decimal<N: std::str::FromStr>(text: &str) -> Option<N> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

fn mask32(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

fn mask128(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use stack_tests::rows;

    use super::*;
    use crate::rules::word::Words;

    fn parse(text: &str) -> Result<Endpoints, Reason> {
        let word = Words::new(text, 1).next().unwrap();
        Endpoints::parse(word).map_err(|fault| fault.reason)
    }

    #[test]
    fn endpoints_contain_exactly_their_addresses() {
        for (text, inside, outside) in rows! {
            "*:*", "[2001:db8::1]:0", None;
            "*:80", "10.0.0.1:80", Some("10.0.0.1:81");
            "10.1.2.3/8:1-9", "10.255.0.1:9", Some("11.0.0.1:9");
            "10.0.0.1:*", "10.0.0.1:5", Some("10.0.0.2:5");
            "0.0.0.0/0:*", "1.2.3.4:5", Some("[::1]:5");
            "10.0.0.0/8:*", "[::ffff:10.1.1.1]:5", Some("[::1]:5");
            "::ffff:10.0.0.0/104:*", "10.1.1.1:5", Some("11.0.0.1:5");
            "[::1]:80", "[::1]:80", Some("[::2]:80");
            "[2001:db8::]/32:*", "[2001:db8:1::]:5", Some("[2001:db9::]:5");
            "[2001:db8::/32]:*", "[2001:db8:1::]:5", Some("[2001:db9::]:5");
            "2001:db8::/32:7", "[2001:db8:1::]:7", Some("[2001:db8::]:8");
            "::/0:*", "[::1]:1", Some("10.0.0.1:1");
        } {
            let endpoints = parse(text).unwrap();
            assert!(endpoints.holds(&inside.parse().unwrap()), "{text} {inside}");
            if let Some(outside) = outside {
                assert!(
                    !endpoints.holds(&outside.parse().unwrap()),
                    "{text} {outside}"
                );
            }
            assert_eq!(
                parse(&endpoints.to_string()),
                Ok(endpoints.clone()),
                "{endpoints}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let text = str::to_owned;
        for (place, reason) in rows! {
            "10.0.0.1", Reason::NoPort(text("10.0.0.1"));
            "[::1]", Reason::NoPort(text("[::1]"));
            "[::1]/64", Reason::NoPort(text("[::1]/64"));
            "host:80", Reason::Address(text("host"));
            ":80", Reason::Address(text(""));
            "[10.0.0.1]:80", Reason::Address(text("[10.0.0.1]"));
            "[[::1]]:80", Reason::Address(text("[[::1]]"));
            "10.0.0.1/33:80", Reason::Prefix { given: text("33"), max: 32 };
            "::/129:80", Reason::Prefix { given: text("129"), max: 128 };
            "10.0.0.1/:80", Reason::Prefix { given: text(""), max: 32 };
            "*:", Reason::Port(text(""));
            "*:+1", Reason::Port(text("+1"));
            "*:65536", Reason::Port(text("65536"));
            "*:1-", Reason::Port(text("1-"));
            "*:1-2-3", Reason::Port(text("1-2-3"));
            "*:9-1", Reason::EmptyRange(9, 1);
        } {
            assert_eq!(parse(place), Err(reason), "{place}");
        }
    }
}
