//! Interleaved rounds: raw, the contender, raw; ratios within a round, medians over the rounds.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tool_args::bench::case::{BATCH, Case, Stack, Wire, Work};
use tool_args::bench::spread::Spread;

use crate::contender::Contender;
use crate::control::{Counted, Peer};
use crate::laps::{Laps, Latency};
use crate::progress::Progress;
use crate::raw::RawLink;
use crate::setup;
use crate::syscalls::{Counting, SyscallCounter};

/// The length of a sample, and the number of rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    /// Length of one sample in seconds.
    pub(crate) sample_s: f64,
}

/// This side of both connections, and the peer process.
pub(crate) struct Bench {
    pub(crate) peer: Peer,
    pub(crate) raw: RawLink,
    pub(crate) contender: Contender,
    /// The contender's stack.
    pub(crate) stack: Stack,
    pub(crate) counter: SyscallCounter,
}

/// System calls per operation, of one run.
#[derive(Debug, Clone, Copy)]
struct Calls {
    ours: Option<f64>,
    peers: Option<f64>,
}

/// The results of a case.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) raw: Spread,
    pub(crate) contender: Spread,
    /// The contender's figure divided by the raw figure of the same round.
    pub(crate) ratio: Spread,
    /// Other contenders that were measured in the same rounds.
    pub(crate) others: Vec<Other>,
    /// System calls per operation: the contender's here and at the peer, raw TCP's here.
    pub(crate) syscalls: [Option<f64>; 3],
    /// The number of times that the contender copies each byte, here and at the peer.
    pub(crate) copies: Option<[f64; 2]>,
    /// Processor seconds per GiB, of all threads of both processes: the contender's, and raw TCP's.
    pub(crate) processor: Option<[f64; 2]>,
    /// Times of single operations, if they follow each other: the contender's, and raw TCP's.
    pub(crate) latency: Option<[Latency; 2]>,
    /// The operations of the contender's samples.
    pub(crate) operations: u64,
}

/// The results of another contender.
#[derive(Debug)]
pub(crate) struct Other {
    pub(crate) stack: Stack,
    pub(crate) figure: Spread,
    /// This stack's figure divided by that of raw TCP in the same round.
    pub(crate) to_raw: Spread,
    /// The contender's figure divided by this stack's figure in the same round.
    pub(crate) from_contender: Spread,
}

/// The figures of one contender, one per round.
struct Series {
    stack: Stack,
    count: u64,
    figures: Vec<f64>,
}

/// The time for which a program does not call DAT before the sample starts. It is longer than the
/// time after which the provider notices that the program does not call.
const LEFT_ALONE: Duration = Duration::from_millis(30);

/// The most operations of which each is timed.
const LAPS_MAX: u64 = 100_000;

/// The operations of a round on a target that has stopped polling.
const AFTER_POLLS: u64 = 64;

/// The endpoints over which memory is averaged, and those that are connected before them.
const CROWD: u64 = 1000;
const CROWD_BEFORE: u64 = 64;

impl Outcome {
    /// The results of a case that raw TCP has nothing to compare with.
    fn of_contender(figure: Spread, operations: u64) -> Self {
        Self {
            raw: Spread::of([]),
            contender: figure,
            ratio: Spread::of([]),
            others: Vec::new(),
            syscalls: [None; 3],
            copies: None,
            processor: None,
            latency: None,
            operations,
        }
    }
}

impl Bench {
    pub(crate) fn case(&mut self, case: Case, plan: Plan, progress: &Progress) -> Result<Outcome> {
        if case.work == Work::IdleEndpoints {
            return self.idle_endpoints(case);
        }
        if matches!(case.work, Work::AfterPolls(_)) {
            return self.after_polls(case, plan);
        }
        let mut raw = self.series(Stack::Raw, case, plan)?;
        let mut contender = self.series(self.stack, case, plan)?;
        let mut rest = others(case)
            .iter()
            .map(|stack| self.series(*stack, case, plan))
            .collect::<Result<Vec<_>>>()?;
        let mut raws = Vec::new();
        for _ in 0..plan.rounds {
            let before = self.sample(raw.stack, case, raw.count)?;
            for series in [&mut contender].into_iter().chain(&mut rest) {
                let figure = self.sample(series.stack, case, series.count)?;
                series.figures.push(figure);
            }
            let after = self.sample(raw.stack, case, raw.count)?;
            raws.extend([before, after]);
            raw.figures.push((before + after) / 2.0);
            progress.round();
        }
        let calls = self.count(contender.stack, case, contender.count)?;
        let copies = self.copies(case, contender.count)?;
        let processor = self.processor(case, [contender.count, raw.count])?;
        let latency = self.latency(case, [contender.count, raw.count])?;
        let raw_calls = self.count(raw.stack, case, raw.count)?;
        Ok(Outcome {
            raw: Spread::of(raws),
            ratio: contender.to(&raw),
            others: rest
                .into_iter()
                .map(|other| Other {
                    stack: other.stack,
                    to_raw: other.to(&raw),
                    from_contender: contender.to(&other),
                    figure: Spread::of(other.figures),
                })
                .collect(),
            contender: Spread::of(contender.figures),
            syscalls: [calls.ours, calls.peers, raw_calls.ours],
            copies,
            processor,
            latency,
            operations: contender.count * plan.rounds as u64,
        })
    }

