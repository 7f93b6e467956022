//! The objects that an endpoint uses.

use std::sync::Arc;

use dat_abi::*;

use crate::error::{DatError, DatResult};
use crate::evd::Evd;
use crate::handle::{self, Handle};
use crate::ia::Ia;
use crate::pz::Pz;
use crate::rnic::Rnic;
use crate::srq::Srq;
use crate::users::User;

/// The objects that `dat_ep_create` names; `None` for a null handle.
#[derive(Debug)]
pub struct EpParts<R: Rnic> {
    /// Protection zone.
    pub pz: Option<Arc<Pz<R>>>,
    /// EVD of receive completions.
    pub recv_evd: Option<Arc<Evd<R>>>,
    /// EVD of request completions.
    pub request_evd: Option<Arc<Evd<R>>>,
    /// EVD of connection events.
    pub connect_evd: Option<Arc<Evd<R>>>,
    /// Shared receive queue.
    pub srq: Option<Arc<Srq<R>>>,
}

impl<R: Rnic> EpParts<R> {
    /// Creates the parts of an endpoint that the provider creates: none.
    #[must_use]
    pub fn none() -> Self {
        Self {
            pz: None,
            recv_evd: None,
            request_evd: None,
            connect_evd: None,
            srq: None,
        }
    }
}

/// An object that is in use and cannot be freed while this value exists.
#[derive(Debug)]
pub(crate) struct Held<T> {
    object: Arc<T>,
    _user: User,
}

impl<T> Held<T> {
    pub(crate) fn object(&self) -> &Arc<T> {
        &self.object
    }
}

impl<R: Rnic> Held<Evd<R>> {
    /// Uses an EVD that accepts events of the stream `flag`. The EVD may belong to any IA, because
    /// dapltest shares one EVD of connection events between endpoints of several IAs.
    pub(crate) fn evd(
        evd: Arc<Evd<R>>,
        flag: DatEvdFlags,
        subtype: DatReturnSubtype,
    ) -> DatResult<Self> {
        if !evd.has(flag) {
            return Err(DatError::invalid_handle(subtype));
        }
        let user = evd
            .add_user()
            .map_err(|_| DatError::invalid_handle(subtype))?;
        Ok(Self {
            object: evd,
            _user: user,
        })
    }
}

/// The parts of an endpoint, each protected from being freed.
#[derive(Debug)]
pub(crate) struct HeldParts<R: Rnic> {
    pub(crate) pz: Option<Held<Pz<R>>>,
    pub(crate) recv_evd: Option<Held<Evd<R>>>,
    pub(crate) request_evd: Option<Held<Evd<R>>>,
    pub(crate) connect_evd: Option<Held<Evd<R>>>,
    pub(crate) srq: Option<Held<Srq<R>>>,
}

impl<R: Rnic> HeldParts<R> {
    pub(crate) fn none() -> Self {
        Self {
            pz: None,
            recv_evd: None,
            request_evd: None,
            connect_evd: None,
            srq: None,
        }
    }

    /// Marks all parts as used. The parts of the queue pair must belong to `ia`, because another IA
    /// is another RNIC.
    pub(crate) fn hold(ia: &Arc<Ia<R>>, parts: EpParts<R>) -> DatResult<Self> {
        let evd =
            |evd: Option<Arc<_>>, role: EvdRole| evd.map(|evd| role.hold(ia, evd)).transpose();
        Ok(Self {
            pz: parts.pz.map(|pz| hold_pz(ia, pz)).transpose()?,
            connect_evd: evd(parts.connect_evd, CONNECT)?,
            recv_evd: evd(parts.recv_evd, RECV)?,
            request_evd: evd(parts.request_evd, REQUEST)?,
            srq: parts.srq.map(|srq| hold_srq(ia, srq)).transpose()?,
        })
    }

    /// Returns true if the endpoint is to have a queue pair before it connects: it has a protection
    /// zone and an EVD for completions.
    pub(crate) fn suffice_for_queue_pair(&self) -> bool {
        self.pz.is_some() && (self.recv_evd.is_some() || self.request_evd.is_some())
    }

    /// Returns true if the endpoint has all parts that it may have.
    pub(crate) fn are_complete(&self) -> bool {
        self.pz.is_some()
            && self.recv_evd.is_some()
            && self.request_evd.is_some()
            && self.connect_evd.is_some()
    }

    /// Iterates over the EVDs; an EVD with several roles is returned for each of them.
    pub(crate) fn evds(&self) -> impl Iterator<Item = &Arc<Evd<R>>> {
        [&self.recv_evd, &self.request_evd, &self.connect_evd]
            .into_iter()
            .flatten()
            .map(Held::object)
    }
}

/// The role of an EVD in an endpoint: the stream that the EVD must accept, and the subtype of the
/// error otherwise.
#[derive(Clone, Copy)]
struct EvdRole(DatEvdFlags, DatReturnSubtype);

const CONNECT: EvdRole = EvdRole(DAT_EVD_CONNECTION_FLAG, DAT_INVALID_HANDLE_EVD_CONN);
const RECV: EvdRole = EvdRole(DAT_EVD_DTO_FLAG, DAT_INVALID_HANDLE_EVD_RECV);
const REQUEST: EvdRole = EvdRole(DAT_EVD_DTO_FLAG, DAT_INVALID_HANDLE_EVD_REQUEST);

