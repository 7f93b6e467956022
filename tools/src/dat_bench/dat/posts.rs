//! Posts and completions, through the raw function table.

use std::time::Instant;

use anyhow::{Result, bail, ensure};
use dat_api::abi::{
    DAT_COMPLETION_DEFAULT_FLAG, DAT_DTO_COMPLETION_EVENT, DAT_DTO_SUCCESS, DAT_QUEUE_EMPTY,
    DAT_TIMEOUT_EXPIRED, DatCompletionFlags, DatContext, DatEvent, DatLmrTriplet, DatRmrTriplet,
};
use tool_args::bench::case::SIZE_MAX;

use super::{DatLink, RECV, REQUEST, SINK, SOURCE};
use crate::raw::STALL;

/// Empty polls between two checks of the clock.
const SPINS_PER_CHECK: u32 = 1 << 16;
const FLAGS: DatCompletionFlags = DAT_COMPLETION_DEFAULT_FLAG;

/// A completion, with the details that the loops need.
pub(super) enum Got {
    /// A received message, with its length in bytes.
    Message(u32),
    /// A request that this side posted.
    Request,
}

impl DatLink {
    pub(super) fn next(&mut self, sleep: bool) -> Result<Got> {
        let mut patience = Patience::default();
        loop {
            if let Some(got) = self.poll()? {
                return Ok(got);
            }
            if sleep {
                return self.wait();
            }
            patience.spend()?;
        }
    }

    #[inline]
    pub(super) fn poll(&mut self) -> Result<Option<Got>> {
        let mut event = DatEvent::zeroed();
        // SAFETY: the dispatcher lives in `self` and the event is writable.
        let code = unsafe { (self.library.dat_evd_dequeue)(self.evd_raw, &mut event) };
        if code.is_success() {
            return self.classify(&event).map(Some);
        }
        ensure!(code.is(DAT_QUEUE_EMPTY), "dat_evd_dequeue: {code:?}");
        Ok(None)
    }

    fn wait(&mut self) -> Result<Got> {
        let mut event = DatEvent::zeroed();
        let mut nmore = 0;
        let timeout_us = u32::try_from(STALL.as_micros())?;
        // SAFETY: as in `poll`; the count is writable.
        let code = unsafe {
            (self.library.dat_evd_wait)(self.evd_raw, timeout_us, 1, &mut event, &mut nmore)
        };
        let is_alive = !code.is(DAT_TIMEOUT_EXPIRED);
        ensure!(is_alive, "nothing happened for {STALL:?}");
        ensure!(code.is_success(), "dat_evd_wait: {code:?}");
        self.classify(&event)
    }

    #[inline]
    fn classify(&mut self, event: &DatEvent) -> Result<Got> {
        ensure!(event.event_number == DAT_DTO_COMPLETION_EVENT);
        // SAFETY: the number selects the member of the union that the provider filled.
        let done = unsafe { &event.event_data.dto_completion_event_data };
        ensure!(done.status == DAT_DTO_SUCCESS);
        if done.user_cookie.to_u64() == RECV {
            return Ok(Got::Message(done.transfered_length));
        }
        self.outstanding -= 1;
        Ok(Got::Request)
    }

    #[inline]
    fn local(&self, offset: usize, len: usize) -> Result<DatLmrTriplet> {
        Ok(self.region.segment(offset, len)?.to_raw())
    }

    #[inline]
    pub(super) fn repost(&mut self) -> Result<()> {
        let mut iov = self.local(SINK, SIZE_MAX)?;
        let cookie = DatContext::from_u64(RECV);
        // SAFETY: the endpoint lives in `self` and holds the region since `Parts::open` posted it;
        // the list is readable.
        let code =
            unsafe { (self.library.dat_ep_post_recv)(self.ep_raw, 1, &mut iov, cookie, FLAGS) };
        ensure!(code.is_success(), "dat_ep_post_recv: {code:?}");
        Ok(())
    }

    #[inline]
    pub(super) fn send(&mut self, len: usize) -> Result<()> {
        let mut iov = self.local(SOURCE, len)?;
        let cookie = DatContext::from_u64(REQUEST);
        // SAFETY: as in `repost`.
        let code =
            unsafe { (self.library.dat_ep_post_send)(self.ep_raw, 1, &mut iov, cookie, FLAGS) };
        ensure!(code.is_success(), "dat_ep_post_send: {code:?}");
        self.outstanding += 1;
        Ok(())
    }

    pub(super) fn write(&mut self, len: usize) -> Result<()> {
        self.write_from(SOURCE, SINK, len)
    }

    /// Posts an RDMA Write from one offset of this region to an offset of the peer's.
    pub(super) fn write_from(&mut self, from: usize, to: usize, len: usize) -> Result<()> {
        let mut iov = self.local(from, len)?;
        let cookie = DatContext::from_u64(REQUEST);
        let remote = self.remote_triplet(to, len)?;
        // SAFETY: as in `repost`; the remote triplet is readable.
        let code = unsafe {
            (self.library.dat_ep_post_rdma_write)(self.ep_raw, 1, &mut iov, cookie, &remote, FLAGS)
        };
        ensure!(code.is_success(), "dat_ep_post_rdma_write: {code:?}");
        self.outstanding += 1;
        Ok(())
    }

    pub(super) fn read(&mut self, len: usize) -> Result<()> {
        let mut iov = self.local(SINK, len)?;
        let cookie = DatContext::from_u64(REQUEST);
        let remote = self.remote_triplet(SOURCE, len)?;
        // SAFETY: as in `write`.
        let code = unsafe {
            (self.library.dat_ep_post_rdma_read)(self.ep_raw, 1, &mut iov, cookie, &remote, FLAGS)
        };
        ensure!(code.is_success(), "dat_ep_post_rdma_read: {code:?}");
        self.outstanding += 1;
        Ok(())
    }

    fn remote_triplet(&self, offset: usize, len: usize) -> Result<DatRmrTriplet> {
        Ok(self
            .remote
            .slice(u32::try_from(offset)?, u32::try_from(len)?)?
            .to_raw())
    }
}

/// Counts empty polls until a sample counts as stalled; checks the clock at intervals.
#[derive(Default)]
pub(super) struct Patience {
    spins: u32,
    since: Option<Instant>,
}

impl Patience {
    #[inline]
    pub(super) fn spend(&mut self) -> Result<()> {
        self.spins = self.spins.wrapping_add(1);
        if self.spins.is_multiple_of(SPINS_PER_CHECK)
            && self.since.get_or_insert_with(Instant::now).elapsed() > STALL
        {
            bail!("nothing completed for {STALL:?}");
        }
        Ok(())
    }
}
