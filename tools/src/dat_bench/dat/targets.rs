//! Targets that do not poll the EVD of the connection: one polls its memory, one another EVD.

use anyhow::{Result, bail};
use tool_args::bench::case::Case;

use super::posts::Patience;
use super::{DatLink, FLAG, SINK};
use crate::clock;
use crate::raw::RawLink;

/// The value of a raised flag.
const RAISED: u8 = 1;

impl DatLink {
    /// Posts RDMA Writes one at a time. The target answers each over `raw` with the time at which
    /// it saw the last byte. Returns the sum of the times of one direction, in seconds.
    ///
    /// The next write is posted after the answer, so no write waits behind another. The answer
    /// itself is not part of the figure.
    #[inline(never)]
    pub(crate) fn seen_ping(&mut self, raw: &mut RawLink, case: Case, count: u64) -> Result<f64> {
        let mut seconds = 0.0;
        for round in 0..count {
            let posted = clock::now_ns()?;
            self.write_marked(case.size, round)?;
            let seen = raw.await_time(|| self.poll().map(drop))?;
            seconds += clock::seconds_between(posted, seen);
        }
        self.finish()?;
        Ok(seconds)
    }

    /// The target of `seen_ping`: polls the last byte, and does not call DAT.
    #[inline(never)]
    pub(crate) fn watch(&mut self, raw: &mut RawLink, case: Case, count: u64) -> Result<()> {
        for round in 0..count {
            let mut patience = Patience::default();
            while self.region.load(SINK + case.size - 1)? != Self::mark(round) {
                patience.spend()?;
            }
            raw.send_time()?;
        }
        self.settle_marks(case.size)
    }

    /// Ends the peer's `poll_other_evd`.
    pub(super) fn raise_flag(&mut self) -> Result<()> {
        self.region.store(FLAG, RAISED)?;
        self.write_from(FLAG, FLAG, 1)
    }

    /// Polls an EVD that is always empty until the peer raises the flag in this side's memory. This
    /// program does not call DAT for the connection meanwhile.
    pub(super) fn poll_other_evd(&mut self) -> Result<()> {
        let mut patience = Patience::default();
        while self.region.load(FLAG)? != RAISED {
            if let Some(event) = self.other_evd.dequeue()? {
                bail!("{event:?} from an EVD without a source");
            }
            patience.spend()?;
        }
        Ok(self.region.store(FLAG, 0)?)
    }
}
