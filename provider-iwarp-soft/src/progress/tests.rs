//! Arming that meets other threads, step by step.

use crate::conn::Conn;
use crate::qp::Link;
use crate::support::moved::{has_moved, move_on};
use crate::support::{Node, Side, connect};

/// Calls with the connection of a side, which is up and held until the call returns.
fn with_conn<T>(side: &Side<'_>, call: impl FnOnce(&mut Conn) -> T) -> T {
    match &mut *side.qp.qp.lock_link() {
        Link::Up(conn) => call(conn),
        other => panic!("{other:?}"),
    }
}

/// Runs with both ends of a connection that uses shared memory.
fn with_moved(run: impl FnOnce(&Side<'_>, &Side<'_>)) {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    move_on(&client, &server);
    has_moved(&client, &server);
    run(&client, &server);
}

/// Two threads arm the connections of the same list. The second one finds a record that was
/// published meanwhile. If it took the connection for a polled one and the announcement of the
/// sleep back, nobody would look at the record: no thread polls the connection, and the peer does
/// not ring.
#[test]
fn an_armed_connection_is_not_armed_again() {
    with_moved(|client, server| {
        let progress = &server.qp.qp.shared.progress;
        while !progress.arm_polled() {}
        server.recv(7, &[]);
        let look_again = with_conn(server, |conn| {
            assert!(conn.place.is_armed());
            client.send(7, &[]);
            conn.arm().unwrap()
        });
        assert!(!look_again, "the bell is on its way");
        assert_eq!(server.received().wr_id, 7);
    });
}
