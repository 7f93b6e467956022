//! The list of sockets, with the local addresses and the states of connections that the kernel
//! carries.
//!
//! A process does not record these, because it would have to ask the kernel at each `connect` and
//! each change. Those of TCP are in the kernel's tables, by the inodes of the sockets that the
//! process has. A connection within the host is established until its program closes it: the
//! kernel's table of such sockets does not show which end has shut down.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;

use ops::observe::{Carrier, Kind, Listing, PageRoot, Process, Row, State};
use procfs::ProcResult;
use procfs::net::TcpState;
use procfs::process::FDTarget;
use tool_args::opsrun::Listed;

/// Reads the pages of all processes, and the kernel's tables for the processes that need them.
pub(crate) fn read(root: &PageRoot) -> Listing {
    let mut listing = Listing::read(root);
    let mut tables = Tables::default();
    for process in &mut listing.processes {
        add_from_kernel(process, &mut tables);
    }
    listing
}

/// Keeps the processes and sockets that the user asked for.
pub(crate) fn keep(listing: &mut Listing, how: Listed) {
    let of_process = |process: &Process| how.pid.is_none_or(|pid| pid == process.pid);
    listing.processes.retain(of_process);
    let Some(port) = how.port else { return };
    for process in &mut listing.processes {
        process.rows.retain(|row| {
            let ends = &row.description;
            ends.local.port() == port || ends.remote.port() == port
        });
    }
    listing.processes.retain(|process| !process.rows.is_empty());
}

/// Adds the local addresses and the states to the connections of a process that the kernel carries.
/// An address of TCP stays unspecified, and a state unknown, if the caller may not read the
/// descriptors of the process, or if the kernel no longer has the connection.
fn add_from_kernel(process: &mut Process, tables: &mut Tables) {
    let rows = process.rows.iter_mut();
    let natives = rows.filter(|row| row.state == State::Native);
    let (mut tcp, local): (Vec<&mut Row>, Vec<&mut Row>) =
        natives.partition(|row| matches!(row.description.carrier, Carrier::Tcp { .. }));
    for row in local {
        row.state = State::Established;
    }
    if tcp.is_empty() {
        return;
    }
    let Ok(mut connections) = tables.connections(process.pid) else {
        return;
    };
    // A connection of the kernel is used once, because a process may have several to one peer. The
    // rows that have a local address choose first.
    tcp.sort_by_key(|row| has_no_address(row));
    for row in tcp {
        let remote = without_scope(row.description.remote);
        let Some(to_peer) = connections.get_mut(&remote) else {
            continue;
        };
        let local = without_scope(row.description.local);
        let is_any = has_no_address(row);
        let place = to_peer.iter().position(|it| is_any || it.local == local);
        if let Some(place) = place {
            let found = to_peer.swap_remove(place);
            row.description.local = found.local;
            row.state = found.state;
        }
    }
}

/// Returns true for a connection over TCP whose local address is not known.
pub(crate) fn has_no_address(row: &Row) -> bool {
    let local = row.description.local;
    row.description.kind == Kind::Connection
        && matches!(row.description.carrier, Carrier::Tcp { .. })
        && local.port() == 0
        && local.ip().is_unspecified()
}

/// A connection in the kernel's table.
#[derive(Debug, Clone, Copy)]
struct Connection {
    local: SocketAddr,
    peer: SocketAddr,
    state: State,
}

/// The TCP connections of network namespaces by the inodes of their sockets. The key of a table is
/// the inode of its namespace.
#[derive(Debug, Default)]
struct Tables(HashMap<u64, HashMap<u64, Connection>>);

impl Tables {
    /// Returns the TCP connections of which a process has a descriptor, by peer.
    fn connections(&mut self, pid: u32) -> ProcResult<HashMap<SocketAddr, Vec<Connection>>> {
        let process = procfs::process::Process::new(pid.cast_signed())?;
        let space = fs::metadata(format!("/proc/{pid}/ns/net"))?.ino();
        let table = match self.0.entry(space) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(table(&process)?),
        };
        let mut by_peer: HashMap<_, Vec<_>> = HashMap::new();
        for descriptor in process.fd()?.flatten() {
            if let FDTarget::Socket(inode) = descriptor.target
                && let Some(connection) = table.get(&inode)
            {
                by_peer
                    .entry(connection.peer)
                    .or_default()
                    .push(*connection);
            }
        }
        Ok(by_peer)
    }
}

/// Reads the table of the network namespace of a process.
fn table(process: &procfs::process::Process) -> ProcResult<HashMap<u64, Connection>> {
    let mut all = process.tcp()?;
    // A host without IPv6 has no such table.
    all.extend(process.tcp6().unwrap_or_default());
    let connections = all.into_iter().filter(|it| it.state != TcpState::Listen);
    let connections = connections.map(|entry| {
        let connection = Connection {
            local: without_scope(entry.local_address),
            peer: without_scope(entry.remote_address),
            state: state(&entry.state),
        };
        (entry.inode, connection)
    });
    Ok(connections.collect())
}

fn state(state: &TcpState) -> State {
    match state {
        TcpState::SynSent | TcpState::SynRecv | TcpState::NewSynRecv => State::Connecting,
        TcpState::Established => State::Established,
        TcpState::FinWait1 | TcpState::FinWait2 => State::LocalEnded,
        TcpState::CloseWait => State::PeerEnded,
        TcpState::LastAck | TcpState::Closing | TcpState::TimeWait => State::Ended,
        TcpState::Close => State::Broken,
        TcpState::Listen => State::Listening,
    }
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
        let last = listing.processes[0].rows.last().unwrap();
        assert!(has_no_address(last) && last.state == State::Native);
        let first = &listing.processes[0].rows[0];
        assert_eq!(first.state, State::Established);
        locals.pop();
        let mut expected = connected.map(|stream| stream.local_addr().unwrap());
        locals.sort();
        expected.sort();
        assert_eq!(locals, expected);
    }
}
