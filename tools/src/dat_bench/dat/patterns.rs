//! Both sides of a sample.

use anyhow::{Result, bail};
use tool_args::bench::case::{Case, Operation, Work};

use super::posts::{Got, Patience};
use super::{ACK_LEN, CREDIT, CREDIT_LEN, CREDIT_STEP, DatLink, SINK, SOURCE};
use crate::laps::Laps;

/// The sender's view of a stream of one sample.
struct Flow {
    /// Operations to post.
    left: u64,
    /// Operations that may be posted before the receiver must give new credit.
    credit: u64,
    /// True once the receiver has acknowledged all data.
    acknowledged: bool,
}

impl DatLink {
    /// The active side of one sample. Returns when the peer has received all data, or when all data
    /// has been received here. The function is not inlined, so that a profiler can be limited to
    /// it.
    #[inline(never)]
    pub(crate) fn drive(&mut self, case: Case, count: u64, laps: &mut Laps) -> Result<()> {
        match case.work {
            Work::SendPing | Work::BlockedPing => self.ping(case, count, laps)?,
            Work::WritePing => self.write_ping(case.size, count, laps)?,
            Work::StreamSend | Work::SendCost => self.stream(case, count, CREDIT, laps)?,
            Work::StreamWrite | Work::StreamRead | Work::ReadPing => {
                self.stream(case, count, u64::MAX, laps)?;
            }
            Work::Bidirectional(operation) => self.both_ways(operation, case, count)?,
            Work::UnattendedWrite | Work::UnattendedRead => self.unattended(case, count)?,
            Work::ReadOtherEvd => {
                self.pour(case, count, u64::MAX, laps)?;
                self.raise_flag()?;
            }
            Work::UnattendedPing => bail!("{case} also needs the other connection"),
            Work::AfterPolls(_) => _ = self.after_polls(case, count)?,
            Work::Connect | Work::IdleEndpoints => self.crowd.gather(case, count)?,
            Work::SdpPing | Work::SdpBlockedPing | Work::SdpWrite(_) => {
                bail!("{case} is measured on an SDP stream, not on a DAT endpoint")
            }
        }
        self.finish()
    }

    /// The passive side of one sample.
    #[inline(never)]
    pub(crate) fn serve(&mut self, case: Case, count: u64) -> Result<()> {
        match case.work {
            Work::SendPing | Work::BlockedPing => self.pong(case, count)?,
            Work::WritePing => self.write_pong(case.size, count)?,
            Work::StreamSend | Work::SendCost => self.sink(case, count)?,
            Work::Bidirectional(operation) => self.both_ways(operation, case, count)?,
            Work::StreamWrite => {
                self.await_message(self.target_sleeps(case))?;
                self.send(ACK_LEN as usize)?;
            }
            // The peer reports when it has read all data; until then its reads are served here.
            Work::StreamRead | Work::ReadPing => {
                self.await_message(self.target_sleeps(case))?;
            }
            Work::ReadOtherEvd => self.poll_other_evd()?,
            Work::UnattendedPing => bail!("{case} also needs the other connection"),
            Work::AfterPolls(program) => self.stop_polling(program, case, count)?,
            // No DAT call is made: the caller blocks until the peer has finished.
            Work::UnattendedWrite | Work::UnattendedRead => {}
            Work::Connect | Work::IdleEndpoints => self.crowd.gather(case, count)?,
            Work::SdpPing | Work::SdpBlockedPing | Work::SdpWrite(_) => {
                bail!("{case} is measured on an SDP stream, not on a DAT endpoint")
            }
        }
        self.finish()
    }

    pub(super) fn ping(&mut self, case: Case, count: u64, laps: &mut Laps) -> Result<()> {
        let sleep = case.work == Work::BlockedPing;
        for round in 0..count {
            laps.mark();
            self.send(case.size)?;
            if round > 0 {
                // The receive that completed in the round before is posted here, off the critical
                // path.
                self.repost()?;
            }
            while !matches!(self.next(sleep)?, Got::Message(_)) {}
        }
        self.repost()
    }

    pub(super) fn pong(&mut self, case: Case, count: u64) -> Result<()> {
        let sleep = case.work == Work::BlockedPing;
        for _ in 0..count {
            // The answer is sent before the receive is posted again.
            while !matches!(self.next(sleep)?, Got::Message(_)) {}
            self.send(case.size)?;
            self.repost()?;
        }
        Ok(())
    }

    fn write_ping(&mut self, size: usize, count: u64, laps: &mut Laps) -> Result<()> {
        for round in 0..count {
            laps.mark();
            self.write_marked(size, round)?;
            self.await_mark(size, round)?;
        }
        self.settle_marks(size)
    }

    fn write_pong(&mut self, size: usize, count: u64) -> Result<()> {
        for round in 0..count {
            self.await_mark(size, round)?;
            self.write_marked(size, round)?;
        }
        self.settle_marks(size)
    }

    /// The last byte of round `round`; never zero, and different from its predecessor's.
    pub(super) fn mark(round: u64) -> u8 {
        (round % 250) as u8 + 1
    }

    pub(super) fn write_marked(&mut self, size: usize, round: u64) -> Result<()> {
        self.region.store(SOURCE + size - 1, Self::mark(round))?;
        self.write(size)
    }

    /// Watches the last byte. Each check also calls the provider, which makes progress on this
    /// thread.
    fn await_mark(&mut self, size: usize, round: u64) -> Result<()> {
        let mut patience = Patience::default();
        loop {
            while self.poll()?.is_some() {}
            if self.region.load(SINK + size - 1)? == Self::mark(round) {
                return Ok(());
            }
            patience.spend()?;
        }
    }

