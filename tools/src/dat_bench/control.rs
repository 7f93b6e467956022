//! The control protocol between the two processes: lines over the child's pipes, or over a TCP
//! connection between two hosts.
//!
//! ```text
//! first   hello <protocol> <stack>            only between hosts: makes the connections
//! second  ready <raw port> <adapter address> <qualifier>    once, at the start
//! first   run|count|copies|weigh|time <stack> <case> <count>
//! second  go                                  the second process is armed for the sample
//! first   end                                 the first process has finished its side
//! second  done <quantity, or ->               the second process has finished its side
//! ```
//!
//! The first word of the line that begins a sample selects the quantity that the second process
//! counts ([`Counted`]). The second process ends the session when its input ends. The first one
//! reads `failed <why>` if the second cannot continue.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use tool_args::bench::case::{Case, Stack};

/// The line that ends a sample.
const END: &str = "end";
/// The longest line. A process of another host may send anything.
const LINE_MAX: u64 = 1024;
/// The most operations of a sample, which is more than the first process ever asks for.
const COUNT_MAX: u64 = 1 << 32;
/// The word for an absent quantity.
pub(crate) const NONE: &str = "-";

/// Lines in both directions.
pub(crate) struct Channel {
    from: BufReader<Box<dyn Read>>,
    to: Box<dyn Write>,
}

impl Channel {
    fn new(from: impl Read + 'static, to: impl Write + 'static) -> Self {
        Self {
            from: BufReader::new(Box::new(from)),
            to: Box::new(to),
        }
    }

    /// The channel of a child to its parent.
    pub(crate) fn of_child() -> Self {
        Self::new(io::stdin(), io::stdout())
    }

    /// The channel over a connection between two hosts.
    pub(crate) fn over(socket: &TcpStream) -> io::Result<Self> {
        Ok(Self::new(socket.try_clone()?, socket.try_clone()?))
    }

    /// Writes a line.
    pub(crate) fn send(&mut self, line: &str) -> Result<()> {
        // One write per line: a line in two segments would wait for an acknowledgement.
        self.to.write_all(format!("{line}\n").as_bytes())?;
        Ok(self.to.flush()?)
    }

    /// The next line, or `None` when there are no more.
    pub(crate) fn next_line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        let read = (&mut self.from).take(LINE_MAX).read_line(&mut line);
        let len = match read {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bail!("the other process has been silent for too long")
            }
            read => read?,
        };
        ensure!(
            len == 0 || line.ends_with('\n'),
            "an incomplete line of {len} bytes"
        );
        Ok((len > 0).then(|| line.trim_end().to_owned()))
    }

    /// Blocks until the first process reports that its side of the sample is over.
    pub(crate) fn await_end(&mut self) -> Result<()> {
        match self.next_line()? {
            Some(line) if line == END => Ok(()),
            other => bail!("{other:?} instead of {END:?}"),
        }
    }

    /// Reads a line that begins with `word`. Returns the rest of the line.
    fn expect(&mut self, word: &str) -> Result<String> {
        let line = self.next_line()?.unwrap_or_default();
        match line.split_once(' ') {
            Some((first, rest)) if first == word => Ok(rest.to_owned()),
            None if line == word => Ok(String::new()),
            Some(("failed", why)) => bail!("the second process failed: {why}"),
            _ => bail!("the second process sent {line:?} instead of {word:?}"),
        }
    }
}

/// The first process's handle of the second one.
pub(crate) struct Peer {
    /// Empty while the value is dropped.
    channel: Option<Channel>,
    /// The second process, if it is on this host.
    child: Option<Child>,
}

impl Peer {
    pub(crate) fn spawn(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the second process")?;
        let to = child.stdin.take().context("the child has no input")?;
        let from = child.stdout.take().context("the child has no output")?;
        Ok(Self {
            channel: Some(Channel::new(from, to)),
            child: Some(child),
        })
    }

    /// The second process is a server on another host.
    pub(crate) fn remote(channel: Channel) -> Self {
        Self {
            channel: Some(channel),
            child: None,
        }
    }

