//! Shared receive queue (DAT 2.0 section 6.7).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use dat_abi::*;

use crate::error::{DatError, DatResult};
use crate::handle::{Handle, Kind, Object, Pinned};
use crate::ia::{Child, Ia};
use crate::pz::Pz;
use crate::rnic::{RecvWr, Rnic, Sge, SrqToken};
use crate::users::{User, Users};

/// Shared receive queue.
pub struct Srq<R: Rnic> {
    srq: R::Srq,
    attr: DatSrqAttr,
    /// `attr` has the one it was created with.
    max_recv_dtos: AtomicI32,
    low_watermark: AtomicI32,
    failed: AtomicBool,
    handle: Handle,
    users: Users,
    pz: Arc<Pz<R>>,
    _pz_use: User,
    ia: Arc<Ia<R>>,
}

opaque_debug!(Srq {
    handle,
    attr,
    users
});

impl<R: Rnic> Object for Srq<R> {
    const KIND: Kind = Kind::Srq;
}

impl<R: Rnic> Srq<R> {
    /// `dat_srq_create`.
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
        // Another IA is another RNIC, and would wait for this queue when it closes.
        if !Arc::ptr_eq(pz.ia(), ia) {
            return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_PZ));
        }
        let pz_use = pz.use_it()?;
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
        if attr.low_watermark != DAT_SRQ_LW_DEFAULT {
            srq.set_low_watermark(attr.low_watermark)?;
        }
        ia.install(reservation, srq)
    }

    /// Its handle.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Its IA.
    pub fn ia(&self) -> &Arc<Ia<R>> {
        &self.ia
    }

    /// The RNIC's queue.
    pub fn rnic_srq(&self) -> &R::Srq {
        &self.srq
    }

    /// Keeps it from being freed: an EP takes its receives from it.
    pub fn use_it(&self) -> DatResult<User> {
        self.check_operational()?;
        self.users
            .take()
            .ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_SRQ))
    }

    /// `dat_srq_post_recv`.
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

    /// `dat_srq_query`. Its endpoints have taken `outstanding` receives for messages that are
    /// still arriving.
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

    /// Receives that are posted and that no message has taken.
    fn available(&self) -> Option<DatCount> {
        let available = self.ia.rnic().srq_available(&self.srq)?;
        Some(DatCount::try_from(available).unwrap_or(DatCount::MAX))
    }

    /// `dat_srq_resize`. Neither the receives that are posted nor the low watermark may be lost by
    /// it.
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

    /// `dat_srq_set_lw`: one event when fewer receives are left than this.
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

    /// Fewer receives are left than the low watermark.
    pub fn on_limit(&self) {
        self.tell(DAT_SRQ_LOW_WATERMARK_EVENT);
    }

    /// The RNIC's queue has failed. Told once; its endpoints fail by themselves.
    pub fn on_failed(&self) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            tracing::error!(srq = ?self.handle, "a shared receive queue failed");
            self.tell(DAT_SRQ_TRANSFER_TO_ERROR);
        }
    }

    /// DAT has reasons for a shared receive queue (`DAT_SRQ_ASYNC_ERROR_REASON`) and no event
    /// number: it comes under that of endpoints, and the handle tells the two apart.
    fn tell(&self, reason: DatAsyncErrorReason) {
        self.ia
            .post_async(DAT_ASYNC_ERROR_EP_BROKEN, self.handle.as_dat(), reason);
    }

    /// `DAT_SRQ_STATE_OPERATIONAL`, or why not.
    fn check_operational(&self) -> DatResult {
        match self.failed.load(Ordering::Acquire) {
            true => Err(DatError::invalid_state(DAT_INVALID_STATE_SRQ_ERROR)),
            false => Ok(()),
        }
    }

    /// `dat_srq_free`.
    pub fn free(this: &Pinned<Self>) -> DatResult {
        if !this.users.close() {
            return Err(DatError::invalid_state(DAT_INVALID_STATE_SRQ_IN_USE));
        }
        Self::abandon(this);
        Ok(())
    }
}

impl<R: Rnic> Child for Srq<R> {
    fn abandon(this: &Pinned<Self>) {
        if this.retire() {
            this.users.close_anyway();
            this.ia.disown(Kind::Srq, this.handle);
        }
    }
}

#[cfg(test)]
mod tests;
