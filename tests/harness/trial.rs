//! Programs with several trials, of which the first argument names one.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::{CProgram, DEADLINE, StackEnv, Stage};

/// Runs one trial of a C program in a network namespace.
pub fn passes(
    compile: fn(&Stage, &str) -> Result<CProgram>,
    program: &str,
    trial: &str,
) -> Result<()> {
    let stage = Stage::find()?;
    let program = compile(&stage, program)?;
    let env = StackEnv::at(stage)?;
    env.program(program.file())
        .arg(trial)
        .named(trial)
        .run(DEADLINE)?
        .prints("PASSED")?;
    Ok(())
}

/// Fails if the trials of a program differ from `trials`, for which there are tests.
pub fn check_trials(
    compile: fn(&Stage, &str) -> Result<CProgram>,
    program: &str,
    trials: &[&str],
) -> Result<()> {
    let stage = Stage::find()?;
    let file = compile(&stage, program)?;
    let finished = StackEnv::at(stage)?.program(file.file()).run(DEADLINE)?;
    let named = finished
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("TRIAL "));
    let named: BTreeSet<&str> = named.collect();
    let wanted: BTreeSet<&str> = trials.iter().copied().collect();
    ensure!(
        named == wanted,
        "{program} has {named:?}, tests have {wanted:?}"
    );
    Ok(())
}

/// Declares a test for each trial of a program, and a test that checks that no trial is missing.
/// The first word is the function of `CProgram` that compiles the program.
#[macro_export]
macro_rules! trials {
    ($compile:ident => $program:ident: $($test:ident = $trial:literal,)+) => {
        mod $program {
            use stack_tests::{CProgram, check_trials, passes};

            const PROGRAM: &str = stringify!($program);

            #[test]
            fn every_trial_is_a_test() -> anyhow::Result<()> {
                check_trials(CProgram::$compile, PROGRAM, &[$($trial),+])
            }

            $(
                #[test]
                fn $test() -> anyhow::Result<()> {
                    passes(CProgram::$compile, PROGRAM, $trial)
                }
            )+
        }
    };
}
