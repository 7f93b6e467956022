//! A peer that sends arbitrary SDP over DAT. In every case the victim's stream either continues or
//! ends with an error that is usual for sockets, and other streams of the stack are not affected.
//!
//! The messages of the victims are recorded, and checked against the rules of the protocol up to
//! the attacker's first violation.
//!
//! The attacker's messages are built from bytes, not by the code under test.

use std::{
    env,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr},
    sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use dat_api::{
    Close, CompletionFlags, ConnectionKind, Ep, EpAttr, EpEvds, Evd, EvdFlags, Event, Ia,
    Privileges, Pz, Region,
};
use rustix::io::Errno;
use sdp_over_dat::{Config, Options, SdpListener, SdpStream, Stack};
use stack_tests::{
    IA_NAME, SdpTraces, await_end_of_stack_threads, awaited, load_staged_sdp, until,
};

/// The time limit of every event.
const DEADLINE: Duration = Duration::from_secs(60);

/// The time for which the victim reads when an attack need not have an effect.
const PATIENCE: Duration = Duration::from_millis(60);

const HELLO_LEN: usize = 92;
const BUFFERS: usize = 16;
const SIZE: usize = 4096;

static LIBRARIES: LazyLock<Result<SdpTraces, String>> = LazyLock::new(|| {
    // SAFETY: every test waits for this first. Until then no thread of this process runs code that
    // reads the environment.
    unsafe { load_staged_sdp(env!("CARGO_TARGET_TMPDIR"), "lo 0") }
});

/// Tests hold a read lock while they run. A test that gets the write lock runs alone, so all
/// records are complete.
static RUNNING: RwLock<()> = RwLock::new(());

/// A base header: MID, flags, Bufs, Len, MSeq, MSeqAck.
fn header(mid: u8, len: usize, seq: u32) -> Vec<u8> {
    let mut bytes = vec![mid, 0];
    bytes.extend((BUFFERS as u16).to_be_bytes());
    bytes.extend((len as u32).to_be_bytes());
    bytes.extend(seq.to_be_bytes());
    bytes.extend(0_u32.to_be_bytes());
    bytes
}

/// A message with an extended header or payload after its base header.
fn message(mid: u8, seq: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = header(mid, 16 + rest.len(), seq);
    bytes.extend(rest);
    bytes
}

fn hello() -> Vec<u8> {
    let mut bytes = header(0, HELLO_LEN, 0);
    bytes.resize(HELLO_LEN, 0);
    bytes[16..20].copy_from_slice(&[0x22, 0x40, 0, 1]);
    bytes[20..24].copy_from_slice(&(SIZE as u32).to_be_bytes());
    bytes[24..28].copy_from_slice(&(SIZE as u32).to_be_bytes());
    bytes[28..30].copy_from_slice(&40_000_u16.to_be_bytes());
    bytes[44..48].copy_from_slice(&[127, 0, 0, 1]);
    bytes[60..64].copy_from_slice(&[127, 0, 0, 1]);
    bytes
}

struct Attacker {
    ep: Ep,
    connections: Evd,
    memory: Region,
    sent: u64,
    _completions: Evd,
}

impl Attacker {
    fn connect(pz: &Pz, ia: &Ia, to: &SdpListener, hello: &[u8]) -> Result<Self> {
        let completions = Evd::create(ia, 256, EvdFlags::DTO)?;
        let connections = Evd::create(ia, 8, EvdFlags::CONNECTION)?;
        let evds = EpEvds {
            recv: &completions,
            request: &completions,
            connect: &connections,
        };
        let attr = EpAttr {
            max_message_size: SIZE as u32,
            max_recv_dtos: BUFFERS as i32,
            max_request_dtos: 32,
            ..EpAttr::default()
        };
        let ep = Ep::create(pz, evds, Some(&attr))?;
        let privileges = Privileges::LOCAL_READ | Privileges::LOCAL_WRITE;
        let memory = Region::create(pz, (BUFFERS + 1) * SIZE, privileges)?;
        for index in 0..BUFFERS {
            let buffer = memory.segment((index + 1) * SIZE, SIZE)?;
            ep.post_recv(&[buffer], index as u64)?;
        }
        let address = to.local_addr();
        ep.start_connect(address, to.conn_qual(), Some(DEADLINE), hello)?;
        Ok(Self {
            ep,
            connections,
            memory,
            sent: 0,
            _completions: completions,
        })
    }

    fn outcome(&self) -> Result<ConnectionKind> {
        match self.connections.wait(Some(DEADLINE))? {
            Some(Event::Connection(event)) => Ok(event.kind),
            other => bail!("{other:?} instead of the outcome of a connect"),
        }
    }

