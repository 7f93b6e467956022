//! Who loads whom: OFA's library with our provider.

use anyhow::Result;
use libtest_mimic::Trial;
use stack_tests::{Registry, StackEnv};

use crate::line::trial;
use crate::{dapltest, dtest};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("OFA's library, our provider: dtest", || {
            dtest::passes(&ofas_library()?, "-b 4096")
        }),
        trial("OFA's library, our provider: dapltest -T T trans", || {
            let options = "-i 1000 -t 1 -w 1 client SR 4096 server SR 4096";
            dapltest::transaction(&ofas_library()?, options)
        }),
    ]
}

/// The `libdat2.so.2` that the system has, and our provider by its full path.
fn ofas_library() -> Result<StackEnv> {
    let mut env = StackEnv::new()?;
    env.registry = Registry::loopback(&env.stage.provider().display().to_string())?;
    Ok(env.with_system_registry())
}
