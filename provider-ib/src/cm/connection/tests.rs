//! The end of a connection whose device keeps posted work.

use super::*;
use crate::fake_device;
use crate::qp::Lifecycle;
use crate::quirks::Transport;
use rnic::{AsyncEvent, CqToken, EventUpcall, ListenToken};

/// The reported events of connections.
#[derive(Debug, Default)]
struct Reports(Mutex<Vec<String>>);

impl EventUpcall for Reports {
    fn cq_ready(&self, _: CqToken) {}

    fn connection(&self, _: QpToken, event: &ConnectionEvent) {
        lock(&self.0).push(format!("{event:?}"));
    }

    fn socket_down(&self, _: ListenToken) {}

    fn async_event(&self, _: AsyncEvent) {}
}

/// Creates an established connection.
fn established(reports: &Arc<Reports>, transport: Transport) -> (Arc<Qp>, Arc<Connection>) {
    let shared = fake_device::open(reports.clone(), transport);
    let qp = fake_device::connecting(&shared, QpToken(1));
    let cm = Arc::new(Cm::new(shared));
    let param = ConnParam::of(&qp, Depth::default(), &[]);
    let key = cm.new_key();
    let inner = Inner::new(Machine::accept(), param);
    let connection = Connection::new(&cm, &qp, key, false, inner);
    cm.register(key, connection.clone());
    connection.on_cm(event(key, RDMA_CM_EVENT_ESTABLISHED));
    assert_eq!(std::mem::take(&mut *lock(&reports.0)).len(), 1);
    (qp, connection)
}

fn event(key: Key, kind: rdma_cm_event_type) -> CmEvent {
    CmEvent {
        key,
        kind,
        status: 0,
        private_data: Vec::new(),
        depth: Depth::default(),
        request: None,
    }
}

#[test]
fn the_engines_thread_does_not_wait_for_a_device_that_keeps_work() {
    let reports = Arc::default();
    let (qp, connection) = established(&reports, Transport::InfiniBand);
    let cm = connection.cm.clone();
    connection.on_cm(event(connection.key, RDMA_CM_EVENT_DISCONNECTED));
    assert_eq!(qp.lifecycle(), Lifecycle::Ending, "the call has waited");
    assert!(lock(&reports.0).is_empty());
    let next_check = |until: Instant| {
        lock(&connection.inner).flush_until = until;
        cm.on_deadline(cm.next_deadline().expect("the engine's thread continues"));
    };
    next_check(Instant::now() + LINGER);
    assert_eq!(qp.lifecycle(), Lifecycle::Ending);
    next_check(Instant::now());
    assert_eq!(qp.lifecycle(), Lifecycle::Disconnected);
    assert_eq!(*lock(&reports.0), ["Disconnected"]);
    assert_eq!(cm.next_deadline(), None);
}

#[test]
fn the_removal_of_the_device_ends_a_flush() {
    let reports = Arc::default();
    let (qp, connection) = established(&reports, Transport::InfiniBand);
    connection.on_cm(event(connection.key, RDMA_CM_EVENT_DISCONNECTED));
    assert_eq!(qp.lifecycle(), Lifecycle::Ending);
    connection.cm.on_device_removed();
    assert_eq!(qp.lifecycle(), Lifecycle::Disconnected);
    assert_eq!(*lock(&reports.0), ["Disconnected"]);
}

#[test]
fn an_abrupt_disconnect_returns_after_the_flush() {
    let reports = Arc::default();
    let (qp, connection) = established(&reports, Transport::Iwarp);
    connection.disconnect(true);
    assert_eq!(qp.lifecycle(), Lifecycle::Disconnected);
    assert_eq!(*lock(&reports.0), ["Disconnected"]);
}
