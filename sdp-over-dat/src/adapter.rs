//! The interface adapter of a stack, as its sockets see it, and how they reach the thread that
//! serves them.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use dat_api::{Cno, Ia, IaAttr, ProviderAttr, Pz};

use crate::{driver_role::DriverRole, wakeup::Wakeup};

/// How often the thread looks at sockets that want a tick or are being closed.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// How often when none does.
pub(crate) const LONG: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) ia: Ia,
    pub(crate) pz: Pz,
    pub(crate) cno: Cno,
    /// Its address.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) private_data_max: usize,
    pub(crate) sink_needs_remote_write: bool,
    /// The longest RDMA Read.
    pub(crate) read_max: usize,
    /// Wakes the thread.
    pub(crate) wakeup: Wakeup,
    /// Whether it serves, or threads of the program do.
    pub(crate) driver: DriverRole,
    /// A socket wants a tick.
    pub(crate) ticks: AtomicBool,
    /// The thread sleeps for long.
    sleeps_long: AtomicBool,
}

impl Adapter {
    /// The adapter `ia`, whose attributes are `attr` and `provider`.
    pub(crate) fn new(ia: Ia, attr: &IaAttr, provider: &ProviderAttr) -> dat_api::Result<Self> {
        let cno = Cno::create(&ia)?;
        let wakeup = Wakeup::new(&ia, &cno)?;
        Ok(Self {
            pz: Pz::create(&ia)?,
            cno,
            address: attr.address,
            private_data_max: usize::try_from(provider.max_private_data_size).unwrap_or(0),
            sink_needs_remote_write: provider.rdma_write_for_rdma_read_req,
            read_max: attr.max_rdma_size as usize,
            wakeup,
            driver: DriverRole::default(),
            ticks: AtomicBool::new(false),
            sleeps_long: AtomicBool::new(false),
            ia,
        })
    }

    /// The thread should look at all sockets a tick from now.
    pub(crate) fn want_tick(&self) {
        let is_new = !self.ticks.swap(true, Ordering::SeqCst);
        if is_new && self.sleeps_long.swap(false, Ordering::SeqCst) {
            if self.driver.is_lent() {
                self.driver.nudge();
            } else {
                self.wakeup.signal(false);
            }
        }
    }

    /// Makes the thread look at all sockets.
    pub(crate) fn wake(&self) {
        self.wakeup.signal(true);
        self.driver.reclaim();
    }

    /// How long the thread may sleep before it looks at all sockets. It says that it sleeps long
    /// and then looks for a wish, [`Self::want_tick`] wishes and then looks whether it does; both
    /// in one order for all threads, or each could miss the other's word.
    pub(crate) fn pause(&self) -> Duration {
        self.sleeps_long.store(true, Ordering::SeqCst);
        if self.ticks.load(Ordering::SeqCst) {
            return TICK;
        }
        // Sockets whose close runs have deadlines.
        LONG
    }
}