    /// Sends a message; a connection that the victim has ended accepts none.
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let at = (self.sent as usize % 16) * 256;
        ensure!(bytes.len() <= 256, "a long message");
        self.memory.write(at, bytes)?;
        let segment = self.memory.segment(at, bytes.len())?;
        let flags = CompletionFlags::DEFAULT;
        let _ = self.ep.post_send(&[segment], self.sent, flags);
        self.sent += 1;
        Ok(())
    }
}

/// The result of the victim's read.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Bytes(Vec<u8>),
    End,
    Nothing,
    Reset,
}

/// A stack with a victim's service, and a healthy pair next to it.
struct Scene {
    stack: Stack,
    listener: SdpListener,
    healthy: (SdpStream, SdpStream),
    // Declared after the objects that use it.
    pz: Pz,
    ia: Ia,
    attacks: usize,
    _under_way: RwLockReadGuard<'static, ()>,
}

impl Scene {
    fn new() -> Result<Self> {
        Self::on(|| Stack::open(IA_NAME))
    }

    fn on(open: impl FnOnce() -> io::Result<Stack>) -> Result<Self> {
        LIBRARIES.as_ref().map_err(|e| anyhow::anyhow!("{e}"))?;
        let under_way = RUNNING.read().unwrap_or_else(PoisonError::into_inner);
        let stack = open()?;
        let local = stack.address().context("the adapter has no address")?;
        let address = SocketAddr::new(local.ip(), 0);
        let listener = SdpListener::bind(&stack, address)?;
        let healthy = thread::scope(|scope| -> Result<_> {
            let server = scope.spawn(|| listener.accept_timeout(Some(DEADLINE)));
            let client = SdpStream::connect(&stack, listener.local_addr())?;
            let server = server.join().expect("a server that does not panic");
            Ok((client, server?.0))
        })?;
        for stream in [&healthy.0, &healthy.1] {
            patient(stream, DEADLINE);
        }
        let ia = Ia::open(IA_NAME)?;
        Ok(Self {
            pz: Pz::create(&ia)?,
            ia,
            stack,
            listener,
            healthy,
            attacks: 0,
            _under_way: under_way,
        })
    }

    /// A connection to a victim.
    fn established(&mut self, hello: &[u8]) -> Result<(Attacker, SdpStream)> {
        self.attacks += 1;
        let attacker = Attacker::connect(&self.pz, &self.ia, &self.listener, hello)?;
        let (victim, _) = self.listener.accept_timeout(Some(DEADLINE))?;
        let outcome = attacker.outcome()?;
        ensure!(outcome == ConnectionKind::Established, "{outcome:?}");
        Ok((attacker, victim))
    }

    /// A connection to a victim that has received a byte. `adverts` is the number of advertisements
    /// that the attacker accepts.
    fn begun(&mut self, adverts: u8) -> Result<(Attacker, SdpStream)> {
        let mut hello = hello();
        hello[19] = adverts;
        let (mut attacker, victim) = self.established(&hello)?;
        patient(&victim, DEADLINE);
        attacker.send(&message(DATA, 1, b"!"))?;
        (&victim).read_exact(&mut [0; 1])?;
        Ok((attacker, victim))
    }

    /// Connects, sends `messages`, and returns the effect on the victim, which must occur.
    fn attack(&mut self, messages: &[Vec<u8>]) -> Result<Seen> {
        self.attack_for(messages, DEADLINE)
    }

    /// Connects and sends messages that the victim need not notice within `patience`.
    fn attack_for(&mut self, messages: &[Vec<u8>], patience: Duration) -> Result<Seen> {
        let (mut attacker, victim) = self.established(&hello())?;
        for message in messages {
            attacker.send(message)?;
        }
        read(&victim, patience)
    }

    /// Accepts until the attacker has the result of its attempt. Returns the result, and true if
    /// the victim accepted.
    fn answer(&self, attacker: &Attacker) -> Result<(ConnectionKind, bool)> {
        let end = Instant::now() + DEADLINE;
        let mut accepted = None;
        loop {
            if let Ok(stream) = self.listener.accept_timeout(Some(PATIENCE)) {
                accepted = Some(stream);
            }
            match attacker.connections.wait(Some(Duration::ZERO))? {
                Some(Event::Connection(event)) => return Ok((event.kind, accepted.is_some())),
                Some(other) => bail!("{other:?} instead of the outcome of a connect"),
                None => ensure!(Instant::now() < end, "no outcome of a connect"),
            }
        }
    }

