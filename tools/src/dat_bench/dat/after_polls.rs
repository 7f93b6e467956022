//! A target that stops polling: the time until its provider serves the next operation.

use std::time::{Duration, Instant};

use anyhow::Result;
use tool_args::bench::case::{Case, Program, Wire, Work};

use super::posts::Got;
use super::{ACK_LEN, DatLink};
use crate::laps::Laps;

/// The Sends in each direction before the target stops. They take several milliseconds, after which
/// the provider expects further polls.
const BURST: u64 = 4096;
const BURST_LEN: usize = 64;
/// The time for which the target makes no call.
const PAUSE: Duration = Duration::from_millis(3);
/// The operation is posted from this time after the last Send on, later in each round by the step.
const DELAY: Duration = Duration::from_micros(100);
const STEP: Duration = Duration::from_micros(10);
const STEPS: u32 = 64;

impl DatLink {
    /// Returns the times of the operations, in seconds.
    pub(crate) fn after_polls(&mut self, case: Case, count: u64) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        for round in 0..count as u32 {
            self.ping(burst(case), BURST, &mut Laps::off())?;
            compute(DELAY + STEP * (round % STEPS));
            let begin = Instant::now();
            match case.wire {
                Wire::Local => self.send(case.size)?,
                _ => self.read(case.size)?,
            }
            // A target that was not served in its pause answers before the completion.
            let (mut served, mut is_answered) = (None, false);
            while served.is_none() || !is_answered {
                match self.next(false)? {
                    Got::Request => served = Some(begin.elapsed().as_secs_f64()),
                    Got::Message(_) => {
                        self.repost()?;
                        is_answered = true;
                    }
                }
            }
            times.extend(served);
        }
        Ok(times)
    }

    /// The target of `after_polls`.
    pub(super) fn stop_polling(&mut self, program: Program, case: Case, count: u64) -> Result<()> {
        for _ in 0..count {
            self.pong(burst(case), BURST)?;
            // The last Send has completed, so that no call is made for it later.
            self.finish()?;
            match program {
                Program::Sleeps => std::thread::sleep(PAUSE),
                Program::Computes => compute(PAUSE),
            }
            if case.wire == Wire::Local {
                self.await_message(false)?;
            }
            self.send(ACK_LEN as usize)?;
        }
        Ok(())
    }
}

/// The case of the Sends before the operation.
fn burst(case: Case) -> Case {
    Case::new(Work::SendPing, BURST_LEN, 1, case.wire)
}

/// Uses the processor for some time, without a call.
fn compute(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}
