//! The list of sockets, with the local addresses of connections over TCP.
//!
//! A process does not record these addresses, because it would have to ask the kernel at each
//! `connect`. They are in the kernel's tables, by the inodes of the sockets that the process has.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;

use ops::observe::{Kind, Listing, PageRoot, Process, Row, State};
use procfs::ProcResult;
use procfs::net::TcpState;
use procfs::process::FDTarget;

/// Reads the pages of all processes, and the kernel's tables for the processes that need them.
pub(crate) fn read(root: &PageRoot) -> Listing {
    let mut listing = Listing::read(root);
    let mut tables = Tables::default();
    for process in &mut listing.processes {
        add_local_addresses(process, &mut tables);
    }
    listing
}

/// Adds the local addresses to the connections over TCP of a process. The addresses stay
/// unspecified if the caller may not read the descriptors of the process, or if the kernel no
/// longer has the connection.
fn add_local_addresses(process: &mut Process, tables: &mut Tables) {
    if !process.rows.iter().any(has_no_address) {
        return;
    }
    let Ok(mut connections) = tables.connections(process.pid) else {
        return;
    };
    for row in process.rows.iter_mut().filter(|row| has_no_address(row)) {
        let remote = without_scope(row.description.remote);
        // Each connection is used once, because a process may have several to one peer.
        if let Some(local) = connections.get_mut(&remote).and_then(Vec::pop) {
            row.description.local = local;
        }
    }
}

/// Returns true for a connection over TCP whose local address is not known.
pub(crate) fn has_no_address(row: &Row) -> bool {
    let local = row.description.local;
    row.description.kind == Kind::Connection
        && row.state == State::Native
        && local.port() == 0
        && local.ip().is_unspecified()
}

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
struct Ends {
    local: SocketAddr,
    peer: SocketAddr,
}

/// The TCP connections of network namespaces by the inodes of their sockets. The key of a table is
/// the inode of its namespace.
#[derive(Debug, Default)]
struct Tables(HashMap<u64, HashMap<u64, Ends>>);

impl Tables {
    /// Returns the TCP connections of which a process has a descriptor: the local addresses of
    /// those to each peer.
    fn connections(&mut self, pid: u32) -> ProcResult<HashMap<SocketAddr, Vec<SocketAddr>>> {
        let process = procfs::process::Process::new(pid.cast_signed())?;
        let space = fs::metadata(format!("/proc/{pid}/ns/net"))?.ino();
        let table = match self.0.entry(space) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(table(&process)?),
        };
        let mut by_peer: HashMap<_, Vec<_>> = HashMap::new();
        for descriptor in process.fd()?.flatten() {
            if let FDTarget::Socket(inode) = descriptor.target
                && let Some(ends) = table.get(&inode)
            {
                by_peer.entry(ends.peer).or_default().push(ends.local);
            }
        }
        Ok(by_peer)
    }
}

/// Reads the table of the network namespace of a process.
fn table(process: &procfs::process::Process) -> ProcResult<HashMap<u64, Ends>> {
    let mut all = process.tcp()?;
    // A host without IPv6 has no such table.
    all.extend(process.tcp6().unwrap_or_default());
    let connections = all.into_iter().filter(|it| it.state != TcpState::Listen);
    let ends = connections.map(|entry| {
        let local = without_scope(entry.local_address);
        let peer = without_scope(entry.remote_address);
        (entry.inode, Ends { local, peer })
    });
    Ok(ends.collect())
}

/// Converts an IPv4-mapped address to IPv4, as the pages contain it. The tables have no scopes.
fn without_scope(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use ops::observe::{Native, ReasonText, Writer};

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
                reason: &ReasonText::of("a rule"),
            };
            WRITER.list_native(&native).unwrap()
        };
        let closed = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 9);
        let _listed = [peers[0], peers[0], peers[1], peers[0], closed].map(list);

        let listing = read(&root);
        let locals = listing.processes[0].rows.iter();
        let mut locals: Vec<_> = locals.map(|row| row.description.local).collect();
        assert!(has_no_address(listing.processes[0].rows.last().unwrap()));
        locals.pop();
        let mut expected = connected.map(|stream| stream.local_addr().unwrap());
        locals.sort();
        expected.sort();
        assert_eq!(locals, expected);
    }
}
