//! OFA's command lines on every ground.

use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail, ensure};
use libtest_mimic::{Failed, Trial};
use stack_tests::is_full;
use stack_tests::ofa_tools::{self, Case, When};

use crate::differences::{Difference, HANGS, by_chance, difference};
use crate::ground::{GROUNDS, Ground};

/// The lines that quick runs have: one of each kind of transfer and of each program.
const QUICK: &[&str] = &[
    "dapltest -T T conn",
    "dapltest -T T transm",
    "dtest -b 4096",
    "dtestcm -c 10 -b 10",
    "dtestsrq -c 10 -B 8 -t 10",
    "dtestx plain",
];

/// A test for each line on each ground.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for ground in GROUNDS {
        let cases = ofa_tools::cases().into_iter();
        trials.extend(
            cases
                .filter(|case| case.when() == When::Quick)
                .map(|case| trial(ground, case)),
        );
    }
    trials
}

fn trial(ground: &'static Ground, case: Case) -> Trial {
    let differs = difference(ground.name, case.name());
    let varies = by_chance(ground.name, case.name());
    let name = match differs.or(varies) {
        None => format!("{}: {}", ground.name, case.name()),
        Some(row) => format!("{}: {}, differs: {}", ground.name, case.name(), row.why),
    };
    // Waiting for what is known to hang tells little for its time, as does what is left to chance.
    let hangs = differs.is_some_and(|row| row.limit().is_some());
    let is_quick = QUICK.contains(&case.name()) && !hangs && varies.is_none();
    Trial::test(name, move || {
        let outcome = match (differs, varies) {
            (Some(row), _) => fails(ground, &case, row),
            (None, Some(row)) => fails_now_and_then(ground, &case, row),
            (None, None) => run_patiently(ground, &case),
        };
        outcome.map_err(|error| Failed::from(format!("{error:#}")))
    })
    .with_ignored_flag(!is_quick && !is_full())
}

/// Attempts that failed and were made again. They are told at the end: in the midst of a test's
/// line they would part its name from its result, which the table is made of.
static AGAIN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps what failed on a ground and is tried again.
pub(crate) fn tell_again(ground: &Ground, name: &str, attempt: u32, why: &str) {
    let told = format!("AGAIN: {}: {name}, attempt {attempt}: {why}", ground.name);
    AGAIN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(told);
}

/// Tells which lines had a further attempt, and why.
pub(crate) fn tell_attempts() {
    for told in &*AGAIN.lock().unwrap_or_else(PoisonError::into_inner) {
        println!("{told}");
    }
}

/// Attempts at a line. siw loses a first message now and then, and OFA's provider breaks
/// connections under theirs on both devices. What fails three times in a row is something else;
/// each failure before that is told. Elsewhere, over the software provider too, nothing has a
/// second one.
fn attempts(ground: &Ground) -> u32 {
    if ground.is_on_siw() || ground.is_ofas() {
        ATTEMPTS
    } else {
        1
    }
}

/// Where there is more than one.
pub(crate) const ATTEMPTS: u32 = 3;

fn run_patiently(ground: &Ground, case: &Case) -> Result<()> {
    for attempt in 1..attempts(ground) {
        match case.run(&ground.env()?) {
            Ok(()) => return Ok(()),
            Err(error) => tell_again(ground, case.name(), attempt, &format!("{error:#}")),
        }
    }
    case.run(&ground.env()?)
}

/// One that fails, and as its row says.
fn fails(ground: &Ground, case: &Case, row: &Difference) -> Result<()> {
    let mut env = ground.env()?;
    env.limit = row.limit().or(env.limit);
    match case.run(&env) {
        Ok(()) => bail!("passes now: its row in differences.rs is to go"),
        Err(error) => says(row, &error),
    }
}

/// One that passes, or fails as its row says, or hangs.
fn fails_now_and_then(ground: &Ground, case: &Case, row: &Difference) -> Result<()> {
    match case.run(&ground.env()?) {
        Ok(()) => Ok(()),
        Err(error) if format!("{error:#}").contains(HANGS) => Ok(()),
        Err(error) => says(row, &error),
    }
}

fn says(row: &Difference, error: &anyhow::Error) -> Result<()> {
    let told = format!("{error:#}");
    ensure!(
        told.contains(row.says),
        "fails otherwise than listed: {told}"
    );
    Ok(())
}
