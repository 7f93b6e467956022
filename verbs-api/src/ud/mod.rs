//! Unreliable datagram queue pairs, over UDP.
//!
//! The number of such a queue pair is its UDP port followed by eight ones, so that GID and number
//! name its socket without a daemon. The last index of a listener is not given to a connected queue
//! pair, so that both kinds never have the same number.
//!
//! | Module | Contents |
//! |---|---|
//! | `address` | address handles |
//! | `queue` | the receives of a queue pair, and its state |
//! | `datagram` | the format of datagrams |
//!
//! A datagram waits in the socket until a receive is posted, as far as the kernel's buffer permits.
//!
//! # System calls and copies
//!
//! One `sendto` and one copy for each Send, one `recvfrom` and one copy for each receive. Polling
//! an empty completion queue calls `recvfrom` once for each queue pair of its receives.

mod address;
mod datagram;
mod queue;

use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::locks::lock;
use rnic::Sge;
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::adapter::{Adapter, DATAGRAM_INDEX, Name};
use crate::cq::{Cq, Source};
use crate::domains::Pd;
use crate::fault::Fault;
use crate::interface::Interface;
use crate::qp::Parts;
use crate::srq::Awaiting;
use crate::states::{self, Service};
use crate::watch::{Watch, Watched};
use crate::work;

pub(crate) use self::address::{Destination, set_destination};

use self::address::destination;
use self::datagram::{GRH_LEN, HEADER_LEN, Header, PAYLOAD_MAX, network_header, service_level};
use self::queue::{Queue, Receive};

/// The longest inline payload.
const INLINE_MAX: u32 = 512;
/// The most datagrams that one poll receives.
const BURST: usize = 64;
/// The most completions of Sends that the program has not polled.
const UNPOLLED_MAX: usize = 1 << 16;
/// The bit of a Q_Key by which a Send asks for that of its queue pair.
const OWN_KEY: u32 = 1 << 31;

/// A datagram queue pair.
pub(crate) struct Ud {
    pub(crate) number: u32,
    socket: UdpSocket,
    adapter: Arc<Adapter>,
    pd: Arc<Pd>,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    cap: ibv_qp_cap,
    signals_all: bool,
    /// The structure that the program uses, once it exists.
    object: AtomicPtr<ibv_qp>,
    queue: Mutex<Queue>,
    /// The datagram that is sent; its lock keeps the order of the Sends.
    outbound: Mutex<Vec<u8>>,
    watch: Mutex<Option<Arc<Watch>>>,
    /// True from the time when the completion queue was armed until a message is received.
    is_armed: AtomicBool,
}

rnic::opaque_debug!(Ud { number });

impl Ud {
    pub(crate) fn create(parts: Parts, init: &ibv_qp_init_attr) -> Result<Arc<Self>, Fault> {
        let Parts {
            adapter,
            pd,
            send_cq,
            recv_cq,
            srq,
        } = parts;
        let limits = adapter.rnic_attr();
        let is_too_large = init.cap.max_send_wr > limits.wr_max
            || init.cap.max_recv_wr > limits.wr_max
            || init.cap.max_send_sge > limits.sge_max
            || init.cap.max_recv_sge > limits.sge_max
            || init.cap.max_inline_data > INLINE_MAX;
        if is_too_large {
            return Err(Errno::INVAL);
        }
        let socket = open_socket(&adapter)?;
        let port = socket
            .local_addr()
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?
            .port();
        let qp = Arc::new(Self {
            number: u32::from(port) << 8 | DATAGRAM_INDEX,
            socket,
            adapter,
            pd,
            send_cq,
            recv_cq,
            cap: init.cap,
            signals_all: init.sq_sig_all != 0,
            object: AtomicPtr::default(),
            queue: Mutex::new(Queue::new(init.cap.max_recv_wr, srq.clone())),
            outbound: Mutex::new(Vec::with_capacity(HEADER_LEN + PAYLOAD_MAX)),
            watch: Mutex::default(),
            is_armed: AtomicBool::new(false),
        });
        let source: Arc<dyn Source> = qp.clone();
        qp.recv_cq.add_source(Arc::downgrade(&source));
        if let Some(srq) = srq {
            let awaiting: Arc<dyn Awaiting> = qp.clone();
            srq.add_datagrams(Arc::downgrade(&awaiting));
        }
        if qp.recv_cq.notified.is_armed() {
            source.arm();
        }
        Ok(qp)
    }

