//! The wire format, checked with Wireshark's dissectors. An independent decoder recognises all sent
//! bytes as MPA, DDP and RDMAP, and finds every CRC good.

use anyhow::{Context, Result, ensure};
use stack_tests::raw::{REPLY, REQUEST, RawPeer, SEND_HELLO};
use stack_tests::{
    Capture, DEADLINE, Decoded, NetSpace, Peers, Registry, SOFTWARE, Veth, adapter_line, available,
    not_run, orderly,
};

/// The conditions that every capture of the stack's traffic must meet.
fn is_clean(decoded: &Decoded) -> Result<()> {
    ensure!(decoded.count("Good CRC32") > 0, "no FPDU was decoded");
    let bad = decoded.count("Bad CRC32");
    ensure!(bad == 0, "{bad} FPDUs with a bad CRC");
    let malformed: Vec<&str> = decoded
        .text
        .lines()
        .filter(|line| line.contains("Malformed Packet"))
        .collect();
    ensure!(malformed.is_empty(), "{malformed:?}");
    ensure!(
        decoded.strays.is_empty(),
        "not part of an MPA stream:\n{:#?}",
        decoded.strays
    );
    Ok(())
}

fn contains(decoded: &Decoded, wanted: &[&str]) -> Result<()> {
    for what in wanted {
        ensure!(decoded.count(what) > 0, "no {what:?} in the capture");
    }
    Ok(())
}

/// The reason why a test does not run if this user has no right to capture.
const FORBIDDEN: &str = "this user may capture nothing outside of a namespace";

/// Exchanges data between two processes while the capture runs; `None` if a capture is not
/// possible.
fn exchange(settings: &str) -> Result<Option<Decoded>> {
    let peers = Peers::with_params("local=off")?;
    let Some(capture) = Capture::start()? else {
        not_run(FORBIDDEN);
        return Ok(None);
    };
    let listener = peers.start_ready("listen")?;
    orderly(peers.start(&format!("connect {settings}"))?)?.prints("DATA")?;
    orderly(listener)?.prints("DATA")?;
    capture.decode().map(Some)
}

#[test]
fn all_message_kinds_of_a_connection_are_decoded() -> Result<()> {
    let decoded = available!(exchange("messages=10 size=1000")?);
    is_clean(&decoded)?;
    contains(
        &decoded,
        &[
            "ID Req frame",
            "ID Rep frame",
            "OpCode: Send (0x3)",
            "OpCode: Write (0x0)",
            "OpCode: Read Request (0x1)",
            "OpCode: Read Response (0x2)",
        ],
    )
}

#[test]
fn messages_of_many_frames_are_decoded() -> Result<()> {
    let decoded = available!(exchange("messages=20 size=60000")?);
    is_clean(&decoded)?;
    let frames = decoded.count("Good CRC32");
    ensure!(frames >= 2 * 20, "only {frames} FPDUs for 40 messages");
    Ok(())
}

/// The longest ULPDU that fits a segment of Ethernet's size, with and without TCP's timestamps.
const SEGMENT_ULPDU: [usize; 2] = [1442, 1454];

/// The lengths of the ULPDUs of an exchange of 60,000-byte messages over Ethernet, between an IA
/// with the settings `near` and an IA with the settings `far`; `None` without a virtual Ethernet.
fn lengths_over_ethernet(near: &str, far: &str) -> Result<Option<Vec<usize>>> {
    let mut peers = Peers::new()?;
    let Some(veth) = Veth::create(&peers.env.net)? else {
        return Ok(None);
    };
    let lines = [(Veth::NEAR, near), (Veth::FAR, far)].map(|(device, settings)| {
        adapter_line(device, SOFTWARE, &format!("{device} 0 {settings}"))
    });
    peers.env.registry = Registry::with_text(&lines.concat())?;
    let capture = Capture::start_on(Veth::NEAR, Veth::FAR_V4)?;
    let capture = capture.context("a user who may create network devices may capture")?;
    let listener = peers
        .prepare(&format!("listen ia={}", Veth::FAR))
        .in_network_of(&veth)?
        .spawn()?;
    listener.wait_for("READY", DEADLINE)?;
    let args = format!("connect ia={} host={}", Veth::NEAR, Veth::FAR_V4);
    orderly(peers.start(&format!("{args} messages=3 size=60000"))?)?.prints("DATA")?;
    orderly(listener)?.prints("DATA")?;
    let decoded = capture.decode()?;
    is_clean(&decoded)?;
    Ok(Some(decoded.ulpdu_lengths()?))
}

#[test]
fn our_ends_exchange_long_fpdus_over_short_segments() -> Result<()> {
    let lengths = available!(lengths_over_ethernet("", "")?, "no network namespaces");
    // 60,000 bytes in frames of 16 KiB are four frames.
    let long = lengths.iter().filter(|len| **len == 16 * 1024 + 18).count();
    ensure!(long >= 2 * 3 * 3, "{long} long FPDUs among {lengths:?}");
    let cut = lengths.iter().filter(|len| SEGMENT_ULPDU.contains(len));
    ensure!(cut.count() == 0, "FPDUs cut for segments among {lengths:?}");
    Ok(())
}

#[test]
fn peers_of_another_implementation_get_one_fpdu_a_segment() -> Result<()> {
    for settings in [["long_fpdus=off", ""], ["", "long_fpdus=off"]] {
        let lengths = available!(
            lengths_over_ethernet(settings[0], settings[1])?,
            "no network namespaces"
        );
        let longest = lengths.iter().copied().max().unwrap_or_default();
        ensure!(SEGMENT_ULPDU.contains(&longest), "{settings:?}: {longest}");
    }
    Ok(())
}

#[test]
fn the_check_detects_a_bad_crc_and_unexpected_bytes() -> Result<()> {
    let _net = NetSpace::enter()?;
    let capture = available!(Capture::start()?, FORBIDDEN);
    let (active, passive) = RawPeer::pair()?;
    let (mut active, mut passive) = (RawPeer::over(active)?, RawPeer::over(passive)?);
    active.send(&REQUEST)?;
    passive.read(REQUEST.len())?;
    passive.send(&REPLY)?;
    active.read(REPLY.len())?;
    active.send(&SEND_HELLO)?;
    passive.read(SEND_HELLO.len())?;
    let mut bad = SEND_HELLO;
    bad[23] ^= 1;
    active.send(&bad)?;
    passive.read(bad.len())?;
    let (plain, other) = RawPeer::pair()?;
    let (mut plain, mut other) = (RawPeer::over(plain)?, RawPeer::over(other)?);
    plain.send(b"no frame at all")?;
    other.read(15)?;
    let decoded = capture.decode()?;
    ensure!(decoded.count("Good CRC32") == 1, "{}", decoded.text);
    ensure!(decoded.count("Bad CRC32") == 1, "{}", decoded.text);
    ensure!(decoded.strays.len() == 1, "{:?}", decoded.strays);
    ensure!(is_clean(&decoded).is_err());
    Ok(())
}
