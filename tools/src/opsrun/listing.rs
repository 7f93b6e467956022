//! The list of sockets, with the local addresses of connections over TCP.
//!
//! A process does not record these addresses, because it would have to ask the kernel at each
//! `connect`. They are in the kernel's tables, by the inodes of the sockets that the process has.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ops::observe::{Kind, Listing, PageRoot, Process, Row, State};
use procfs::ProcResult;
use procfs::net::TcpState;
use procfs::process::FDTarget;

/// Reads the pages of all processes, and the kernel's tables for the processes that need them.
pub(crate) fn read(root: &PageRoot) -> Listing {
    let mut listing = Listing::read(root);
    for process in &mut listing.processes {
        add_local_addresses(process);
    }
    listing
}

/// Adds the local addresses to the connections over TCP of a process. The addresses stay
/// unspecified if the caller may not read the descriptors of the process, or if the kernel no
/// longer has the connection.
fn add_local_addresses(process: &mut Process) {
    if !process.rows.iter().any(needs_address) {
        return;
    }
    let Ok(mut connections) = connections(process.pid) else {
        return;
    };
    for row in process.rows.iter_mut().filter(|row| needs_address(row)) {
        let remote = single_host(row.description.remote);
        // Each connection is used once, because a process may have several to one peer.
        if let Some(local) = connections.get_mut(&remote).and_then(Vec::pop) {
            row.description.local = local;
        }
    }
}

fn needs_address(row: &Row) -> bool {
    let local = row.description.local;
    row.description.kind == Kind::Connection
        && row.state == State::Native
        && local.port() == 0
        && local.ip().is_unspecified()
}

/// Returns the TCP connections of which a process has a descriptor: the local addresses of those to
/// each peer, from the tables of the process's network namespace.
fn connections(pid: u32) -> ProcResult<HashMap<SocketAddr, Vec<SocketAddr>>> {
    let process = procfs::process::Process::new(pid.cast_signed())?;
    let inodes: HashSet<u64> = process
        .fd()?
        .flatten()
        .filter_map(|descriptor| match descriptor.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        })
        .collect();
    let mut all = process.tcp()?;
    // A host without IPv6 has no such table.
    all.extend(process.tcp6().unwrap_or_default());
    let mut by_peer: HashMap<_, Vec<_>> = HashMap::new();
    for entry in all {
        if entry.state != TcpState::Listen && inodes.contains(&entry.inode) {
            let peer = canonical(entry.remote_address);
            let local = canonical(entry.local_address);
            by_peer.entry(peer).or_default().push(local);
        }
    }
    Ok(by_peer)
}

/// Converts an IPv4-mapped address to IPv4, as the pages contain it. The tables have no scopes.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Returns the address to which the kernel connects: the unspecified address means loopback.
fn single_host(address: SocketAddr) -> SocketAddr {
    let mut address = canonical(address);
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use ops::observe::{Native, Writer};

    use super::*;

    #[test]
    fn connections_to_one_peer_have_the_local_addresses_of_the_kernel() {
        static WRITER: Writer = Writer::new();
        let dir = tempfile::tempdir().unwrap();
        let root = PageRoot::at(dir.path());
        WRITER.begin(root.clone());
        let listeners = ["127.0.0.1:0", "[::1]:0"].map(|at| TcpListener::bind(at).unwrap());
        let peers = listeners.each_ref().map(|it| it.local_addr().unwrap());
        let to = [peers[0], peers[0], peers[1], peers[0]];
        let connected = to.map(|peer| TcpStream::connect(peer).unwrap());
        let list = |remote: SocketAddr| {
            let native = Native {
                kind: Kind::Connection,
                local: (Ipv4Addr::UNSPECIFIED, 0).into(),
                remote,
                reason: "a rule",
            };
            WRITER.list_native(&native).unwrap()
        };
        let unspecified = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), peers[0].port());
        let closed = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 9);
        let _listed = [peers[0], peers[0], peers[1], unspecified, closed].map(list);

        let listing = read(&root);
        let locals = listing.processes[0].rows.iter();
        let mut locals: Vec<_> = locals.map(|row| row.description.local).collect();
        assert!(locals.pop().unwrap().ip().is_unspecified(), "{listing:?}");
        let mut expected = connected.map(|stream| stream.local_addr().unwrap());
        locals.sort();
        expected.sort();
        assert_eq!(locals, expected);
    }
}
