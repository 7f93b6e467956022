//! Two RNICs on the loopback device, called through the trait.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]
#![allow(missing_docs, missing_debug_implementations, reason = "tests")]

pub mod area;
pub mod moved;
pub mod networks;
pub mod process;
pub mod recorder;
pub mod scripted;
pub mod testbed;

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::rnic::*;
use provider_iwarp_soft::*;
pub use recorder::*;

/// An MPA Request of revision 1 without private data (RFC 5044 section 7.1).
pub const REQUEST_REV1: &str = "4d504120 49442052 65712046 72616d65 40010000";
/// A3: Send number 1, "hello".
pub const HELLO: &str = "00174143 00000000 00000000 00000001 00000000 68656c6c 6f000000 b990b10c";
/// A Send without event and without invalidation.
pub const SEND: SendOp = SendOp::Send {
    solicited: false,
    invalidate: None,
};
/// A time that is longer than any step takes on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub const ALL_RIGHTS: Access = Access {
    local_read: true,
    local_write: true,
    remote_read: true,
    remote_write: true,
    remote_atomic: true,
};

/// An open RNIC with a domain.
pub struct Node {
    pub pd: SoftPd,
    pub rnic: SoftRnic,
    pub recorder: Arc<Recorder>,
}

impl Node {
    pub fn new(params: &str) -> Self {
        let recorder = Arc::new(Recorder::default());
        let config = RnicConfig {
            ia_name: "test".to_owned(),
            ia_params: params.to_owned(),
        };
        let rnic = SoftRnic::open(&config, recorder.clone()).unwrap();
        Self {
            pd: rnic.create_pd().unwrap(),
            rnic,
            recorder,
        }
    }

    pub fn side(&self, token: u64) -> Side<'_> {
        self.side_with(token, QP_ATTR)
    }

    /// A queue pair with a queue each for requests and receives; their tokens are `token` + 1, + 2.
    pub fn side_with(&self, token: u64, attr: QpAttr) -> Side<'_> {
        self.build_side(token, &attr, None, [None, None])
    }

    /// A queue pair that takes its receives from `srq`.
    pub fn side_with_srq(&self, token: u64, srq: &SoftSrq) -> Side<'_> {
        self.build_side(token, &QP_ATTR, Some(srq), [None, None])
    }

    /// A queue pair that completes requests and receives in the queues `shared`. The queues of the
    /// side are not in use.
    pub fn side_with_cqs(
        &self,
        token: u64,
        srq: Option<&SoftSrq>,
        shared: [&SoftCq; 2],
    ) -> Side<'_> {
        self.build_side(token, &QP_ATTR, srq, shared.map(Some))
    }

    fn build_side(
        &self,
        token: u64,
        attr: &QpAttr,
        srq: Option<&SoftSrq>,
        shared: [Option<&SoftCq>; 2],
    ) -> Side<'_> {
        let own = [1, 2].map(|n| self.rnic.create_cq(16_384, CqToken(token + n)).unwrap());
        let send_cq = shared[0].or(Some(&own[0]));
        let recv_cq = shared[1].or(Some(&own[1]));
        let token_of = QpToken(token);
        let qp = self
            .rnic
            .create_qp(&self.pd, send_cq, recv_cq, srq, attr, token_of)
            .unwrap();
        let [send_cq, recv_cq] = own;
        Side {
            qp,
            send_cq,
            recv_cq,
            node: self,
            token,
        }
    }

    /// Listens with token 7, at a port that the adapter chooses and returns.
    pub fn listen(&self) -> (<SoftRnic as Rnic>::Listener, u16) {
        let address = ListenAddress { port: 0 };
        self.rnic.listen(&address, ListenToken(7)).unwrap()
    }

    /// Makes a consumer's socket a service point.
    pub fn arm(&self, socket: RawFd, token: u64) -> SoftArmed {
        let token = ListenToken(token);
        self.rnic.arm_socket(socket, &[], token).unwrap()
    }

    pub fn memory(&self, len: usize) -> Memory {
        Memory::new(self, vec![0; len], ALL_RIGHTS)
    }

    pub fn connect_params<'a>(&self, port: u16, private_data: &'a [u8]) -> ConnectParams<'a> {
        ConnectParams {
            remote: SocketAddr::new(self.rnic.attr().address.ip(), port),
            timeout: Some(DEADLINE),
            private_data,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.recorder.release_all();
        self.rnic.shutdown();
    }
}