    /// Checks that the healthy pair carries bytes in both directions.
    fn check_healthy(&self) -> Result<()> {
        let (client, server) = &self.healthy;
        for (mut from, mut to) in [(client, server), (server, client)] {
            from.write_all(b"unharmed")?;
            let mut bytes = [0; 8];
            to.read_exact(&mut bytes).context("the healthy pair")?;
            ensure!(&bytes == b"unharmed");
        }
        ensure!(self.stack.address().is_some());
        Ok(())
    }

    /// Checks the healthy pair a last time, and the recorded messages if no other test is running.
    fn finish(self) -> Result<()> {
        self.check_healthy()?;
        println!("{} attacks", self.attacks);
        drop(self);
        let traces = LIBRARIES.as_ref().map_err(|e| anyhow::anyhow!("{e}"))?;
        if let Ok(_alone) = RUNNING.try_write() {
            await_end_of_stack_threads(DEADLINE)?;
            let messages = traces.check_victims()?;
            ensure!(messages > 0, "no SDP message was recorded");
            println!("{messages} messages, no rule broken by a victim");
        }
        Ok(())
    }
}

fn patient(stream: &SdpStream, timeout: Duration) {
    stream.set_options(Options {
        read_timeout: Some(timeout),
        write_timeout: Some(timeout),
        ..stream.options()
    });
}

/// Reads for `patience`. Bytes may be followed by the end of the connection.
fn read(victim: &SdpStream, patience: Duration) -> Result<Seen> {
    patient(victim, patience);
    let mut victim = victim;
    let mut bytes = [0; 64];
    let start = Instant::now();
    let seen = match victim.read(&mut bytes) {
        Ok(0) => Seen::End,
        Ok(len) => Seen::Bytes(bytes[..len].to_vec()),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::AGAIN) => Seen::Nothing,
            Some(Errno::CONNRESET) => Seen::Reset,
            _ => bail!("no socket says this: {error:?}"),
        },
    };
    if seen == Seen::Reset {
        // As with TCP: a reset is reported once, and then the stream is at its end.
        ensure!(victim.read(&mut bytes)? == 0, "bytes after a reset");
        let written = victim.write(b"x");
        let errno = written.as_ref().err().and_then(Errno::from_io_error);
        ensure!(errno == Some(Errno::PIPE), "{written:?} after a reset");
    }
    ensure!(start.elapsed() < 2 * DEADLINE, "a read that ends too late");
    Ok(seen)
}

const DATA: u8 = 0xff;
const SRC_AVAIL: u8 = 0xfe;
const DISCONN: u8 = 0x02;

/// MIDs without a message: 0x0F to 0xFC.
const UNKNOWN: std::ops::RangeInclusive<u8> = 0x0f..=0xfc;

/// An advertisement of 64 bytes at an invalid address; the first byte is in the message.
fn src_avail(seq: u32) -> Vec<u8> {
    let mut rest = 64_u32.to_be_bytes().to_vec();
    rest.extend(0xdead_0001_u32.to_be_bytes());
    rest.extend(0x7f00_0000_0000_u64.to_be_bytes());
    rest.push(b'A');
    message(SRC_AVAIL, seq, &rest)
}

#[test]
fn every_message_in_every_state() -> Result<()> {
    let mut scene = Scene::new()?;
    let befores: [Vec<Vec<u8>>; 3] = [
        Vec::new(),
        vec![message(DISCONN, 1, b"")],
        vec![src_avail(1)],
    ];
    for before in befores {
        let seq = before.len() as u32 + 1;
        for mid in (0..=0x0e).chain([0x0f, 0x3f, 0x40, 0x7f, 0x80, 0xfc, 0xfd, SRC_AVAIL, DATA]) {
            for rest in [0, 4, 8, 16, 20, 24] {
                let mut messages = before.clone();
                messages.push(message(mid, seq, &vec![0x11; rest]));
                let is_unknown = before.is_empty() && UNKNOWN.contains(&mid);
                let patience = if is_unknown { DEADLINE } else { PATIENCE };
                let seen = scene.attack_for(&messages, patience)?;
                if is_unknown {
                    ensure!(seen == Seen::Reset, "MID {mid:#x}: {seen:?}");
                }
                if let Seen::Bytes(bytes) = &seen {
                    let may = mid >= 0xfd || !before.is_empty();
                    ensure!(may, "MID {mid:#x} brought {bytes:x?}");
                }
            }
        }
        scene.check_healthy()?;
    }
    scene.finish()
}