    /// Called with the structure that the program uses.
    pub(crate) fn publish(&self, object: *mut ibv_qp) {
        self.object.store(object, Ordering::Release);
    }

    /// Enters the state RTS with a Q_Key.
    pub(crate) fn prepare(&self, key: u32) -> ibv_qp_state {
        let mut queue = lock(&self.queue);
        queue.attr.qkey = key;
        queue.state = IBV_QPS_RTS;
        queue.state
    }

    /// See `ibv_modify_qp(3)`.
    pub(crate) fn modify(
        &self,
        new: &ibv_qp_attr,
        mask: ibv_qp_attr_mask,
    ) -> Result<ibv_qp_state, Fault> {
        let mut queue = lock(&self.queue);
        let has = |bit| mask & bit != 0;
        let from = queue.state;
        let to = if has(IBV_QP_STATE) {
            new.qp_state
        } else {
            from
        };
        if has(IBV_QP_CUR_STATE) && new.cur_qp_state != from {
            return Err(Errno::INVAL);
        }
        states::check(Service::Datagram, from, to, mask)?;
        states::check_port(new, mask)?;
        queue.state = to;
        match to {
            IBV_QPS_RESET => {
                queue.reset();
                drop(queue);
                self.forget_completions();
                return Ok(to);
            }
            IBV_QPS_ERR => self.flush(&mut queue),
            IBV_QPS_SQD if has(IBV_QP_EN_SQD_ASYNC_NOTIFY) && new.en_sqd_async_notify != 0 => {
                let qp = self.object.load(Ordering::Acquire);
                self.adapter.events.report_drained(qp);
            }
            _ => {}
        }
        states::store(&mut queue.attr, new, mask);
        Ok(to)
    }

    /// Returns the attributes, and whether all requests are signalled.
    pub(crate) fn query(&self) -> (ibv_qp_attr, bool) {
        let queue = lock(&self.queue);
        let mut found = queue.attr;
        found.qp_state = queue.state;
        found.cur_qp_state = queue.state;
        found.cap = self.cap;
        (found, self.signals_all)
    }

    /// Sends a datagram, which completes at once.
    pub(crate) fn post_send(&self, wr: &ibv_send_wr) -> Result<(), Fault> {
        let (state, own_key) = {
            let queue = lock(&self.queue);
            (queue.state, queue.attr.qkey)
        };
        let sgl = work::send_segments(wr)?;
        let has = |flag| wr.send_flags & flag != 0;
        if sgl.len() > self.cap.max_send_sge.max(1) as usize
            || self.send_cq.unpolled() >= UNPOLLED_MAX
        {
            return Err(Errno::NOMEM);
        }
        let status = match state {
            IBV_QPS_RTS => self.send(wr, sgl, own_key)?,
            IBV_QPS_ERR => IBV_WC_WR_FLUSH_ERR,
            _ => return Err(Errno::INVAL),
        };
        if status != IBV_WC_SUCCESS {
            self.fail();
        }
        if status != IBV_WC_SUCCESS || self.signals_all || has(IBV_SEND_SIGNALED) {
            let completion = ibv_wc {
                wr_id: wr.wr_id,
                status,
                opcode: IBV_WC_SEND,
                qp_num: self.number,
                ..ibv_wc::default()
            };
            let is_solicited = status != IBV_WC_SUCCESS;
            self.send_cq.add([completion], is_solicited);
        }
        Ok(())
    }

