//! The time that each test takes. The guest is emulated, so a few tests take most of the time.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Result;
use libtest_mimic::{Failed, Trial};

/// The number of tests in the report.
const LONGEST: usize = 12;

static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// A test whose time is recorded.
pub(crate) fn timed(name: String, run: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name.clone(), move || {
        let begun = Instant::now();
        let result = run();
        let mut times = TIMES.lock().expect("no test panics with the lock");
        times.push((begun.elapsed(), name));
        result.map_err(|error| Failed::from(format!("{error:#}")))
    })
}

/// Prints the tests that took the longest time.
pub(crate) fn report_longest() {
    let mut times = TIMES.lock().expect("no test panics with the lock");
    times.sort_by(|one, other| other.cmp(one));
    for (time, name) in times.iter().take(LONGEST) {
        println!("{:7.1} s  {name}", time.as_secs_f64());
    }
}
