//! A command line, what it should come to, and how it becomes a test.

use std::env;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use stack_tests::{Finished, IA_NAME, Running, StackEnv};

const DEADLINE: Duration = Duration::from_secs(90);
const DEADLINE_FULL: Duration = Duration::from_secs(1800);

/// What nothing that works prints.
const COMPLAINTS: [&str; 5] = ["error", "fail", "warning", "mismatch", "corrupt"];

/// One line of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    /// What OFA's lists call it, or we.
    pub(crate) name: &'static str,
    /// The options; `#` stands for `few`, or for `all` in a full run.
    pub(crate) options: &'static str,
    /// How the quick form is shorter.
    pub(crate) few: &'static str,
    /// The same place in OFA's line.
    pub(crate) all: &'static str,
}

/// A line that has no shorter form.
pub(crate) const fn line(name: &'static str, options: &'static str) -> Line {
    cut(name, options, "", "")
}

/// A line with a quick form.
pub(crate) const fn cut(
    name: &'static str,
    options: &'static str,
    few: &'static str,
    all: &'static str,
) -> Line {
    Line {
        name,
        options,
        few,
        all,
    }
}

/// A line on which the tool itself is at fault, so that it fails over any stack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToolsFault {
    /// The options.
    pub(crate) options: &'static str,
    /// What it comes to instead.
    pub(crate) end: End,
    /// What the tool does wrong.
    pub(crate) why: &'static str,
}

/// How the client of a line with a fault ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// It prints this.
    Says(&'static str),
    /// A signal kills it.
    Signal(i32),
}

impl Line {
    pub(crate) fn options(&self) -> String {
        let words = if is_full() { self.all } else { self.few };
        self.options.replace('#', words)
    }

    /// The test of this line, which `run` carries out with the options.
    pub(crate) fn trial(
        self,
        tool: &str,
        run: impl FnOnce(&str) -> Result<()> + Send + 'static,
    ) -> Trial {
        trial(&format!("{tool} {}", self.name), move || {
            run(&self.options())
        })
    }
}

/// A test that tells in a full run how long it took.
pub(crate) fn trial(name: &str, run: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    let told = name.to_owned();
    Trial::test(name, move || {
        let begun = Instant::now();
        let result = run().map_err(|error| Failed::from(format!("{error:#}")));
        if is_full() {
            eprintln!("{told}: {:.1} s", begun.elapsed().as_secs_f64());
        }
        result
    })
}

pub(crate) fn is_full() -> bool {
    env::var_os("STACK_TESTS_FULL").is_some_and(|value| !value.is_empty())
}

pub(crate) fn deadline() -> Duration {
    if is_full() { DEADLINE_FULL } else { DEADLINE }
}

/// Nothing in the output may speak of a failure, except in the words of `tolerated`.
pub(crate) fn no_complaint_but(finished: Finished, tolerated: &[&str]) -> Result<Finished> {
    let mut judged = finished.clone();
    for words in tolerated {
        judged.text = judged.text.replace(words, "");
    }
    for word in COMPLAINTS {
        judged = judged.never_says(word)?;
    }
    Ok(finished)
}

pub(crate) fn no_complaint(finished: Finished) -> Result<Finished> {
    no_complaint_but(finished, &[])
}

/// A server and a client with the same options, over one interface adapter.
#[derive(Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) env: &'a StackEnv,
    pub(crate) tool: &'static str,
    /// Where the server listens when it is ready, be it for DAT or outside.
    pub(crate) port: u16,
    pub(crate) options: &'a str,
}

impl Pair<'_> {
    fn start(&self, side: &str, role: &str) -> Result<Running> {
        let Self { tool, options, .. } = self;
        self.env
            .program(tool)
            .args_line(&format!("-P {IA_NAME} {options} {role}"))
            .named(&format!("{tool} {options} ({side})"))
            .spawn()
    }

    /// Runs both to the end of the client. Returns the server and what the client came to.
    pub(crate) fn meet(&self) -> Result<(Running, Finished)> {
        let server = self.start("server", "-s")?;
        let ready = self.env.net.wait_for_listener(self.port, deadline());
        ready.with_context(|| server.text())?;
        let client = self.start("client", "-h 127.0.0.1")?.finish(deadline());
        let client = client.with_context(|| server.text())?;
        Ok((server, client))
    }

    /// Runs both to their end, and both must say `success` and complain of nothing else than
    /// `tolerated`.
    pub(crate) fn works(&self, success: &str, tolerated: &[&str]) -> Result<()> {
        let (server, client) = self.meet()?;
        let judged = no_complaint_but(client, tolerated)
            .and_then(Finished::success)
            .and_then(|client| client.says(success));
        judged.with_context(|| server.text())?;
        no_complaint_but(server.finish(deadline())?, tolerated)?
            .success()?
            .says(success)?;
        Ok(())
    }
}

impl End {
    /// Whether the tool still does wrong what the table says of it.
    pub(crate) fn is_of(self, client: Finished, fault: &ToolsFault) -> Result<()> {
        use std::os::unix::process::ExitStatusExt as _;
        match self {
            Self::Says(text) => client.says(text).map(drop),
            Self::Signal(number) => {
                let status = client.status;
                ensure!(status.signal() == Some(number), "ended with {status}");
                Ok(())
            }
        }
        .with_context(|| format!("no longer so: {}", fault.why))
    }
}
