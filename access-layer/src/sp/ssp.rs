//! Socket service point: a connection request over a socket that the consumer has connected
//! (iWARP Transport Specific Extensions for DAT 2.0, sections 3.1.1 to 3.1.3).

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard};

use dat_abi::*;
use host::locks::IgnorePoison as _;

use super::{
    Arrival, arrival_event, check_ep, hold_cr_evd, log_refusal, make_reserved_cr, post_only_request,
};
use crate::consumer_socket::{ConsumerSocket, Owner};
use crate::cr::{Cr, Pending};
use crate::ep::state::SpId;
use crate::ep::{Ep, Held};
use crate::error::{DatError, DatResult};
use crate::evd::Evd;
use crate::handle::{self, Handle, Kind, Object, Pinned};
use crate::ia::{Child, Ia};
use crate::rnic::{ListenToken, RequestInfo, Rnic};

/// The socket number that `dat_iw_ssp_query` returns when no socket is associated any more.
const NO_SOCKET: DatIwSocket = -1;

/// Arguments of `dat_iw_ssp_create`, except for the IA.
pub(crate) struct SspArgs<'a, R: Rnic> {
    /// The consumer's socket.
    pub(crate) socket: RawFd,
    /// The endpoint to reserve; `None` lets the provider create one.
    pub(crate) ep: Option<Pinned<Ep<R>>>,
    /// EVD of the connection request.
    pub(crate) evd: Arc<Evd<R>>,
    /// Message to send before the MPA request is awaited.
    pub(crate) final_message: &'a [u8],
}

/// A socket service point.
pub struct Ssp<R: Rnic> {
    handle: Handle,
    ep: Handle,
    inner: Mutex<Inner<R>>,
    ia: Arc<Ia<R>>,
}

opaque_debug!(Ssp<R> { handle, ep });

struct Inner<R: Rnic> {
    state: State<R::ArmedSocket>,
    /// `None` once freed.
    evd: Option<Held<Evd<R>>>,
}

/// "typedef enum dat_iw_ssp_state" (section 2.2.3); `A` is the RNIC's object for a socket that it
/// watches. The `on_*` methods are the only writers.
#[derive(Debug, PartialEq, Eq)]
enum State<A> {
    /// The socket belongs to the service point and a connection request may be received.
    Operational {
        socket: ConsumerSocket,
        /// `None` only until the RNIC has taken the socket.
        armed: Option<A>,
    },
    /// "Once the SSP is in non-operational state it can not be used for connection establishment
    /// and cannot be associated with a socket."
    NonOperational,
}

impl<A> State<A> {
    /// Called when the RNIC has taken the socket. Returns the RNIC's object if an event or a free
    /// happened before, because the object is no longer needed.
    fn on_armed(&mut self, taken: A) -> Option<A> {
        match self {
            Self::Operational { armed, .. } if armed.is_none() => {
                *armed = Some(taken);
                None
            }
            Self::Operational { .. } | Self::NonOperational => Some(taken),
        }
    }

    /// Called when the connection request was received: "The SSP transitions into non-operational
    /// state and socket is no longer associated with SSP. The socket become associated with the
    /// CR".
    fn on_request(&mut self) -> Option<ConsumerSocket> {
        self.end_operation(ConsumerSocket::on_request)
            .map(|(socket, _)| socket)
    }

    /// "If the socket becomes disconnected then the SSP transitions into non-operational state".
    fn on_down(&mut self) -> bool {
        self.end_operation(ConsumerSocket::on_down).is_some()
    }

    /// "If the socket is still associated with the SSP when the call is made then the socket
    /// reverts back to its previous owner."
    fn on_freed(&mut self) -> Option<A> {
        self.end_operation(ConsumerSocket::on_ssp_freed)
            .and_then(|(_, armed)| armed)
    }

    /// Called when the RNIC has refused the socket.
    fn on_arm_failed(&mut self) -> bool {
        self.on_down()
    }

    fn end_operation(
        &mut self,
        pass: impl FnOnce(&mut ConsumerSocket),
    ) -> Option<(ConsumerSocket, Option<A>)> {
        match std::mem::replace(self, Self::NonOperational) {
            Self::Operational { mut socket, armed } => {
                pass(&mut socket);
                Some((socket, armed))
            }
            Self::NonOperational => None,
        }
    }
}

impl<R: Rnic> Object for Ssp<R> {
    const KIND: Kind = Kind::Ssp;
}

