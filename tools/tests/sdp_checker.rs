//! The program `sdp-checker`, run as by a user who has recorded a connection.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use sdp_checker::TraceWriter;

type Result = std::result::Result<(), Box<dyn Error>>;

fn hello() -> [u8; 92] {
    let mut bytes = [0; 92];
    bytes[3] = 0x40;
    bytes[7] = 92;
    bytes[16..20].copy_from_slice(&[0x22, 0x40, 0, 1]);
    bytes[24..28].copy_from_slice(&[0, 0, 0x80, 0x10]);
    bytes
}

fn hello_ack() -> [u8; 196] {
    let mut bytes = [0; 196];
    bytes[0] = 1;
    bytes[3] = 0x40;
    bytes[7] = 196;
    bytes[16..20].copy_from_slice(&[0x22, 0, 0, 1]);
    bytes[20..24].copy_from_slice(&[0, 0, 0x80, 0x10]);
    bytes
}

/// Data with five bytes, as the `seq`th message.
fn data(seq: u8) -> [u8; 21] {
    let mut bytes = *b"\xff\0\0\x40\0\0\0\x15\0\0\0\0\0\0\0\0hello";
    bytes[11] = seq;
    bytes
}

/// A connection of two messages, which its active end sends with these numbers.
fn recorded(numbers: [u8; 2]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes);
    let written = writer
        .hello(&hello())
        .and_then(|()| writer.hello_ack(&hello_ack()));
    let written = numbers.into_iter().fold(written, |written, seq| {
        written.and_then(|()| writer.sent(&data(seq)[..16], 21))
    });
    written.expect("a vector takes what is written");
    bytes
}

fn run(args: &[&Path]) -> std::io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_sdp-checker"))
        .args(args)
        .output()
}

#[test]
fn messages_of_a_good_connection_are_printed() -> Result {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("1-0.active");
    fs::write(&file, recorded([1, 2]))?;
    let output = run(&[&file])?;
    let said = String::from_utf8(output.stdout)?;
    assert_eq!(output.status.code(), Some(0), "{said}");
    let lines: Vec<&str> = said.lines().skip(1).map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "0  sent      Hello          Bufs 64, MaxAdverts 1, receive buffers of 32784 bytes",
            "1  received  HelloAck       Bufs 64, MaxAdverts 1, receive buffers of 32784 bytes",
            "2  sent      Data           MSeq 1, MSeqAck 0, Bufs 64, 5 bytes of payload",
            "3  sent      Data           MSeq 2, MSeqAck 0, Bufs 64, 5 bytes of payload",
            "4 messages, no rule is broken",
        ]
    );
    Ok(())
}

#[test]
fn a_violation_is_printed_below_its_message() -> Result {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("1-0.active");
    fs::write(&file, recorded([3, 4]))?;
    let output = run(&[&file])?;
    let said = String::from_utf8(output.stdout)?;
    assert_eq!(output.status.code(), Some(1), "{said}");
    let wanted = "MSeq 3, MSeqAck 0, Bufs 64, 5 bytes of payload\n         breaks a rule: MSeq is \
                  not the number of the message\n";
    assert!(said.contains(wanted), "{said}");
    assert!(said.contains("MSeq 4,"), "the rest is printed: {said}");
    assert!(said.contains("later messages are not checked"), "{said}");
    Ok(())
}

#[test]
fn bytes_that_are_no_record_are_reported() -> Result {
    let dir = tempfile::tempdir()?;
    let (junk, other) = (dir.path().join("a.passive"), dir.path().join("notes"));
    fs::write(&junk, "junk")?;
    fs::write(&other, "")?;
    let output = run(&[&junk])?;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout)?.contains("the file is not a trace"));
    let gone = dir.path().join("gone.active");
    let wrong: [&[&Path]; 3] = [&[&other], &[&gone], &[]];
    for wrong in wrong {
        let output = run(wrong)?;
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty(), "{wrong:?}");
    }
    Ok(())
}
