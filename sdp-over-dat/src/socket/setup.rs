//! Connect and accept.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex, atomic::AtomicBool},
    time::Instant,
};

use dat_api::{Cr, Ep, EpAttr, EpEvds, Evd, EvdFlags};
use rustix::io::Errno;
use sdp_proto::{self as proto, Connection, ConnectionState, wire::Hello};

use super::{
    Inner, Socket,
    attendance::Attendance,
    link::{Link, Opening},
    read_half::ReadHalf,
    receive_queue::ReceiveQueue,
    send_ring::SendRing,
    sink_pace::SinkPace,
    user::User,
};
use crate::{
    Config, Options, adapter::Adapter, errors, statistics::Statistics, trace::Trace,
    transport::Transport,
};

/// The number of RDMA Reads that an endpoint serves at a time, and that it may have in progress.
const READS: i32 = 4;

/// The destination of an active side.
#[derive(Debug)]
pub(crate) enum To<'a> {
    /// The service at the peer's address and port, with the Hello as private data.
    Service,
    /// The other end of this TCP socket, with the Hello as private data.
    Socket(OwnedFd),
    /// An address and a connection qualifier of a peer that has received the Hello already.
    Rendezvous {
        at: SocketAddr,
        conn_qual: u64,
        private_data: &'a [u8],
    },
}

/// The passive side of a connection, before its request is answered.
#[derive(Debug)]
pub(crate) struct Passive {
    pub(crate) names: Names,
    /// The TCP socket of the service point, if the connection is made over one.
    pub(crate) transport: Option<Transport>,
    pub(crate) opening: Opening,
}

