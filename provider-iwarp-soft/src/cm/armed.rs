//! A consumer's socket that waits for one connection request (DAT 2.0 iWARP extensions 3.1.1).

use std::os::fd::{AsFd, RawFd};
use std::sync::Arc;

use rnic::{ListenToken, SocketFault};

use crate::adapter::Shared;
use crate::engine::io::{self, Unsent, send_whole};
use crate::socket::Socket;
use rnic::socket::NotInherited;

use super::listen::Inbound;

/// A Socket Service Point's socket. Dropping it returns the socket.
pub struct SoftArmed {
    inbound: Arc<Inbound>,
}

rnic::opaque_debug!(SoftArmed {});

impl SoftArmed {
    /// Arms the reception of a request, and sends the complete final streaming message before a
    /// request is delivered. Sending is limited by `mpa_timeout_ms` in `dat.conf`; the wait for the
    /// request has no limit.
    ///
    /// A socket that turns out to be disconnected is not an error of this call but an upcall (DAT
    /// 2.0 iWARP extensions 3.1.1.2).
    ///
    /// # Errors
    /// [`SocketFault::FinalMessage`] if the complete message was not sent over a connected socket.
    /// The socket is returned to its consumer, and a part of the message may be in the stream.
    pub(crate) fn arm(
        shared: &Arc<Shared>,
        number: RawFd,
        final_message: &[u8],
        token: ListenToken,
    ) -> Result<Self, SocketFault> {
        let socket = Socket::take(number, |local| shared.config.routes(local))?;
        let messenger = socket
            .as_fd()
            .try_clone_to_owned()
            .map(NotInherited::new)
            .map_err(|_| SocketFault::NoResources)?;
        let inbound = Inbound::arm(shared, socket, token).map_err(|_| SocketFault::NoResources)?;
        let armed = Self { inbound };
        match send_whole(&messenger, final_message, shared.config.request_timeout) {
            Ok(()) => armed.inbound.release(),
            Err(Unsent::Failed) if io::is_hung_up(messenger.as_fd()) => {
                drop(armed.inbound.take());
                shared.upcall.socket_down(token);
            }
            Err(error) => {
                tracing::warn!(
                    ?error,
                    "the final streaming message was not sent completely"
                );
                drop(armed.inbound.take());
                return Err(SocketFault::FinalMessage);
            }
        }
        Ok(armed)
    }

    /// Returns the socket to its consumer. Returns `false` if a request had taken the socket
    /// before; the event of that request was delivered then.
    pub(crate) fn disarm(self) -> bool {
        self.inbound.take_or_wait().is_some()
    }
}

impl Drop for SoftArmed {
    /// Does not wait for an event that is being delivered, because this drop may happen within that
    /// upcall.
    fn drop(&mut self) {
        drop(self.inbound.take());
    }
}