impl<R: Rnic> Ssp<R> {
    /// Implements `dat_iw_ssp_create` (section 3.1.1).
    pub(crate) fn create(ia: &Arc<Ia<R>>, args: SspArgs<'_, R>) -> DatResult<Handle> {
        let evd = hold_cr_evd(ia, args.evd)?;
        let reservation = ia.reserve()?;
        let sp = SpId(reservation.handle().as_token());
        let ep = reserve_ep(ia, args.ep, sp)?;
        let mut socket = ConsumerSocket::new(args.socket);
        socket.on_armed();
        let ssp = Arc::new(Self {
            handle: reservation.handle(),
            ep: ep.handle(),
            inner: Mutex::new(Inner {
                state: State::Operational {
                    socket,
                    armed: None,
                },
                evd: Some(evd),
            }),
            ia: ia.clone(),
        });
        let ssp = ia
            .install(reservation, ssp)
            .inspect_err(|_| Ep::release(&ep, sp))
            .map(handle::pin_handle::<Self>)?
            .ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_IA))?;
        ssp.arm(args.socket, args.final_message)?;
        Ok(ssp.handle)
    }

    /// Implements `dat_iw_ssp_query` (section 3.1.3). "The Provider can return values for any other
    /// parameters."
    pub(crate) fn query(&self, mask: DatIwSspParamMask) -> DatResult<DatIwSspParam> {
        if mask & !DAT_IW_SSP_FIELD_ALL != 0 {
            return Err(DatError::invalid_arg(2));
        }
        let inner = self.lock();
        let (socket_id, ssp_state) = match &inner.state {
            State::Operational { socket, .. } => (socket.id(), DAT_IW_SSP_STATE_OPERATIONAL),
            State::NonOperational => (NO_SOCKET, DAT_IW_SSP_STATE_NON_OPERATIONAL),
        };
        Ok(DatIwSspParam {
            ia_handle: self.ia.consumer_handle(),
            socket_id,
            evd_handle: inner
                .evd
                .as_ref()
                .map_or(DAT_HANDLE_NULL, |evd| evd.object().handle().as_dat()),
            ep_handle: self.ep.as_dat(),
            ssp_state,
        })
    }

    /// Implements `dat_iw_ssp_free` (section 3.1.2). "The destruction of SSP has no effect on the
    /// connectivity of its socket", and none on a connection request that was delivered.
    pub(crate) fn free(this: &Pinned<Self>) -> DatResult {
        let ended = Self::abandon(this).then_some(());
        ended.ok_or(DatError::invalid_handle(DAT_NO_SUBTYPE))
    }

    /// Called when the peer has sent its MPA request: the one connection request of this service
    /// point.
    pub(crate) fn on_request(&self, request: R::ConnReq, info: &RequestInfo<'_>) {
        // The lock is held until the request has been delivered, so a free happens either before or
        // after the delivery: "either a Connection Requested Event was generated [...] or the
        // Connection Request is rejected by the Provider without any local notification" (section
        // 3.1.2).
        let mut inner = self.lock();
        let Some(evd) = inner.evd.as_ref().map(|evd| evd.object().clone()) else {
            return;
        };
        // Dropping the request rejects it.
        let Some(socket) = inner.state.on_request() else {
            return;
        };
        // "Socket Service Point Connection Qualifier [we need to decide what to return for it]":
        // the local port of the socket, to which the peer is connected.
        let conn_qual = u64::from(info.local.port());
        match self.make_cr(request, socket, info) {
            Ok(cr) => post_only_request(&self.ia, &evd, &cr, self.handle, conn_qual, info),
            Err(error) => log_refusal(self.handle, error),
        }
    }

    /// Called when the socket was lost, or the bytes received over it were not an MPA request.
    pub(crate) fn on_socket_down(&self) {
        let evd = {
            let mut inner = self.lock();
            if !inner.state.on_down() {
                return;
            }
            inner.evd.as_ref().map(|evd| evd.object().clone())
        };
        tracing::info!(ssp = ?self.handle, "socket down");
        let Some(evd) = evd else { return };
        let arrival = Arrival {
            sp: self.handle,
            conn_qual: 0,
            cr: None,
            truncated: false,
        };
        evd.post(arrival_event(
            &self.ia,
            DAT_CONNECTION_EVENT_SOCKET_DOWN,
            &arrival,
        ));
    }

    fn make_cr(
        &self,
        request: R::ConnReq,
        socket: ConsumerSocket,
        info: &RequestInfo<'_>,
    ) -> DatResult<Arc<Cr<R>>> {
        debug_assert_eq!(socket.owner(), Owner::Cr);
        let pending = Pending {
            request,
            socket: Some(socket),
        };
        make_reserved_cr(&self.ia, self.handle, self.ep, pending, info)
    }

    fn lock(&self) -> MutexGuard<'_, Inner<R>> {
        self.inner.lock().ignore_poison()
    }
}

