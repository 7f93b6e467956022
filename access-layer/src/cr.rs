//! Connection request: a peer that waits for an answer (DAT 2.0 section 6.5, `dat_cr_*`).
//!
//! A request is answered once. Its handle is retired when accept or reject returns success, or when
//! the RNIC could not continue with the request. Until then the consumer may read and write the
//! private data of the request.

mod answer;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use dat_abi::*;
use host::locks::IgnorePoison as _;

use self::answer::Answer;
use crate::addr::SharedAddress;
use crate::consumer_socket::ConsumerSocket;
use crate::ep::private_data::PrivateData;
use crate::ep::state::{CrId, Creator};
use crate::ep::{Acceptance, Ep, check_private_data};
use crate::error::{DatError, DatResult};
use crate::handle::{self, Handle, Kind, Object, Pinned, Reservation};
use crate::ia::{Child, Ia};
use crate::rnic::{RequestInfo, Rnic, RnicError};

/// A connection request.
pub struct Cr<R: Rnic> {
    handle: Handle,
    local: SocketAddr,
    remote: SocketAddr,
    remote_for_c: SharedAddress,
    private_data: PrivateData,
    /// True if the peer's private data was longer than the supported length and has been truncated.
    truncated: bool,
    /// Endpoint that belongs to the request: that of a reserved or socket service point, or an
    /// endpoint that the provider created.
    ep: Option<Handle>,
    answer: Mutex<Answer<Pending<R>>>,
    ia: Arc<Ia<R>>,
}

opaque_debug!(Cr<R> { handle, remote, ep });

/// The RNIC's request and the socket, until the answer.
pub(crate) struct Pending<R: Rnic> {
    pub(crate) request: R::ConnReq,
    /// The consumer's socket over which the request was received.
    pub(crate) socket: Option<ConsumerSocket>,
}

impl<R: Rnic> Pending<R> {
    /// Refuses the peer in the same way as a service that does not exist.
    fn refuse(mut self) {
        drop(self.request);
        if let Some(socket) = &mut self.socket {
            socket.on_rejected();
        }
    }
}

/// Data from which a service point creates a connection request.
pub(crate) struct NewCr<R: Rnic> {
    pub(crate) pending: Pending<R>,
    pub(crate) ep: Option<Handle>,
}

impl<R: Rnic> Object for Cr<R> {
    const KIND: Kind = Kind::Cr;
}

impl<R: Rnic> Cr<R> {
    /// Publishes a connection request. On failure the peer is refused.
    pub(crate) fn install(
        ia: &Arc<Ia<R>>,
        reservation: Reservation,
        new: NewCr<R>,
        info: &RequestInfo<'_>,
    ) -> DatResult<Arc<Self>> {
        let remote_for_c = SharedAddress::new();
        remote_for_c.set(info.remote);
        let cr = Arc::new(Self {
            handle: reservation.handle(),
            local: info.local,
            remote: info.remote,
            remote_for_c,
            private_data: PrivateData::new(info.private_data),
            truncated: info.truncated,
            ep: new.ep,
            answer: Mutex::new(Answer::Waiting(new.pending)),
            ia: ia.clone(),
        });
        ia.install(reservation, cr.clone())?;
        Ok(cr)
    }

    /// The handle of the request.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Implements `dat_cr_query`. Fills all members, because consumers pass the masks of other
    /// objects.
    pub fn query(&self) -> DatCrParam {
        DatCrParam {
            remote_ia_address_ptr: self.remote_for_c.as_dat(),
            remote_port_qual: u64::from(self.remote.port()),
            private_data_size: self.private_data.len(),
            private_data: self.private_data.as_ptr(),
            local_ep_handle: self.ep.map_or(DAT_HANDLE_NULL, Handle::as_dat),
        }
    }

