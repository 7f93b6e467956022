//! Shared receive queue (DAT 2.0 section 6.7).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use dat_abi::*;

use crate::error::{DatError, DatResult};
use crate::handle::{self, Handle, Kind, Object, Pinned};
use crate::ia::{Child, Ia};
use crate::pz::Pz;
use crate::rnic::{RecvWr, Rnic, Sge, SrqToken};
use crate::users::{User, Users};

/// A shared receive queue.
pub struct Srq<R: Rnic> {
    srq: R::Srq,
    attr: DatSrqAttr,
    /// The current depth; `attr` contains the depth at creation.
    max_recv_dtos: AtomicI32,
    low_watermark: AtomicI32,
    failed: AtomicBool,
    handle: Handle,
    users: Users,
    pz: Arc<Pz<R>>,
    _pz_use: User,
    ia: Arc<Ia<R>>,
}

opaque_debug!(Srq<R> {
    handle,
    attr,
    users
});

impl<R: Rnic> Object for Srq<R> {
    const KIND: Kind = Kind::Srq;
}

impl<R: Rnic> Srq<R> {
    /// Implements `dat_srq_create`.
    pub fn create(ia: &Arc<Ia<R>>, pz: &Pinned<Pz<R>>, attr: &DatSrqAttr) -> DatResult<Handle> {
        let limits = ia.attr();
        if limits.srq_max == 0 {
            return Err(DatError::not_supported());
        }
        let bad = DatError::invalid_arg(3);
        let within = |value: DatCount, max: u32| {
            u32::try_from(value)
                .ok()
                .filter(|value| (1..=max).contains(value))
                .ok_or(bad)
        };
        let depth = within(attr.max_recv_dtos, limits.srq_wr_max)?;
        let max_sge = within(attr.max_recv_iov, limits.sge_max)?;
        if attr.low_watermark < 0 || attr.low_watermark > attr.max_recv_dtos {
            return Err(bad);
        }
        // Another IA is another RNIC, whose close would wait for this queue.
        if !Arc::ptr_eq(pz.ia(), ia) {
            return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_PZ));
        }
        let pz_use = pz.add_user()?;
        let reservation = ia.reserve()?;
        let token = SrqToken(reservation.handle().as_token());
        let srq = Arc::new(Self {
            srq: ia.rnic().create_srq(pz.rnic_pd(), depth, max_sge, token)?,
            attr: *attr,
            max_recv_dtos: AtomicI32::new(attr.max_recv_dtos),
            low_watermark: AtomicI32::new(DAT_SRQ_LW_DEFAULT),
            failed: AtomicBool::new(false),
            handle: reservation.handle(),
            users: Users::new(),
            pz: pz.to_arc(),
            _pz_use: pz_use,
            ia: ia.clone(),
        });
        let handle = ia.install(reservation, srq.clone())?;
        if attr.low_watermark != DAT_SRQ_LW_DEFAULT {
            // The RNIC may report the event at once. The event then finds the queue by its handle.
            let armed = srq.set_low_watermark(attr.low_watermark);
            armed.inspect_err(|_| Self::end(handle))?;
        }
        Ok(handle)
    }

    /// Ends a queue whose creation fails.
    fn end(handle: Handle) {
        if let Some(srq) = handle::pin_handle::<Self>(handle) {
            Self::abandon(&srq);
        }
    }

    /// The handle of the queue.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The IA of the queue.
    pub fn ia(&self) -> &Arc<Ia<R>> {
        &self.ia
    }

    /// The RNIC's queue.
    pub fn rnic_srq(&self) -> &R::Srq {
        &self.srq
    }

    /// Adds a use, which prevents the queue from being freed while an EP takes receives from it.
    pub fn add_user(&self) -> DatResult<User> {
        self.check_operational()?;
        self.users
            .take()
            .ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_SRQ))
    }

    /// Implements `dat_srq_post_recv`.
    pub fn post_recv(&self, sgl: &[Sge], cookie: u64) -> DatResult {
        if sgl.len() > usize::try_from(self.attr.max_recv_iov).unwrap_or(0) {
            return Err(DatError::invalid_arg(2));
        }
        self.check_operational()?;
        let wr = RecvWr {
            wr_id: cookie,
            sgl,
            signalled: true,
        };
        Ok(self.ia.rnic().post_srq_recv(&self.srq, &wr)?)
    }

    /// Implements `dat_srq_query`. `outstanding` is the number of receives that the endpoints of
    /// the queue have taken for messages that are still being received.
    pub fn query(&self, outstanding: DatCount) -> DatSrqParam {
        DatSrqParam {
            ia_handle: self.ia.consumer_handle(),
            srq_state: match self.check_operational() {
                Ok(()) => DAT_SRQ_STATE_OPERATIONAL,
                Err(_) => DAT_SRQ_STATE_ERROR,
            },
            pz_handle: self.pz.handle().as_dat(),
            max_recv_dtos: self.max_recv_dtos.load(Ordering::Relaxed),
            max_recv_iov: self.attr.max_recv_iov,
            low_watermark: self.low_watermark.load(Ordering::Relaxed),
            available_dto_count: self.available().unwrap_or(DAT_VALUE_UNKNOWN),
            outstanding_dto_count: outstanding,
        }
    }

    /// Returns the number of receives that are posted and that no message has consumed.
    fn available(&self) -> Option<DatCount> {
        let available = self.ia.rnic().srq_available(&self.srq)?;
        Some(DatCount::try_from(available).unwrap_or(DatCount::MAX))
    }

    /// Implements `dat_srq_resize`. Refused if posted receives or the low watermark would not fit.
    pub fn resize(&self, max_recv_dtos: DatCount) -> DatResult {
        self.check_operational()?;
        if max_recv_dtos == self.max_recv_dtos.load(Ordering::Relaxed) {
            return Ok(());
        }
        let low = max_recv_dtos <= self.low_watermark.load(Ordering::Relaxed);
        if low || self.available().is_some_and(|held| max_recv_dtos < held) {
            return Err(DatError::of(DAT_INVALID_STATE));
        }
        let limit = self.ia.attr().srq_wr_max;
        let depth = u32::try_from(max_recv_dtos)
            .ok()
            .filter(|depth| *depth <= limit);
        let depth = depth.ok_or(DatError::invalid_arg(2))?;
        self.ia.rnic().resize_srq(&self.srq, depth)?;
        self.max_recv_dtos.store(max_recv_dtos, Ordering::Relaxed);
        Ok(())
    }

    /// Implements `dat_srq_set_lw`: requests one event when fewer receives than this remain.
    pub fn set_low_watermark(&self, low_watermark: DatCount) -> DatResult {
        let within = 0..=self.max_recv_dtos.load(Ordering::Relaxed);
        let limit = u32::try_from(low_watermark)
            .ok()
            .filter(|_| within.contains(&low_watermark));
        let limit = limit.ok_or(DatError::invalid_arg(2))?;
        self.check_operational()?;
        self.ia.rnic().arm_srq(&self.srq, limit)?;
        self.low_watermark.store(low_watermark, Ordering::Relaxed);
        Ok(())
    }

    /// Called when fewer receives remain than the low watermark.
    pub fn on_limit(&self) {
        self.report(DAT_SRQ_LOW_WATERMARK_EVENT);
    }

    /// Called when the RNIC's queue has failed. Reports the failure once; the endpoints fail
    /// separately.
    pub fn on_failed(&self) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            tracing::error!(srq = ?self.handle, "a shared receive queue failed");
            self.report(DAT_SRQ_TRANSFER_TO_ERROR);
        }
    }

    /// Posts an event of the queue. DAT has reasons for a shared receive queue
    /// (`DAT_SRQ_ASYNC_ERROR_REASON`) but no event number for it. So the event number is that of
    /// endpoints, and the handle identifies the queue.
    fn report(&self, reason: DatAsyncErrorReason) {
        self.ia
            .post_async(DAT_ASYNC_ERROR_EP_BROKEN, self.handle.as_dat(), reason);
    }

    /// Returns an error unless the state is `DAT_SRQ_STATE_OPERATIONAL`.
    fn check_operational(&self) -> DatResult {
        match self.failed.load(Ordering::Acquire) {
            true => Err(DatError::invalid_state(DAT_INVALID_STATE_SRQ_ERROR)),
            false => Ok(()),
        }
    }

    /// Implements `dat_srq_free`.
    pub fn free(this: &Pinned<Self>) -> DatResult {
        if !this.users.close() {
            return Err(DatError::invalid_state(DAT_INVALID_STATE_SRQ_IN_USE));
        }
        Self::abandon(this);
        Ok(())
    }
}

impl<R: Rnic> Child for Srq<R> {
    fn on_retired(this: &Pinned<Self>) {
        this.users.close_anyway();
        this.ia.disown(Kind::Srq, this.handle);
    }
}

#[cfg(test)]
mod tests;
