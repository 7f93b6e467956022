//! The dissector on a captured connection: it finds the messages that the two ends have recorded.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::LazyLock;
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};
use sdp_checker::{Kind, Records};
use sdp_over_dat::{Config, SdpListener, SdpStream, Stack};
use stack_tests::{Capture, DEADLINE, IA_NAME, NetSpace, SdpTraces, available, load_staged_sdp};

use super::tshark::Fields;

/// The bytes that each end sends, in writes of `WRITE`.
const TOTAL: usize = 1 << 20;
const WRITE: usize = 100_000;

/// MID, Bufs, Len, MSeq and MSeqAck of a message.
type Base = (u8, u32, u32, u32, u32);

/// The directory of traces of this process, and the staged libraries for it. Connections stay on
/// TCP, where they can be captured. Every test waits for this first.
pub(crate) static LIBRARIES: LazyLock<Result<SdpTraces, String>> = LazyLock::new(|| {
    // SAFETY: every test waits for this first. Until then no thread of this process runs code that
    // reads the environment.
    unsafe { load_staged_sdp(env!("CARGO_TARGET_TMPDIR"), "lo 0 local=off") }
});

/// Both ends write at the same time and read to the end.
fn exchange(stack: &Stack) -> Result<()> {
    let local = stack.address().context("the adapter has no address")?;
    let listener = SdpListener::bind(stack, SocketAddr::new(local.ip(), 0))?;
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (stream, _) = listener.accept_timeout(Some(DEADLINE))?;
            talk(&stream)
        });
        talk(&SdpStream::connect(stack, listener.local_addr())?)?;
        server.join().expect("a server that does not panic")
    })
}

fn talk(stream: &SdpStream) -> Result<()> {
    thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<()> {
            for chunk in vec![7; TOTAL].chunks(WRITE) {
                (&mut &*stream).write_all(chunk)?;
            }
            Ok(stream.shutdown(Shutdown::Write)?)
        });
        let mut received = Vec::new();
        (&mut &*stream).read_to_end(&mut received)?;
        ensure!(received.len() == TOTAL, "{} bytes", received.len());
        writer.join().expect("a writer that does not panic")
    })
}

/// The messages that each end has recorded as sent, and the set-up messages.
fn recorded(traces: &SdpTraces) -> Result<Vec<Base>> {
    let mut messages = Vec::new();
    for entry in fs::read_dir(traces.path())? {
        let path = entry?.path();
        let is_active = path.extension().is_some_and(|side| side == "active");
        for record in Records::of(&fs::read(&path)?) {
            let record = record?;
            let is_sent = match record.kind {
                Kind::Hello => is_active,
                Kind::HelloAck => !is_active,
                Kind::Sent => true,
                Kind::Received => false,
            };
            if is_sent {
                let head = record.head;
                let word = |at| u32::from_be_bytes([0, 1, 2, 3].map(|i: usize| head[at + i]));
                let base = (head[0], word(0) & 0xffff, word(4), word(8), word(12));
                messages.push(base);
            }
        }
    }
    messages.sort_unstable();
    Ok(messages)
}

fn shown(packets: &[Fields]) -> Result<Vec<Base>> {
    let mut messages = Vec::new();
    for fields in packets {
        let none = Vec::new();
        let [mids, bufs, lens, seqs, acks] = ["mid", "bufs", "len", "mseq", "mseqack"]
            .map(|name| fields.get(name).unwrap_or(&none).as_slice());
        for (index, mid) in mids.iter().enumerate() {
            messages.push((
                u8::from_str_radix(mid.trim_start_matches("0x"), 16)?,
                bufs[index].parse()?,
                lens[index].parse()?,
                seqs[index].parse()?,
                acks[index].parse()?,
            ));
        }
    }
    messages.sort_unstable();
    Ok(messages)
}

#[test]
fn all_messages_of_a_connection_are_shown() -> Result<()> {
    let dissector = available!(super::dissector()?);
    let _net = NetSpace::enter()?;
    let traces = LIBRARIES.as_ref().map_err(|e| anyhow::anyhow!("{e}"))?;
    let capture = available!(
        Capture::start()?,
        "this user may capture nothing outside of a namespace"
    );
    let stack = Stack::open_with(IA_NAME, Config::default())?;
    exchange(&stack)?;
    drop(stack);
    let file = capture.stop()?;
    let packets = dissector.fields(&file.path)?;
    let faults = packets.iter().flat_map(Fields::keys);
    let faults: Vec<_> = faults.filter(|name| name.starts_with("expert.")).collect();
    ensure!(faults.is_empty(), "{faults:?}");
    let (shown, recorded) = (shown(&packets)?, recorded(traces)?);
    for mid in [0x00, 0x01, 0x02, 0xff] {
        ensure!(
            recorded.iter().any(|base| base.0 == mid),
            "no message {mid:#04x}"
        );
    }
    let mut missing = recorded.clone();
    for base in &shown {
        let at = missing.iter().position(|other| other == base);
        missing.remove(at.with_context(|| format!("{base:?} was not recorded"))?);
    }
    // The last message of an end may be recorded and not sent, because the peer has closed. And
    // Wireshark sometimes passes no payload of an FPDU to the dissector.
    if missing.len() > recorded.len() / 10 {
        let segments = dissector.irregular_segments(&file.path)?;
        bail!("not shown: {missing:?}\nrecorded {recorded:?}\nirregular: {segments}");
    }
    ensure!(traces.check()? > 0, "no message was recorded");
    Ok(())
}
