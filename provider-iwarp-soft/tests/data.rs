//! Messages of all kinds and sizes over a connection.

mod support;

use access_layer::rnic::*;
use support::*;

const SIZES: [usize; 16] = [
    0,
    1,
    3,
    4,
    64,
    1000,
    4096,
    16_384,
    16_385,
    32_768,
    32_769,
    65_536,
    100_000,
    1 << 20,
    (1 << 20) + 7,
    16 << 20,
];

#[test]
fn sends_of_every_size_arrive() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    let (from, to) = (a.memory(16 << 20), b.memory(16 << 20));
    for (id, len) in SIZES.into_iter().enumerate() {
        from.fill(id);
        server.recv(id as u64, &[to.sge(0, 16 << 20)]);
        client.send(id as u64, &[from.sge(0, len)]);
        // Both sides drive: a message larger than the socket needs both.
        let received = std::thread::scope(|scope| {
            let sent = scope.spawn(|| client.sent());
            let received = server.received();
            let sent = sent.join().unwrap();
            assert_eq!(
                (sent.wr_id, sent.status, sent.opcode),
                (id as u64, WcStatus::Success, WcOpcode::Send)
            );
            received
        });
        assert_eq!((received.wr_id, received.byte_len), (id as u64, len as u32));
        assert_eq!(
            (received.status, received.opcode),
            (WcStatus::Success, WcOpcode::Recv)
        );
        assert!(to.copy(0, len) == patterned(id, len), "{len}");
    }
}
