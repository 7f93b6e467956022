//! Several providers and devices, open and in use at the same time in one process.
//!
//! The process is a second instance of this program. Its environment names the libraries. If a
//! provider crashes in this process, no other test is affected.

use std::env;
use std::mem;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use dat_api::{
    CompletionFlags, Cr, Ep, EpEvds, Evd, EvdFlags, Event, Ia, Privileges, Psp, Pz, Region,
};
use libtest_mimic::Trial;
use stack_tests::{Program, Registry, SOFTWARE, Stage, adapter_line};

use crate::times::timed;

/// The argument that starts this program as the process with all providers.
const ARGUMENT: &str = "--together";

/// Adapters: name, provider, parameters. Two of them share a device.
const ADAPTERS: [(&str, &str, &str); 5] = [
    ("soft", SOFTWARE, "lo 0"),
    ("ib-rxe", "libdapl-ib.so.2", "r0 0"),
    ("ib-siw", "libdapl-ib.so.2", "w0 0"),
    ("ib-rxe-again", "libdapl-ib.so.2", "rxe0 1"),
    (OFAS, "libdaplofa.so.2", "r0 0"),
];

/// The adapter of OFA's provider. The process ends without closing it, because closing it may crash
/// OFA's provider on a busy machine: its thread calls `rdma_disconnect` for an endpoint that is
/// being freed, and the registry unloads the library while the library's threads may still run.
const OFAS: &str = "ofa-rxe";

/// The adapter that is closed and opened again while the other adapters are in use.
const REOPENED: &str = "ib-siw";

const DEADLINE: Duration = Duration::from_secs(300);
const WAIT: Option<Duration> = Some(Duration::from_secs(60));

const ROUNDS: u8 = 20;
const LEN: usize = 3000;

pub(crate) fn trial() -> Trial {
    timed("several providers in one process".into(), run)
}

fn run() -> Result<()> {
    let stage = Stage::find()?;
    let lines = ADAPTERS.map(|(name, library, params)| {
        let staged = stage.lib().join(library);
        let library = if staged.exists() {
            staged.display().to_string()
        } else {
            library.to_owned()
        };
        adapter_line(name, library, params)
    });
    let registry = Registry::with_text(&lines.concat())?;
    let program = Program::new(env::current_exe()?)
        .arg(ARGUMENT)
        .env("DAT_OVERRIDE", registry.file())
        .env(dat_api::LIBRARY_ENV, stage.lib().join("libdat2.so.2"));
    program.run(DEADLINE).map(drop)
}

/// Does the work of the process with all providers, if the command line has [`ARGUMENT`].
pub(crate) fn main() -> Option<ExitCode> {
    if env::args().nth(1).as_deref() != Some(ARGUMENT) {
        return None;
    }
    Some(match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    })
}

fn work() -> Result<()> {
    let open = |name: &'static str| Pair::connect(name).with_context(|| format!("opening {name}"));
    let mut pairs = ADAPTERS
        .iter()
        .map(|(name, ..)| open(name))
        .collect::<Result<Vec<Pair>>>()?;
    all_exchange(&pairs)?;
    let (reopened, staying): (Vec<Pair>, Vec<Pair>) =
        pairs.into_iter().partition(|pair| pair.name == REOPENED);
    thread::scope(|scope| {
        let others = scope.spawn(|| all_exchange(&staying));
        drop(reopened);
        others.join().map_err(|_| anyhow!("a thread panicked"))?
    })?;
    pairs = staying;
    pairs.push(open(REOPENED)?);
    all_exchange(&pairs)
}

/// Makes all pairs exchange messages concurrently, each on a thread of its own.
fn all_exchange(pairs: &[Pair]) -> Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = pairs
            .iter()
            .map(|pair| scope.spawn(|| pair.exchange().with_context(|| pair.name)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })
}

/// Two endpoints of one adapter that are connected with each other.
struct Pair {
    name: &'static str,
    // Endpoints are freed before the objects from which they were made.
    ends: [Ep; 2],
    memory: [Region; 2],
    recv: Evd,
    request: Evd,
    _rest: (Evd, Evd, Pz, Ia),
}

impl Pair {
    fn connect(name: &'static str) -> Result<Self> {
        let ia = Ia::open(name)?;
        let pz = Pz::create(&ia)?;
        let (recv, request) = (
            Evd::create(&ia, 64, EvdFlags::DTO)?,
            Evd::create(&ia, 64, EvdFlags::DTO)?,
        );
        let (connect, requests) = (
            Evd::create(&ia, 8, EvdFlags::CONNECTION)?,
            Evd::create(&ia, 8, EvdFlags::CONNECTION_REQUEST)?,
        );
        let evds = EpEvds {
            recv: &recv,
            request: &request,
            connect: &connect,
        };
        let ep = || Ep::create(&pz, evds, None);
        let region = || Region::create(&pz, LEN, Privileges::ALL);
        let (ends, memory) = ([ep()?, ep()?], [region()?, region()?]);
        if name == OFAS {
            // An endpoint keeps all objects from which it was made, and its adapter open.
            mem::forget(ends.clone());
        }
        let address = ia.attr()?.address.context("no address")?;
        // A message that is received before its receiver is connected may be lost on siw.
        let psp = Psp::create_any(&ia, &requests)?;
        ends[0].start_connect(address, psp.conn_qual(), WAIT, &[])?;
        let request_in: Cr = match requests.wait(WAIT)? {
            Some(Event::ConnectionRequest(request)) => request,
            other => return Err(anyhow!("no request but {other:?}")),
        };
        request_in.accept(Some(&ends[1]), &[])?;
        ends[1].wait_established(WAIT)?;
        ends[0].wait_established(WAIT)?;
        Ok(Self {
            name,
            ends,
            memory,
            recv,
            request,
            _rest: (connect, requests, pz, ia),
        })
    }

    /// Transfers messages with different content from the first end to the second: the first half
    /// of each by a Send, the second half by an RDMA Write.
    fn exchange(&self) -> Result<()> {
        let ([from, to], [source, sink]) = (&self.ends, &self.memory);
        for round in 0..ROUNDS {
            let bytes: Vec<u8> = (0..LEN).map(|at| at as u8 ^ round).collect();
            let half = LEN / 2;
            source.write(0, &bytes)?;
            to.post_recv(&[sink.segment(0, half)?], round.into())?;
            let flags = CompletionFlags::DEFAULT;
            let written = sink.remote().slice(half as u32, half as u32)?;
            from.post_rdma_write(&[source.segment(half, half)?], written, 100, flags)?;
            from.post_send(&[source.segment(0, half)?], 200, flags)?;
            for (evd, ep, cookie) in [
                (&self.request, from, 100),
                (&self.request, from, 200),
                (&self.recv, to, round.into()),
            ] {
                let done = evd.wait_completion(ep.id(), cookie, WAIT)?;
                ensure!(done.status.is_success(), "{:?} of {cookie}", done.status);
            }
            ensure!(
                sink.to_vec(0, LEN)? == bytes,
                "round {round} has other bytes"
            );
        }
        Ok(())
    }
}
