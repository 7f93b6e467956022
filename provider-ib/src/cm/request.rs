//! Connection requests.

use std::sync::Arc;
use std::time::Duration;

use rnic::socket::ConsumerSocket;
use rnic::socket::io::send_whole;
use rnic::{AcceptParams, ListenAddress, RequestInfo, RnicError};

use super::bound_socket::BoundSocket;
use super::connection::{Connection, own_depth};
use super::frames::{self, Contact, Token};
use super::id::{ConnParam, Depth, Id};
use super::listen::{IbListener, Listener};
use super::ready::agreed;
use super::{Cm, check_private_data};
use crate::qp::Qp;

/// The time for which a full socket may delay a frame.
const REPLY_PATIENCE: Option<Duration> = Some(Duration::from_secs(1));

/// The function that receives each request with its description.
pub(crate) type Deliver = Box<dyn Fn(IbRequest, &RequestInfo<'_>) + Send + Sync>;

/// A peer's request. A request that is dropped without an answer is refused.
#[derive(Debug)]
pub struct IbRequest {
    cm: Arc<Cm>,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    /// The device's request.
    Device {
        id: Id,
        /// The depths that the peer requests, as seen from this end.
        depth: Depth,
    },
    /// A Request that was received on a consumer's socket.
    Socket(Asked),
}

/// A consumer's socket on which a Request was received. Dropping it rejects the Request, because
/// the Request was taken from the stream and the peer waits for an answer, and returns the socket.
#[derive(Debug)]
struct Asked {
    /// `None` once the Request was answered.
    socket: Option<ConsumerSocket>,
    peer: Contact,
}

impl IbRequest {
    /// Makes the requests of a service reach `deliver`.
    pub(crate) fn listen(
        cm: &Arc<Cm>,
        address: &ListenAddress,
        deliver: Deliver,
    ) -> Result<(IbListener, u16), RnicError> {
        let service = cm.clone();
        let deliver_id = move |id, depth, info: &RequestInfo<'_>| {
            let request = Self {
                cm: service.clone(),
                origin: Origin::Device { id, depth },
            };
            deliver(request, info);
        };
        Listener::open(cm, address, Box::new(deliver_id))
    }

    pub(super) fn on_socket(cm: &Arc<Cm>, socket: ConsumerSocket, peer: Contact) -> Self {
        let socket = Some(socket);
        Self {
            cm: cm.clone(),
            origin: Origin::Socket(Asked { socket, peer }),
        }
    }

    /// Accepts the request on an idle queue pair.
    pub(crate) fn accept(self, qp: &Arc<Qp>, params: &AcceptParams<'_>) -> Result<(), RnicError> {
        let cm = &self.cm;
        check_private_data(&cm.shared, params.private_data)?;
        qp.begin_attempt()?;
        match self.origin {
            Origin::Device { id, depth } => {
                let depth = agreed(depth, own_depth(qp), cm.shared.device.transport);
                let param = ConnParam::of(qp, depth, params.private_data);
                Connection::accept(cm, qp, Arc::new(id), param);
                Ok(())
            }
            Origin::Socket(asked) => asked
                .accept(cm, qp, params.private_data)
                .inspect_err(|_| qp.abandon_attempt()),
        }
    }

    /// Rejects the request, with the private data of the consumer. A consumer's socket is returned.
    pub(crate) fn reject(self, private_data: &[u8]) -> Result<(), RnicError> {
        let shared = &self.cm.shared;
        check_private_data(shared, private_data)?;
        match self.origin {
            Origin::Device { id, .. } => {
                let data = shared.device.transport.reject_data(private_data);
                if let Err(error) = id.reject(&data) {
                    // The peer has disconnected or cancelled its request, and needs no answer any
                    // more.
                    tracing::debug!(%error, "reject not sent");
                }
            }
            Origin::Socket(mut asked) => asked.reject(private_data),
        }
        Ok(())
    }
}

impl Asked {
    /// Listens for the device of the peer, and replies with the port and a token.
    fn accept(mut self, cm: &Arc<Cm>, qp: &Arc<Qp>, private_data: &[u8]) -> Result<(), RnicError> {
        let key = cm.new_key();
        let (service, device) = (cm.clone(), &cm.shared.device);
        let deliver = move |id, depth, info: &RequestInfo<'_>| {
            if let Some(connection) = service.connection_of_key(key) {
                connection.on_device_request(id, depth, info.private_data);
            }
        };
        let any = ListenAddress { port: 0 };
        let (listener, port) = Listener::open(cm, &any, Box::new(deliver))?;
        let mut contact = Contact {
            token: Token::draw()?,
            address: device.address,
            transport: device.transport,
        };
        contact.address.set_port(port);
        let too_long = RnicError::InvalidArgument("private data");
        let frame = frames::accepting(&contact, private_data).ok_or(too_long)?;
        let answered = RnicError::InvalidState("the request has been answered");
        let socket = Arc::new(self.socket.take().ok_or(answered)?);
        let bound = BoundSocket::new(
            &cm.shared,
            socket.clone(),
            key,
            contact.token,
            frame.clone(),
        )?;
        // The depths follow when the device of the peer requests them.
        let param = ConnParam::of(qp, own_depth(qp), &self.peer.token.0);
        let connection = Connection::accept_on_socket(cm, qp, key, bound, listener, param);
        if let Err(error) = send_whole(&*socket, frame.as_bytes(), REPLY_PATIENCE) {
            tracing::info!(?error, "reply not sent");
            connection.fail_soon();
        }
        Ok(())
    }

    fn reject(&mut self, private_data: &[u8]) {
        let Some(socket) = self.socket.take() else {
            return;
        };
        if let Some(frame) = frames::rejecting(private_data) {
            // If the frame cannot be sent, the peer no longer waits for an answer.
            let _ = send_whole(&socket, frame.as_bytes(), REPLY_PATIENCE);
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.reject(&[]);
    }
}