pub const QP_ATTR: QpAttr = QpAttr {
    recv_wr_max: 4096,
    send_wr_max: 4096,
    recv_sge_max: 8,
    send_sge_max: 8,
    ird: 16,
    ord: 16,
    read_depth_is_consumers: false,
    acknowledged: false,
};

/// Registered memory. The bytes are leaked rather than freed under a registration; tests are short.
pub struct Memory {
    pub mr: SoftMr,
    pub keys: MrKeys,
    pub bytes: RawBytes,
}

/// The number of bytes that are read or written at once.
const PIECE: usize = 64;

/// The bytes of a [`Memory`], which outlive its registration.
#[derive(Clone, Copy)]
pub struct RawBytes(*mut [u8]);

impl Memory {
    pub fn new(node: &Node, bytes: Vec<u8>, access: Access) -> Self {
        let len = bytes.len();
        let bytes = Box::into_raw(bytes.into_boxed_slice());
        let request = RegisterMr {
            addr: bytes.cast::<u8>().expose_provenance() as u64,
            len: len as u64,
            access,
            iova: None,
        };
        let mr = node.rnic.register_mr(&node.pd, &request).unwrap();
        let keys = node.rnic.mr_keys(&mr);
        Self {
            mr,
            keys,
            bytes: RawBytes(bytes),
        }
    }

    pub fn addr(&self) -> u64 {
        self.bytes.0.cast::<u8>().addr() as u64
    }

    pub fn sge(&self, at: usize, len: usize) -> Sge {
        Sge {
            addr: self.addr() + at as u64,
            len: len as u32,
            lkey: self.keys.lkey,
        }
    }

    pub fn remote(&self, at: usize, len: usize) -> RemoteRange {
        RemoteRange {
            addr: self.addr() + at as u64,
            len: len as u32,
            rkey: self.keys.rkey,
        }
    }

    pub fn fill(&self, seed: usize) {
        self.bytes.fill(seed);
    }

    pub fn set(&self, at: usize, value: u8) {
        self.bytes.set(at, value);
    }

    pub fn copy(&self, at: usize, len: usize) -> Vec<u8> {
        self.bytes.copy(at, len)
    }
}

impl RawBytes {
    pub fn fill(&self, seed: usize) {
        let whole = self.0.len() / PIECE * PIECE;
        let mut at = 0;
        while at < whole {
            let piece: [u8; PIECE] = std::array::from_fn(|i| pattern(seed + at + i));
            // SAFETY: within the allocation, which is never freed.
            unsafe { self.at(at).cast::<[u8; PIECE]>().write_volatile(piece) };
            at += PIECE;
        }
        for at in whole..self.0.len() {
            self.set(at, pattern(seed + at));
        }
    }

    pub fn set(&self, at: usize, value: u8) {
        assert!(at < self.0.len());
        // SAFETY: within the allocation, which is never freed.
        unsafe { self.at(at).write_volatile(value) };
    }

    /// # Safety
    /// The offset is within the allocation.
    unsafe fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: by the caller's contract.
        unsafe { self.0.cast::<u8>().add(offset) }
    }

    pub fn copy(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.0.len());
        let whole = len / PIECE * PIECE;
        let mut copied = Vec::with_capacity(len);
        while copied.len() < whole {
            // SAFETY: within the allocation, which is never freed.
            let piece = unsafe {
                self.at(at + copied.len())
                    .cast::<[u8; PIECE]>()
                    .read_volatile()
            };
            copied.extend_from_slice(&piece);
        }
        // SAFETY: within the allocation, which is never freed.
        copied.extend((at + whole..at + len).map(|at| unsafe { self.at(at).read_volatile() }));
        copied
    }
}

