//! A wire: the second process at its other end, both connections, and the rows measured there.

use std::net::TcpStream;
use std::process::Command;

use anyhow::{Context, Result};
use tool_args::bench::Args;
use tool_args::bench::case::{Case, Stack, Wire};
use tool_args::say;

use crate::contender::Contender;
use crate::control::{NONE, Peer};
use crate::files::Files;
use crate::load::LoadMeter;
use crate::measure::{Bench, Plan};
use crate::progress::Progress;
use crate::raw::RawLink;
use crate::report;
use crate::results::{Entry, Measured, NotRun};
use crate::setup::{self, Cpus, Environment, FarEnd};
use crate::syscalls::SyscallCounter;

/// This program. In a guest whose files are its host's, the path behind this link may not exist.
const OURSELVES: &str = "/proc/self/exe";

/// The state that all wires share.
pub(crate) struct Session<'a> {
    pub(crate) args: &'a Args,
    pub(crate) environment: &'a Environment,
    pub(crate) trace_point: Option<u64>,
    pub(crate) cpus: Cpus,
    pub(crate) plan: Plan,
    pub(crate) progress: Progress,
}

impl Session<'_> {
    /// Measures the rows of one wire, and writes each to the files. The rows are not run if the
    /// wire cannot be set up; the result is their number.
    pub(crate) fn measure(
        &self,
        wire: Wire,
        contender: Stack,
        rows: &[Case],
        files: &mut Files,
    ) -> Result<usize> {
        let far = match self.environment.far_end(wire) {
            Ok(far) => far,
            Err(why) => {
                return self.not_run(wire, rows, &format!("{why:#}"), files);
            }
        };
        let mut bench = self.progress.around(|| {
            let bench = self.connect(wire, contender, &far);
            bench.inspect(|_| report::head(contender))
        })?;
        let load = LoadMeter::start(bench.peer.id());
        for case in rows.iter().copied() {
            self.progress.begin_row(&case.title());
            let row_load = LoadMeter::start(bench.peer.id());
            let outcome = bench.case(case, self.plan, &self.progress);
            let outcome = outcome.with_context(|| format!("measuring {}", case.title()))?;
            self.progress.end_row();
            let row = Measured {
                case,
                outcome,
                foreign_share: row_load.foreign_share(),
            };
            self.progress.around(|| report::row(&row));
            files.row(&Entry::Measured(&row))?;
        }
        // The connections of rows about many connections carry no traffic, so they do not move to
        // shared memory.
        let has_carrier = wire == Wire::Local
            && self.args.ia.is_none()
            && !rows.iter().all(|case| case.is_scale());
        let foreign_share = load.foreign_share();
        self.progress.around(|| {
            if has_carrier {
                report::carrier(setup::has_shared_memory());
            }
            report::disturbance(foreign_share);
        });
        Ok(0)
    }

    /// Prints the rows of a wire that cannot be set up. Returns their number.
    fn not_run(&self, wire: Wire, rows: &[Case], why: &str, files: &mut Files) -> Result<usize> {
        self.progress.around(|| {
            say!("{}", wire.title());
            rows.iter().for_each(|case| report::not_run(*case, why));
            say!("");
        });
        for case in rows.iter().copied() {
            self.progress.end_row();
            let reason = why.to_owned();
            files.row(&Entry::NotRun(&NotRun { case, reason }))?;
        }
        Ok(rows.len())
    }

    fn connect(&self, wire: Wire, stack: Stack, far: &FarEnd<'_>) -> Result<Bench> {
        let ia = self.args.ia.as_deref().unwrap_or(setup::adapter(wire));
        let mut peer = Peer::spawn(self.second_process(stack, ia, far)?)?;
        let (raw_port, address, conn_qual) = peer.ready()?;
        let raw_address = far.address();
        let raw = RawLink::new(TcpStream::connect((raw_address, raw_port))?)?;
        if let Some(congestion) = self.environment.congestion {
            raw.set_congestion(congestion)?;
        }
        let asleep = self.args.sleep_on_bulk;
        let contender = Contender::connect(stack, ia, asleep, address, conn_qual)?;
        say!(
            "{}: {}, {ia} to {}, compared with TCP to {raw_address}, {}",
            wire.title(),
            stack.title(),
            address.ip(),
            match far {
                FarEnd::Here => format!("in {}", self.environment.network),
                FarEnd::There { .. } => "between two network namespaces of its own".into(),
            }
        );
        say!(
            "congestion control: raw {}, {} {}; CPUs: here {}, peer {}{}",
            raw.congestion()?,
            stack.title(),
            self.environment.dat_congestion(),
            self.cpus.ours,
            self.cpus.theirs,
            if self.cpus.ours == self.cpus.theirs {
                " (one CPU: figures are unreliable)"
            } else {
                ""
            },
        );
        Ok(Bench {
            peer,
            raw,
            contender,
            stack,
            counter: SyscallCounter::new(self.trace_point),
        })
    }

    fn second_process(&self, contender: Stack, ia: &str, far: &FarEnd<'_>) -> Result<Command> {
        let mut command = Command::new(OURSELVES);
        command.args(self.args.sleep_on_bulk.then_some("--sleep-on-bulk"));
        command.args(["--serve", &contender.to_string(), ia]);
        command.arg(far.address().to_string());
        command.arg(self.cpus.theirs.to_string());
        command.arg(or_none(self.cpus.spare));
        command.arg(self.environment.congestion.unwrap_or(NONE));
        command.arg(or_none(self.trace_point));
        far.place(command)
    }
}

fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}
