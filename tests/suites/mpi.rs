//! Intel MPI 2018, unmodified, over the staged libraries.
//!
//! A test is a combination of ranks, fabrics, providers, networks and one setting of the library;
//! the ranks run `tests/c/mpi_exchange.c`, which checks every byte. A quick run has the
//! combinations that differ from [`PLAIN`] in at most one respect; a full run has all of them.
//! Further tests run the loops of `tests/c/mpi_loops.c`, which `cargo xtask bench --only mpi`
//! measures.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use stack_tests::{
    DEADLINE, IntelMpi, NetSpace, Program, Registry, SOFTWARE, StackEnv, Stage, Veth, adapter_line,
    available, is_full, not_run,
};

/// A combination under test.
#[derive(Debug, Clone, Copy)]
struct Case {
    ranks: usize,
    fabrics: &'static str,
    providers: Providers,
    networks: Networks,
    setting: Setting,
}

/// The providers that the library opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Providers {
    /// One that moves connections within the host to shared memory.
    Shared,
    /// One that does not.
    Tcp,
    /// Both: the first for short messages, the second for long ones.
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Networks {
    /// All ranks are in one network.
    One,
    /// A part of the ranks is in a second network.
    Two,
}

/// A setting of the library that changes its use of DAPL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    Default,
    /// Ranks sleep in `dat_evd_wait` instead of polling.
    WaitMode,
    /// The buffers of long messages are registered for each transfer.
    NoTranslationCache,
    /// The registrations of long messages are kept.
    TranslationCache,
    /// RDMA Writes carry immediate data, an extension of DAPL.
    ImmediateData,
}

/// The combination from which those of a quick run differ in at most one respect.
const PLAIN: Case = Case {
    ranks: RANKS[0],
    fabrics: FABRICS[0],
    providers: Providers::Shared,
    networks: Networks::One,
    setting: Setting::Default,
};

const RANKS: [usize; 4] = [2, 3, 4, 8];
const FABRICS: [&str; 2] = ["dapl", "shm:dapl"];
const PROVIDERS: [Providers; 3] = [Providers::Shared, Providers::Tcp, Providers::Both];
const NETWORKS: [Networks; 2] = [Networks::One, Networks::Two];
const SETTINGS: [Setting; 5] = [
    Setting::Default,
    Setting::WaitMode,
    Setting::NoTranslationCache,
    Setting::TranslationCache,
    Setting::ImmediateData,
];