// SAFETY: the memory is plain bytes, accessed volatile.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for RawBytes {}

pub fn pattern(i: usize) -> u8 {
    (i.wrapping_mul(131) ^ (i >> 8)) as u8
}

pub fn patterned(seed: usize, len: usize) -> Vec<u8> {
    (seed..seed + len).map(pattern).collect()
}

/// A queue pair with its queues.
pub struct Side<'n> {
    pub qp: SoftQp,
    pub send_cq: SoftCq,
    pub recv_cq: SoftCq,
    pub node: &'n Node,
    pub token: u64,
}

impl Side<'_> {
    /// Begins to connect to a port of this host.
    pub fn connect(&self, port: u16, private_data: &[u8]) {
        let params = self.node.connect_params(port, private_data);
        self.node.rnic.connect(&self.qp, &params).unwrap();
    }

    /// Begins to connect to a peer of plain TCP, which has read nothing yet.
    pub fn connect_to_raw(&self, private_data: &[u8]) -> std::net::TcpStream {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        self.connect(listener.local_addr().unwrap().port(), private_data);
        let (raw, _) = listener.accept().unwrap();
        raw.set_read_timeout(Some(DEADLINE)).unwrap();
        raw
    }

    pub fn accept(&self, request: SoftRequest, private_data: &[u8]) {
        let params = AcceptParams { private_data };
        self.node.rnic.accept(request, &self.qp, &params).unwrap();
    }

    pub fn post(&self, wr_id: u64, op: SendOp, sgl: &[Sge]) {
        self.try_post(wr_id, op, sgl).unwrap();
    }

    pub fn try_post(&self, wr_id: u64, op: SendOp, sgl: &[Sge]) -> Result<(), RnicError> {
        let wr = send_wr(wr_id, op, sgl);
        self.node.rnic.post_send(&self.qp, &wr)
    }

    pub fn write(&self, wr_id: u64, to: RemoteRange, sgl: &[Sge]) {
        self.post(wr_id, SendOp::Write(to), sgl);
    }

    pub fn read(&self, wr_id: u64, from: RemoteRange, sgl: &[Sge]) {
        self.post(wr_id, SendOp::Read(from), sgl);
    }

    /// Converts a consumer's socket.
    pub fn connect_socket(&self, socket: RawFd) -> Result<(), SocketFault> {
        let params = ConnectParams {
            remote: "127.0.0.1:1".parse().unwrap(),
            timeout: Some(DEADLINE),
            private_data: b"pd",
        };
        self.node.rnic.connect_socket(&self.qp, socket, &params)
    }

    pub fn send(&self, wr_id: u64, sgl: &[Sge]) {
        self.post(wr_id, SEND, sgl);
    }

    pub fn recv(&self, wr_id: u64, sgl: &[Sge]) {
        let wr = RecvWr {
            wr_id,
            sgl,
            signalled: true,
        };
        self.node.rnic.post_recv(&self.qp, &wr).unwrap();
    }

    pub fn qp_token(&self) -> QpToken {
        QpToken(self.token)
    }

    pub fn event(&self) -> Event {
        self.node.recorder.connection(self.token)
    }

    /// Expects the connection to end, in an orderly way or not.
    #[track_caller]
    pub fn expect_end(&self, name: &str) {
        let event = self.event();
        assert!(
            matches!(event, Event::Disconnected | Event::Broken),
            "{name}: {event:?}"
        );
    }

    /// Polls for the next completion of requests.
    pub fn sent(&self) -> Completion {
        self.next(&self.send_cq)
    }

    /// Polls for the next completion of receives.
    pub fn received(&self) -> Completion {
        self.next(&self.recv_cq)
    }

    /// Expects the next request to be this one, and to have succeeded.
    #[track_caller]
    pub fn expect_sent(&self, wr_id: u64) {
        let done = self.sent();
        assert_eq!((done.wr_id, done.status), (wr_id, WcStatus::Success));
    }

    /// Takes completions of this side's queue pair from a queue.
    pub fn poll(&self, cq: &SoftCq, out: &mut [Completion]) -> usize {
        let rnic = &self.node.rnic;
        let count = rnic.poll_cq(cq, out);
        let all = out[..count].iter();
        all.for_each(|done| rnic.on_taken(&self.qp, done));
        count
    }

    pub fn next(&self, cq: &SoftCq) -> Completion {
        let deadline = Instant::now() + DEADLINE;
        let mut out = [Completion::EMPTY];
        loop {
            self.node.rnic.drive();
            if self.poll(cq, &mut out) == 1 {
                return out[0];
            }
            assert!(Instant::now() < deadline, "no completion at {}", self.token);
        }
    }

    /// Blocks in `wait` until the queue has a completion, and returns it.
    pub fn blocked(&self, cq: &SoftCq, waker: &Arc<Waker>) -> Completion {
        let deadline = Instant::now() + DEADLINE;
        let mut out = [Completion::EMPTY];
        while self.poll(cq, &mut out) == 0 {
            if !self.node.rnic.arm_cq(cq, false) {
                let left = Some(Duration::from_secs(1));
                self.node.rnic.wait(&[cq], waker, left);
            }
            assert!(Instant::now() < deadline, "blocked for ever");
        }
        out[0]
    }

    /// The completions that are in a queue now, without driving.
    pub fn poll_all(&self, cq: &SoftCq) -> Vec<Completion> {
        let mut out = [Completion::EMPTY; 64];
        let mut all = Vec::new();
        loop {
            let count = self.poll(cq, &mut out);
            if count == 0 {
                return all;
            }
            all.extend_from_slice(&out[..count]);
        }
    }
}