    /// Measures the memory that idle endpoints add to the second process, which holds no other
    /// endpoints before.
    fn idle_endpoints(&mut self, case: Case) -> Result<Outcome> {
        // The first endpoints allocate what all endpoints share.
        self.grow(case, CROWD_BEFORE)?;
        let bytes = self.grow(case, CROWD)?;
        let kibibytes = bytes as f64 / 1024.0 / CROWD as f64;
        Ok(Outcome::of_contender(Spread::of([kibibytes]), CROWD))
    }

    /// Measures operations on a target that has stopped polling, one by one.
    fn after_polls(&mut self, case: Case, plan: Plan) -> Result<Outcome> {
        let count = AFTER_POLLS * plan.rounds as u64;
        self.arm(Stack::Dat, case, count, Counted::Nothing)?;
        let times = self.contender.after_polls(case, count)?;
        self.peer.done()?;
        let times = Spread::of(times.into_iter().map(|time| case.figure(1, time)));
        Ok(Outcome::of_contender(times, count))
    }

    /// Connects `count` more endpoints. Returns the number of bytes by which the second process has
    /// grown.
    fn grow(&mut self, case: Case, count: u64) -> Result<u64> {
        self.arm(Stack::Dat, case, count, Counted::Memory)?;
        self.drive(Stack::Dat, case, count)?;
        std::thread::sleep(LEFT_ALONE);
        self.peer
            .done()?
            .context("the second process cannot read its size")
    }

    fn series(&mut self, stack: Stack, case: Case, plan: Plan) -> Result<Series> {
        Ok(Series {
            stack,
            count: self.calibrate(stack, case, plan)?,
            figures: Vec::new(),
        })
    }

    /// Returns the number of operations that fill a sample; also warms up the path.
    fn calibrate(&mut self, stack: Stack, case: Case, plan: Plan) -> Result<u64> {
        let mut count = BATCH as u64;
        loop {
            let seconds = self.run(stack, case, count)?;
            if seconds > plan.sample_s / 8.0 || count >= 1 << 24 {
                let wanted = count as f64 * plan.sample_s / seconds;
                return Ok((wanted as u64)
                    .next_multiple_of(BATCH as u64)
                    .max(BATCH as u64));
            }
            count *= 4;
        }
    }

    fn sample(&mut self, stack: Stack, case: Case, count: u64) -> Result<f64> {
        Ok(case.figure(count, self.run(stack, case, count)?))
    }

    /// Counts the system calls of one more run, shorter than a sample.
    fn count(&mut self, stack: Stack, case: Case, sample: u64) -> Result<Calls> {
        let count = (sample / 4).next_multiple_of(BATCH as u64);
        self.arm(stack, case, count, Counted::Calls)?;
        let counting = self.counter.begin();
        self.drive(stack, case, count)?;
        let ours = counting.and_then(Counting::end);
        let per_op = |calls: Option<u64>| calls.map(|calls| calls as f64 / count as f64);
        Ok(Calls {
            ours: per_op(ours),
            peers: per_op(self.peer.done()?),
        })
    }

    /// Counts the bytes that the contender copies in one more run, divided by the bytes that it
    /// carries.
    fn copies(&mut self, case: Case, sample: u64) -> Result<Option<[f64; 2]>> {
        let Some(before) = self.contender.copied() else {
            return Ok(None);
        };
        let count = (sample / 4).next_multiple_of(BATCH as u64);
        self.arm(self.stack, case, count, Counted::Copies)?;
        self.drive(self.stack, case, count)?;
        let ours = self.contender.copied().map(|now| now - before);
        let counted = ours.zip(self.peer.done()?);
        // A ping-pong carries each message twice.
        let ways = if case.is_ping() { 2 } else { 1 };
        let bytes = (case.size as u64 * count * ways) as f64;
        Ok(counted.map(|(ours, peers)| [ours, peers].map(|copied| copied as f64 / bytes)))
    }

    /// Measures the processor time of one more run of the contender and of raw TCP, if the case is
    /// one of an SDP stream.
    fn processor(&mut self, case: Case, counts: [u64; 2]) -> Result<Option<[f64; 2]>> {
        if !matches!(case.work, Work::SdpWrite(_)) {
            return Ok(None);
        }
        let mut costs = [0.0; 2];
        for ((cost, stack), count) in costs.iter_mut().zip([self.stack, Stack::Raw]).zip(counts) {
            let gibibytes = (case.size as u64 * count) as f64 / f64::from(1u32 << 30);
            *cost = self.cost(stack, case, count)? / gibibytes;
        }
        Ok(Some(costs))
    }

