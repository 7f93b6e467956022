//! `dat-conformance` over the kernel's RDMA devices.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use libtest_mimic::{Failed, Trial};
use stack_tests::{IA_NAME, is_full};

use crate::ground::{GROUNDS, Ground};

/// The grounds that the table of differences of the tool knows as well.
const KNOWN: &[&str] = &["ofa-rxe", "ofa-siw", "ib-rxe", "ib-siw"];

const DEADLINE: Duration = Duration::from_secs(1200);

/// How long a case may take, in seconds.
const LIMIT_S: u32 = 60;

/// One test a ground; the tool tells of each of its cases.
pub(crate) fn trials() -> Vec<Trial> {
    let known = GROUNDS.iter().filter(|ground| KNOWN.contains(&ground.name));
    known
        .map(|ground| {
            let name = format!("{}: dat-conformance", ground.name);
            Trial::test(name, || {
                run(ground).map_err(|error| Failed::from(format!("{error:#}")))
            })
            // Minutes a ground, under emulation.
            .with_ignored_flag(!is_full())
        })
        .collect()
}

fn run(ground: &Ground) -> Result<()> {
    let env = ground.env()?;
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/differences.txt");
    let args = format!(
        "--ia {IA_NAME} --limit {LIMIT_S} --ground {} --differences",
        ground.name
    );
    let tool = env
        .program(env.stage.bin("dat-conformance"))
        .args_line(&args)
        .arg(table);
    let finished = tool.spawn()?.finish(DEADLINE)?;
    let told: Vec<&str> = finished
        .text
        .lines()
        .filter(|line| !line.starts_with("ok ") && !line.starts_with("DIFFERS "))
        .collect();
    let told = told.join("\n");
    finished.success().with_context(|| told)?;
    Ok(())
}
