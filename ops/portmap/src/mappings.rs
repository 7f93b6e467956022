//! Which services are offered, and what to say about them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use crate::message::{Kind, Message};

/// Services by their TCP address, each with where it is offered over RDMA. An address of zeros
/// stands for every address of the host; that of IPv6 for both families, unless it is told to be
/// for IPv6 only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mappings {
    services: BTreeMap<SocketAddr, SocketAddr>,
    ipv6_only: BTreeSet<SocketAddr>,
}

impl Mappings {
    /// Offers a service; `mapped` with an address of zeros is at whichever address was asked.
    pub fn insert(&mut self, service: SocketAddr, mapped: SocketAddr) {
        self.services.insert(service, mapped);
        self.ipv6_only.remove(&service);
    }

    /// The same, for peers that come by IPv6 only.
    pub fn insert_ipv6_only(&mut self, service: SocketAddr, mapped: SocketAddr) {
        self.insert(service, mapped);
        self.ipv6_only.insert(service);
    }

    /// Offers a service no longer. Says whether it was.
    pub fn remove(&mut self, service: SocketAddr) -> bool {
        self.ipv6_only.remove(&service);
        self.services.remove(&service).is_some()
    }

    /// How many services are offered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.services.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// Services and where they are.
    pub fn iter(&self) -> impl Iterator<Item = (SocketAddr, SocketAddr)> {
        self.services
            .iter()
            .map(|(service, mapped)| (*service, *mapped))
    }

    /// Where a service is offered: the listener of exactly this address goes before one of all.
    #[must_use]
    pub fn find(&self, service: SocketAddr) -> Option<SocketAddr> {
        let zeros: [IpAddr; 2] = [[0_u8; 4].into(), [0_u16; 8].into()];
        // A listener for IPv4 only knows nothing of IPv6.
        let wide = zeros
            .into_iter()
            .filter(|zero| service.is_ipv4() || zero.is_ipv6());
        let mapped = std::iter::once(service.ip())
            .chain(wide)
            .map(|ip| SocketAddr::new(ip, service.port()))
            .filter(|listener| service.is_ipv6() || !self.ipv6_only.contains(listener))
            .find_map(|listener| self.services.get(&listener))?;
        let ip = if mapped.ip().is_unspecified() {
            service.ip()
        } else {
            mapped.ip()
        };
        Some(SocketAddr::new(ip, mapped.port()))
    }

    /// What to say to a datagram. Nothing is said to anything but a Request, so that two mappers
    /// cannot keep each other talking, and an answer is never longer than its question.
    #[must_use]
    pub fn answer(&self, datagram: &[u8]) -> Option<Message> {
        let request = Message::parse(datagram).ok()?;
        if request.kind() != Kind::Request {
            return None;
        }
        let accept = self
            .find(request.accepting())
            .and_then(|mapped| request.accept(mapped));
        Some(accept.unwrap_or_else(|| request.reject()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn mappings(pairs: &[(&str, &str)]) -> Mappings {
        let mut mappings = Mappings::default();
        for (service, mapped) in pairs {
            mappings.insert(address(service), address(mapped));
        }
        mappings
    }

    #[test]
    fn the_listener_of_the_address_goes_before_that_of_all() {
        let mappings = mappings(&[
            ("0.0.0.0:80", "0.0.0.0:1080"),
            ("192.0.2.2:80", "192.0.2.2:2080"),
            ("[::]:90", "[::]:1090"),
            ("192.0.2.2:99", "192.0.2.7:1099"),
        ]);
        for (service, mapped) in [
            ("192.0.2.2:80", Some("192.0.2.2:2080")),
            ("192.0.2.3:80", Some("192.0.2.3:1080")),
            ("[2001:db8::1]:80", None),
            ("[2001:db8::1]:90", Some("[2001:db8::1]:1090")),
            ("192.0.2.3:90", Some("192.0.2.3:1090")),
            ("192.0.2.2:99", Some("192.0.2.7:1099")),
            ("192.0.2.3:99", None),
            ("192.0.2.2:81", None),
        ] {
            assert_eq!(
                mappings.find(address(service)),
                mapped.map(address),
                "{service}"
            );
        }
    }

    #[test]
    fn a_service_of_ipv6_only_leaves_ipv4_to_another() {
        let (v4, v6) = (address("192.0.2.2:80"), address("[2001:db8::1]:80"));
        let mut mappings = mappings(&[("0.0.0.0:80", "0.0.0.0:1080")]);
        mappings.insert_ipv6_only(address("[::]:80"), address("[::]:2080"));
        assert_eq!(mappings.find(v4), Some(address("192.0.2.2:1080")));
        assert_eq!(mappings.find(v6), Some(address("[2001:db8::1]:2080")));
        mappings.remove(address("0.0.0.0:80"));
        assert_eq!(mappings.find(v4), None);
        // Another socket of this address may be for both.
        mappings.remove(address("[::]:80"));
        mappings.insert(address("[::]:80"), address("[::]:3080"));
        assert_eq!(mappings.find(v4), Some(address("192.0.2.2:3080")));
    }

    #[test]
    fn requests_are_answered_and_nothing_else() {
        let mappings = mappings(&[("0.0.0.0:80", "0.0.0.0:1080")]);
        let request = |port: u16| {
            let service = SocketAddr::new([192, 0, 2, 2].into(), port);
            Message::request(service, address("192.0.2.1:4000"), 7).unwrap()
        };
        let accept = mappings.answer(&request(80).to_bytes()).unwrap();
        assert_eq!(
            (accept.kind(), accept.accepting()),
            (Kind::Accept, address("192.0.2.2:1080"))
        );
        let reject = mappings.answer(&request(81).to_bytes()).unwrap();
        assert_eq!(reject.kind(), Kind::Reject);
        for other in [accept.clone(), accept.ack(), reject] {
            assert_eq!(mappings.answer(&other.to_bytes()), None);
        }
        assert_eq!(mappings.answer(b""), None);
        assert_eq!(mappings.answer(&[0; 48]), None);
    }

    #[test]
    fn an_answer_is_never_longer_than_its_question() {
        let mappings = mappings(&[("0.0.0.0:80", "0.0.0.0:1080")]);
        let mut datagram = [0; 64];
        for first in 0..=255 {
            datagram[0] = first;
            datagram[5] = 80;
            for len in [48, 64] {
                let answer = mappings.answer(&datagram[..len]);
                assert!(answer.is_none_or(|answer| answer.to_bytes().len() <= len));
            }
        }
    }
}
