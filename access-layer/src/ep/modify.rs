//! `dat_ep_modify`, and the creation of the queue pair.
//!
//! The queue pair is created as soon as the endpoint has a protection zone and an EVD for
//! completions: at the creation of the endpoint, or by the modify that sets the last of them. A
//! later change of these values creates another queue pair, which is legal only while the endpoint
//! has no connection.

use std::sync::Arc;

use dat_abi::*;
use host::locks::IgnorePoison as _;

use super::parts::{Held, NewParts};
use super::{Ep, Inner, QueuePair};
use crate::error::{DatError, DatResult};
use crate::evd::Evd;
use crate::handle::Pinned;
use crate::pz::Pz;
use crate::rnic::{QpToken, Rnic};

/// Members that a consumer cannot change.
const READ_ONLY: DatEpParamMask = DAT_EP_FIELD_IA_HANDLE
    | DAT_EP_FIELD_EP_STATE
    | DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR
    | DAT_EP_FIELD_LOCAL_PORT_QUAL
    | DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR
    | DAT_EP_FIELD_REMOTE_PORT_QUAL
    | DAT_EP_FIELD_SRQ_HANDLE;

impl<R: Rnic> Ep<R> {
    /// Implements `dat_ep_modify`: applies every member that `mask` names, or none.
    pub fn modify(&self, mask: DatEpParamMask, param: &DatEpParam) -> DatResult {
        if mask & READ_ONLY != 0 || mask & !DAT_EP_FIELD_ALL != 0 {
            return Err(DatError::invalid_arg(2));
        }
        // The replaced parts are dropped after the lock is released.
        let mut parts = NewParts::look_up(&self.ia, mask, param)?;
        self.begin(|inner| {
            if mask & DAT_EP_FIELD_PZ_HANDLE != 0 {
                inner.machine.may_modify_pz()?;
            }
            if mask & !DAT_EP_FIELD_PZ_HANDLE != 0 {
                inner.machine.may_modify_rest()?;
            }
            let before = (inner.attrs, inner.comm);
            parts.swap_into(&mut inner.parts);
            let done = self.apply(inner, mask, param, parts.affect_queue_pair());
            if done.is_err() {
                parts.swap_into(&mut inner.parts);
                (inner.attrs, inner.comm) = before;
                return done;
            }
            // Only the current EVD is searched for unread events when the private data is replaced.
            // So the pointers in the events of the old EVD are cleared here.
            if let Some(old_evd) = parts.replaced_connect_evd(&inner.parts) {
                old_evd.cut_private_data_of(self.handle);
            }
            done
        })
    }

    /// Destroys the replaced queue pairs, unless another call uses the endpoint at the moment. If
    /// they were kept, the cell of an endpoint that is modified often would fill up.
    pub(crate) fn destroy_replaced(this: &Pinned<Self>) {
        let rnic = this.ia.rnic();
        let is_alone = || this.pin_count() == 1;
        let is_idle = |replaced: &QueuePair<R>| rnic.pending(&replaced.qp) == (0, 0);
        // SAFETY: references to queue pairs are used only by calls that have pinned the endpoint.
        // The only pin is that of the caller, which has no such reference.
        let replaced = unsafe { this.queue_pair.take_replaced(is_alone, is_idle) };
        let traffic = replaced.iter().filter_map(|it| rnic.traffic(&it.qp));
        let mut sum = this.replaced_traffic.lock().ignore_poison();
        traffic.for_each(|traffic| *sum += traffic);
    }

    fn apply(
        &self,
        inner: &mut Inner<R>,
        mask: DatEpParamMask,
        param: &DatEpParam,
        parts_concern_qp: bool,
    ) -> DatResult {
        let limits = self.ia.attr();
        let before = inner.attrs;
        let bad = DatError::invalid_arg(3);
        inner.attrs.apply(mask, &param.ep_attr, limits).ok_or(bad)?;
        let (recv, request) = (
            inner.parts.recv_evd.is_some(),
            inner.parts.request_evd.is_some(),
        );
        inner.attrs.fill_defaults(recv, request, limits);
        inner
            .attrs
            .check_evds(recv || inner.parts.srq.is_some(), request)
            .map_err(|_| bad)?;
        if mask & DAT_EP_FIELD_COMM != 0 {
            inner.comm = param.comm;
        }
        let attrs_concern_qp = before.qp_attr(limits) != inner.attrs.qp_attr(limits)
            || before.segment_limits(limits) != inner.attrs.segment_limits(limits);
        if parts_concern_qp || attrs_concern_qp {
            self.replace_queue_pair(inner)?;
        } else if before.soft_watermark() != inner.attrs.soft_watermark()
            && let Some(queue_pair) = self.queue_pair.get()
        {
            self.watch_receives(inner, queue_pair)?;
        }
        Ok(())
    }

