//! Latency and bandwidth of the RNIC through its trait, against raw TCP, in one pair of threads.
//!
//! `cargo run --release -p provider-iwarp-soft --example pingpong`. Rounds alternate with raw TCP
//! of the same shape. A shared machine only ever makes a round slower, so the fastest tenth of many
//! short rounds is compared.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use access_layer::rnic::*;
use provider_iwarp_soft::{SoftCq, SoftMr, SoftPd, SoftQp, SoftRequest, SoftRnic};

const ROUNDS: usize = 60;
const LEN_MAX: usize = 1 << 20;
/// The peer's receives are the only limit for a sender, so those of a stream are all posted before.
const RECEIVES: u32 = 8192;

#[derive(Default)]
struct Notifications {
    request: Mutex<Option<SoftRequest>>,
    established: Mutex<u32>,
}

impl EventUpcall for Notifications {
    fn cq_ready(&self, _: CqToken) {}

    fn connection(&self, _: QpToken, event: ConnectionEvent<'_>) {
        if matches!(event, ConnectionEvent::Established { .. }) {
            *lock(&self.established) += 1;
        } else {
            eprintln!("{event:?}");
        }
    }

    fn socket_down(&self, _: ListenToken) {}

    fn async_event(&self, event: AsyncEvent) {
        eprintln!("{event:?}");
    }
}

impl Upcall<SoftRnic> for Notifications {
    fn connection_request(&self, _: ListenToken, request: SoftRequest, _: &RequestInfo<'_>) {
        *lock(&self.request) = Some(request);
    }
}

struct End {
    qp: SoftQp,
    send_cq: SoftCq,
    recv_cq: SoftCq,
    mr: SoftMr,
    addr: u64,
    _pd: SoftPd,
    rnic: SoftRnic,
    notifications: Arc<Notifications>,
}

impl End {
    fn new(line: &str) -> Result<Self, RnicError> {
        let notifications = Arc::new(Notifications::default());
        let config = RnicConfig {
            ia_name: "bench".to_owned(),
            ia_params: line.to_owned(),
        };
        let rnic = SoftRnic::open(&config, notifications.clone())?;
        let pd = rnic.create_pd()?;
        let (send_cq, recv_cq) = (
            rnic.create_cq(8192, CqToken(1))?,
            rnic.create_cq(8192, CqToken(2))?,
        );
        let attr = QpAttr {
            recv_wr_max: RECEIVES,
            send_wr_max: 4096,
            recv_sge_max: 4,
            send_sge_max: 4,
            ird: 16,
            ord: 16,
            read_depth_is_consumers: false,
        };
        let qp = rnic.create_qp(&pd, Some(&send_cq), Some(&recv_cq), None, &attr, QpToken(1))?;
        let memory = Box::leak(vec![1_u8; LEN_MAX].into_boxed_slice());
        let addr = memory.as_mut_ptr().expose_provenance() as u64;
        let access = Access {
            local_read: true,
            local_write: true,
            remote_read: true,
            remote_write: true,
            remote_atomic: false,
        };
        let request = RegisterMr {
            addr,
            len: LEN_MAX as u64,
            access,
            zero_based: false,
        };
        let mr = rnic.register_mr(&pd, &request)?;
        Ok(Self {
            qp,
            send_cq,
            recv_cq,
            mr,
            addr,
            _pd: pd,
            rnic,
            notifications,
        })
    }

    fn sge(&self, len: usize) -> Sge {
        Sge {
            addr: self.addr,
            len: len as u32,
            lkey: self.rnic.mr_keys(&self.mr).lkey,
        }
    }

    fn post(&self, op: SendOp, len: usize, completion: bool) {
        let sgl = [self.sge(len)];
        let wr = SendWr {
            wr_id: 1,
            op,
            sgl: &sgl,
            completion,
            signalled: true,
            fence: false,
            inline: false,
        };
        if let Err(error) = self.rnic.post_send(&self.qp, &wr) {
            panic!("{error}");
        }
    }

    fn recv(&self, len: usize) {
        let wr = RecvWr {
            wr_id: 2,
            sgl: &[self.sge(len)],
            signalled: true,
        };
        if let Err(error) = self.rnic.post_recv(&self.qp, &wr) {
            panic!("{error}");
        }
    }

    fn take(&self, cq: &SoftCq) {
        let mut out = [Completion::EMPTY];
        loop {
            self.rnic.drive();
            if self.rnic.poll_cq(cq, &mut out) == 1 {
                assert_eq!(out[0].status, WcStatus::Success);
                return;
            }
        }
    }
}

