//! The control protocol between the two ends of a case: lines over a plain TCP connection.
//!
//! ```text
//! case <name>              client to server: run your part of it
//! say <word> <hex>         a point that both ends reach, with data of one end for the other
//! end ok|failed|lacks <text>   this end's part is over
//! ```
//!
//! An end that receives `end` where it expects a word stops, because the other end sends nothing
//! more.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail};

use crate::verdict::{PeerStopped, Verdict};

/// An end of the control connection.
#[derive(Debug)]
pub(crate) struct Control {
    from: BufReader<TcpStream>,
    to: TcpStream,
    /// The verdict of the other end's part, once it has been received.
    their_verdict: Option<Verdict>,
}

impl Control {
    pub(crate) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            from: BufReader::new(stream.try_clone()?),
            to: stream,
            their_verdict: None,
        })
    }

    /// Announces a case to the server's end.
    pub(crate) fn start_case(&mut self, name: &str) -> Result<()> {
        self.their_verdict = None;
        self.put(&format!("case {name}"))
    }

    /// The next case, or `None` when the client has no more.
    pub(crate) fn next_case(&mut self) -> Result<Option<String>> {
        self.their_verdict = None;
        let Some(line) = self.line()? else {
            return Ok(None);
        };
        match line.split_once(' ') {
            Some(("case", name)) => Ok(Some(name.to_owned())),
            _ => bail!("{line:?} instead of a case"),
        }
    }

    /// Sends data to the other end under a name.
    pub(crate) fn send(&mut self, word: &str, data: &[u8]) -> Result<()> {
        let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
        self.put(&format!("say {word} {hex}"))
    }

    /// Receives the data that the other end sends under this name.
    pub(crate) fn receive(&mut self, word: &str) -> Result<Vec<u8>> {
        if self.their_verdict.is_some() {
            bail!(PeerStopped);
        }
        let line = self.line()?.context("the other process has ended")?;
        if let Some(verdict) = line.strip_prefix("end ") {
            self.their_verdict = Some(Verdict::parse(verdict)?);
            bail!(PeerStopped);
        }
        let said = line
            .strip_prefix("say ")
            .and_then(|rest| rest.split_once(' '));
        match said {
            Some((first, hex)) if first == word => unhex(hex),
            _ => bail!("the other end sent {line:?} instead of {word:?}"),
        }
    }

    /// Sends the verdict of this end's part and waits for the other end's verdict.
    pub(crate) fn end(&mut self, verdict: &Verdict) -> Result<Verdict> {
        self.put(&format!("end {verdict}"))?;
        loop {
            if let Some(theirs) = self.their_verdict.take() {
                return Ok(theirs);
            }
            let line = self.line()?.context("the other process has ended")?;
            if let Some(verdict) = line.strip_prefix("end ") {
                self.their_verdict = Some(Verdict::parse(verdict)?);
            }
        }
    }

    /// A duplicate of the connection, for a caller that checks whether the connection still exists.
    pub(crate) fn connection(&self) -> Result<TcpStream> {
        Ok(self.to.try_clone()?)
    }

    fn put(&mut self, line: &str) -> Result<()> {
        writeln!(self.to, "{line}").context("sending to the other process")
    }

    fn line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        let len = self
            .from
            .read_line(&mut line)
            .context("receiving from the other process")?;
        Ok((len > 0).then(|| line.trim_end_matches('\n').to_owned()))
    }
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        bail!("{text:?} has an odd number of digits");
    };
    let byte = |pair: &[u8; 2]| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?);
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Control, Control) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        (Control::new(near).unwrap(), Control::new(far).unwrap())
    }

    #[test]
    fn words_carry_bytes_and_are_received_in_order() {
        let (mut near, mut far) = pair();
        near.start_case("evd/x").unwrap();
        near.send("at", &[0, 255, 16]).unwrap();
        assert_eq!(far.next_case().unwrap().unwrap(), "evd/x");
        assert_eq!(far.receive("at").unwrap(), [0, 255, 16]);
        near.send("other", &[]).unwrap();
        assert!(far.receive("at").unwrap_err().to_string().contains("other"));
    }

    #[test]
    fn an_end_that_waits_for_a_word_is_notified_of_the_peers_failure() {
        let (mut near, mut far) = pair();
        near.put("end failed: it broke").unwrap();
        let error = far.receive("at").unwrap_err();
        assert!(error.is::<PeerStopped>());
        assert!(far.receive("at").unwrap_err().is::<PeerStopped>());
        let theirs = far.end(&Verdict::Ok).unwrap();
        assert_eq!(theirs, Verdict::Failed("it broke".into()));
        assert_eq!(near.end(&Verdict::Ok).unwrap(), Verdict::Ok);
    }

    #[test]
    fn an_ended_process_is_an_error_and_runs_no_more_cases() {
        let (near, mut far) = pair();
        drop(near);
        assert!(far.next_case().unwrap().is_none());
        assert!(far.receive("at").is_err());
    }
}