    /// Passes the watermarks to the RNIC: limits of the number of receives that the endpoint takes
    /// from its shared receive queue.
    fn watch_receives(&self, inner: &Inner<R>, queue_pair: &QueuePair<R>) -> DatResult {
        if !queue_pair.shares_receives {
            return Ok(());
        }
        let (soft, hard) = (inner.attrs.soft_watermark(), inner.hard_watermark);
        Ok(self
            .ia
            .rnic()
            .set_recv_watermarks(&queue_pair.qp, soft, hard)?)
    }

    /// Replaces the queue pair, or creates the first one.
    fn replace_queue_pair(&self, inner: &Inner<R>) -> DatResult {
        let Some(queue_pair) = self.queue_pair.get() else {
            return self.create_queue_pair(inner);
        };
        if !inner.parts.suffice_for_queue_pair() {
            return Err(DatError::invalid_arg(3));
        }
        // Posted receives belong to the queue pair and cannot be moved to another one.
        if self.ia.rnic().pending(&queue_pair.qp) != (0, 0) {
            return Err(super::WrongState(inner.machine.state()).into());
        }
        self.create_queue_pair(inner)
    }

    /// Creates the queue pair if the endpoint has the parts for it.
    pub(super) fn create_queue_pair(&self, inner: &Inner<R>) -> DatResult {
        match &inner.parts.pz {
            Some(pz) if inner.parts.suffice_for_queue_pair() => self.create_in(pz, inner),
            _ => Ok(()),
        }
    }

    /// Creates the queue pair of an endpoint that is about to connect, unless it has one. As with
    /// OFA's providers an endpoint may connect without an EVD for receives, for requests, or for
    /// both. Nothing can be posted to a side without an EVD.
    pub(super) fn ensure_queue_pair(&self, inner: &Inner<R>) -> DatResult {
        match &inner.parts.pz {
            Some(pz) if self.queue_pair.get().is_none() => self.create_in(pz, inner),
            Some(_) => Ok(()),
            None => Err(super::connect::NOT_READY),
        }
    }

    fn create_in(&self, pz: &Held<Pz<R>>, inner: &Inner<R>) -> DatResult {
        let parts = &inner.parts;
        if !self.queue_pair.has_room() {
            return Err(DatError::no_resources(DAT_RESOURCE_TEP));
        }
        let limits = self.ia.attr();
        let send = parts.request_evd.as_ref().map(Held::object);
        let recv = parts.recv_evd.as_ref().map(Held::object);
        let srq = parts.srq.as_ref().map(Held::object);
        let qp = self.ia.rnic().create_qp(
            pz.object().rnic_pd(),
            send.and_then(|evd| evd.cq()),
            recv.and_then(|evd| evd.cq()),
            srq.map(|srq| srq.rnic_srq()),
            &inner.attrs.qp_attr(limits),
            QpToken(self.handle.as_token()),
        )?;
        let segments = inner.attrs.segment_limits(limits);
        let queue_pair = QueuePair {
            qp,
            segments,
            shares_receives: srq.is_some(),
        };
        if inner.attrs.soft_watermark().is_some() || inner.hard_watermark.is_some() {
            self.watch_receives(inner, &queue_pair)?;
        }
        let full = DatError::no_resources(DAT_RESOURCE_TEP);
        self.queue_pair.replace(queue_pair).map_err(|_| full)?;
        attach(send, inner.attrs.request_completion_flags);
        attach(recv, inner.attrs.recv_completion_flags);
        Ok(())
    }
}

fn attach<R: Rnic>(evd: Option<&Arc<Evd<R>>>, flags: DatCompletionFlags) {
    if let Some(evd) = evd {
        evd.attach(flags, Ep::<R>::on_taken);
    }
}