/// The requests of completions, in order, and how they have ended.
pub fn statuses(done: &[Completion]) -> Vec<(u64, WcStatus)> {
    done.iter().map(|done| (done.wr_id, done.status)).collect()
}

/// Sends empty messages one after another.
pub fn exchange(client: &Side<'_>, server: &Side<'_>, count: usize) {
    for _ in 0..count {
        server.recv(1, &[]);
        client.send(1, &[]);
        assert_eq!(server.received().status, WcStatus::Success);
        assert_eq!(client.sent().status, WcStatus::Success);
    }
}

/// A request that is signalled and reported, without fence and not inline.
pub fn send_wr(wr_id: u64, op: SendOp, sgl: &[Sge]) -> SendWr<'_> {
    SendWr {
        wr_id,
        op,
        sgl,
        completion: true,
        signalled: true,
        fence: false,
        inline: false,
    }
}

/// A bind to the first `len` bytes of `memory`, with all rights.
pub fn bind_to(memory: &Memory, wr_id: u64, len: usize) -> BindMw<'_, SoftRnic> {
    BindMw {
        wr_id,
        mr: Some(&memory.mr),
        range: memory.sge(0, len),
        access: ALL_RIGHTS,
        zero_based: false,
        key: None,
        is_first: false,
        qp_only: false,
        completion: true,
        signalled: true,
        fence: false,
    }
}

pub fn nodes() -> (Node, Node) {
    (Node::new("lo 0"), Node::new("lo 0"))
}

/// A side of each node, with the tokens 10 and 20, and a connection between them.
pub fn connected<'n>(a: &'n Node, b: &'n Node) -> (Side<'n>, Side<'n>) {
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    (client, server)
}

