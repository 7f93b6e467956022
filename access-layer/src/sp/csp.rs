//! Common service point: listens on a transport address instead of a qualifier (DAT 2.0
//! `dat_csp_*`).
//!
//! Peers connect to the address and port, with `dat_ep_common_connect` or any other iWARP stack.
//! Requests are answered like those of a public service point.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use dat_abi::*;

use super::listening::Listening;
use super::{hold_cr_evd, log_refusal, post_request, start_listening};
use crate::addr::{SharedAddress, with_port};
use crate::cr::{Cr, NewCr, Pending};
use crate::error::{DatError, DatResult};
use crate::evd::Evd;
use crate::handle::{self, Handle, Kind, Object, Pinned};
use crate::ia::{Child, Ia};
use crate::rnic::{RequestInfo, Rnic};

/// A common service point.
pub struct Csp<R: Rnic> {
    handle: Handle,
    /// Boxed, because `dat_csp_query` returns a pointer to the communicator.
    comm: Box<DatComm>,
    address: SharedAddress,
    /// Set when the service point listens, because the RNIC may choose the port.
    port: OnceLock<u16>,
    listening: Listening<R>,
    ia: Arc<Ia<R>>,
}

opaque_debug!(Csp<R> {
    handle,
    address,
    port
});

impl<R: Rnic> Object for Csp<R> {
    const KIND: Kind = Kind::Csp;
}

impl<R: Rnic> Csp<R> {
    /// Implements `dat_csp_create`. Port 0 lets the RNIC choose; the query returns the port.
    pub fn create(
        ia: &Arc<Ia<R>>,
        comm: DatComm,
        address: SocketAddr,
        evd: Arc<Evd<R>>,
    ) -> DatResult<Handle> {
        check_comm(comm, address)?;
        let own = ia.attr().address.ip();
        if !address.ip().is_unspecified() && address.ip() != own {
            return Err(DatError::new(
                DAT_INVALID_ADDRESS,
                DAT_INVALID_ADDRESS_UNREACHABLE,
            ));
        }
        let csp = Self::install(ia, comm, SocketAddr::new(own, address.port()), evd)?;
        csp.listen(address.port())?;
        Ok(csp.handle)
    }

    /// Publishes the object before it listens, because requests refer to the object by its handle.
    fn install(
        ia: &Arc<Ia<R>>,
        comm: DatComm,
        address: SocketAddr,
        evd: Arc<Evd<R>>,
    ) -> DatResult<Pinned<Self>> {
        let evd = hold_cr_evd(ia, evd)?;
        let reservation = ia.reserve()?;
        let shared = SharedAddress::new();
        shared.set(address);
        let csp = Arc::new(Self {
            handle: reservation.handle(),
            comm: Box::new(comm),
            address: shared,
            port: OnceLock::new(),
            listening: Listening::new(evd),
            ia: ia.clone(),
        });
        let handle = ia.install(reservation, csp)?;
        handle::pin_handle(handle).ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_IA))
    }

    /// Implements `dat_csp_query`. The pointers in the result are valid until the service point is
    /// freed.
    pub fn query(&self) -> DatCspParam {
        DatCspParam {
            ia_handle: self.ia.consumer_handle(),
            comm: std::ptr::from_ref(&*self.comm).cast_mut(),
            address_ptr: self.address.as_dat(),
            evd_handle: self.listening.evd_handle(),
        }
    }

    /// Implements `dat_csp_free`. Requests that were delivered stay valid.
    pub fn free(this: &Pinned<Self>) -> DatResult {
        let ended = Self::abandon(this).then_some(());
        ended.ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_CSP))
    }

    /// Called when a peer requests a connection.
    pub(crate) fn on_request(&self, request: R::ConnReq, info: &RequestInfo<'_>) {
        let Some(evd) = self.listening.evd() else {
            return; // Freed: dropping the request refuses the peer.
        };
        // The RNIC may report its chosen port here before `create` has stored it.
        let port = *self.port.get_or_init(|| info.local.port());
        let new = NewCr {
            pending: Pending {
                request,
                socket: None,
            },
            ep: None,
        };
        let cr = self
            .ia
            .reserve()
            .and_then(|reservation| Cr::install(&self.ia, reservation, new, info));
        match cr {
            Ok(cr) => {
                // A refusal needs no action: the EVD may have room for a later request.
                let _ = post_request(&self.ia, &evd, &cr, self.handle, u64::from(port), info);
            }
            Err(error) => log_refusal(self.handle, error),
        }
    }
}

impl<R: Rnic> Pinned<Csp<R>> {
    /// Starts listening, or ends the service point on failure.
    fn listen(&self, port: u16) -> DatResult {
        let listening = start_listening(self, &self.ia, port).map_err(|error| {
            // Here the qualifier in use is a port.
            if error.code().is(DAT_CONN_QUAL_IN_USE) {
                DatError::of(DAT_PORT_IN_USE)
            } else {
                error
            }
        });
        let (listener, port) = listening?;
        self.listening.store(listener);
        let port = *self.port.get_or_init(|| port);
        self.address.set(with_port(self.ia.attr().address, port));
        Ok(())
    }
}

impl<R: Rnic> Child for Csp<R> {
    fn on_retired(this: &Pinned<Self>) {
        this.listening.end();
        this.ia.disown(Kind::Csp, this.handle);
    }
}

/// Refuses a communicator other than TCP in the family of the address. Zeros select that
/// communicator.
fn check_comm(comm: DatComm, address: SocketAddr) -> DatResult {
    let family = match address.ip() {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    let fits = [
        (comm.domain, family),
        (comm.r#type, libc::SOCK_STREAM),
        (comm.protocol, libc::IPPROTO_TCP),
    ]
    .into_iter()
    .all(|(requested, own)| requested == 0 || i64::from(requested) == i64::from(own));
    if fits {
        Ok(())
    } else {
        Err(DatError::of(DAT_COMM_NOT_SUPPORTED))
    }
}
