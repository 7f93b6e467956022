//! The engine's thread: serves the descriptors and the queued work of the [`Engine`].

use std::sync::Arc;
use std::time::Instant;

use host::threads::catch_panic;

use crate::adapter::Adapter;
use crate::engine::{Engine, Source, Task};
use crate::events;

/// Runs until the engine stops.
pub(crate) fn run(adapter: &Arc<Adapter>) {
    let engine = &adapter.shared.engine;
    while !engine.is_stopping() {
        let deadlines = [adapter.cm.next_deadline(), adapter.reader.next_tick()];
        for source in engine.sleep(deadlines.into_iter().flatten().min()) {
            serve(adapter, engine, source);
        }
        for task in engine.take_tasks() {
            catch_panic(|| run_task(adapter, task));
        }
        let now = Instant::now();
        adapter.reader.on_deadline(now);
        adapter.cm.on_deadline(now);
    }
}

fn serve(adapter: &Adapter, engine: &Engine, source: Source) {
    match source {
        Source::Wake => engine.drain_wake(),
        Source::Cm => adapter.cm.on_readable(),
        Source::Device => events::take_all(adapter),
        Source::Channel => adapter.reader.drain(),
        Source::Socket(key) => catch_panic(|| adapter.cm.on_socket(key)),
    }
}

fn run_task(adapter: &Adapter, task: Task) {
    match task {
        Task::CheckCq(number) => {
            if let Some(cq) = adapter.cqs.get(number) {
                cq.on_event();
            }
        }
        Task::BreakConnection(token) => {
            let qp = adapter.qps.get(token);
            // A reset may have replaced the failed queue pair since then, and the new one may
            // already have a connection.
            if qp.is_some_and(|qp| qp.has_failed_work()) {
                adapter.cm.on_qp_failed(token);
            }
        }
        Task::Report(event) => adapter.shared.upcall.async_event(event),
    }
}
