//! Connections that move from TCP to shared memory.

use std::time::Instant;

use ::rnic::*;

use super::testbed::wait_until;
use super::*;

/// Returns true if both directions of a connection have left TCP, as this side sees it.
pub fn is_moved(side: &Side<'_>) -> bool {
    let traffic = side.node.rnic.traffic(&side.qp).unwrap();
    (traffic.moved_sending, traffic.moved_receiving) == (1, 1)
}

/// Waits until both directions of the connection have left TCP at both ends.
pub fn has_moved(client: &Side<'_>, server: &Side<'_>) {
    wait_until("the connection stays on TCP", || {
        is_moved(client) && is_moved(server)
    });
}

/// Exchanges messages until the connection has moved, and some more.
pub fn move_on(client: &Side<'_>, server: &Side<'_>) {
    let deadline = Instant::now() + DEADLINE;
    let mut rounds = 0;
    while rounds < 100 || !(is_moved(client) && is_moved(server)) {
        assert!(Instant::now() < deadline, "the connection stays on TCP");
        server.recv(1, &[]);
        client.recv(1, &[]);
        client.send(1, &[]);
        server.received();
        server.send(1, &[]);
        client.received();
        client.sent();
        server.sent();
        rounds += 1;
    }
}