const SEND: SendOp = SendOp::Send {
    solicited: false,
    invalidate: None,
};

fn connect(line: &str) -> Result<(End, End), RnicError> {
    let (a, b) = (End::new(line)?, End::new(line)?);
    let (_listener, port) = b.rnic.listen(&ListenAddress { port: 0 }, ListenToken(1))?;
    let mut remote = b.rnic.attr().address;
    remote.set_port(port);
    let timeout = Some(Duration::from_secs(5));
    a.rnic.connect(
        &a.qp,
        &ConnectParams {
            remote,
            timeout,
            private_data: &[],
        },
    )?;
    let request = loop {
        if let Some(request) = lock(&b.notifications.request).take() {
            break request;
        }
    };
    b.rnic
        .accept(request, &b.qp, &AcceptParams { private_data: &[] })?;
    while *lock(&a.notifications.established) == 0 || *lock(&b.notifications.established) == 0 {}
    Ok((a, b))
}

/// Half a round trip, in nanoseconds.
fn rnic_latency(a: &End, b: &End, len: usize, count: usize) -> f64 {
    std::thread::scope(|scope| {
        b.recv(LEN_MAX);
        scope.spawn(|| {
            pin(0);
            for _ in 0..count {
                b.take(&b.recv_cq);
                b.recv(LEN_MAX);
                b.post(SEND, len, true);
                b.take(&b.send_cq);
            }
        });
        pin(1);
        let start = Instant::now();
        for _ in 0..count {
            a.recv(LEN_MAX);
            a.post(SEND, len, true);
            a.take(&a.send_cq);
            a.take(&a.recv_cq);
        }
        start.elapsed().as_nanos() as f64 / count as f64 / 2.0
    })
}

fn tcp_latency(one: &TcpStream, other: &TcpStream, len: usize, count: usize) -> f64 {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(0);
            let mut buffer = vec![0; len];
            for _ in 0..count {
                spin_read(other, &mut buffer);
                write_all(other, &buffer);
            }
        });
        pin(1);
        let mut buffer = vec![0; len];
        let start = Instant::now();
        for _ in 0..count {
            write_all(one, &buffer);
            spin_read(one, &mut buffer);
        }
        start.elapsed().as_nanos() as f64 / count as f64 / 2.0
    })
}

/// Nanoseconds per message, with `depth` of them outstanding.
fn rnic_stream(a: &End, b: &End, what: What, len: usize, depth: usize, count: usize) -> f64 {
    let target = RemoteRange {
        addr: b.addr,
        len: len as u32,
        rkey: b.rnic.mr_keys(&b.mr).rkey,
    };
    for _ in 0..if what == What::Send { count } else { 1 } {
        b.recv(LEN_MAX);
    }
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            pin(0);
            match what {
                What::Send => (0..count).for_each(|_| b.take(&b.recv_cq)),
                What::Write => b.take(&b.recv_cq),
                What::Read => {}
            }
        });
        pin(1);
        let op = match what {
            What::Send => SEND,
            What::Write => SendOp::Write(target),
            What::Read => SendOp::Read(target),
        };
        let start = Instant::now();
        let mut posted = 0;
        while posted < count.min(depth) {
            a.post(op, len, true);
            posted += 1;
        }
        for _ in 0..count {
            a.take(&a.send_cq);
            if posted < count {
                a.post(op, len, true);
                posted += 1;
            }
        }
        if what == What::Write {
            a.post(SEND, 0, true);
            a.take(&a.send_cq);
        }
        if receiver.join().is_err() {
            panic!("the receiver failed");
        }
        let time = start.elapsed().as_nanos() as f64 / count as f64;
        if what == What::Read {
            a.post(SEND, 0, true);
            a.take(&a.send_cq);
            b.take(&b.recv_cq);
        }
        time
    })
}

fn tcp_stream(one: &TcpStream, other: &TcpStream, len: usize, count: usize) -> f64 {
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            pin(0);
            let mut buffer = vec![0; 256 * 1024];
            let mut left = len * count;
            let mut other = other;
            let _ = other.set_nonblocking(false);
            while left > 0 {
                match other.read(&mut buffer) {
                    Ok(taken) => left -= taken,
                    Err(error) => panic!("{error}"),
                }
            }
            let _ = other.set_nonblocking(true);
        });
        pin(1);
        let buffer = vec![1; len];
        let start = Instant::now();
        for _ in 0..count {
            write_all(one, &buffer);
        }
        if receiver.join().is_err() {
            panic!("the receiver failed");
        }
        start.elapsed().as_nanos() as f64 / count as f64
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Send,
    Write,
    Read,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let line = std::env::args().nth(1).unwrap_or_else(|| "lo 0".to_owned());
    let (a, b) = connect(&line)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    for stream in [&one, &other] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    let only = std::env::args().nth(2).unwrap_or_default();
    if only == "rnic" {
        for _ in 0..30 {
            println!("{}", rnic_latency(&a, &b, 64, 10_000));
        }
        return Ok(());
    }
    if only == "latency" {
        let len = 64;
        for _ in 0..20 {
            report(
                "send 64",
                || rnic_latency(&a, &b, len, 300),
                || tcp_latency(&one, &other, len, 300),
            );
        }
        return Ok(());
    }
    cpu_times(&a, &b, &one, &other);
    if only != "cpu" {
        latencies(&a, &b, &one, &other);
        streams(&a, &b, &one, &other);
    }
    Ok(())
}