impl EvdRole {
    fn hold<R: Rnic>(self, ia: &Arc<Ia<R>>, evd: Arc<Evd<R>>) -> DatResult<Held<Evd<R>>> {
        let has_completions = self.0 == DAT_EVD_DTO_FLAG;
        if has_completions && !Arc::ptr_eq(evd.ia(), ia) {
            return Err(DatError::invalid_handle(self.1));
        }
        Held::evd(evd, self.0, self.1)
    }
}

fn hold_pz<R: Rnic>(ia: &Arc<Ia<R>>, pz: Arc<Pz<R>>) -> DatResult<Held<Pz<R>>> {
    if !Arc::ptr_eq(pz.ia(), ia) {
        return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_PZ));
    }
    let user = pz.add_user()?;
    Ok(Held {
        object: pz,
        _user: user,
    })
}

fn hold_srq<R: Rnic>(ia: &Arc<Ia<R>>, srq: Arc<Srq<R>>) -> DatResult<Held<Srq<R>>> {
    if !Arc::ptr_eq(srq.ia(), ia) {
        return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_SRQ));
    }
    let user = srq.add_user()?;
    Ok(Held {
        object: srq,
        _user: user,
    })
}

/// The parts that a `dat_ep_modify` replaces. The outer `Option` is `Some` for a replaced part; the
/// inner `Option` is the new part.
#[derive(Debug)]
pub(crate) struct NewParts<R: Rnic> {
    pub(crate) pz: Option<Option<Held<Pz<R>>>>,
    pub(crate) recv_evd: Option<Option<Held<Evd<R>>>>,
    pub(crate) request_evd: Option<Option<Held<Evd<R>>>>,
    pub(crate) connect_evd: Option<Option<Held<Evd<R>>>>,
}

impl<R: Rnic> NewParts<R> {
    /// Looks up the handles of `param` that `mask` names. The error for an invalid handle is
    /// `DAT_INVALID_ARG3`, because the handle is in the parameter structure.
    pub(crate) fn look_up(
        ia: &Arc<Ia<R>>,
        mask: DatEpParamMask,
        param: &DatEpParam,
    ) -> DatResult<Self> {
        let evd = |bit: DatEpParamMask, evd, role: EvdRole| {
            find(mask & bit != 0, evd, |evd| role.hold(ia, evd))
        };
        let pz = mask & DAT_EP_FIELD_PZ_HANDLE != 0;
        Ok(Self {
            pz: find(pz, param.pz_handle, |pz| hold_pz(ia, pz))?,
            recv_evd: evd(DAT_EP_FIELD_RECV_EVD_HANDLE, param.recv_evd_handle, RECV)?,
            request_evd: evd(
                DAT_EP_FIELD_REQUEST_EVD_HANDLE,
                param.request_evd_handle,
                REQUEST,
            )?,
            connect_evd: evd(
                DAT_EP_FIELD_CONNECT_EVD_HANDLE,
                param.connect_evd_handle,
                CONNECT,
            )?,
        })
    }

    /// Returns true if the change requires another queue pair.
    pub(crate) fn affect_queue_pair(&self) -> bool {
        self.pz.is_some() || self.recv_evd.is_some() || self.request_evd.is_some()
    }

    /// Returns, after [`swap_into`](Self::swap_into), the EVD that no longer receives connection
    /// events.
    pub(crate) fn replaced_connect_evd(&self, current: &HeldParts<R>) -> Option<&Arc<Evd<R>>> {
        let old = self.connect_evd.as_ref()?.as_ref()?.object();
        let current = current.connect_evd.as_ref().map(Held::object);
        current
            .is_none_or(|current| !Arc::ptr_eq(current, old))
            .then_some(old)
    }

    /// Exchanges the parts in `current`; afterwards `self` contains the old parts.
    pub(crate) fn swap_into(&mut self, current: &mut HeldParts<R>) {
        swap(&mut self.pz, &mut current.pz);
        swap(&mut self.recv_evd, &mut current.recv_evd);
        swap(&mut self.request_evd, &mut current.request_evd);
        swap(&mut self.connect_evd, &mut current.connect_evd);
    }
}

fn swap<T>(new: &mut Option<T>, current: &mut T) {
    if let Some(new) = new {
        std::mem::swap(new, current);
    }
}

fn find<T: handle::Object>(
    is_named: bool,
    handle: DatHandle,
    hold: impl FnOnce(Arc<T>) -> DatResult<Held<T>>,
) -> DatResult<Option<Option<Held<T>>>> {
    if !is_named {
        return Ok(None);
    }
    if handle.is_null() {
        return Ok(Some(None));
    }
    let bad = DatError::invalid_arg(3);
    let object = handle::pin::<T>(handle).ok_or(bad)?.to_arc();
    hold(object).map(|held| Some(Some(held))).map_err(|_| bad)
}

/// Returns the handle of a part for C; null if there is none.
pub(crate) fn handle_of<T>(part: Option<&Held<T>>, handle: impl Fn(&T) -> Handle) -> DatHandle {
    part.map_or(DAT_HANDLE_NULL, |part| handle(&part.object).as_dat())
}
