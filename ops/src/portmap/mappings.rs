//! The services that are offered, and the answers about them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::portmap::message::{Kind, Message};

/// A TCP service and its address over RDMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offering {
    /// The TCP address. Zeros mean every address of the host; the zeros of IPv6 mean both families.
    pub service: SocketAddr,
    /// The address over RDMA. Zeros mean the address that the peer asked at.
    pub mapped: SocketAddr,
    /// True if the service accepts connections over IPv6 only.
    pub ipv6_only: bool,
}

impl Offering {
    /// Returns an offering with `ipv6_only` unset.
    #[must_use]
    pub fn new(service: SocketAddr, mapped: SocketAddr) -> Self {
        Self {
            service,
            mapped,
            ipv6_only: false,
        }
    }
}

/// The process that offers a service, among all processes for which one answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offerer(pub(super) u64);

impl Offerer {
    /// The answering process itself.
    pub(super) const SELF: Self = Self(0);
}

/// The services that are offered. Several processes may offer one service, as with `SO_REUSEPORT`
/// or when a server is replaced while it runs. The newest offering is answered; after its removal,
/// the one before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mappings {
    services: BTreeMap<SocketAddr, Vec<Offered>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offered {
    by: Offerer,
    mapped: SocketAddr,
    ipv6_only: bool,
}

/// An offering that may be the answer to a request.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) by: Offerer,
    pub(super) service: SocketAddr,
    /// True if the service accepts IPv6 only, according to the process that offers it.
    pub(super) ipv6_only: bool,
    /// True if the request was received over IPv4 and the listener's address is an IPv6 address.
    pub(super) over_ipv4: bool,
    pub(super) mapped: SocketAddr,
}

impl Candidate {
    fn is_for_family(&self) -> bool {
        !(self.ipv6_only && self.over_ipv4)
    }
}

impl Mappings {
    /// Offers a service; the new offering takes precedence over all others at its address.
    pub fn insert(&mut self, offering: Offering) {
        self.insert_by(Offerer::SELF, offering);
    }

    /// Removes an offering. Returns true if it existed.
    pub fn remove(&mut self, service: SocketAddr, mapped: SocketAddr) -> bool {
        self.remove_by(Offerer::SELF, service, mapped)
    }

    /// Adds or renews an offering. Returns true if it is new.
    pub(super) fn insert_by(&mut self, by: Offerer, offering: Offering) -> bool {
        let is_new = !self.remove_by(by, offering.service, offering.mapped);
        let offered = Offered {
            by,
            mapped: canonical(offering.mapped),
            ipv6_only: offering.ipv6_only,
        };
        self.services
            .entry(canonical(offering.service))
            .or_default()
            .push(offered);
        is_new
    }

    pub(super) fn remove_by(
        &mut self,
        by: Offerer,
        service: SocketAddr,
        mapped: SocketAddr,
    ) -> bool {
        let (service, mapped) = (canonical(service), canonical(mapped));
        let Some(ways) = self.services.get_mut(&service) else {
            return false;
        };
        let before = ways.len();
        ways.retain(|way| (way.by, way.mapped) != (by, mapped));
        let is_removed = ways.len() < before;
        if ways.is_empty() {
            self.services.remove(&service);
        }
        is_removed
    }

    /// Removes all offerings of the processes for which `gone` returns true.
    pub(super) fn forget(&mut self, gone: impl Fn(Offerer) -> bool) {
        self.services.retain(|_, ways| {
            ways.retain(|way| !gone(way.by));
            !ways.is_empty()
        });
    }

    /// True if nothing is offered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// Returns all offerings; those of one service in order of age, the newest last.
    pub fn iter(&self) -> impl Iterator<Item = Offering> {
        self.services.iter().flat_map(|(service, ways)| {
            ways.iter().map(|way| Offering {
                service: *service,
                mapped: way.mapped,
                ipv6_only: way.ipv6_only,
            })
        })
    }

    /// Returns the RDMA address of a service. A listener at exactly this address takes precedence
    /// over one at all addresses.
    #[must_use]
    pub fn find(&self, service: SocketAddr) -> Option<SocketAddr> {
        self.find_if(service, Candidate::is_for_family)
    }

    fn find_if(
        &self,
        service: SocketAddr,
        is_valid: impl FnMut(&Candidate) -> bool,
    ) -> Option<SocketAddr> {
        let mapped = self.candidates(service).find(is_valid)?.mapped;
        let ip = if mapped.ip().is_unspecified() {
            service.ip()
        } else {
            mapped.ip()
        };
        Some(SocketAddr::new(ip, mapped.port()))
    }