/// Connects two sides. Both have delivered `Established` on return.
pub fn connect(client: &Side<'_>, server: &Side<'_>) {
    let listener_token = 1_000_000 + server.token;
    let (listener, port) = server
        .node
        .rnic
        .listen(&ListenAddress { port: 0 }, ListenToken(listener_token))
        .unwrap();
    client.connect(port, b"from client");
    let (request, private_data) = server.node.recorder.request(listener_token);
    assert_eq!(private_data, b"from client");
    server.accept(request, b"from server");
    match client.event() {
        Event::Established {
            private_data,
            remote,
            ..
        } => {
            assert_eq!(private_data, b"from server");
            assert_eq!(remote.port(), port);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(server.event(), Event::Established { .. }));
    drop(listener);
}

pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Reply of revision 2, CRC, peer-to-peer with a Write as first FPDU, IRD and ORD 4 (frame B2).
pub const REPLY: &str = "4d504120 49442052 65702046 72616d65 50020004 80048004";

pub fn read_exact(stream: &mut std::net::TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    std::io::Read::read_exact(stream, &mut bytes).unwrap();
    bytes
}

/// The first frame of an initiator after a Reply that permits a Write: a Write of no bytes, with
/// its CRC. It is repeated after 20 ms of the peer's silence, and twice more, so a test that is
/// late reads it several times.
pub const FIRST_WRITE: &str = "000ec140 00000001 00000000 00000000 ebd34c5f";

/// True for a first frame, with or without CRC.
fn is_first_write(frame: &[u8]) -> bool {
    frame.len() == 20 && frame[..16] == hex(FIRST_WRITE)[..16]
}

/// Reads `len` bytes, at least those of a first frame, after all repetitions of the first frame.
pub fn read_after_first_frames(stream: &mut std::net::TcpStream, len: usize) -> Vec<u8> {
    loop {
        let mut bytes = read_exact(stream, 20);
        if !is_first_write(&bytes) {
            bytes.extend(read_exact(stream, len - 20));
            return bytes;
        }
    }
}

/// Reads until the peer closes. Fails if it sends anything but repetitions of the first frame.
/// Returns their number.
pub fn read_first_frames_to_end(stream: &mut std::net::TcpStream) -> usize {
    let mut rest = Vec::new();
    std::io::Read::read_to_end(stream, &mut rest).unwrap();
    assert!(rest.chunks(20).all(is_first_write), "{rest:02x?}");
    rest.len() / 20
}

/// Reads a complete start-up frame.
pub fn read_startup(stream: &mut std::net::TcpStream) -> Vec<u8> {
    let mut frame = read_exact(stream, 20);
    let len = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
    frame.extend(read_exact(stream, len));
    frame
}

/// Connects a side to a peer of plain TCP that answers with [`REPLY`]; returns the Request.
pub fn raw_peer(client: &Side<'_>) -> (std::net::TcpStream, Vec<u8>) {
    let mut raw = client.connect_to_raw(b"hi");
    let request = read_startup(&mut raw);
    std::io::Write::write_all(&mut raw, &hex(REPLY)).unwrap();
    assert!(matches!(client.event(), Event::Established { .. }));
    (raw, request)
}

/// Connects a peer of plain TCP, which `server` accepts. Returns the peer's stream and the Reply.
pub fn accept_on(server: &Side<'_>, request: &[u8]) -> (std::net::TcpStream, Vec<u8>) {
    let node = server.node;
    let (_listener, port) = node.listen();
    let mut raw = raw_client(port);
    raw.set_nodelay(true).unwrap();
    std::io::Write::write_all(&mut raw, request).unwrap();
    let (request, _) = node.recorder.request(7);
    server.accept(request, &[]);
    let reply = read_startup(&mut raw);
    (raw, reply)
}

/// Connects a plain TCP stream to a listening node.
pub fn raw_client(port: u16) -> std::net::TcpStream {
    let raw = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    raw.set_read_timeout(Some(DEADLINE)).unwrap();
    raw
}

/// Computes the CRC bit by bit, so that it shares no code with the tested implementation.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
        }
    }
    !crc
}
