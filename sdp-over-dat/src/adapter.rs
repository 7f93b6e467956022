//! The interface adapter of a stack, as its sockets use it, and the calls with which a socket wakes
//! the stack's thread.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use dat_api::{Cno, CompletionFlags, Ia, IaAttr, ProviderAttr, Pz};

use crate::wakeup::Wakeup;

/// The time between two rounds over all sockets, and the longest sleep of a wait, while the
/// protocol wants a tick.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// The time between two rounds while no socket wants a tick.
pub(crate) const LONG: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) ia: Ia,
    pub(crate) pz: Pz,
    pub(crate) cno: Cno,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) private_data_max: usize,
    pub(crate) sink_needs_remote_write: bool,
    /// The flag of Sends whose payload the sender copies, if the provider has it. The peer's reader
    /// copies each payload out of a receive buffer, so it is to make no other copy.
    pub(crate) inline: CompletionFlags,
    /// The longest RDMA Read in bytes.
    pub(crate) read_max: usize,
    /// The wake-up of the stack's thread.
    pub(crate) wakeup: Wakeup,
    /// True if a socket wants a tick.
    pub(crate) ticks: AtomicBool,
    /// True if the provider has CNOs with descriptors. OFA's providers have none. They appear
    /// to keep a single trigger per CNO, and to lose those of other dispatchers until that trigger
    /// is consumed.
    pub(crate) has_cno_fd: bool,
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
            inline: match provider.completion_flags_supported & CompletionFlags::INLINE.bits() {
                0 => CompletionFlags::DEFAULT,
                _ => CompletionFlags::INLINE,
            },
            read_max: attr.max_rdma_size as usize,
            wakeup,
            ticks: AtomicBool::new(false),
            has_cno_fd: Cno::create_with_fd(&ia).is_ok(),
            ia,
        })
    }

    /// Makes the stack's thread serve all sockets a tick from now.
    pub(crate) fn want_tick(&self) {
        if !self.ticks.swap(true, Ordering::SeqCst) {
            self.wakeup.signal(false);
        }
    }

    /// Makes the stack's thread serve all sockets now.
    pub(crate) fn wake(&self) {
        self.wakeup.signal(true);
    }

    /// The time for which the stack's thread may sleep before it serves all sockets.
    pub(crate) fn pause(&self) -> Duration {
        // If the trigger of a message is lost, the message is delayed by the whole pause. So the
        // pause is short.
        if self.ticks.load(Ordering::SeqCst) || !self.has_cno_fd {
            TICK
        } else {
            // Sockets that are being closed have deadlines, so the thread must wake now and then.
            LONG
        }
    }
}