#[test]
fn more_messages_than_buffers_and_numbers_out_of_order() -> Result<()> {
    let mut scene = Scene::new()?;
    let repeated = [message(DATA, 1, b"a"), message(DATA, 1, b"b")];
    let skipped = [message(DATA, 1, b"a"), message(DATA, 3, b"b")];
    for attack in [repeated, skipped] {
        let seen = scene.attack(&attack)?;
        let good = [Seen::Bytes(b"a".to_vec()), Seen::Reset];
        ensure!(good.contains(&seen), "{seen:?}");
    }
    // A message of two bytes, and one that is longer than its length field.
    let mut long = message(DATA, 1, b"hello");
    long.extend(b"more");
    for attack in [vec![DATA, 0], long, Vec::from([0_u8; 36])] {
        ensure!(scene.attack(&[attack])? == Seen::Reset);
    }
    // All messages at once, regardless of credits.
    let flood: Vec<_> = (1..=40).map(|seq| message(DATA, seq, b"x")).collect();
    let seen = scene.attack(&flood)?;
    let is_good = matches!(&seen, Seen::Bytes(bytes) if bytes.iter().all(|byte| *byte == b'x'));
    ensure!(is_good || seen == Seen::Reset, "{seen:?}");
    scene.finish()
}

#[test]
fn every_byte_of_a_hello_with_other_values() -> Result<()> {
    let mut scene = Scene::new()?;
    let (mut refused, mut taken) = (0, 0);
    for at in 0..64 {
        for value in [0, 0xff] {
            let mut bad = hello();
            bad[at] = value;
            scene.attacks += 1;
            let attacker = Attacker::connect(&scene.pz, &scene.ia, &scene.listener, &bad)?;
            let (outcome, is_accepted) = scene.answer(&attacker)?;
            match outcome {
                ConnectionKind::PeerRejected => {
                    refused += 1;
                    ensure!(
                        !is_accepted,
                        "byte {at} as {value:#x}: accepted and refused"
                    );
                }
                ConnectionKind::Established => taken += 1,
                other => bail!("byte {at} as {value:#x}: {other:?}"),
            }
        }
    }
    println!("{taken} taken, {refused} refused");
    ensure!(taken > 0 && refused > 0);
    scene.finish()
}

/// A peer with another version is refused and receives this end's version, so that the peer can
/// report the reason.
#[test]
fn a_hello_of_another_version_is_answered_with_ours() -> Result<()> {
    let scene = Scene::new()?;
    let mut other = hello();
    other[16] = 0x30;
    let attacker = Attacker::connect(&scene.pz, &scene.ia, &scene.listener, &other)?;
    let accepted = scene.listener.accept_timeout(Some(PATIENCE));
    ensure!(accepted.is_err(), "accepted");
    let Some(Event::Connection(event)) = attacker.connections.wait(Some(DEADLINE))? else {
        bail!("no outcome");
    };
    ensure!(event.kind == ConnectionKind::PeerRejected, "{event:?}");
    let answer = &event.private_data;
    ensure!(answer.len() > 16, "nothing is said of the reason");
    ensure!(answer[0] == 1 && answer[16] == 0x22, "{answer:x?}");
    scene.finish()
}

/// A peer that receives an advertisement and does not answer cannot block the writer. At its
/// timeout or shutdown, the writer revokes the advertisement, and later the connection is aborted.
#[test]
fn an_advertisement_without_an_answer_does_not_hold_its_writer() -> Result<()> {
    let config = Config {
        zcopy_threshold: 256 << 10,
        close_timeout: Duration::from_millis(500),
        ..Config::default()
    };
    let mut scene = Scene::on(|| Stack::open_with(IA_NAME, config))?;
    for shuts in [false, true] {
        // On a busy machine the first timeout may pass before memory is advertised.
        with_patience([300, 5_000, 40_000], |timeout| {
            write_without_an_answer(&mut scene, timeout, shuts)
        })?;
    }
    scene.finish()
}

/// Repeats an attempt with longer and longer timeouts until it returns true.
fn with_patience(
    timeouts_ms: [u64; 3],
    mut attempt: impl FnMut(Duration) -> Result<bool>,
) -> Result<()> {
    for timeout in timeouts_ms {
        if attempt(Duration::from_millis(timeout))? {
            return Ok(());
        }
    }
    bail!("no memory is advertised")
}