/// The adapters of each registry file.
const SHARED: &str = "shared";
const TCP: &str = "tcp";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The ranks of one test already keep the processors busy.
    arguments.test_threads.get_or_insert(1);
    let trials = match Stage::find().map(|stage| (IntelMpi::install(&stage), stage)) {
        Ok((Ok(root), stage)) => trials(&root, &stage),
        Ok((Err(why), _)) => vec![Trial::test("Intel MPI", move || {
            not_run(&format!("{why:#}"));
            Ok(())
        })],
        Err(error) => vec![Trial::test("stage", move || Err(failed(&error)))],
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The body of a test.
type Run = Box<dyn Fn(&IntelMpi, Stage) -> Result<()> + Send>;

fn trials(root: &Path, stage: &Stage) -> Vec<Trial> {
    let trial = |name: String, run: Run| {
        let (root, stage) = (root.to_owned(), stage.clone());
        Trial::test(name, move || {
            let done = IntelMpi::at(root).and_then(|mpi| run(&mpi, stage));
            done.map_err(|error| failed(&error))
        })
    };
    let chosen = cases()
        .into_iter()
        .filter(|case| is_full() || case.differences() <= 1);
    let exchanges = chosen.map(|case| {
        trial(
            case.name(),
            Box::new(move |mpi, stage| case.run(mpi, stage)),
        )
    });
    let loops = RANKS.map(|ranks| {
        let name = format!("loops of {ranks} ranks");
        trial(
            name,
            Box::new(move |mpi, stage| run_loops(mpi, stage, ranks)),
        )
    });
    exchanges.chain(loops).collect()
}

fn failed(error: &anyhow::Error) -> Failed {
    Failed::from(format!("{error:#}"))
}

/// Every combination.
fn cases() -> Vec<Case> {
    let mut cases = vec![PLAIN];
    vary(&mut cases, &RANKS, |case, ranks| case.ranks = ranks);
    vary(&mut cases, &FABRICS, |case, fabrics| case.fabrics = fabrics);
    vary(&mut cases, &PROVIDERS, |case, which| case.providers = which);
    vary(&mut cases, &NETWORKS, |case, which| case.networks = which);
    vary(&mut cases, &SETTINGS, |case, which| case.setting = which);
    cases
}

/// Replaces each case by one for each of `values`.
fn vary<T: Copy>(cases: &mut Vec<Case>, values: &[T], set: impl Fn(&mut Case, T)) {
    let each = |case: &Case| {
        let with = |value: &T| {
            let mut case = *case;
            set(&mut case, *value);
            case
        };
        values.iter().map(with).collect::<Vec<_>>()
    };
    *cases = cases.iter().flat_map(each).collect();
}

impl Case {
    /// The number of respects in which the combination differs from [`PLAIN`].
    fn differences(self) -> usize {
        let differs = [
            self.ranks != PLAIN.ranks,
            self.fabrics != PLAIN.fabrics,
            self.providers != PLAIN.providers,
            self.networks != PLAIN.networks,
            self.setting != PLAIN.setting,
        ];
        differs.into_iter().filter(|differs| *differs).count()
    }

    fn name(self) -> String {
        let parts = [
            self.fabrics,
            self.providers.title(),
            self.networks.title(),
            self.setting.title(),
        ];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        format!("{} ranks, {}", self.ranks, parts.join(", "))
    }

    fn run(self, mpi: &IntelMpi, stage: Stage) -> Result<()> {
        let program = mpi.compile("mpi_exchange")?;
        let rounds = if is_full() { "64" } else { "4" };
        let net = NetSpace::enter()?;
        let veth = match self.networks {
            Networks::One => None,
            Networks::Two => Some(available!(
                Veth::create(&net)?,
                "this needs network namespaces"
            )),
        };
        let device = veth.as_ref().map_or("lo", |_| Veth::NEAR);
        let env = StackEnv::of(stage, registry(device)?, net);
        let mut launcher = mpi.launcher(&env, self.fabrics);
        for (variable, value) in self.setting.variables() {
            launcher = launcher.env(variable, value);
        }
        launcher = self.providers.chosen(launcher);
        let far_ranks = veth.as_ref().map_or(0, |_| self.ranks / 2);
        launcher = launcher
            .args_line(&format!("-n {}", self.ranks - far_ranks))
            .arg(program.file())
            .arg(rounds);
        // The file is read when the ranks start.
        let far_registry = registry(Veth::FAR)?;
        if let Some(veth) = &veth {
            launcher = launcher
                .args_line(&format!(": -n {far_ranks} -env DAT_OVERRIDE"))
                .arg(far_registry.file())
                .args_line(&format!("nsenter --net={}", veth.far_network()))
                .arg(program.file())
                .arg(rounds);
        }
        let finished = launcher.named(&self.name()).run(DEADLINE)?;
        let first = self.providers.adapters()[0];
        finished
            .prints(&format!("MPI startup(): DAPL provider {first}\n"))?
            .never_prints("WRONG")?
            .prints(&format!("CHECKED {} ranks", self.ranks))?;
        Ok(())
    }
}

/// A registry file with both adapters on `device`.
fn registry(device: &str) -> Result<Registry> {
    let shared = adapter_line(SHARED, SOFTWARE, &format!("{device} 0"));
    let tcp = adapter_line(TCP, SOFTWARE, &format!("{device} 0 local=off"));
    Registry::with_text(&(shared + &tcp))
}

impl Providers {
    fn title(self) -> &'static str {
        match self {
            Self::Shared => "",
            Self::Tcp => "over TCP",
            Self::Both => "two providers",
        }
    }

    fn adapters(self) -> &'static [&'static str] {
        match self {
            Self::Shared => &[SHARED],
            Self::Tcp => &[TCP],
            Self::Both => &[SHARED, TCP],
        }
    }

    /// Makes the library open these providers.
    fn chosen(self, launcher: Program) -> Program {
        match self.adapters() {
            [one] => launcher.env("I_MPI_DAPL_PROVIDER", one),
            several => launcher.env("I_MPI_DAPL_PROVIDER_LIST", several.join(",")),
        }
    }
}

impl Networks {
    fn title(self) -> &'static str {
        match self {
            Self::One => "",
            Self::Two => "two networks",
        }
    }
}

impl Setting {
    fn title(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::WaitMode => "wait mode",
            Self::NoTranslationCache => "no translation cache",
            Self::TranslationCache => "translation cache",
            Self::ImmediateData => "immediate data",
        }
    }

    /// The variables of the setting.
    fn variables(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Default => &[],
            Self::WaitMode => &[("I_MPI_WAIT_MODE", "1")],
            Self::NoTranslationCache => &[("I_MPI_DAPL_TRANSLATION_CACHE", "0")],
            Self::TranslationCache => &[("I_MPI_DAPL_TRANSLATION_CACHE", "1")],
            Self::ImmediateData => &[("I_MPI_DAPL_RDMA_WRITE_IMM", "1")],
        }
    }
}

/// Runs every loop for some milliseconds.
fn run_loops(mpi: &IntelMpi, stage: Stage, ranks: usize) -> Result<()> {
    let program = mpi.compile("mpi_loops")?;
    let milliseconds = if is_full() { "200" } else { "2" };
    let env = StackEnv::of(stage, registry("lo")?, NetSpace::enter()?);
    mpi.launcher(&env, "dapl")
        .env("I_MPI_DAPL_PROVIDER", SHARED)
        .args_line(&format!("-n {ranks}"))
        .arg(program.file())
        .arg(milliseconds)
        .run(DEADLINE)?
        .never_prints("WRONG")?
        .prints(&format!("MEASURED {ranks} ranks"))?;
    Ok(())
}
