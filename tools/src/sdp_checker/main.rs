//! `sdp-checker`: prints the messages of recorded SDP connections, and the first rule that each
//! connection breaks. Programs write the records into the directory that `SDP_TRACE` names.

#![forbid(unsafe_code)]

use std::{
    fs,
    io::{self, BufWriter, ErrorKind, Write},
    path::Path,
    process::ExitCode,
};

use clap::Parser;
use sdp_checker::{Checker, Kind, Records, Side};
use tool_args::sdp_checker::Args;

/// Every file was read, and no rule is broken.
const KEPT: u8 = 0;
/// A rule is broken, or a file is not a record of a connection.
const BROKEN: u8 = 1;
/// A file cannot be read, or its name does not show which end wrote it. clap uses this code for a
/// wrong command line.
const UNUSABLE: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    let mut out = BufWriter::new(io::stdout().lock());
    let done = print_all(&args, &mut out).and_then(|code| out.flush().map(|()| code));
    match done {
        Ok(code) => ExitCode::from(code),
        // The reader of the output has closed the pipe, which is no error.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::from(KEPT),
        Err(error) => {
            eprintln!("sdp-checker: {error}");
            ExitCode::from(UNUSABLE)
        }
    }
}

fn print_all(args: &Args, out: &mut impl Write) -> io::Result<u8> {
    args.files
        .iter()
        .try_fold(KEPT, |worst, file| Ok(worst.max(print_file(file, out)?)))
}

fn print_file(file: &Path, out: &mut impl Write) -> io::Result<u8> {
    let Some(side) = side_of(file) else {
        eprintln!(
            "sdp-checker: {}: the name ends neither in .active nor in .passive",
            file.display()
        );
        return Ok(UNUSABLE);
    };
    match fs::read(file) {
        Ok(bytes) => {
            writeln!(out, "{}:", file.display())?;
            print_messages(side, &bytes, out)
        }
        Err(error) => {
            eprintln!("sdp-checker: {}: {error}", file.display());
            Ok(UNUSABLE)
        }
    }
}

/// The end that wrote a file, by the file's name.
fn side_of(file: &Path) -> Option<Side> {
    match file.extension()?.to_str()? {
        "active" => Some(Side::Active),
        "passive" => Some(Side::Passive),
        _ => None,
    }
}

/// Prints every message, and the first broken rule below the message that breaks it. Later messages
/// are printed and not checked, because the state of the connection is unknown after a violation.
fn print_messages(side: Side, bytes: &[u8], out: &mut impl Write) -> io::Result<u8> {
    let mut checker = Some(Checker::new());
    let mut messages: u64 = 0;
    for record in Records::of(bytes) {
        let record = match record {
            Ok(record) => record,
            Err(fault) => {
                writeln!(out, "  {fault}")?;
                return Ok(BROKEN);
            }
        };
        let direction = match (record.kind, record.sender(side) == side) {
            (Kind::Sent, _) | (_, true) => "sent",
            _ => "received",
        };
        writeln!(out, "{messages:>7}  {direction:<8}  {record}")?;
        messages += 1;
        let checked = checker.as_mut().map(|checker| record.check(checker, side));
        if let Some(Err(broken)) = checked {
            checker = None;
            writeln!(out, "         breaks a rule: {broken}")?;
        }
    }
    match checker {
        Some(_) => writeln!(out, "  {messages} messages, no rule is broken")?,
        None => writeln!(
            out,
            "  {messages} messages, a rule is broken; later messages are not checked"
        )?,
    }
    Ok(if checker.is_some() { KEPT } else { BROKEN })
}
