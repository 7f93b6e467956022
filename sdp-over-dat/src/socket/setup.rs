//! Connect and accept.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex},
    time::Instant,
};

use dat_api::{Cr, Ep, EpAttr, EpEvds, Evd, EvdFlags};
use rustix::io::Errno;
use sdp_proto::{self as proto, Connection, ConnectionState, wire::Hello};

use super::{Inner, Socket, receive_queue::ReceiveQueue, send_ring::SendRing};
use crate::{Options, Statistics, errors, stack::StackInner, trace::Trace};

/// RDMA Reads that an end serves and has under way.
const READS: i32 = 4;

impl Socket {
    /// Starts to connect to `peer`.
    pub(crate) fn connect(stack: &Arc<StackInner>, peer: SocketAddr) -> io::Result<Arc<Self>> {
        let local = stack.address.unwrap_or(peer);
        let local = SocketAddr::new(local.ip(), 0);
        let (connection, hello) = Connection::connect(stack.proto_config(), local, peer.ip());
        let hello = hello
            .trimmed(stack.private_data_max)
            .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error.to_string()))?;
        let socket = Self::new(stack, connection, peer, true)?;
        socket.lock().hello.clone_from(&hello);
        let timeout = Some(stack.config.connect_timeout);
        socket
            .ep
            .start_connect(peer, u64::from(peer.port()), timeout, &hello)
            .map_err(|error| errors::of_dat(&error))?;
        stack.serve(&socket);
        socket.hand_over(&mut socket.lock());
        Ok(socket)
    }

    /// Answers `request`, whose Hello is a good one.
    pub(crate) fn accept(
        stack: &Arc<StackInner>,
        request: Cr,
        hello: &Hello,
    ) -> io::Result<Arc<Self>> {
        let peer = SocketAddr::new(hello.source, hello.port);
        let peer = request.remote().unwrap_or(peer);
        let (connection, ack) = Connection::accept(stack.proto_config(), hello);
        let ack = ack
            .trimmed(stack.private_data_max)
            .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error.to_string()))?;
        let socket = Self::new(stack, connection, peer, false)?;
        let hello = request.private_data().to_vec();
        socket.lock().trace.setup(&hello, &ack);
        request
            .accept(Some(&socket.ep), &ack)
            .map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error.to_string()))?;
        stack.serve(&socket);
        socket.hand_over(&mut socket.lock());
        Ok(socket)
    }

    fn new(
        stack: &Arc<StackInner>,
        connection: Connection,
        peer: SocketAddr,
        active: bool,
    ) -> io::Result<Arc<Self>> {
        let made = Self::make(stack, connection, peer, active);
        made.map_err(|error| errors::of_dat(&error))
    }

    fn make(
        stack: &Arc<StackInner>,
        connection: Connection,
        peer: SocketAddr,
        active: bool,
    ) -> dat_api::Result<Arc<Self>> {
        let config = &stack.config;
        let buffers = usize::from(config.receive_buffers);
        let events = buffers + config.sends_max + READS as usize + 8;
        let evd = Evd::create(&stack.ia, events as u32, EvdFlags::DTO)?;
        let connections = Evd::create(&stack.ia, 8, EvdFlags::CONNECTION)?;
        let evds = EpEvds {
            recv: &evd,
            request: &evd,
            connect: &connections,
        };
        let attr = EpAttr {
            max_message_size: config.buffer_size,
            max_recv_dtos: buffers as i32,
            max_request_dtos: config.sends_max as i32 + READS,
            max_request_iov: 3,
            max_rdma_read_in: READS,
            max_rdma_read_out: READS,
            request_completion_flags: dat_api::CompletionFlags::SUPPRESS.bits(),
            ..EpAttr::default()
        };
        let ep = Ep::create(&stack.pz, evds, Some(&attr))?;
        let receive = ReceiveQueue::new(
            &stack.pz,
            buffers,
            config.buffer_size as usize,
            config.staging,
            stack.sink_needs_remote_write,
        )?;
        let inner = Inner {
            connection,
            receive,
            send: SendRing::new(&stack.pz, config.send_ring, config.sends_max)?,
            driven: false,
            kicked: false,
            sleepers: 0,
            flushed: false,
            served: false,
            connecting: false,
            reads: VecDeque::new(),
            reader_room: 0,
            read_direct: 0,
            source: None,
            adverts: 0,
            writer_waits: false,
            error: None,
            is_gone: false,
            saw_end: false,
            urgent_coming: false,
            closed_until: None,
            read_shut: false,
            hello: Vec::new(),
            trace: Trace::start(active),
            watch: None,
            arrived: false,
            options: Options::default(),
            statistics: Statistics::default(),
        };
        let socket = Arc::new(Self {
            stack: Arc::clone(stack),
            evd,
            connections,
            ep,
            peer,
            inner: Mutex::new(inner),
            changed: Condvar::new(),
        });
        socket.post_all()?;
        Ok(socket)
    }

    /// Posts every receive buffer, which Hello or HelloAck then promises.
    fn post_all(&self) -> dat_api::Result<()> {
        let inner = self.lock();
        for index in 0..usize::from(self.stack.config.receive_buffers) {
            let segment = inner.receive.segment(index)?;
            self.ep.post_recv(&[segment], Self::receive_cookie(index))?;
        }
        Ok(())
    }

    /// Waits for the outcome of a connect.
    pub(crate) fn wait_connected(&self, deadline: Option<Instant>) -> io::Result<()> {
        let mut inner = self.lock();
        loop {
            self.progress(&mut inner);
            match inner.connection.state() {
                ConnectionState::HelloSent => (),
                ConnectionState::Closed | ConnectionState::Failed(_) => {
                    let errno = inner.error.take();
                    return Err(errno.unwrap_or(Errno::CONNREFUSED).into());
                }
                _ => return Ok(()),
            }
            inner = self.wait(inner, deadline)?;
        }
    }
}

impl StackInner {
    /// The protocol's side of the configuration.
    pub(crate) fn proto_config(&self) -> proto::Config {
        proto::Config {
            buffers: self.config.receive_buffers,
            buffer_size: self.config.buffer_size,
            send_size_max: self.config.buffer_size,
        }
    }
}