fn cpu_times(a: &End, b: &End, one: &TcpStream, other: &TcpStream) {
    println!("one way, CPU time of a message   rnic us    tcp us     ratio");
    for (len, depth, count) in [
        (64, 1, 500),
        (64, 16, 100),
        (4096, 1, 500),
        (4096, 16, 50),
        (65_536, 1, 100),
    ] {
        report(
            &format!("send {len} depth {depth}"),
            || rnic_cpu(a, b, len, depth, count),
            || tcp_cpu(one, other, len, depth, count),
        );
    }
}

fn latencies(a: &End, b: &End, one: &TcpStream, other: &TcpStream) {
    println!("half a round trip                rnic us    tcp us     ratio");
    for (len, count) in [
        (1, 300),
        (64, 300),
        (4096, 300),
        (65_536, 100),
        (LEN_MAX, 15),
    ] {
        report(
            &format!("send {len}"),
            || rnic_latency(a, b, len, count),
            || tcp_latency(one, other, len, count),
        );
    }
}

fn streams(a: &End, b: &End, one: &TcpStream, other: &TcpStream) {
    println!("stream, time of a message");
    let cases = [
        (What::Send, 64, 16, 4000),
        (What::Send, 64, 64, 4000),
        (What::Write, 64, 16, 4000),
        (What::Write, 4096, 16, 2000),
        (What::Send, 65_536, 16, 200),
        (What::Write, 65_536, 16, 200),
        (What::Read, 65_536, 16, 200),
        (What::Send, LEN_MAX, 4, 20),
        (What::Write, LEN_MAX, 4, 20),
        (What::Read, LEN_MAX, 4, 20),
    ];
    for (what, len, depth, count) in cases {
        report(
            &format!("{what:?} {len} depth {depth}"),
            || rnic_stream(a, b, what, len, depth, count),
            || tcp_stream(one, other, len, count),
        );
    }
}

/// CPU time of one message there and back, or of `depth` messages one way, with one thread at both
/// ends: the cost of the code, independent of other load.
fn rnic_cpu(a: &End, b: &End, len: usize, depth: usize, count: usize) -> f64 {
    let start = cpu_time();
    for _ in 0..count {
        for _ in 0..depth {
            b.recv(LEN_MAX);
        }
        for _ in 0..depth {
            a.post(SEND, len, true);
        }
        for _ in 0..depth {
            a.take(&a.send_cq);
            b.take(&b.recv_cq);
        }
    }
    (cpu_time() - start).as_nanos() as f64 / (count * depth) as f64
}

fn tcp_cpu(one: &TcpStream, other: &TcpStream, len: usize, depth: usize, count: usize) -> f64 {
    let mut buffer = vec![0; len];
    let start = cpu_time();
    for _ in 0..count {
        for _ in 0..depth {
            write_all(one, &buffer);
        }
        for _ in 0..depth {
            spin_read(other, &mut buffer);
        }
    }
    (cpu_time() - start).as_nanos() as f64 / (count * depth) as f64
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn report(name: &str, rnic: impl Fn() -> f64, tcp: impl Fn() -> f64) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(rnic());
        theirs.push(tcp());
    }
    let (ours, theirs) = (best(&mut ours), best(&mut theirs));
    println!(
        "{name:<30} {:>9.2} {:>9.2} {:>9.3}",
        ours / 1e3,
        theirs / 1e3,
        ours / theirs
    );
}

/// The end of the fastest tenth.
fn best(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 10]
}

fn spin_read(mut stream: &TcpStream, buffer: &mut [u8]) {
    let mut have = 0;
    while have < buffer.len() {
        match stream.read(&mut buffer[have..]) {
            Ok(taken) => have += taken,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn write_all(mut stream: &TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(taken) => bytes = &bytes[taken..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    // If the machine has one CPU, the thread stays on it.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
