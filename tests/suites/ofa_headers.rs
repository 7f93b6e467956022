//! The C examples compiled with OFA's headers instead of those of dat-rs: source code for one set
//! of headers compiles with the other set.

use std::fs;

use anyhow::{Result, ensure};
use stack_tests::{DEADLINE, Program, c_examples};

/// The headers that OFA's package lacks.
const OURS_ALONE: [&str; 3] = ["dat_iw_extensions.h", "it_api.h", "sdp_dat.h"];

#[test]
fn portable_examples_compile_with_ofas_headers() -> Result<()> {
    let mut compiled = 0;
    for program in c_examples()? {
        let source = fs::read_to_string(&program)?;
        if OURS_ALONE.iter().any(|header| source.contains(header)) {
            continue;
        }
        Program::new("cc")
            .args_line("-std=c11 -Wall -Wextra -Werror -fsyntax-only")
            .arg(&program)
            .run(DEADLINE)?;
        compiled += 1;
    }
    ensure!(compiled > 1, "only {compiled} programs were tried");
    Ok(())
}
