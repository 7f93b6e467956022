//! Whose word counts, and how many may have one.
//!
//! Any local user may link to the process that answers for a namespace. Its own user and root are
//! believed. Whoever else offers a service must have a socket that listens there, which the kernel
//! tells (`sock_diag(7)`) at the time of the question: a service that has ended since, or whose
//! address another user has by now, is not answered for. Where the kernel does not tell, because it
//! was built without that table or a filter of system calls keeps it from this process, other users
//! are not believed: their services stay on TCP, which is no harm, while a false word would send
//! their peers to somebody else.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ops_netlink::ListeningSocket;
use rustix::process::{Resource, geteuid, getrlimit};
use tracing::{debug, warn};

use crate::mappings::Candidate;

/// How long what the kernel said holds. Questions come by network as fast as somebody likes, and
/// each must not cost a look at the table of sockets.
const CACHE_FOR: Duration = Duration::from_secs(1);

/// Addresses of which something is remembered.
const CACHED_MAX: usize = 1024;

/// The number that stands for all users whom this user namespace does not know
/// (`user_namespaces(7)`), where nobody has set another.
const OVERFLOW_UID: u32 = 65534;

/// Who is at the other end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// One whose word is enough.
    Believed,
    /// Another of this number.
    Other(u32),
    /// One whose number stands for many, so that nothing can be said of him.
    Unknown,
}

/// How many links and services one process may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Links together.
    links: usize,
    /// Links of all that are not believed.
    others: usize,
    /// Links of one user of those.
    each: usize,
}

impl User {
    pub(crate) fn of(number: u32) -> Self {
        if number == 0 || number == geteuid().as_raw() {
            Self::Believed
        } else if number == OVERFLOW_UID && !knows_all_users() {
            Self::Unknown
        } else {
            Self::Other(number)
        }
    }

    /// Services that one process of his may offer.
    pub(crate) fn services_max(self) -> usize {
        match self {
            Self::Believed => 1024,
            Self::Other(_) => 256,
            Self::Unknown => 0,
        }
    }
}

/// Whether each number means one user here, as in the first user namespace.
fn knows_all_users() -> bool {
    std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

impl Limits {
    /// Strangers must not use up the descriptors of this process, nor those at the upper end of its
    /// numbers where all of ours stand; a quarter of the numbers is there.
    pub(crate) fn now() -> Self {
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

    /// Whether one more link of this user has room beside these.
    pub(crate) fn admit(self, user: User, there: impl Iterator<Item = User>) -> bool {
        let (mut links, mut others, mut own) = (0, 0, 0);
        for other in there {
            links += 1;
            others += usize::from(other != User::Believed);
            own += usize::from(other == user);
        }
        links < self.links
            && match user {
                User::Believed => true,
                User::Other(_) => others < self.others && own < self.each,
                User::Unknown => false,
            }
    }
}

/// Proof that a user listens where he offers a service: what the kernel said lately.
#[derive(Debug, Default)]
pub(crate) struct ListenCheck {
    cached: BTreeMap<SocketAddr, (Instant, Vec<ListeningSocket>)>,
    is_unavailable: bool,
}

impl ListenCheck {
    /// Whether what this user offers may be answered.
    pub(crate) fn confirms(&mut self, user: User, candidate: &Candidate) -> bool {
        let number = match user {
            User::Believed => return !(candidate.ipv6_only && candidate.over_ipv4),
            User::Unknown => return false,
            User::Other(number) => number,
        };
        let service = candidate.service;
        let stands = self
            .listening(service)
            .iter()
            .any(|socket| is_service(socket, number, candidate));
        if !stands {
            debug!(%service, user = number, "a process offers what its user does not listen at");
        }
        stands
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

/// Whether this is a socket of the user at which the peer would arrive. One that is bound to a
/// device stands beside another user's of the same address, so nothing is said of it but where the
/// address itself belongs to one device.
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
    use crate::mappings::Offerer;

    #[test]
    fn strangers_leave_room_for_others() {
        let limits = Limits::within(1024);
        let (a, b) = (User::Other(1), User::Other(2));
        let believed = User::Believed;
        for (user, there, admitted) in [
            (a, vec![a; 31], true),
            (a, vec![a; 32], false),
            (b, vec![a; 32], true),
            (b, vec![a; 64], false),
            (believed, vec![a; 64], true),
            (believed, vec![believed; 127], true),
            (believed, vec![believed; 128], false),
            (User::Unknown, vec![], false),
        ] {
            let many = there.len();
            let found = limits.admit(user, there.into_iter());
            assert_eq!(found, admitted, "{user:?} beside {many}");
        }
        // Beyond these there are no more, however many numbers there are.
        let unbounded = Limits::within(usize::MAX);
        assert_eq!(
            (unbounded.links, unbounded.others, unbounded.each),
            (1024, 256, 64)
        );
    }

    #[test]
    fn a_socket_stands_for_its_user_its_devices_and_its_families() {
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