    /// Sends a datagram and returns the status of the request. A datagram that the network does not
    /// take is lost.
    fn send(&self, wr: &ibv_send_wr, sgl: &[Sge], own_key: u32) -> Result<ibv_wc_status, Fault> {
        // SAFETY: the program has written the member for datagrams, whose address handle is alive.
        let (gid, destination) = unsafe { destination(wr) }?;
        // SAFETY: every member of the union is an integer.
        let immediate = u32::from_be(unsafe { wr.__bindgen_anon_1.imm_data });
        let immediate = match wr.opcode {
            IBV_WR_SEND => None,
            IBV_WR_SEND_WITH_IMM => Some(immediate),
            _ => return Err(Errno::INVAL),
        };
        let header = Header {
            to: destination.number,
            from: self.number,
            key: match destination.key & OWN_KEY {
                0 => destination.key,
                _ => own_key,
            },
            immediate,
            solicited: wr.send_flags & IBV_SEND_SOLICITED != 0,
        };
        let mut datagram = lock(&self.outbound);
        datagram.clear();
        datagram.extend_from_slice(&header.bytes());
        if wr.send_flags & IBV_SEND_INLINE != 0 {
            // SAFETY: the program passes readable memory.
            unsafe { append_inline(&mut datagram, sgl, self.cap.max_inline_data) }?;
        } else {
            let total: u64 = sgl.iter().map(|sge| u64::from(sge.len)).sum();
            if total > PAYLOAD_MAX as u64 {
                return Err(Errno::INVAL);
            }
            if !self.pd.rnic.read_local(&self.pd.hw, sgl, &mut datagram) {
                return Ok(IBV_WC_LOC_PROT_ERR);
            }
        }
        let name = Name {
            gid,
            number: destination.number,
        };
        let to = self.socket_address(name);
        if let Err(error) = self.socket.send_to(&datagram, to) {
            tracing::debug!(qp = self.number, %to, %error, "a datagram is lost");
        }
        Ok(IBV_WC_SUCCESS)
    }

    fn socket_address(&self, name: Name) -> SocketAddr {
        match name.gid.address() {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                let index = Interface::of(&self.adapter.interface).and_then(|mut of| of.index());
                let scope = index.map_or(0, i32::cast_unsigned);
                SocketAddrV6::new(v6, name.port(), 0, scope).into()
            }
            address => SocketAddr::new(address, name.port()),
        }
    }

    /// Posts a receive, in every state except RESET.
    pub(crate) fn post_recv(&self, wr: &ibv_recv_wr) -> Result<(), Fault> {
        let receive = work::with_receive(wr, |wr| Ok(Receive::of(wr)))?;
        if receive.sgl.len() > self.cap.max_recv_sge as usize {
            return Err(Errno::INVAL);
        }
        let mut queue = lock(&self.queue);
        match queue.state {
            IBV_QPS_RESET => return Err(Errno::INVAL),
            IBV_QPS_ERR => {
                let flushed = receive.failed(self.number, IBV_WC_WR_FLUSH_ERR);
                self.recv_cq.add([flushed], true);
                return Ok(());
            }
            _ => queue.push(receive)?,
        }
        drop(queue);
        self.on_receive();
        Ok(())
    }

    /// Receives datagrams for posted receives, without blocking.
    fn receive(&self) {
        let mut queue = lock(&self.queue);
        for _ in 0..BURST {
            let is_ready = matches!(queue.state, IBV_QPS_RTR | IBV_QPS_RTS | IBV_QPS_SQD);
            if !is_ready || queue.is_empty() {
                return;
            }
            // Lent by the queue while it is not used.
            let mut buffer = std::mem::take(&mut queue.buffer);
            let received = self.socket.recv_from(&mut buffer);
            if let Ok((len, from)) = received {
                self.deliver(&mut queue, &buffer[..len], from.ip().to_canonical());
            }
            queue.buffer = buffer;
            match received {
                Ok(_) => {}
                // The host of an earlier datagram reports that nobody receives there.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(_) => return,
            }
        }
    }

    /// Delivers a datagram to the next receive, if it is for this queue pair.
    fn deliver(&self, queue: &mut Queue, datagram: &[u8], from: IpAddr) {
        let Some((header, payload)) = Header::parse(datagram) else {
            return;
        };
        if header.to != self.number || header.key != queue.attr.qkey {
            return;
        }
        let Some(receive) = queue.pop() else {
            return;
        };
        let to = self.adapter.gid.address();
        let network = network_header(from, to, payload.len());
        let status = self.place(&receive, &network, payload);
        let mut completion = receive.failed(self.number, status);
        if status == IBV_WC_SUCCESS {
            completion.byte_len = (GRH_LEN + payload.len()) as u32;
            completion.src_qp = header.from;
            completion.sl = service_level(from);
            completion.wc_flags = IBV_WC_GRH;
            if let Some(value) = header.immediate {
                completion.wc_flags |= IBV_WC_WITH_IMM;
                completion.__bindgen_anon_1.imm_data = value.to_be();
            }
            self.is_armed.store(false, Ordering::Release);
        }
        let is_solicited = header.solicited || status != IBV_WC_SUCCESS;
        self.recv_cq.add([completion], is_solicited);
        if status != IBV_WC_SUCCESS {
            queue.state = IBV_QPS_ERR;
            self.flush(queue);
        }
    }

    /// Copies a message to a receive, and returns the status of the receive.
    fn place(&self, receive: &Receive, network: &[u8], payload: &[u8]) -> ibv_wc_status {
        let room: u64 = receive.sgl.iter().map(|sge| u64::from(sge.len)).sum();
        if room < (network.len() + payload.len()) as u64 {
            return IBV_WC_LOC_LEN_ERR;
        }
        let rnic = &self.pd.rnic;
        match rnic.write_local(&self.pd.hw, &receive.sgl, &[network, payload]) {
            true => IBV_WC_SUCCESS,
            false => IBV_WC_LOC_PROT_ERR,
        }
    }

    /// Enters the error state.
    fn fail(&self) {
        let mut queue = lock(&self.queue);
        queue.state = IBV_QPS_ERR;
        self.flush(&mut queue);
    }

    fn flush(&self, queue: &mut Queue) {
        while let Some(receive) = queue.pop_own() {
            let flushed = receive.failed(self.number, IBV_WC_WR_FLUSH_ERR);
            self.recv_cq.add([flushed], true);
        }
    }

    fn forget_completions(&self) {
        self.send_cq.forget(self.number);
        self.recv_cq.forget(self.number);
    }

    /// Lets the thread call when a datagram is received.
    fn await_datagram(&self) {
        if let Some(watch) = &*lock(&self.watch) {
            watch.arm(self.number.into(), self.socket.as_fd());
        }
    }

    /// Ends the queue pair before its destruction.
    pub(crate) fn destroy(&self, object: *mut ibv_qp) {
        let watch = lock(&self.watch).take();
        if let Some(watch) = watch {
            watch.remove(self.number.into(), self.socket.as_fd());
        }
        lock(&self.queue).reset();
        self.recv_cq.remove_source(self.number);
        self.forget_completions();
        self.adapter.forget(object.cast());
    }
}

