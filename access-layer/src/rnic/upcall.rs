//! News from the RNIC.

use super::Rnic;
use super::cm::{ConnectionEvent, RequestInfo};
use super::cq::CqToken;
use super::qp::QpToken;

/// Names a service point to the access layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenToken(pub u64);

/// Names a shared receive queue to the access layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SrqToken(pub u64);

/// Errors and conditions that belong to no work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A completion was lost because its queue was full.
    CqOverflow(CqToken),
    /// A queue pair has taken its last receive from its shared receive queue.
    LastWqeReached(QpToken),
    /// A shared receive queue fell below its low watermark.
    SrqLimit(SrqToken),
    /// A shared receive queue has failed: no message takes a receive from it any more.
    SrqFailed(SrqToken),
    /// A queue pair holds more receives of its shared receive queue than its soft high watermark.
    RecvWatermark(QpToken),
    /// The device is gone or unusable.
    DeviceFatal,
}

/// How the RNIC tells news. Called with no lock of the RNIC held, from any thread.
pub trait Upcall<R: Rnic>: Send + Sync + 'static {
    /// An armed completion queue got a completion. A nudge: no data, may be late, never lost.
    fn cq_ready(&self, cq: CqToken);

    /// A peer asks for a connection.
    fn connection_request(
        &self,
        listener: ListenToken,
        request: R::ConnReq,
        info: &RequestInfo<'_>,
    );

    /// News of the connection of a queue pair.
    fn connection(&self, qp: QpToken, event: ConnectionEvent<'_>);

    /// The socket of an armed service is no longer connected, or what it carried was no MPA
    /// request.
    fn socket_down(&self, armed: ListenToken);

    /// Something that belongs to no work request.
    fn async_event(&self, event: AsyncEvent);
}