    /// Clears the last mark, so that the next sample cannot take it for its own first one.
    pub(super) fn settle_marks(&mut self, size: usize) -> Result<()> {
        Ok(self.region.store(SINK + size - 1, 0)?)
    }

    /// Posts all operations, polls all completions, and waits until the peer has acknowledged.
    fn stream(&mut self, case: Case, count: u64, credit: u64, laps: &mut Laps) -> Result<()> {
        let mut flow = self.pour(case, count, credit, laps)?;
        if !matches!(case.work, Work::StreamSend | Work::SendCost) {
            self.send(ACK_LEN as usize)?;
        }
        let sleep = self.sleeps(case);
        let reads = matches!(case.work, Work::StreamRead | Work::ReadPing);
        while !flow.acknowledged && !reads {
            let got = self.next(sleep)?;
            self.on_stream_event(&mut flow, got)?;
        }
        Ok(())
    }

    /// Like `stream`, to a program that acknowledges nothing: the completion of a read shows that
    /// every write before it is placed.
    fn unattended(&mut self, case: Case, count: u64) -> Result<()> {
        self.pour(case, count, u64::MAX, &mut Laps::off())?;
        self.read(1)?;
        self.finish()
    }

    /// Posts all operations and polls all completions.
    fn pour(&mut self, case: Case, count: u64, credit: u64, laps: &mut Laps) -> Result<Flow> {
        let sleep = self.sleeps(case);
        let mut flow = Flow {
            left: count,
            credit,
            acknowledged: false,
        };
        while flow.left > 0 || self.outstanding > 0 {
            while flow.left > 0 && flow.credit > 0 && self.outstanding < case.depth {
                laps.mark();
                match case.work {
                    Work::StreamWrite | Work::UnattendedWrite => self.write(case.size)?,
                    Work::StreamRead
                    | Work::ReadPing
                    | Work::ReadOtherEvd
                    | Work::UnattendedRead => self.read(case.size)?,
                    _ => self.send(case.size)?,
                }
                flow.left -= 1;
                flow.credit -= 1;
            }
            // All completions that are queued are polled before the send queue is filled again.
            let mut got = Some(self.next(sleep)?);
            while let Some(one) = got {
                self.on_stream_event(&mut flow, one)?;
                got = self.poll()?;
            }
        }
        Ok(flow)
    }

    /// One side of operations in both directions at once; the other side runs the same code.
    ///
    /// A side sends a message only if it has received all but [`CREDIT`] of as many, so the peer,
    /// which keeps the same rule, has a receive for each. The last message of a side says that its
    /// operations have completed.
    fn both_ways(&mut self, operation: Operation, case: Case, count: u64) -> Result<()> {
        let is_send = operation == Operation::Send;
        let expected = if is_send { count } else { 0 };
        let sleep = self.sleeps(case);
        let (mut posted, mut received) = (0, 0);
        loop {
            let mut room = case.depth.saturating_sub(self.outstanding);
            while room > 0 && posted < count && (!is_send || posted < received + CREDIT) {
                match operation {
                    Operation::Send => self.send(case.size)?,
                    Operation::Write => self.write(case.size)?,
                    Operation::Read => self.read(case.size)?,
                }
                posted += 1;
                room -= 1;
            }
            if posted == count && self.outstanding == 0 && received >= expected {
                break;
            }
            let mut got = Some(self.next(sleep)?);
            while let Some(one) = got {
                received += self.take(&one)?;
                got = self.poll()?;
            }
        }
        self.send(ACK_LEN as usize)?;
        while received <= expected {
            let got = self.next(sleep)?;
            received += self.take(&got)?;
        }
        Ok(())
    }

    /// Posts the receive of a message again. Returns the number of messages, 0 for a request.
    fn take(&mut self, got: &Got) -> Result<u64> {
        match got {
            Got::Request => Ok(0),
            Got::Message(_) => self.repost().map(|()| 1),
        }
    }

    fn sleeps(&self, case: Case) -> bool {
        self.target_sleeps(case) && !case.is_message_rate()
    }

    fn target_sleeps(&self, case: Case) -> bool {
        self.sleep_on_bulk || case.sleeps_on_bulk()
    }

    fn on_stream_event(&mut self, flow: &mut Flow, got: Got) -> Result<()> {
        match got {
            Got::Request => return Ok(()),
            Got::Message(CREDIT_LEN) => flow.credit = flow.credit.saturating_add(CREDIT_STEP),
            Got::Message(ACK_LEN) => flow.acknowledged = true,
            Got::Message(len) => bail!("a message of {len} bytes to the sender of a stream"),
        }
        self.repost()
    }

    /// Receives `count` messages, gives the sender credit at intervals, and acknowledges the last
    /// message.
    fn sink(&mut self, case: Case, count: u64) -> Result<()> {
        let sleep = self.target_sleeps(case);
        for received in 1..=count {
            self.await_message(sleep)?;
            if received.is_multiple_of(CREDIT_STEP) && received < count {
                self.send(CREDIT_LEN as usize)?;
            }
        }
        self.send(ACK_LEN as usize)
    }

    /// Receives one message and posts its receive again. Returns the message's length.
    pub(super) fn await_message(&mut self, sleep: bool) -> Result<u32> {
        loop {
            if let Got::Message(len) = self.next(sleep)? {
                self.repost()?;
                return Ok(len);
            }
        }
    }

    /// Waits until every request of this sample has completed.
    pub(super) fn finish(&mut self) -> Result<()> {
        while self.outstanding > 0 {
            if let Got::Message(len) = self.next(false)? {
                bail!("a message of {len} bytes outside a sample");
            }
        }
        Ok(())
    }
}
