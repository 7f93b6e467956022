//! The control protocol between the two processes: lines over the child's pipes.
//!
//! ```text
//! child   ready <raw port> <adapter address> <qualifier>    once, at the start
//! parent  run|count|copies|weigh|time <stack> <case> <count>
//! child   go                                  the child is armed for the sample
//! parent  end                                 the parent has finished its side
//! child   done <quantity, or ->               the child has finished its side
//! ```
//!
//! The first word of the parent's line selects the quantity that the child counts ([`Counted`]).
//! The child exits when its input ends. The parent reads `failed <why>` if the child cannot
//! continue.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use tool_args::bench::case::{Case, Stack};

/// The line that ends a sample.
const END: &str = "end";

/// The parent's handle of its child.
pub(crate) struct Peer {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Peer {
    pub(crate) fn spawn(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the second process")?;
        let to = child.stdin.take();
        let from = child.stdout.take().context("the child has no output")?;
        Ok(Self {
            child,
            to,
            from: BufReader::new(from),
        })
    }

    /// The child's process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The addresses that the child listens on: raw port, adapter address, connection qualifier.
    pub(crate) fn ready(&mut self) -> Result<(u16, SocketAddr, u64)> {
        let line = self.expect("ready")?;
        let mut words = line.split(' ');
        let mut word = || words.next().context("a short line from the child");
        Ok((word()?.parse()?, word()?.parse()?, word()?.parse()?))
    }

    /// Makes the child arm its side of a sample.
    pub(crate) fn arm(
        &mut self,
        stack: Stack,
        case: Case,
        count: u64,
        counted: Counted,
    ) -> Result<()> {
        let to = self.to.as_mut().context("the child has ended")?;
        let verb = counted.verb();
        writeln!(to, "{verb} {stack} {case} {count}")?;
        to.flush()?;
        self.expect("go").map(drop)
    }

    /// Ends the sample and waits until the child has ended its side. Returns the child's count, if
    /// the child could take one.
    pub(crate) fn done(&mut self) -> Result<Option<u64>> {
        let to = self.to.as_mut().context("the child has ended")?;
        // A child that has failed does not read this line, but has already sent the reason.
        let sent = writeln!(to, "{END}").and_then(|()| to.flush());
        let calls = self.expect("done")?.parse().ok();
        sent?;
        Ok(calls)
    }

    fn expect(&mut self, word: &str) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        let line = line.trim_end();
        match line.split_once(' ') {
            Some((first, rest)) if first == word => Ok(rest.to_owned()),
            None if line == word => Ok(String::new()),
            Some(("failed", why)) => bail!("the second process failed: {why}"),
            _ => bail!("the second process sent {line:?} instead of {word:?}"),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The child exits at the end of its input. A child that is stuck is killed.
        self.to = None;
        for _ in 0..200 {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
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

/// Parses a line of the parent that begins a sample.
pub(crate) fn parse_run(line: &str) -> Result<(Counted, Stack, Case, u64)> {
    let words: Vec<&str> = line.split(' ').collect();
    let &[verb, stack, case, count] = words.as_slice() else {
        bail!("not understood: {line:?}");
    };
    let counted = Counted::ALL
        .into_iter()
        .find(|counted| counted.verb() == verb)
        .with_context(|| format!("not understood: {line:?}"))?;
    Ok((counted, stack.parse()?, case.parse()?, count.parse()?))
}

/// The next order, or `None` when the parent has no more.
pub(crate) fn next_order() -> Result<Option<String>> {
    let mut line = String::new();
    let len = std::io::stdin().lock().read_line(&mut line)?;
    Ok((len > 0).then(|| line.trim_end().to_owned()))
}

/// Blocks until the parent reports that its side of the sample is over.
pub(crate) fn await_end() -> Result<()> {
    match next_order()? {
        Some(line) if line == END => Ok(()),
        other => bail!("{other:?} instead of {END:?}"),
    }
}

/// Writes a line to the parent.
pub(crate) fn send(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
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
    }
}
