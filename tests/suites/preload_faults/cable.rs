//! Two networks and the cable between them, which loses packets, holds them up, is cut, or leads to
//! a peer that stands still. A connection lives through what TCP lives through.
//!
//! `opsrun ss` says before and while the cable is bad that both ends are offloaded.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use stack_tests::{OffloadProtocol, Program, Veth, is_full, not_run};

use crate::Test;
use crate::apart::{Apart, HOST, Place};
use crate::parts::PATIENCE;

/// How long the tools may take.
const TOOL: Duration = Duration::from_secs(20);
/// A conversation over a cable that is bad takes longer on a busy machine.
const LONG: Duration = Duration::from_mins(10);
/// Both ends are under way by then.
const SOON: Duration = Duration::from_millis(100);
/// So slow that what happens to the cable happens while bytes wait.
const RATE: &str = "100mbit burst 64kb latency 200ms";

/// All of them, with their names.
pub(crate) const TESTS: &[(&str, Test)] = &[
    ("one_packet_in_a_hundred_is_lost", one_in_a_hundred_is_lost),
    ("five_megabits_and_a_deep_queue", five_megabits),
    ("the_link_goes_down_and_returns", the_link_goes_down),
    (
        "what_is_sent_is_swallowed_for_a_while",
        what_is_sent_is_swallowed,
    ),
    ("everything_is_swallowed_for_a_while", all_is_swallowed),
    ("the_far_end_stands_still_for_a_while", the_far_end_stops),
    (
        "a_cut_cable_ends_a_connection_as_over_tcp",
        a_cut_cable_is_seen,
    ),
];

/// One network.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// Where the suite is.
    Near,
    /// The other.
    Far,
}

const BOTH: [End; 2] = [End::Near, End::Far];

/// The cable and the programs at its ends.
pub(crate) struct Line {
    place: Place,
    veth: Veth,
}

/// Two programs with a connection between them, the near one first.
pub(crate) type Pair = [Apart; 2];

impl Line {
    /// `None`, said aloud, where there can be none.
    fn new(protocol: &'static OffloadProtocol) -> Result<Option<Self>> {
        let place = Place::new(protocol)?;
        let Some(veth) = place.cable()? else {
            not_run("network namespaces are not permitted");
            return Ok(None);
        };
        let line = Self { place, veth };
        for (tool, probe) in [
            ("nft", "add table inet probe"),
            (
                "tc",
                "qdisc add dev lo root tbf rate 1gbit burst 64kb latency 1s",
            ),
        ] {
            if let Err(error) = line.run(End::Far, tool, probe) {
                not_run(&format!("a cable cannot be made worse here: {error:#}"));
                return Ok(None);
            }
        }
        Ok(Some(line))
    }

    fn start(&self, end: End, part: &str) -> Result<Apart> {
        self.start_with(end, part, |_| {})
    }

    fn start_with(&self, end: End, part: &str, with: impl FnOnce(&mut Command)) -> Result<Apart> {
        let mut entered = Ok(());
        let apart = Apart::start_with(part, &self.place, |command| {
            with(command);
            command.env(HOST, Veth::FAR_V4.to_string());
            if let End::Far = end {
                entered = self.veth.at_far_end(command);
            }
        })?;
        entered.map(|()| apart)
    }

    fn run(&self, end: End, program: &str, args: &str) -> Result<()> {
        let command = Program::new(program)
            .args_line(args)
            .named(&format!("{program} {args}"));
        let command = match end {
            End::Near => command,
            End::Far => command.in_network_of(&self.veth)?,
        };
        command.spawn()?.finish(TOOL)?.success().map(drop)
    }

    /// Lets both ends send at this rate only.
    fn slow_down(&self, rate: &str) -> Result<()> {
        for (end, device) in [(End::Near, Veth::NEAR), (End::Far, Veth::FAR)] {
            self.run(
                end,
                "tc",
                &format!("qdisc add dev {device} root tbf rate {rate}"),
            )?;
        }
        Ok(())
    }

    /// Has packets that arrive at these ends dropped where `which` holds of them.
    fn drop_arriving(&self, ends: &[End], which: &str) -> Result<()> {
        for end in ends {
            for command in [
                "add table inet cable",
                "add chain inet cable arriving { type filter hook input priority 0 ; }",
                &format!("add rule inet cable arriving {which} drop"),
            ] {
                self.run(*end, "nft", command)?;
            }
        }
        Ok(())
    }

    /// Drops no more.
    fn let_through(&self, ends: &[End]) -> Result<()> {
        let mut each = ends.iter();
        each.try_for_each(|end| self.run(*end, "nft", "delete table inet cable"))
    }

    /// Two that are to swap bytes, and have met.
    fn meet(&self) -> Result<Pair> {
        let far = self.start(End::Far, "swap -")?;
        let port = far.hear("port")?;
        let near = self.start(End::Near, &format!("swap {port}"))?;
        let pair = [near, far];
        for side in &pair {
            side.hear("met")?;
        }
        self.is_offloaded().context("when they have met")?;
        Ok(pair)
    }

    /// Two that are to lose each other, and have met: the near one gives, the far one takes.
    fn meet_to_lose(&self, with: impl Fn(&mut Command)) -> Result<Pair> {
        let far = self.start_with(End::Far, "lose - taking", &with)?;
        let port = far.hear("port")?;
        let near = self.start_with(End::Near, &format!("lose {port} giving"), &with)?;
        let pair = [near, far];
        for side in &pair {
            side.hear("met")?;
        }
        Ok(pair)
    }

