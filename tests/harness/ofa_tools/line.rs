//! A command line, its expected result, and its conversion to a case.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Case;
use crate::{Finished, IA_NAME, Running, StackEnv, is_full};

/// The deadline in quick runs, and in full runs under emulation, where several processes share the
/// processors.
const DEADLINE: Duration = Duration::from_secs(400);
const DEADLINE_FULL: Duration = Duration::from_secs(1800);

/// Words that a program prints only after a failure.
const COMPLAINTS: [&str; 5] = ["error", "fail", "warning", "mismatch", "corrupt"];

#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    /// The name in OFA's lists, or our own name.
    pub(super) name: &'static str,
    /// The options; `#` stands for `few`, or for `all` in a full run.
    pub(super) options: &'static str,
    /// The value of `#` in the quick form.
    pub(super) few: &'static str,
    /// The value of `#` in OFA's line.
    pub(super) all: &'static str,
}

/// Makes a line that has no shorter form.
pub(super) const fn line(name: &'static str, options: &'static str) -> Line {
    cut(name, options, "", "")
}

/// Makes a line with a quick form.
pub(super) const fn cut(
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

/// A line that fails over any stack because of a fault of the tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolsFault {
    pub(super) options: &'static str,
    /// The result instead of a success.
    pub(super) end: End,
    pub(super) why: &'static str,
}

/// The way in which the client of a line with a fault ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// The client prints this text.
    Prints(&'static str),
    /// A signal kills the client.
    Signal(i32),
}

impl Line {
    fn options(&self, env: &StackEnv) -> String {
        let words = if is_long(env) { self.all } else { self.few };
        self.options.replace('#', words)
    }

    /// The case of this line, which `run` executes with the options.
    pub(super) fn case(
        self,
        tool: &str,
        run: impl Fn(&StackEnv, &str) -> Result<()> + Send + Sync + 'static,
    ) -> Case {
        Case::new(&format!("{tool} {}", self.name), move |env| {
            run(env, &self.options(env))
        })
    }
}

/// Returns true if the iteration counts of OFA's regression lists apply.
fn is_long(env: &StackEnv) -> bool {
    is_full() && !env.is_emulated
}

/// The time limit of a program.
pub(super) fn deadline(env: &StackEnv) -> Duration {
    env.limit.unwrap_or(match (is_full(), env.is_emulated) {
        (true, false) => DEADLINE_FULL,
        (false, _) | (true, true) => DEADLINE,
    })
}

/// Checks that the output reports no failure, except in the words of `tolerated`.
pub(super) fn no_complaint_but(finished: Finished, tolerated: &[&str]) -> Result<Finished> {
    let mut judged = finished.clone();
    for words in tolerated {
        judged.text = judged.text.replace(words, "");
    }
    for word in COMPLAINTS {
        judged = judged.never_prints(word)?;
    }
    Ok(finished)
}

pub(super) fn no_complaint(finished: Finished) -> Result<Finished> {
    no_complaint_but(finished, &[])
}

/// A server and a client with the same options, over one interface adapter.
#[derive(Debug)]
pub(super) struct Pair<'a> {
    pub(super) env: &'a StackEnv,
    pub(super) tool: &'static str,
    /// The port on which the server listens when it is ready, for DAT or for TCP.
    pub(super) port: u16,
    pub(super) options: &'a str,
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

    /// Runs both until the client ends. Returns the server and the client's result.
    pub(super) fn run_client(&self) -> Result<(Running, Finished)> {
        let server = self.start("server", "-s")?;
        let net = &self.env.net;
        net.wait_for_listener_of(&server, self.port, deadline(self.env))?;
        let role = format!("-h {}", self.env.address);
        let client = self.start("client", &role)?.finish(deadline(self.env));
        let client = client.with_context(|| server.text())?;
        Ok((server, client))
    }

    /// Runs both to their end. Both must print `success` and no complaint except `tolerated`.
    pub(super) fn works(&self, success: &str, tolerated: &[&str]) -> Result<()> {
        let (server, client) = self.run_client()?;
        let judged = no_complaint_but(client, tolerated)
            .and_then(Finished::success)
            .and_then(|client| client.prints(success));
        judged.with_context(|| server.text())?;
        no_complaint_but(server.finish(deadline(self.env))?, tolerated)?
            .success()?
            .prints(success)?;
        Ok(())
    }
}

impl End {
    /// Checks that the tool still has the fault that the table lists.
    pub(super) fn is_of(self, client: Finished, fault: &ToolsFault) -> Result<()> {
        use std::os::unix::process::ExitStatusExt as _;
        match self {
            Self::Prints(text) => client.prints(text).map(drop),
            Self::Signal(number) => {
                let status = client.status;
                ensure!(status.signal() == Some(number), "ended with {status}");
                Ok(())
            }
        }
        .with_context(|| format!("no longer so: {}", fault.why))
    }
}
