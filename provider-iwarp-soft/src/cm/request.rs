//! A connection request that was received and waits for `accept` or `reject`.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_conf::limits::Resource as Limited;
use iwarp_proto::mpa::{AcceptParams as Depths, Progress, RequestInfo, StartupError};
use iwarp_proto::wire::mpa::StartupFrame;
use iwarp_proto::{Role, mpa::Negotiated};
use rnic::{AcceptParams, ListenToken, RequestInfo as Request, RnicError};

use crate::adapter::Shared;
use crate::config::Config;
use crate::engine::io::send_whole;
use crate::engine::{Engine, Key, Source};
use crate::lingering::LingeringSocket;
use crate::qp::{Effects, Link, Qp};
use crate::socket::Socket;
use crate::startup::{depth, ird_max, responder};
use rnic::ConnectionEvent;

/// The time for which a full socket may delay a start-up frame.
const REPLY_PATIENCE: Option<Duration> = Some(Duration::from_secs(1));
/// The time for an initiator's first FPDU, as a multiple of the time for its Request. The Reply has
/// to reach the initiator within this time.
const FIRST_FPDU_TURNS: u32 = 2;

/// A request that was delivered and waits for its consumer's answer. Dropping the request closes
/// the connection. A consumer's socket is returned to the consumer instead; before that the request
/// is rejected, because it was taken from the stream and the peer waits for an answer.
pub struct SoftRequest {
    pub(super) shared: Arc<Shared>,
    /// `None` once the request was answered or handed off.
    pub(super) socket: Option<Socket>,
    pub(super) frame: RequestFrame,
}

rnic::opaque_debug!(SoftRequest { frame });

/// A complete and valid MPA Request.
#[derive(Debug)]
pub(super) struct RequestFrame {
    info: RequestInfo,
    bytes: Box<[u8]>,
    private_data: Range<usize>,
}

impl RequestFrame {
    /// Keeps the bytes of a Request. `private_data` is a range of them.
    pub(super) fn new(info: RequestInfo, bytes: &[u8], private_data: Range<usize>) -> Self {
        Self {
            info,
            bytes: bytes.into(),
            private_data,
        }
    }

    /// Returns `None` if the bytes are not exactly one Request.
    pub(super) fn parse(config: &Config, bytes: &[u8]) -> Option<Self> {
        match responder(config).handle_input(bytes) {
            Progress::Frame {
                consumed,
                private_data,
                value,
            } if consumed == bytes.len() => Some(Self::new(value, bytes, private_data)),
            _ => None,
        }
    }

    /// Returns the Request with the front of its private data replaced.
    pub(super) fn with_private_data(&self, private_data: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes.to_vec();
        for (to, from) in bytes[self.private_data.clone()]
            .iter_mut()
            .zip(private_data)
        {
            *to = *from;
        }
        bytes
    }
}

/// Delivers a request to the service or service point of `token`, with the local address and that
/// of the requester.
pub(super) fn deliver(
    shared: &Arc<Shared>,
    token: ListenToken,
    socket: Socket,
    frame: RequestFrame,
    (local, remote): (SocketAddr, SocketAddr),
) {
    let private_data = frame.bytes[frame.private_data.clone()].to_vec();
    let max = shared.config.private_data_max as usize;
    let described = Request {
        local,
        remote,
        private_data: &private_data[..private_data.len().min(max)],
        truncated: private_data.len() > max,
    };
    let request = SoftRequest {
        shared: shared.clone(),
        socket: Some(socket),
        frame,
    };
    shared.upcall.connection_request(token, request, &described);
}

