//! Combinations of libraries: OFA's library with the staged provider, and programs that are built
//! with either set of headers over either library.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use libtest_mimic::Trial;
use stack_tests::ofa_tools::{dapltest, dtest};
use stack_tests::{CProgram, DEADLINE, Finished, IA_NAME, Registry, StackEnv, rows};

use crate::trial;

/// Examples that call only functions of OFA's library, and the last texts of server and client.
const PROGRAMS: &[(&str, [&str; 2])] = &rows! {
    "pingpong", ["answered 1000 messages", "1000 round trips"];
    "rdma", ["the client wrote bytes with the sum", "wrote 32768 bytes and read them back"];
    "rsp", ["the client says \"thank you\"", "the server answers \"this way\""];
};

/// The port on which the examples listen.
const EXAMPLES_PORT: u16 = 4711;

pub(crate) fn trials() -> Vec<Trial> {
    let tools = [
        trial("OFA's library, our provider: dtest", || {
            dtest::passes(&ofas_library()?, "-b 4096")
        }),
        trial("OFA's library, our provider: dapltest -T T trans", || {
            let options = "-i 1000 -t 1 -w 1 client SR 4096 server SR 4096";
            dapltest::transaction(&ofas_library()?, options)
        }),
    ];
    let programs = PROGRAMS.iter().flat_map(|(name, texts)| {
        [
            trial(&format!("OFA's headers, our library: {name}"), || {
                let program = CProgram::compile_with_ofa(&source(name), name)?;
                run_pair(&StackEnv::new()?, &program, texts)
            }),
            trial(&format!("our headers, OFA's library: {name}"), || {
                let env = ofas_library()?;
                let program = CProgram::compile_file(&env.stage, &source(name), name)?;
                run_pair(&env, &program, texts)
            }),
        ]
    });
    tools.into_iter().chain(programs).collect()
}

/// The environment with the system's `libdat2.so.2`, and the staged provider by its full path.
fn ofas_library() -> Result<StackEnv> {
    let mut env = StackEnv::new()?;
    env.registry = Registry::loopback(&env.stage.provider().display().to_string())?;
    Ok(env.with_system_registry())
}

fn source(name: &str) -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/c");
    examples.join(format!("{name}.c"))
}

/// Runs a server and a client of an example to their end.
fn run_pair(env: &StackEnv, program: &CProgram, texts: &[&str; 2]) -> Result<()> {
    let start = |args: &str| {
        let program = env.program(program.file()).args_line(args);
        program.named(&format!("example {args}")).spawn()
    };
    let server = start(IA_NAME)?;
    let ready = env.net.wait_for_listener(EXAMPLES_PORT, DEADLINE);
    ready.with_context(|| server.text())?;
    let client = start(&format!("{IA_NAME} 127.0.0.1"))?.finish(DEADLINE);
    let client = client.and_then(Finished::success);
    client.with_context(|| server.text())?.prints(texts[1])?;
    server.finish(DEADLINE)?.success()?.prints(texts[0])?;
    Ok(())
}