impl Socket {
    /// Starts to connect.
    pub(crate) fn connect(
        adapter: &Arc<Adapter>,
        config: Config,
        names: Names,
        to: To<'_>,
    ) -> io::Result<Arc<Self>> {
        let own = adapter.address.unwrap_or(names.peer);
        let local = names.local.unwrap_or(SocketAddr::new(own.ip(), 0));
        let (connection, hello) = Connection::connect(config.of_protocol(), local, names.peer.ip());
        let hello = match to {
            To::Rendezvous { .. } => hello.emit().to_vec(),
            To::Service | To::Socket(_) => hello
                .trimmed(adapter.private_data_max)
                .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error.to_string()))?,
        };
        let transport = match &to {
            To::Socket(tcp) => Some(Transport::of(tcp)?),
            To::Service | To::Rendezvous { .. } => None,
        };
        let opening = Opening::Active {
            hello: hello.clone(),
            continues: false,
        };
        let socket = Parts::make(adapter, config)
            .and_then(|parts| Self::of(adapter, parts, connection, names, transport, opening))
            .map_err(|error| errors::of_dat(&error))?;
        let timeout = Some(config.connect_timeout);
        let ep = &socket.ep;
        let started = match to {
            To::Service => {
                let port = u64::from(names.peer.port());
                ep.start_connect(names.peer, port, timeout, &hello)
            }
            To::Socket(tcp) => ep
                .start_connect_socket(tcp, timeout, &hello)
                .map_err(|refused| refused.error),
            To::Rendezvous {
                at,
                conn_qual,
                private_data,
            } => ep.start_connect(at, conn_qual, timeout, private_data),
        };
        started.map_err(|error| errors::of_dat(&error))?;
        Ok(socket)
    }

    /// Accepts `request`, whose Hello is valid; `hello_bytes` are the bytes of the Hello.
    pub(crate) fn accept(
        adapter: &Arc<Adapter>,
        parts: Parts,
        request: Cr,
        (hello, hello_bytes): (&Hello, &[u8]),
        passive: Passive,
    ) -> io::Result<Arc<Self>> {
        let Passive {
            names,
            transport,
            opening,
        } = passive;
        let (connection, ack) = Connection::accept(parts.config.of_protocol(), hello);
        let ack = ack
            .trimmed(adapter.private_data_max)
            .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error.to_string()))?;
        let socket = Self::of(adapter, parts, connection, names, transport, opening)
            .map_err(|error| errors::of_dat(&error))?;
        socket.lock().trace.setup(hello_bytes, &ack);
        // A socket service point has its endpoint already.
        let ep = transport.is_none().then_some(&socket.ep);
        request
            .accept(ep, &ack)
            .map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error.to_string()))?;
        Ok(socket)
    }

    fn of(
        adapter: &Arc<Adapter>,
        parts: Parts,
        connection: Connection,
        names: Names,
        transport: Option<Transport>,
        opening: Opening,
    ) -> dat_api::Result<Arc<Self>> {
        let inner = Inner {
            connection,
            receive: parts.receive,
            send: parts.send,
            attendance: Attendance::Calls,
            followers: 0,
            trace: Trace::start(opening.is_active()),
            link: Link::new(opening),
            transports_before: 0,
            first_local: None,
            user: User::Present,
            read_half: ReadHalf::Open,
            reads: VecDeque::new(),
            reader_room: 0,
            read_direct: Vec::new(),
            sources: VecDeque::new(),
            sink: None,
            sink_pace: SinkPace::default(),
            expects_sink: false,
            expects_reader: false,
            readers_in_place: 0,
            last_read: 0,
            adverts: 0,
            posted_since_poll: 0,
            obstacle: None,
            has_waiting_writer: false,
            error: None,
            is_urgent_announced: false,
            watch: None,
            arrived: false,
            is_withholding: false,
            options: Options::default(),
            statistics: Statistics::default(),
        };
        let socket = Arc::new(Self {
            adapter: Arc::clone(adapter),
            config: parts.config,
            evd: parts.evd,
            connections: parts.connections,
            ep: parts.ep,
            names,
            transport,
            inner: Mutex::new(inner),
            is_polled: AtomicBool::new(false),
            changed: Condvar::new(),
        });
        socket.post_all()?;
        Ok(socket)
    }

    /// Posts every receive buffer. The Hello or HelloAck announces them as credits.
    fn post_all(&self) -> dat_api::Result<()> {
        let inner = self.lock();
        for index in 0..usize::from(self.config.first_receive_buffers()) {
            self.post_buffer(&inner, index)?;
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

/// The addresses of a socket's two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Names {
    /// The address of this end, if the provider does not determine it.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: SocketAddr,
}

/// An endpoint with its dispatchers and memory, before its peer is known.
#[derive(Debug)]
pub(crate) struct Parts {
    config: Config,
    evd: Evd,
    connections: Evd,
    pub(crate) ep: Ep,
    receive: ReceiveQueue,
    send: SendRing,
}

impl Parts {
    pub(crate) fn make(adapter: &Adapter, config: Config) -> dat_api::Result<Self> {
        let buffers = usize::from(config.receive_buffers);
        let requests = config.sends_max + SendRing::WRITES + READS as usize;
        let events = buffers + requests + 8;
        let evd = Evd::create(&adapter.ia, events as u32, EvdFlags::DTO)?;
        let connections = Evd::create(&adapter.ia, 8, EvdFlags::CONNECTION)?;
        let evds = EpEvds {
            recv: &evd,
            request: &evd,
            connect: &connections,
        };
        let attr = EpAttr {
            max_message_size: config.buffer_size.max(config.send_size),
            max_recv_dtos: buffers as i32,
            max_request_dtos: requests as i32,
            max_request_iov: 3,
            max_rdma_read_in: READS,
            max_rdma_read_out: READS,
            request_completion_flags: dat_api::CompletionFlags::SUPPRESS.bits(),
            ..EpAttr::default()
        };
        let ep = Ep::create(&adapter.pz, evds, Some(&attr))?;
        let receive = ReceiveQueue::new(
            &adapter.pz,
            usize::from(config.first_receive_buffers()),
            config.buffer_size as usize,
            config.staging,
            adapter.sink_needs_remote_write,
        )?;
        let sizes = (config.first_send_ring(), config.send_ring);
        let send = SendRing::new(&adapter.pz, sizes, config.sends_max)?;
        Ok(Self {
            config,
            evd,
            connections,
            ep,
            receive,
            send,
        })
    }
}

impl Config {
    /// Returns the part of the configuration that the protocol core uses.
    pub(crate) fn of_protocol(self) -> proto::Config {
        proto::Config {
            buffers: self.first_receive_buffers(),
            buffer_size: self.buffer_size,
            send_size_max: self.send_size,
            adverts_max: self.adverts_max,
            write_min: self.write_min,
        }
    }
}