impl SoftRequest {
    /// Accepts on an idle queue pair.
    pub(crate) fn accept(
        mut self,
        qp: &Arc<Qp>,
        params: &AcceptParams<'_>,
    ) -> Result<(), RnicError> {
        if params.private_data.len() > self.shared.config.private_data_max as usize {
            return Err(RnicError::InvalidArgument("private data"));
        }
        let mut link = qp.lock_link();
        if !matches!(*link, Link::Idle) {
            return Err(RnicError::InvalidState("the queue pair is not idle"));
        }
        let depths = Depths {
            ird: depth(qp.attr.ird),
            ord: depth(qp.attr.ord),
            ird_max: ird_max(&qp.attr),
        };
        let (frame, negotiated) = responder(&self.shared.config)
            .accept(&self.frame.info, depths, params.private_data)
            .map_err(|error| match error {
                StartupError::PrivateDataTooLong { .. } => {
                    RnicError::InvalidArgument("private data")
                }
                StartupError::MarkersRequired => RnicError::NotSupported("MPA markers"),
            })?;
        let permit = self.shared.police.permit(Limited::Connections)?;
        let Some(socket) = self.socket.take() else {
            return Err(RnicError::InvalidState("the request has been answered"));
        };
        socket.hold(permit);
        let weak = Arc::downgrade(qp);
        self.shared.event_order.on_reply(weak);
        let mut effects = Effects::default();
        if send_whole(&socket, frame.as_bytes(), REPLY_PATIENCE).is_ok() {
            begin(qp, &mut link, socket, &negotiated, &mut effects);
        } else {
            // The socket must be closed, or returned to the consumer, before the event is
            // delivered.
            drop(socket);
            qp.abandon(&mut link, ConnectionEvent::AcceptFailed, &mut effects);
        }
        drop(link);
        deliver_soon(&self.shared.engine, qp, effects);
        Ok(())
    }

    /// Rejects the request, with the private data of the consumer. A consumer's socket is returned
    /// to the consumer.
    pub(crate) fn reject(mut self, private_data: &[u8]) -> Result<(), RnicError> {
        let frame = self.rejection(private_data)?;
        let Some(socket) = self.socket.take() else {
            return Ok(());
        };
        let sent = send_whole(&socket, frame.as_bytes(), REPLY_PATIENCE);
        if sent.is_ok() && !socket.is_consumers() {
            LingeringSocket::start_unconnected(self.shared.engine.clone(), socket);
        }
        Ok(())
    }

    fn rejection(&self, private_data: &[u8]) -> Result<StartupFrame, RnicError> {
        responder(&self.shared.config)
            .reject(&self.frame.info, Depths::default(), private_data)
            .map_err(|_| RnicError::InvalidArgument("private data"))
    }
}

impl Drop for SoftRequest {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take()
            && socket.is_consumers()
            && let Ok(frame) = self.rejection(&[])
        {
            // If the frame cannot be sent, the peer no longer waits for an answer.
            let _ = send_whole(&socket, frame.as_bytes(), REPLY_PATIENCE);
        }
    }
}

/// Begins operation after the Reply was sent. In peer-to-peer mode the initiator's first FPDU
/// establishes the connection; otherwise the connection is established now. In both cases
/// this end sends nothing before that FPDU.
fn begin(
    qp: &Arc<Qp>,
    link: &mut Link,
    socket: Socket,
    negotiated: &Negotiated,
    effects: &mut Effects,
) {
    let established_data = negotiated.rtr.is_none().then(Vec::new);
    match qp.new_conn(socket, Role::Responder, negotiated) {
        Some(conn) => {
            let timeout = qp.shared.config.request_timeout;
            let timeout = timeout.map(|limit| limit * FIRST_FPDU_TURNS);
            qp.on_connected(link, conn, established_data, timeout);
        }
        None => qp.abandon(link, ConnectionEvent::AcceptFailed, effects),
    }
}

/// Makes the engine deliver the events of a queue pair and the notifications of a call, for calls
/// that may not make upcalls themselves.
fn deliver_soon(engine: &Arc<Engine>, qp: &Arc<Qp>, effects: Effects) {
    let key = engine.new_key();
    let deferred = Arc::new(DeferredDelivery {
        qp: qp.clone(),
        engine: engine.clone(),
        effects,
    });
    if engine.enlist(key, deferred).is_ok() {
        engine.set_deadline(key, Some(Instant::now()));
    }
}

/// Delivers the events of a queue pair from the engine's thread.
struct DeferredDelivery {
    qp: Arc<Qp>,
    engine: Arc<Engine>,
    effects: Effects,
}

impl Source for DeferredDelivery {
    fn on_deadline(self: Arc<Self>, key: Key) {
        self.engine.delist(key);
        self.qp.after(&self.effects);
    }
}