/// Writes with this timeout, or without one and with a shutdown, to an attacker that does not
/// answer. Returns true if the victim advertised its memory.
fn write_without_an_answer(scene: &mut Scene, timeout: Duration, shuts: bool) -> Result<bool> {
    // Writes are copied before the first message has been received.
    let (attacker, victim) = scene.begun(1)?;
    victim.set_options(Options {
        write_timeout: (!shuts).then_some(timeout),
        ..Options::default()
    });
    let before = victim.statistics().messages_sent;
    thread::scope(|scope| {
        let start = Instant::now();
        let writes = scope.spawn(|| (&victim).write(&vec![7; 1 << 20]));
        while victim.statistics().messages_sent == before && !writes.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        if shuts {
            victim.shutdown(Shutdown::Write)?;
        }
        while !writes.is_finished() && start.elapsed() < timeout + DEADLINE {
            thread::sleep(Duration::from_millis(10));
        }
        let took = start.elapsed();
        // The disconnect ends the connection if the victim has not.
        let _ = attacker.ep.disconnect(Close::Abrupt);
        let written = writes.join().expect("a writer that does not panic");
        ensure!(took < timeout + DEADLINE / 2, "{written:?} after {took:?}");
        if victim.statistics().messages_sent == before {
            return Ok(false);
        }
        let errno = written.as_ref().err().and_then(Errno::from_io_error);
        ensure!(errno == Some(Errno::TIMEDOUT), "{written:?}");
        Ok(true)
    })
}

/// A peer that holds a reader's memory and does not answer the cancel loses its connection some
/// time after the reader's timeout. Nothing else makes the memory safe to use again.
#[test]
fn readers_memory_without_an_answer_does_not_hold_its_reader() -> Result<()> {
    let config = Config {
        sink_threshold: 100_000,
        close_timeout: Duration::from_millis(500),
        ..Config::default()
    };
    let mut scene = Scene::on(|| Stack::open_with(IA_NAME, config))?;
    // On a busy machine the first timeouts may pass before memory is advertised.
    with_patience([2_000, 8_000, 40_000], |timeout| {
        read_without_an_answer(&mut scene, timeout)
    })?;
    scene.finish()
}

/// Reads with this timeout from an attacker that does not answer. Returns true if the victim
/// advertised its memory.
fn read_without_an_answer(scene: &mut Scene, timeout: Duration) -> Result<bool> {
    let (mut attacker, victim) = scene.begun(16)?;
    // The receiving half changes from combined to pipelined mode.
    attacker.send(&message(0x07, 2, &[0x20, 0, 0, 0]))?;
    patient(&victim, timeout);
    let start = Instant::now();
    let read = (&victim).read(&mut vec![0; 1 << 20]);
    let took = start.elapsed();
    ensure!(took < timeout + DEADLINE / 2, "{read:?} after {took:?}");
    let after = victim.statistics();
    let is_advertised = after.sinks > 0;
    if is_advertised {
        let counts = (after.sinks, after.sinks_used, after.sinks_cancelled);
        ensure!(counts == (1, 0, 1), "{after:?}");
        let errno = read.as_ref().err().and_then(Errno::from_io_error);
        ensure!(errno == Some(Errno::TIMEDOUT), "{read:?}");
    }
    // The victim may have ended the connection, so the disconnect may fail.
    let _ = attacker.ep.disconnect(Close::Abrupt);
    drop((attacker, victim));
    Ok(is_advertised)
}

/// Memory for the victim's next bytes, which the peer says it has. One message with data was
/// counted.
fn sink_avail(seq: u32, len: u32) -> Vec<u8> {
    let mut rest = len.to_be_bytes().to_vec();
    rest.extend(0xdead_0001_u32.to_be_bytes());
    rest.extend(0x7f00_0000_0000_u64.to_be_bytes());
    rest.extend(1_u32.to_be_bytes());
    message(0xfd, seq, &rest)
}

/// A peer that advertises memory that it does not have, or less of it than a message may need,
/// loses its connection when it is written to, and the writer gets an error.
#[test]
fn memory_that_the_peer_does_not_have_is_an_error_for_its_writer() -> Result<()> {
    let config = Config {
        pipelined_threshold: 1,
        write_min: 1,
        ..Config::default()
    };
    let mut scene = Scene::on(|| Stack::open_with(IA_NAME, config))?;
    for len in [1 << 20, 10] {
        let (mut attacker, victim) = scene.begun(16)?;
        (&victim).write_all(b"x")?;
        attacker.send(&sink_avail(2, len))?;
        // A message that crosses the advertisement would make it stale.
        until!(
            victim.statistics().messages_received >= 2,
            "the advertisement is lost"
        );
        let write = || (&victim).write(&[7; 1_000]);
        let error = awaited!(write().err(), "the writer gets no error");
        let errno = Errno::from_io_error(&error);
        let is_end = matches!(errno, Some(Errno::CONNRESET | Errno::PIPE));
        ensure!(is_end, "{errno:?} with {len} bytes");
    }
    scene.finish()
}
