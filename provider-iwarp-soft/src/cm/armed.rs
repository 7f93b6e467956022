//! A consumer's socket that waits for one connection request (DAT 2.0 iWARP extensions 3.1.1).

use std::os::fd::{AsFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use access_layer::rnic::{ListenToken, SocketFault};

use crate::engine::io;
use crate::rnic::Shared;
use crate::socket::Socket;

use super::listen::Inbound;
use super::send_whole;

/// How long a peer may take to read the final streaming message.
const MESSAGE_PATIENCE: Duration = Duration::from_secs(30);

/// A Socket Service Point's socket. Dropping it gives the socket back.
pub struct SoftArmed {
    inbound: Arc<Inbound>,
}

impl std::fmt::Debug for SoftArmed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SoftArmed").finish_non_exhaustive()
    }
}

impl SoftArmed {
    /// Arms the reception of a request, then sends the final streaming message whole, so that the
    /// peer cannot answer it before its answer is expected.
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
            .map_err(|_| SocketFault::NoResources)?;
        let inbound = Inbound::arm(shared, socket, token).map_err(|_| SocketFault::NoResources)?;
        let armed = Self { inbound };
        let sent = send_whole(&messenger, final_message, MESSAGE_PATIENCE);
        if !sent && !io::is_hung_up(messenger.as_fd()) && armed.inbound.take().is_some() {
            return Err(SocketFault::FinalMessage);
        }
        // A socket that is down is no failure of this call: the event tells it.
        Ok(armed)
    }

    /// Gives the socket back. `false` when it had left already; then its news has been told.
    pub(crate) fn disarm(self) -> bool {
        self.inbound.take_or_wait().is_some()
    }
}

impl Drop for SoftArmed {
    /// Does not wait for news that is being told, because it may happen within that.
    fn drop(&mut self) {
        drop(self.inbound.take());
    }
}
