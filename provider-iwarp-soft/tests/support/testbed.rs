//! An adapter that is attacked, and a connection of it that must keep working.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use ::rnic::{Rnic, WcStatus};

use super::scripted::Scripted;
use super::{DEADLINE, Event, Node, Side, connect, exchange};

/// The adapter that is attacked, and a connection that is not attacked.
pub struct Testbed<'n> {
    server: Side<'n>,
    healthy: (Side<'n>, Side<'n>),
    tokens: AtomicU64,
    pub descriptors: usize,
}

/// A test that runs alone, because mappings and descriptors of the process are counted. No mapping
/// must be left at its end.
pub struct Alone(MutexGuard<'static, ()>);

pub fn alone() -> Alone {
    static ALONE: Mutex<()> = Mutex::new(());
    let lock = ALONE.lock();
    Alone(lock.unwrap_or_else(|poisoned| poisoned.into_inner()))
}

impl Drop for Alone {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            wait_until("mappings are left", || mappings() == 0);
        }
    }
}

pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Mappings of memory that a script has made, or of rings.
pub fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.matches("memfd:").count()
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

impl<'n> Testbed<'n> {
    pub fn new(node: &'n Node, other: &'n Node) -> Self {
        let healthy = (other.side(10), node.side(20));
        connect(&healthy.0, &healthy.1);
        // Descriptors that an adapter opens once are open before descriptors are counted.
        let server = node.side(30);
        let mut first = Scripted::initiator(&server);
        first.provoke_offer(&server);
        let testbed = Self {
            server,
            healthy,
            tokens: AtomicU64::new(100),
            descriptors: 0,
        };
        testbed.exchange(200);
        testbed.node().rnic.disconnect(&testbed.server.qp, true);
        assert_eq!(testbed.server.event(), Event::Disconnected);
        drop(first);
        let mut before = 0;
        wait_until("descriptors come and go", || {
            std::mem::replace(&mut before, descriptors()) == before
        });
        Self {
            descriptors: before,
            ..testbed
        }
    }

    pub fn node(&self) -> &'n Node {
        self.server.node
    }

    /// The end of the healthy connection that is on the attacked adapter.
    pub fn healthy_server(&self) -> &Side<'n> {
        &self.healthy.1
    }

    /// Creates a queue pair for an attack.
    pub fn victim(&self) -> Side<'n> {
        self.node()
            .side(self.tokens.fetch_add(10, Ordering::Relaxed))
    }

    /// Checks that the connection that is not attacked works.
    pub fn exchange(&self, count: usize) {
        exchange(&self.healthy.0, &self.healthy.1, count);
    }

    /// Checks that nothing is left of an attack.
    pub fn check(&self, name: &str) {
        self.exchange(3);
        wait_until(&format!("{name}: descriptors are left"), || {
            descriptors() <= self.descriptors
        });
        // Both ends of the healthy connection.
        wait_until(&format!("{name}: mappings are left"), || mappings() <= 2);
    }
}

/// A healthy connection of two adapters, one of which is attacked.
pub fn with_testbed(attacks: impl FnOnce(&Testbed<'_>)) {
    let _alone = alone();
    let (node, other) = (Node::new("lo 0"), Node::new("lo 0"));
    attacks(&Testbed::new(&node, &other));
}

/// Checks that messages are still delivered.
pub fn works(peer: &mut Scripted, victim: &Side<'_>, name: &str) {
    for _ in 0..3 {
        victim.recv(9, &[]);
        peer.send(b"");
        assert_eq!(victim.received().status, WcStatus::Success, "{name}");
    }
}