    /// Implements `dat_cr_accept`, with the endpoint that belongs to the request (`None`) or with
    /// an endpoint of the consumer.
    pub fn accept(
        this: &Pinned<Self>,
        ep: Option<Pinned<Ep<R>>>,
        private_data: &[u8],
    ) -> DatResult {
        check_private_data(private_data, this.ia.attr().private_data_len_max, 3)?;
        let no_ep = DatError::invalid_handle(DAT_INVALID_HANDLE_EP);
        let (ep, own) = match (this.ep, ep) {
            (Some(own), None) => (handle::pin_handle::<Ep<R>>(own).ok_or(no_ep)?, true),
            (None, Some(chosen)) if Arc::ptr_eq(chosen.ia(), &this.ia) => (chosen, false),
            _ => return Err(no_ep),
        };
        let Pending { request, socket } = this.take()?;
        let mut acceptance = Acceptance {
            cr: this.id(),
            own,
            remote: this.remote,
            socket,
        };
        let creator = match ep.begin_accept(&mut acceptance) {
            Ok(creator) => creator,
            Err(error) => {
                this.return_pending(Pending {
                    request,
                    socket: acceptance.socket,
                });
                return Err(error);
            }
        };
        let result = ep.accept_on(request, private_data);
        if result.is_ok() {
            this.ia.counters().bump(DCNT_IA_SP_CR_ACCEPTED);
            this.ia.counters().bump(DCNT_IA_CM_REP_TX);
        }
        if result.is_err() && creator == Creator::Provider {
            // The request is consumed, and the endpoint was created only for it.
            Ep::abandon(&ep);
        }
        Self::abandon(this);
        result
    }

    /// Implements `dat_cr_reject`.
    pub fn reject(this: &Pinned<Self>, private_data: &[u8]) -> DatResult {
        check_private_data(private_data, this.ia.attr().private_data_len_max, 2)?;
        let mut pending = this.take()?;
        let result = this.ia.rnic().reject(pending.request, private_data);
        if result.is_ok() {
            this.ia.counters().bump(DCNT_IA_SP_CR_REJECTED);
            this.ia.counters().bump(DCNT_IA_CM_USER_REJ_TX);
        }
        if let Some(socket) = &mut pending.socket {
            socket.on_rejected();
        }
        this.release_ep();
        Self::abandon(this);
        Ok(result?)
    }

    /// Passes the request to `taker`, another service point, as a new request with the current
    /// private data. The endpoint of the request returns to the consumer.
    pub(crate) fn hand_over(
        this: &Pinned<Self>,
        taker: impl FnOnce(Pending<R>, &RequestInfo<'_>) -> DatResult,
    ) -> DatResult {
        let pending = this.take()?;
        this.release_ep();
        let private_data = this.private_data.copy();
        let info = RequestInfo {
            local: this.local,
            remote: this.remote,
            private_data: &private_data,
            truncated: this.truncated,
        };
        let result = taker(pending, &info);
        Self::abandon(this);
        result
    }

    /// Passes the request, with the current private data, to the process that listens at `port`.
    /// The endpoint of the request returns to the consumer. On failure the request is unchanged.
    pub(crate) fn hand_to_process(this: &Pinned<Self>, port: u16) -> DatResult {
        let mut pending = this.take()?;
        let private_data = this.private_data.copy();
        let rnic = this.ia.rnic();
        if let Err(error) = rnic.hand_off(&mut pending.request, port, &private_data) {
            tracing::info!(cr = ?this.handle, port, %error, "the request is not handed off");
            this.return_pending(pending);
            return Err(match error {
                RnicError::InvalidArgument(_) => DatError::invalid_arg(2),
                other => other.into(),
            });
        }
        if let Some(socket) = &mut pending.socket {
            socket.on_handed_off();
        }
        this.release_ep();
        Self::abandon(this);
        Ok(())
    }

    pub(crate) fn ia(&self) -> &Arc<Ia<R>> {
        &self.ia
    }

    fn id(&self) -> CrId {
        CrId(self.handle.as_token())
    }

    /// Takes the request for an answer. Only the first caller succeeds.
    fn take(&self) -> DatResult<Pending<R>> {
        self.lock()
            .on_take()
            .ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_CR))
    }

    fn return_pending(&self, pending: Pending<R>) {
        let unanswered = self.lock().on_return(pending);
        if let Some(pending) = unanswered {
            pending.refuse();
            self.release_ep();
        }
    }

    fn release_ep(&self) {
        if let Some(ep) = self.ep.and_then(handle::pin_handle::<Ep<R>>) {
            Ep::reject(&ep, self.id());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Answer<Pending<R>>> {
        self.answer.lock().ignore_poison()
    }
}

impl<R: Rnic> Child for Cr<R> {
    fn on_retired(this: &Pinned<Self>) {
        let unanswered = this.lock().on_over();
        if let Some(pending) = unanswered {
            pending.refuse();
            this.release_ep();
        }
        this.ia.disown(Kind::Cr, this.handle);
    }
}
