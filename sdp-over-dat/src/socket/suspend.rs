//! Suspension: another process of one end continues the connection.
//!
//! The end that suspends sends its last bytes and SuspComm with a service, where the other process
//! listens. The peer answers when its own messages are sent, and connects to that service after
//! the transport has ended. Its user notices nothing: the socket, its unread and its unsent bytes
//! stay, and only the transport below is another one.

use std::{
    io,
    net::SocketAddr,
    sync::MutexGuard,
    time::{Duration, Instant},
};

use rustix::io::Errno;
use sdp_proto::{BUFFERS_MIN, ConnectionState, wire::Hello};

use super::{
    Inner, Socket,
    attendance::Queue,
    link::{Link, Opening},
};
use crate::{errors, trace::Trace};

/// The service ID of port 0. SDP's services are ports in this range of IDs (InfiniBand, Annex A4).
const PORT_0: u64 = 0x1_0000;

/// The port of a service ID, if it is one of SDP's.
fn port_of(service: u64) -> Option<u16> {
    let port = service.checked_sub(PORT_0)?;
    u16::try_from(port).ok().filter(|port| *port > 0)
}

impl Socket {
    /// True if the provider's private data has room for the Hello of a continuation.
    pub(crate) fn can_suspend(&self) -> bool {
        self.adapter.private_data_max >= Hello::NEEDED_LEN_MIN
    }

    /// Suspends the connection, which another process continues at `port` of this host. Returns
    /// the bytes that were received and not read.
    ///
    /// After an error the connection has ended.
    pub(crate) fn suspend(&self, port: u16, timeout: Duration) -> io::Result<Vec<u8>> {
        let deadline = Instant::now().checked_add(timeout);
        let mut inner = self.lock();
        self.progress(&mut inner);
        while inner.connection.state() == ConnectionState::HelloAckSent {
            // The transport has not reported that the peer has received HelloAck.
            inner = self.wait_suspended(inner, deadline)?;
            self.progress(&mut inner);
        }
        if !inner.connection.suspend(PORT_0 + u64::from(port)) {
            let error = inner.error.take().unwrap_or(Errno::NOTCONN);
            return Err(error.into());
        }
        // An urgent byte that was not read stays in the stream.
        inner.receive.set_inline(true);
        loop {
            self.begin(&mut inner);
            if let Some(errno) = inner.error.take() {
                return Err(errno.into());
            }
            if inner.connection.state().has_ended() {
                return Self::take_unread(&mut inner);
            }
            inner = self.wait_suspended(inner, deadline)?;
        }
    }

    /// Waits for an event. At the deadline the connection is aborted.
    fn wait_suspended<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
        deadline: Option<Instant>,
    ) -> io::Result<MutexGuard<'a, Inner>> {
        self.wait(inner, deadline).inspect_err(|_| {
            let mut inner = self.lock();
            self.abort_unanswered(&mut inner);
            self.pump(&mut inner);
        })
    }

    /// Takes the bytes that were received and not read.
    fn take_unread(inner: &mut Inner) -> io::Result<Vec<u8>> {
        let mut unread = vec![0; inner.receive.readable()];
        let mut filled = 0;
        // A read ends at the urgent mark.
        loop {
            let taken = inner.receive.take(&mut unread[filled..], false);
            match taken.map_err(|error| errors::of_dat(&error))? {
                0 => return Ok(unread),
                taken => filled += taken,
            }
        }
    }

    /// Connects again, if the peer has suspended the connection and the transport is gone. Returns
    /// true if so. Waits while bytes that were not read fill the receive buffers: a read calls this
    /// at its end.
    pub(super) fn resume_if_suspended(&self, inner: &mut Inner) -> bool {
        let Some(service) = inner.connection.continues_at() else {
            return false;
        };
        if !inner.link.is_gone() {
            return true;
        }
        // Until they are taken, the completions of the former transport count against the number
        // of receives that the endpoint accepts.
        if inner.attendance.sleeps_in(Queue::Completions) {
            self.kick(inner);
            return true;
        }
        self.drain(inner, Queue::Completions, |_| false);
        let has_buffers = inner.receive.free().len() >= usize::from(BUFFERS_MIN);
        if has_buffers && let Err(error) = self.resume(inner, service) {
            tracing::info!(peer = %self.peer(), %error, "a suspended connection is lost");
            inner.error.get_or_insert(Errno::CONNRESET);
            self.abort_connection(inner);
        }
        true
    }

    /// Connects again, to `service` of the peer.
    fn resume(&self, inner: &mut Inner, service: u64) -> io::Result<()> {
        let port = port_of(service).ok_or(Errno::PROTONOSUPPORT)?;
        let dat = |error: dat_api::Error| errors::of_dat(&error);
        let own = self.adapter.address.unwrap_or(self.peer());
        let local = *inner.first_local.get_or_insert_with(|| {
            let local = self.local_now();
            local.unwrap_or(SocketAddr::new(own.ip(), 0))
        });
        self.ep.reset().map_err(dat)?;
        inner.transports_before = inner.transports_before.wrapping_add(1);
        inner.send.on_resumed();
        inner.receive.on_resumed();
        let free = inner.receive.free();
        for index in &free {
            self.post_buffer(inner, *index).map_err(dat)?;
        }
        let to = SocketAddr::new(self.peer().ip(), port);
        let (buffers, posted) = (inner.receive.count() as u16, free.len() as u16);
        let hello = inner
            .connection
            .resume(buffers, posted, local, to.ip())
            .ok_or(Errno::CONNRESET)?;
        let hello = hello
            .trimmed(self.adapter.private_data_max)
            .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error.to_string()))?;
        inner.link = Link::new(Opening::Active {
            hello: hello.clone(),
            continues: true,
        });
        inner.trace = Trace::start(true);
        tracing::info!(peer = %self.peer(), port, "the connection continues");
        let timeout = Some(self.config.connect_timeout);
        self.ep
            .start_connect(to, u64::from(port), timeout, &hello)
            .map_err(dat)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::port_of;

    #[test]
    fn only_service_ids_of_sdp_are_ports() {
        assert_eq!(port_of(0x1_1390), Some(5008));
        assert_eq!(port_of(0x1_ffff), Some(65_535));
        for service in [0, 5008, 0xffff, 0x1_0000, 0x2_0000, u64::MAX] {
            assert_eq!(port_of(service), None, "{service:#x}");
        }
    }
}