    fn candidates(&self, service: SocketAddr) -> impl Iterator<Item = Candidate> {
        let zeros: [IpAddr; 2] = [[0_u8; 4].into(), [0_u16; 8].into()];
        // A listener at the zeros of IPv4 does not accept IPv6.
        let wide = zeros
            .into_iter()
            .filter(move |zero| service.is_ipv4() || zero.is_ipv6());
        std::iter::once(service.ip())
            .chain(wide)
            .map(move |ip| SocketAddr::new(ip, service.port()))
            .filter_map(|listener| Some((listener, self.services.get(&listener)?)))
            .flat_map(move |(listener, ways)| {
                ways.iter().rev().map(move |way| Candidate {
                    by: way.by,
                    service: listener,
                    ipv6_only: way.ipv6_only,
                    over_ipv4: service.is_ipv4() && listener.is_ipv6(),
                    mapped: way.mapped,
                })
            })
    }

    /// Returns the answer to a datagram. Only a Request is answered, so two mappers cannot answer
    /// each other for ever. An answer is never longer than its question.
    #[must_use]
    pub fn answer(&self, datagram: &[u8]) -> Option<Message> {
        self.answer_if(datagram, Candidate::is_for_family)
    }

    /// Returns the answer to a datagram, considering only the candidates that `is_valid` accepts.
    pub(super) fn answer_if(
        &self,
        datagram: &[u8],
        is_valid: impl FnMut(&Candidate) -> bool,
    ) -> Option<Message> {
        let request = Message::parse(datagram).ok()?;
        if request.kind() != Kind::Request {
            return None;
        }
        let accept = self
            .find_if(request.accepting(), is_valid)
            .and_then(|mapped| request.accept(mapped));
        Some(accept.unwrap_or_else(|| request.reject()))
    }
}

/// Turns an IPv4-mapped IPv6 address into the IPv4 address that peers connect to. A socket at such
/// an address accepts connections over IPv4 only.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        // The IPv6 address keeps its scope id.
        IpAddr::V6(_) => address,
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
            mappings.insert(Offering::new(address(service), address(mapped)));
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
    fn a_listener_at_an_ipv4_mapped_address_is_found_over_ipv4() {
        let (service, mapped) = ("[::ffff:192.0.2.2]:80", "[::ffff:192.0.2.2]:1080");
        let mut mappings = mappings(&[(service, mapped)]);
        let found = mappings.find(address("192.0.2.2:80"));
        assert_eq!(found, Some(address("192.0.2.2:1080")));
        assert!(mappings.remove(address(service), address(mapped)));
        assert!(mappings.is_empty());
    }

    #[test]
    fn a_service_of_ipv6_only_leaves_ipv4_to_another() {
        let (v4, v6) = (address("192.0.2.2:80"), address("[2001:db8::1]:80"));
        let mut mappings = mappings(&[("0.0.0.0:80", "0.0.0.0:1080")]);
        mappings.insert(Offering {
            ipv6_only: true,
            ..Offering::new(address("[::]:80"), address("[::]:2080"))
        });
        assert_eq!(mappings.find(v4), Some(address("192.0.2.2:1080")));
        assert_eq!(mappings.find(v6), Some(address("[2001:db8::1]:2080")));
        mappings.remove(address("0.0.0.0:80"), address("0.0.0.0:1080"));
        assert_eq!(mappings.find(v4), None);
        // Another socket of this address may accept both families.
        mappings.remove(address("[::]:80"), address("[::]:2080"));
        mappings.insert(Offering::new(address("[::]:80"), address("[::]:3080")));
        assert_eq!(mappings.find(v4), Some(address("192.0.2.2:3080")));
    }

    #[test]
    fn of_several_the_newest_is_answered_and_then_the_one_before() {
        let service = address("192.0.2.2:80");
        let mapped = |port| SocketAddr::new(service.ip(), port);
        let mut mappings = Mappings::default();
        for port in [1, 2, 3] {
            mappings.insert(Offering::new(service, mapped(port)));
        }
        for (gone, is_removed, left) in [
            (2, true, Some(3)),
            (2, false, Some(3)),
            (3, true, Some(1)),
            (1, true, None),
        ] {
            assert_eq!(mappings.remove(service, mapped(gone)), is_removed);
            assert_eq!(mappings.find(service), left.map(mapped), "without {gone}");
        }
        assert!(mappings.is_empty());
    }

    #[test]
    fn others_are_forgotten_with_all_they_offer() {
        let service = address("192.0.2.2:80");
        let mapped = |port| SocketAddr::new(service.ip(), port);
        let mut mappings = Mappings::default();
        mappings.insert(Offering::new(service, mapped(1)));
        mappings.insert_by(Offerer(7), Offering::new(service, mapped(2)));
        // This process cannot withdraw an offering of another process.
        assert!(!mappings.remove(service, mapped(2)));
        assert_eq!(mappings.find(service), Some(mapped(2)));
        mappings.forget(|by| by == Offerer(7));
        assert_eq!(mappings.find(service), Some(mapped(1)));
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