impl Source for Ud {
    fn number(&self) -> u32 {
        self.number
    }

    fn poll(&self) {
        self.receive();
    }

    fn arm(self: Arc<Self>) {
        let mut watch = lock(&self.watch);
        if watch.is_none() {
            let watched: Arc<dyn Watched> = self.clone();
            let watched: Weak<dyn Watched> = Arc::downgrade(&watched);
            let started = self.adapter.watcher.watch().and_then(|found| {
                found.add(self.number.into(), self.socket.as_fd(), watched)?;
                Ok(found)
            });
            match started {
                Ok(found) => *watch = Some(found),
                Err(error) => tracing::warn!(%error, "datagrams are not reported"),
            }
        }
        drop(watch);
        self.is_armed.store(true, Ordering::Release);
        self.await_datagram();
    }
}

impl Awaiting for Ud {
    fn on_receive(&self) {
        if self.is_armed.load(Ordering::Acquire) {
            self.await_datagram();
        }
    }
}

impl Watched for Ud {
    fn on_readable(&self) {
        self.receive();
        // Nothing was for this queue pair: the next datagram is awaited. Without a receive, the
        // next post does that.
        let waits = self.is_armed.load(Ordering::Acquire) && !lock(&self.queue).is_empty();
        if waits {
            self.await_datagram();
        }
    }
}

/// Opens the socket of a queue pair at a port that the kernel chooses.
fn open_socket(adapter: &Adapter) -> Result<UdpSocket, Fault> {
    let local = match adapter.gid.address() {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            let index = Interface::of(&adapter.interface).and_then(|mut of| of.index());
            SocketAddrV6::new(v6, 0, 0, index.map_or(0, i32::cast_unsigned)).into()
        }
        address => SocketAddr::new(address, 0),
    };
    let socket = UdpSocket::bind(local)
        .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    // More datagrams wait for receives; the kernel limits the value.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
    Ok(socket)
}

/// Appends payload that needs no registration.
///
/// # Safety
/// The segments are readable memory.
unsafe fn append_inline(datagram: &mut Vec<u8>, sgl: &[Sge], max: u32) -> Result<(), Fault> {
    let total: u64 = sgl.iter().map(|sge| u64::from(sge.len)).sum();
    if total > u64::from(max) {
        return Err(Errno::INVAL);
    }
    for sge in sgl.iter().filter(|sge| sge.len > 0) {
        let from = std::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
        // SAFETY: the segments are readable (caller).
        datagram.extend_from_slice(unsafe { std::slice::from_raw_parts(from, sge.len as usize) });
    }
    Ok(())
}
