//! The users whose offerings are answered, and the limits on their number.
//!
//! Any local user may connect to the process that answers for a namespace. Offerings of the
//! server's own user and of root are trusted. Any other user must have a socket that listens at the
//! offered service. The kernel reports such sockets (`sock_diag(7)`), and the server checks at the
//! time of the request: a service that has ended since, or whose address another user has by now,
//! is not answered. The kernel may have been built without that table, or a filter of system calls
//! may deny access to it. In that case other users are not trusted: their services stay on TCP,
//! which does no harm, while a false offering would send their peers to another program.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rustix::process::{Resource, geteuid, getrlimit};
use tracing::{debug, warn};

use crate::netlink::ListeningSocket;
use crate::portmap::mappings::Candidate;
use crate::user::is_one_user;

/// The time for which the kernel's report is cached. Requests are received from the network at any
/// rate, and each must not cost a search of the table of sockets.
const CACHE_FOR: Duration = Duration::from_secs(1);

/// The maximum number of addresses with a cached report.
const CACHED_MAX: usize = 1024;

/// The user at the other end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum User {
    /// The server's own user or root, whose offerings are trusted.
    Trusted,
    /// Another user, by number.
    Other(u32),
    /// An unmapped user, whose number stands for many users, so that nothing can be checked.
    Unknown,
}

/// The maximum number of links that a server accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Links of all users together.
    links: usize,
    /// Links of all users that are not trusted.
    others: usize,
    /// Links of one user that is not trusted.
    each: usize,
}

impl User {
    pub(super) fn of(number: u32) -> Self {
        if !is_one_user(number) {
            Self::Unknown
        } else if number == 0 || number == geteuid().as_raw() {
            Self::Trusted
        } else {
            Self::Other(number)
        }
    }

    /// The maximum number of services that one process of this user may offer.
    pub(super) fn services_max(self) -> usize {
        match self {
            Self::Trusted => 1024,
            Self::Other(_) => 256,
            Self::Unknown => 0,
        }
    }
}

impl Limits {
    /// Returns the limits of this process. Other users must not exhaust its descriptors. The
    /// library keeps all its descriptors in the upper quarter of the range, which must not be
    /// exhausted either.
    pub(super) fn now() -> Self {
        let numbers = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::within(usize::try_from(numbers).unwrap_or(usize::MAX))
    }

    fn within(numbers: usize) -> Self {
        Self {
            links: (numbers / 8).min(1024),
            others: (numbers / 16).min(256),
            each: (numbers / 32).min(64),
        }
    }

    /// True if one more link of this user is permitted in addition to those of `there`.
    pub(super) fn admit(self, user: User, there: impl Iterator<Item = User>) -> bool {
        let (mut links, mut others, mut own) = (0, 0, 0);
        for other in there {
            links += 1;
            others += usize::from(other != User::Trusted);
            own += usize::from(other == user);
        }
        links < self.links
            && match user {
                User::Trusted => true,
                User::Other(_) => others < self.others && own < self.each,
                User::Unknown => false,
            }
    }
}

/// The check that a user listens where it offers a service, with a cache of the kernel's reports.
#[derive(Debug, Default)]
pub(super) struct ListenCheck {
    cached: BTreeMap<SocketAddr, (Instant, Vec<ListeningSocket>)>,
    is_unavailable: bool,
}

impl ListenCheck {
    /// True if this user's offering may be answered.
    pub(super) fn confirms(&mut self, user: User, candidate: &Candidate) -> bool {
        let number = match user {
            User::Trusted => return !(candidate.ipv6_only && candidate.over_ipv4),
            User::Unknown => return false,
            User::Other(number) => number,
        };
        let service = candidate.service;
        let is_listening = self
            .listening(service)
            .iter()
            .any(|socket| is_service(socket, number, candidate));
        if !is_listening {
            debug!(%service, user = number, "a process offers a service that is not its user's");
        }
        is_listening
    }

    fn listening(&mut self, service: SocketAddr) -> &[ListeningSocket] {
        let now = Instant::now();
        let is_fresh = |(at, _): &(Instant, Vec<_>)| now.duration_since(*at) < CACHE_FOR;
        if !self.cached.get(&service).is_some_and(is_fresh) {
            self.cached.retain(|_, cached| is_fresh(cached));
            if self.cached.len() >= CACHED_MAX {
                self.cached.clear();
            }
            let sockets = self.ask(service);
            self.cached.insert(service, (now, sockets));
        }
        self.cached
            .get(&service)
            .map_or(&[], |(_, sockets)| sockets)
    }

    fn ask(&mut self, service: SocketAddr) -> Vec<ListeningSocket> {
        match ListeningSocket::at(service) {
            Ok(sockets) => sockets,
            Err(error) => {
                if !std::mem::replace(&mut self.is_unavailable, true) {
                    warn!(%error, "the services of other users are not answered for");
                }
                Vec::new()
            }
        }
    }
}

/// True if this is a socket of the user that would receive the peer's connection. A socket that is
/// bound to a device may coexist with another user's socket at the same address, so it is accepted
/// only for an address that belongs to one device itself.
fn is_service(socket: &ListeningSocket, user: u32, candidate: &Candidate) -> bool {
    let is_link_local = match candidate.service.ip() {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    socket.user == user
        && (socket.device == 0 || is_link_local)
        && !(socket.ipv6_only && candidate.over_ipv4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portmap::mappings::Offerer;

    #[test]
    fn a_user_cannot_use_up_the_links_of_other_users() {
        let limits = Limits::within(1024);
        let (a, b) = (User::Other(1), User::Other(2));
        let trusted = User::Trusted;
        for (user, there, admitted) in [
            (a, vec![a; 31], true),
            (a, vec![a; 32], false),
            (b, vec![a; 32], true),
            (b, vec![a; 64], false),
            (trusted, vec![a; 64], true),
            (trusted, vec![trusted; 127], true),
            (trusted, vec![trusted; 128], false),
            (User::Unknown, vec![], false),
        ] {
            let many = there.len();
            let found = limits.admit(user, there.into_iter());
            assert_eq!(found, admitted, "{user:?} in addition to {many} links");
        }
        // These are the maximum values, however many numbers a process has.
        let unbounded = Limits::within(usize::MAX);
        assert_eq!(
            (unbounded.links, unbounded.others, unbounded.each),
            (1024, 256, 64)
        );
    }

    #[test]
    fn a_socket_confirms_services_of_its_user_on_its_devices_and_families() {
        let candidate = |service: &str, over_ipv4| Candidate {
            by: Offerer(1),
            service: service.parse().unwrap(),
            ipv6_only: false,
            over_ipv4,
            mapped: service.parse().unwrap(),
        };
        let socket = |user, device, ipv6_only| ListeningSocket {
            user,
            device,
            ipv6_only,
        };
        for (service, over_ipv4, socket, stands) in [
            ("0.0.0.0:80", false, socket(7, 0, false), true),
            ("0.0.0.0:80", false, socket(8, 0, false), false),
            ("0.0.0.0:80", false, socket(7, 2, false), false),
            ("[fe80::1]:80", false, socket(7, 2, false), true),
            ("[::]:80", true, socket(7, 0, false), true),
            ("[::]:80", true, socket(7, 0, true), false),
            ("[::]:80", false, socket(7, 0, true), true),
        ] {
            let found = is_service(&socket, 7, &candidate(service, over_ipv4));
            assert_eq!(found, stands, "{service} {over_ipv4} {socket:?}");
        }
    }
}