    /// Times each operation of one more run of the contender and of raw TCP, if the operations
    /// follow each other.
    fn latency(&mut self, case: Case, counts: [u64; 2]) -> Result<Option<[Latency; 2]>> {
        let mut latencies = [None; 2];
        if !case.is_ping() || case.work == Work::UnattendedPing {
            return Ok(None);
        }
        for ((latency, stack), count) in latencies
            .iter_mut()
            .zip([self.stack, Stack::Raw])
            .zip(counts)
        {
            let count = count.min(LAPS_MAX);
            let mut laps = Laps::on(usize::try_from(count)?);
            self.arm(stack, case, count, Counted::Nothing)?;
            self.drive_timed(stack, case, count, &mut laps)?;
            self.peer.done()?;
            *latency = laps.latency(case);
        }
        let [contender, raw] = latencies;
        Ok(contender.zip(raw).map(|(contender, raw)| [contender, raw]))
    }

    /// Runs a case once. Returns the seconds from which its figure is computed: the elapsed time,
    /// the sum of the times that the case itself measures, or the processor time of both processes.
    fn run(&mut self, stack: Stack, case: Case, count: u64) -> Result<f64> {
        if case.is_cost() {
            return self.cost(stack, case, count);
        }
        self.arm(stack, case, count, Counted::Nothing)?;
        let begin = Instant::now();
        let measured = self.drive(stack, case, count)?;
        let elapsed = begin.elapsed().as_secs_f64();
        self.peer.done()?;
        Ok(measured.unwrap_or(elapsed))
    }

    /// Runs a case once. Returns the processor time of all threads of both processes, in seconds.
    fn cost(&mut self, stack: Stack, case: Case, count: u64) -> Result<f64> {
        self.arm(stack, case, count, Counted::Processor)?;
        let before = setup::processor_seconds()?;
        self.drive(stack, case, count)?;
        let ours = setup::processor_seconds()? - before;
        let peers = self.peer.done()?;
        let peers_us = peers.context("the second process cannot read its processor time")?;
        Ok(ours + peers_us as f64 / 1e6)
    }

    fn arm(&mut self, stack: Stack, case: Case, count: u64, counted: Counted) -> Result<()> {
        self.peer.arm(stack, case, count, counted)?;
        if stack == Stack::Dat && case.is_unattended() {
            std::thread::sleep(LEFT_ALONE);
        }
        Ok(())
    }

    /// Runs the active side of one sample. Returns the seconds that the case measures itself.
    fn drive(&mut self, stack: Stack, case: Case, count: u64) -> Result<Option<f64>> {
        self.drive_timed(stack, case, count, &mut Laps::off())
    }

    /// Like `drive`, and marks the operations in `laps`.
    fn drive_timed(
        &mut self,
        stack: Stack,
        case: Case,
        count: u64,
        laps: &mut Laps,
    ) -> Result<Option<f64>> {
        let Self { raw, contender, .. } = self;
        let is_seen = case.work == Work::UnattendedPing;
        let driven = match stack {
            Stack::Raw if is_seen => raw.seen_ping(stack, case, count).map(Some),
            Stack::Dat if is_seen => contender.seen_ping(raw, case, count).map(Some),
            Stack::Raw | Stack::RawBatch | Stack::Framed => {
                raw.drive(stack, case, count, laps).map(|()| None)
            }
            Stack::Dat | Stack::Sdp => contender.drive(case, count, laps).map(|()| None),
        };
        driven.or_else(|error| {
            // The peer's error is often the cause.
            let peers = self
                .peer
                .done()
                .err()
                .map_or_else(String::new, |e| format!(" ({e:#})"));
            bail!("{error:#}{peers}");
        })
    }
}

/// The other stacks that are measured in addition to raw TCP and DAT.
fn others(case: Case) -> &'static [Stack] {
    match case.work {
        Work::StreamSend if case.is_message_rate() && case.wire == Wire::Local => {
            &[Stack::RawBatch]
        }
        // No further contender. Shared memory carries no frames, the cost of frames is measured
        // with CRC, and a slow link hides that cost. Between hosts raw TCP is the only yardstick.
        _ if matches!(
            case.wire,
            Wire::Local | Wire::TcpNoCrc | Wire::Shaped | Wire::Network
        ) =>
        {
            &[]
        }
        Work::StreamSend if case.is_message_rate() => &[Stack::RawBatch, Stack::Framed],
        Work::SendPing | Work::StreamSend => &[Stack::Framed],
        _ => &[],
    }
}

impl Series {
    /// The ratio of this contender's figures to another's, round by round.
    fn to(&self, other: &Self) -> Spread {
        let pairs = self.figures.iter().zip(&other.figures);
        Spread::of(pairs.map(|(mine, others)| mine / others))
    }
}