    /// Both ends of the one connection are.
    fn is_offloaded(&self) -> Result<()> {
        let listed = self.place.listed()?;
        let is_open = |line: &&str| line.starts_with("sdp ") && line.contains(" ESTAB ");
        let is_elsewhere = |line: &str| line.starts_with("tcp ");
        let open = listed.lines().filter(is_open).count();
        let is_good = open == 2 && !listed.lines().any(is_elsewhere);
        ensure!(is_good, "not one connection over SDP: {listed}");
        Ok(())
    }

    /// Two swap bytes, so many at least, while `happens` is done to them and the cable, which is
    /// not the end of it. They go on for as long as that takes.
    fn swap(self, bytes: u64, happens: impl FnOnce(&Self, &Pair) -> Result<()>) -> Result<()> {
        let mut pair = self.meet()?;
        for side in &mut pair {
            side.tell("go on")?;
        }
        happens(&self, &pair)?;
        for side in &mut pair {
            side.tell(&bytes.to_string())?;
        }
        let mut swapped = Vec::new();
        for side in pair {
            let told = side.hear_within("swapped", LONG)?;
            let (given, taken) = told.split_once(' ').context("two numbers")?;
            swapped.push((given.parse::<u64>()?, taken.parse::<u64>()?));
            side.finish()?;
        }
        let [near, far] = swapped[..] else {
            bail!("{swapped:?} of two");
        };
        ensure!(near == (far.1, far.0), "{near:?} and {far:?}");
        ensure!(near.0.min(near.1) >= bytes, "{near:?} of {bytes}");
        self.place.is_left()
    }

    /// For so long a cable or a peer is of no use, and the connection stays.
    fn pause(&self) -> Result<()> {
        thread::sleep(Duration::from_secs(size(1, 30)));
        self.is_offloaded().context("in the meantime")
    }
}

fn size(quick: u64, full: u64) -> u64 {
    if is_full() { full } else { quick }
}

/// What is lost is sent again, below the RDMA stream.
fn one_in_a_hundred_is_lost(protocol: &'static OffloadProtocol) -> Result<()> {
    let Some(line) = Line::new(protocol)? else {
        return Ok(());
    };
    line.drop_arriving(&BOTH, "meta l4proto tcp numgen random mod 100 < 1")?;
    line.swap(size(8 << 20, 1 << 30), |_, _| Ok(()))
}

/// Seconds of bytes wait in the queue, and the answers behind them.
fn five_megabits(protocol: &'static OffloadProtocol) -> Result<()> {
    let Some(line) = Line::new(protocol)? else {
        return Ok(());
    };
    line.slow_down("5mbit burst 16kb latency 4s")?;
    line.swap(size(1 << 20, 32 << 20), |_, _| Ok(()))
}

/// Swaps at [`RATE`] while something happens.
fn swap_slowly(
    protocol: &'static OffloadProtocol,
    happens: impl FnOnce(&Line, &Pair) -> Result<()>,
) -> Result<()> {
    let Some(line) = Line::new(protocol)? else {
        return Ok(());
    };
    line.slow_down(RATE)?;
    line.swap(size(8 << 20, 256 << 20), |line, pair| {
        thread::sleep(SOON);
        happens(line, pair)
    })
}

/// Routes go with it and come again.
fn the_link_goes_down(protocol: &'static OffloadProtocol) -> Result<()> {
    swap_slowly(protocol, |line, _| {
        line.run(End::Near, "ip", "link set near down")?;
        line.pause()?;
        line.run(End::Near, "ip", "link set near up")
    })
}

fn swallowed(protocol: &'static OffloadProtocol, ends: &[End]) -> Result<()> {
    swap_slowly(protocol, |line, _| {
        line.drop_arriving(ends, "meta l4proto tcp")?;
        line.pause()?;
        line.let_through(ends)
    })
}

/// A black hole in one direction.
fn what_is_sent_is_swallowed(protocol: &'static OffloadProtocol) -> Result<()> {
    swallowed(protocol, &[End::Far])
}

/// A black hole in both.
fn all_is_swallowed(protocol: &'static OffloadProtocol) -> Result<()> {
    swallowed(protocol, &BOTH)
}

/// Its host answers for it, and nobody takes anything.
fn the_far_end_stops(protocol: &'static OffloadProtocol) -> Result<()> {
    swap_slowly(protocol, |line, [_, far]| {
        far.signal(Signal::SIGSTOP)?;
        line.pause()?;
        far.signal(Signal::SIGCONT)
    })
}

/// Both ends of a connection that is cut for good are told so within their patience: one that
/// gives, one that takes. What they are told is what a pair over TCP beside them is told.
fn a_cut_cable_is_seen(protocol: &'static OffloadProtocol) -> Result<()> {
    let Some(line) = Line::new(protocol)? else {
        return Ok(());
    };
    line.slow_down(RATE)?;
    let plainly = |command: &mut Command| {
        command.env_remove("LD_PRELOAD");
    };
    let ours = line.meet_to_lose(|_| {})?;
    line.is_offloaded()?;
    let plain = line.meet_to_lose(plainly)?;
    let mut all = ours.into_iter().chain(plain).collect::<Vec<_>>();
    for side in &mut all {
        side.tell("go on")?;
    }
    thread::sleep(SOON);
    line.drop_arriving(&BOTH, "meta l4proto tcp")?;
    let mut told = Vec::new();
    for side in all {
        // TCP looks when it sends again, at growing intervals; the rest is for a busy machine.
        told.push(side.hear_within("lost", PATIENCE * 10)?);
        side.finish()?;
    }
    ensure!(told[0].starts_with("by TimedOut"), "{told:?}");
    ensure!(told[..2] == told[2..], "{told:?}");
    line.place.is_left()
}
