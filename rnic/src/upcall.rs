//! Upcalls: events from the RNIC.

use super::Rnic;
use super::cm::{ConnectionEvent, RequestInfo};
use super::cq::CqToken;
use super::qp::QpToken;

/// Identifies a service point to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenToken(pub u64);

/// Identifies a shared receive queue to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SrqToken(pub u64);

/// Errors and conditions that are not related to a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A completion was lost because its queue was full.
    CqOverflow(CqToken),
    /// A queue pair has taken its last receive from its shared receive queue.
    LastWqeReached(QpToken),
    /// A shared receive queue fell below its low watermark.
    SrqLimit(SrqToken),
    /// A shared receive queue has failed: messages can no longer consume its receives.
    SrqFailed(SrqToken),
    /// A queue pair holds more receives of its shared receive queue than its soft high watermark.
    RecvWatermark(QpToken),
    /// The peer of this queue pair has asked for an access that memory did not grant, and the
    /// connection ends.
    AccessViolation(QpToken),
    /// The peer of this queue pair has sent an invalid request, and the connection ends.
    InvalidRequest(QpToken),
    /// The device was removed or is unusable.
    DeviceFatal,
}

/// Upcalls that carry no object of the RNIC, so that they do not depend on its type. Called from
/// any thread, with no lock of the RNIC held except that of [`Rnic::disarm_socket`].
pub trait EventUpcall: Send + Sync + 'static {
    /// An armed completion queue received a completion. The call has no data; it may be late but is
    /// never lost.
    fn cq_ready(&self, cq: CqToken);

    /// The state of the connection of a queue pair has changed.
    fn connection(&self, qp: QpToken, event: &ConnectionEvent);

    /// The socket of an armed service is no longer connected, or the bytes received over it were
    /// not an MPA request.
    fn socket_down(&self, armed: ListenToken);

    /// An error or condition that is not related to a work request.
    fn async_event(&self, event: AsyncEvent);
}

/// All upcalls of an RNIC.
pub trait Upcall<R: Rnic>: EventUpcall {
    /// A peer requests a connection.
    fn connection_request(
        &self,
        listener: ListenToken,
        request: R::ConnReq,
        info: &RequestInfo<'_>,
    );
}
