//! OFA's command lines in every configuration.

use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail, ensure};
use libtest_mimic::Trial;
use stack_tests::is_full;
use stack_tests::ofa_tools::{self, Case, When};

use crate::configuration::{CONFIGURATIONS, Configuration};
use crate::differences::{Difference, HANGS, by_chance, difference};
use crate::times::timed;

/// The lines of quick runs: one of each kind of transfer and of each program.
const QUICK: &[&str] = &[
    "dapltest -T T conn",
    "dapltest -T T transm",
    "dtest -b 4096",
    "dtestcm -c 10 -b 10",
    "dtestsrq -c 10 -B 8 -t 10",
    "dtestx plain",
];

/// A test for each line in each configuration.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for configuration in CONFIGURATIONS {
        let cases = ofa_tools::cases().into_iter();
        trials.extend(
            cases
                .filter(|case| case.when() == When::Quick)
                .map(|case| trial(configuration, case)),
        );
    }
    trials
}

fn trial(configuration: &'static Configuration, case: Case) -> Trial {
    let differs = difference(configuration.name, case.name());
    let varies = by_chance(configuration.name, case.name());
    let name = match differs.or(varies) {
        None => format!("{}: {}", configuration.name, case.name()),
        Some(row) => format!(
            "{}: {}, differs: {}",
            configuration.name,
            case.name(),
            row.why
        ),
    };
    // A line that is known to hang, or that has a random result, costs time and shows little.
    let hangs = differs.is_some_and(|row| row.limit().is_some());
    let is_quick =
        QUICK.contains(&case.name()) && configuration.is_quick() && !hangs && varies.is_none();
    timed(name, move || match (differs, varies) {
        (Some(row), _) => fails(configuration, &case, row),
        (None, Some(row)) => fails_now_and_then(configuration, &case, row),
        (None, None) => run_with_retries(configuration, &case),
    })
    .with_ignored_flag(!is_quick && !is_full())
}

/// Attempts that failed and were repeated. They are reported at the end: during a test they would
/// separate its name from its result in the output, from which the table is made.
static RETRIES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records the failure of an attempt on a configuration. The test will be repeated.
pub(crate) fn record_retry(configuration: &Configuration, name: &str, attempt: u32, why: &str) {
    let line = format!(
        "AGAIN: {}: {name}, attempt {attempt}: {why}",
        configuration.name
    );
    RETRIES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(line);
}

/// Reports the lines that had a further attempt, and the reasons.
pub(crate) fn report_retries() {
    for line in &*RETRIES.lock().unwrap_or_else(PoisonError::into_inner) {
        println!("{line}");
    }
}

/// The number of attempts at a line. siw loses a first message occasionally, and OFA's provider
/// breaks connections during their first message on both devices. A line that fails three times in
/// a row has another cause. Each earlier failure is reported. On other configurations, the software
/// provider included, there is no second attempt.
fn attempts(configuration: &Configuration) -> u32 {
    if configuration.is_on_siw() || configuration.is_ofas() {
        ATTEMPTS
    } else {
        1
    }
}

/// The number of attempts on configurations that have more than one.
pub(crate) const ATTEMPTS: u32 = 3;

fn run_with_retries(configuration: &Configuration, case: &Case) -> Result<()> {
    for attempt in 1..attempts(configuration) {
        match case.run(&configuration.env()?) {
            Ok(()) => return Ok(()),
            Err(error) => record_retry(configuration, case.name(), attempt, &format!("{error:#}")),
        }
    }
    case.run(&configuration.env()?)
}

/// Runs a line that must fail as its row says.
fn fails(configuration: &Configuration, case: &Case, row: &Difference) -> Result<()> {
    let mut env = configuration.env()?;
    env.limit = row.limit().or(env.limit);
    match case.run(&env) {
        Ok(()) => bail!("passes now: remove its row from differences.rs"),
        Err(error) => expect_listed_failure(row, &error),
    }
}

/// Runs a line that may pass, fail as its row says, or hang.
fn fails_now_and_then(configuration: &Configuration, case: &Case, row: &Difference) -> Result<()> {
    match case.run(&configuration.env()?) {
        Ok(()) => Ok(()),
        Err(error) if format!("{error:#}").contains(HANGS) => Ok(()),
        Err(error) => expect_listed_failure(row, &error),
    }
}

fn expect_listed_failure(row: &Difference, error: &anyhow::Error) -> Result<()> {
    let failure = format!("{error:#}");
    ensure!(
        failure.contains(row.message),
        "fails otherwise than listed: {failure}"
    );
    Ok(())
}