    /// The process id of a second process on this host.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The addresses that the second process listens on: raw port, adapter address, connection
    /// qualifier.
    pub(crate) fn ready(&mut self) -> Result<(u16, SocketAddr, u64)> {
        let line = self.channel()?.expect("ready")?;
        let mut words = line.split(' ');
        let mut word = || words.next().context("a short line from the second process");
        Ok((word()?.parse()?, word()?.parse()?, word()?.parse()?))
    }

    /// Makes the second process arm its side of a sample.
    pub(crate) fn arm(
        &mut self,
        stack: Stack,
        case: Case,
        count: u64,
        counted: Counted,
    ) -> Result<()> {
        let verb = counted.verb();
        let channel = self.channel()?;
        channel.send(&format!("{verb} {stack} {case} {count}"))?;
        channel.expect("go").map(drop)
    }

    /// Ends the sample and waits until the second process has ended its side. Returns its count, if
    /// it could take one.
    pub(crate) fn done(&mut self) -> Result<Option<u64>> {
        let channel = self.channel()?;
        // A process that has failed does not read this line, but has already sent the reason.
        let sent = channel.send(END);
        let calls = channel.expect("done")?.parse().ok();
        sent?;
        Ok(calls)
    }

    fn channel(&mut self) -> Result<&mut Channel> {
        self.channel
            .as_mut()
            .context("the second process has ended")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The second process ends the session at the end of its input. A child that is stuck is
        // killed.
        self.channel = None;
        let Some(child) = &mut self.child else {
            return;
        };
        for _ in 0..200 {
            if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The quantity that the second process counts during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Nothing,
    /// System calls.
    Calls,
    /// Bytes that the contender copies.
    Copies,
    /// Bytes by which its resident memory grows.
    Memory,
    /// Microseconds of processor time.
    Processor,
}

impl Counted {
    const ALL: [Self; 5] = [
        Self::Nothing,
        Self::Calls,
        Self::Copies,
        Self::Memory,
        Self::Processor,
    ];

    fn verb(self) -> &'static str {
        match self {
            Self::Nothing => "run",
            Self::Calls => "count",
            Self::Copies => "copies",
            Self::Memory => "weigh",
            Self::Processor => "time",
        }
    }
}

/// Parses a line that begins a sample.
pub(crate) fn parse_run(line: &str) -> Result<(Counted, Stack, Case, u64)> {
    let words: Vec<&str> = line.split(' ').collect();
    let &[verb, stack, case, count] = words.as_slice() else {
        bail!("not understood: {line:?}");
    };
    let counted = Counted::ALL
        .into_iter()
        .find(|counted| counted.verb() == verb)
        .with_context(|| format!("not understood: {line:?}"))?;
    let count = count.parse()?;
    ensure!((1..=COUNT_MAX).contains(&count), "{count} operations");
    Ok((counted, stack.parse()?, case.parse()?, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tool_args::bench::case::Work;

    #[test]
    fn orders_are_read_as_they_were_written() {
        let (counted, stack, case, count) = parse_run("run dat write-ping:64:1 1000").unwrap();
        assert_eq!(
            (counted, stack, case.work, count),
            (Counted::Nothing, Stack::Dat, Work::WritePing, 1000)
        );
        let counted = parse_run("count raw send:64:16 7").unwrap().0;
        assert_eq!(counted, Counted::Calls);
        let counted = parse_run("time dat send-cost:64:16@10g 7").unwrap().0;
        assert_eq!(counted, Counted::Processor);
        assert!(parse_run("walk dat write-ping:64:1 1000").is_err());
        assert!(parse_run("run dat write-ping:64:1").is_err());
        assert!(parse_run("run dat write-ping:64:1 x").is_err());
        assert!(parse_run("run dat write-ping:64:1 1 2").is_err());
        assert!(parse_run("run dat write-ping:64:1 0").is_err());
        assert!(parse_run("run dat write-ping:64:1 18446744073709551615").is_err());
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let long = "x".repeat(4000);
        for input in [long.as_str(), "run"] {
            let input = io::Cursor::new(input.to_owned());
            assert!(Channel::new(input, io::sink()).next_line().is_err());
        }
        let mut channel = Channel::new(io::Cursor::new("end\n"), io::sink());
        channel.await_end().unwrap();
        assert_eq!(channel.next_line().unwrap(), None);
    }
}
