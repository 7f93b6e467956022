//! The engine's thread: serves the descriptors and the queued work of the [`Engine`].

use std::sync::Arc;
use std::time::Instant;

use host::threads::catch_panic;

use crate::adapter::Adapter;
use crate::engine::{Engine, Source, Tasks};
use crate::events;

/// Runs until the engine stops.
pub(crate) fn run(adapter: &Arc<Adapter>) {
    let engine = &adapter.shared.engine;
    while !engine.is_stopping() {
        let deadlines = [adapter.cm.next_deadline(), adapter.reader.next_tick()];
        for source in engine.sleep(deadlines.into_iter().flatten().min()) {
            serve(adapter, engine, source);
        }
        run_tasks(adapter, engine.take_tasks());
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
    }
}

fn run_tasks(adapter: &Adapter, tasks: Tasks) {
    for cq in tasks.cqs.into_iter().filter_map(|cq| adapter.cqs.get(cq)) {
        catch_panic(|| cq.on_event());
    }
    for token in tasks.failed {
        // A reset since then has replaced the queue pair, which perhaps has a connection already.
        if adapter
            .qps
            .get(token)
            .is_some_and(|qp| qp.has_failed_work())
        {
            catch_panic(|| adapter.cm.on_qp_failed(token));
        }
    }
    for event in tasks.events {
        catch_panic(|| adapter.shared.upcall.async_event(event));
    }
}