/// "The value DAT_HANDLE_NULL requests the Provider to associate a Provider-created Endpoint with
/// this Service Point."
fn reserve_ep<R: Rnic>(
    ia: &Arc<Ia<R>>,
    given: Option<Pinned<Ep<R>>>,
    sp: SpId,
) -> DatResult<Pinned<Ep<R>>> {
    match given {
        Some(ep) => {
            check_ep(ia, &ep)?;
            ep.reserve(sp)?;
            Ok(ep)
        }
        None => handle::pin_handle(Ep::create_reserved(ia, sp)?)
            .ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_IA)),
    }
}

impl<R: Rnic> Pinned<Ssp<R>> {
    /// Passes the socket to the RNIC, or ends the service point on failure. "Since socket
    /// connection can fail at any time Consumer must be ready for the SSP to be created in the
    /// non-operational state": the RNIC then reports the socket down before this method returns.
    fn arm(&self, socket: RawFd, final_message: &[u8]) -> DatResult {
        let token = ListenToken(self.handle.as_token());
        match self.ia.rnic().arm_socket(socket, final_message, token) {
            Ok(taken) => {
                let late = self.lock().state.on_armed(taken);
                if let Some(late) = late {
                    // After an event there is nothing left to disarm. After a free the socket has
                    // returned to the consumer.
                    let _ = self.ia.rnic().disarm_socket(late);
                }
                Ok(())
            }
            Err(fault) => {
                self.lock().state.on_arm_failed();
                Child::abandon(self);
                Err(fault.into())
            }
        }
    }
}

impl<R: Rnic> Child for Ssp<R> {
    fn on_retired(this: &Pinned<Self>) {
        let (armed, evd) = {
            let mut inner = this.lock();
            (inner.state.on_freed(), inner.evd.take())
        };
        if let Some(armed) = armed {
            // `false` means that an event of the socket is still under way; it will find the handle
            // retired.
            let _ = this.ia.rnic().disarm_socket(armed);
        }
        drop(evd);
        if let Some(ep) = handle::pin_handle::<Ep<R>>(this.ep) {
            Ep::release(&ep, SpId(this.handle.as_token()));
        }
        this.ia.disown(Kind::Ssp, this.handle);
    }
}

#[cfg(test)]
mod tests {
    use super::State::NonOperational;
    use super::*;

    type Make = fn() -> State<u32>;

    const SOCKET: RawFd = 17;

    fn operational(armed: Option<u32>) -> State<u32> {
        let mut socket = ConsumerSocket::new(SOCKET);
        socket.on_armed();
        State::Operational { socket, armed }
    }

    #[test]
    fn every_event_in_every_state() {
        let rows: [(Make, bool, _, _); 3] = [
            // (state, true if it has the socket, state after arming and result, object to disarm
            // after a free)
            (
                || operational(None),
                true,
                (None, operational(Some(2))),
                None,
            ),
            (
                || operational(Some(1)),
                true,
                (Some(2), operational(Some(1))),
                Some(1),
            ),
            (|| NonOperational, false, (Some(2), NonOperational), None),
        ];
        for (state, has_socket, armed, disarm) in rows {
            let what = state();
            let mut after = state();
            assert_eq!((after.on_armed(2), after), armed, "{what:?}");
            let mut after = state();
            let owner = after.on_request().map(|socket| socket.owner());
            assert_eq!(owner, has_socket.then_some(Owner::Cr));
            assert_eq!(after, NonOperational);
            let mut after = state();
            let down = (after.on_down(), after);
            assert_eq!(down, (has_socket, NonOperational), "{what:?}");
            let mut after = state();
            let failed = (after.on_arm_failed(), after);
            assert_eq!(failed, (has_socket, NonOperational), "{what:?}");
            let mut after = state();
            let freed = (after.on_freed(), after);
            assert_eq!(freed, (disarm, NonOperational), "{what:?}");
        }
    }
}
