//! The RNIC, and the state that its objects share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rnic::{RnicAttr, RnicError, Upcall, UpcallQueue};

use crate::config::Config;
use crate::conn::offer_listener::OfferListener;
use crate::engine::Engine;
use crate::memory::MemoryTable;
use crate::policing::Police;
use crate::progress::Progress;
use crate::progress::event_order::EventOrder;

/// The software iWARP RNIC.
#[derive(Debug)]
pub struct SoftRnic {
    pub(crate) attr: RnicAttr,
    pub(crate) shared: Arc<Shared>,
}

impl Drop for SoftRnic {
    fn drop(&mut self) {
        // A second shutdown has no effect.
        self.shared.engine.shutdown();
    }
}

/// The part of an RNIC that each of its objects can reach.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) upcall: Arc<dyn Upcall<SoftRnic>>,
    pub(crate) memory: MemoryTable,
    pub(crate) engine: Arc<Engine>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) event_order: EventOrder,
    /// Delivers the disconnect event of a queue pair with an SRQ together with its event "last WQE
    /// reached". So both kinds of event list the queue pairs in the same order, which OFA's
    /// `dtestsrq` assumes.
    pub(crate) last_receives: UpcallQueue<Box<dyn Fn() + Send>>,
    pub(crate) offer_listener: OfferListener,
    pub(crate) police: Police,
    next_pd: AtomicU32,
    qps: AtomicU32,
}

impl Shared {
    pub(crate) fn open(
        config: Config,
        upcall: Arc<dyn Upcall<SoftRnic>>,
    ) -> Result<Self, RnicError> {
        let engine = Engine::new()?;
        Ok(Self {
            memory: MemoryTable::new()?,
            progress: Progress::new(engine.clone())?,
            event_order: EventOrder::default(),
            last_receives: UpcallQueue::default(),
            offer_listener: OfferListener::new(engine.clone(), config.local_dir.clone()),
            police: Police::read(),
            engine,
            config,
            upcall,
            next_pd: AtomicU32::new(1),
            qps: AtomicU32::new(0),
        })
    }

    /// Returns the number of a new protection domain.
    pub(crate) fn next_pd(&self) -> u32 {
        self.next_pd.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a new queue pair, until [`remove_qp`](Self::remove_qp). Returns the number of queue
    /// pairs before it.
    pub(crate) fn count_qp(&self) -> u32 {
        self.qps.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn remove_qp(&self) {
        self.qps.fetch_sub(1, Ordering::Relaxed);
    }
}

rnic::opaque_debug!(Shared { config });
