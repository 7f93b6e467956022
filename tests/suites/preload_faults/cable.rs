//! Two networks and the cable between them. The cable loses or delays packets, or is cut, or the
//! peer is stopped. An offloaded connection must continue wherever a TCP connection would.
//!
//! Before and during each fault `opsrun ss` shows that both ends are offloaded.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use stack_tests::{OffloadProtocol, Program, Veth, available, is_full, not_run, rows};

use crate::Test;
use crate::process::{Environment, HOST, Process};
use crate::roles::PATIENCE;

/// The time limit of the tools.
const TOOL: Duration = Duration::from_secs(60);
/// The time limit of a transfer over a bad cable, which takes longer on a busy machine.
const LONG: Duration = Duration::from_mins(10);
/// The time after which both ends are transmitting.
const SOON: Duration = Duration::from_millis(100);
/// A rate so low that the fault of the cable occurs while bytes are queued.
const RATE: &str = "100mbit burst 64kb latency 200ms";

/// All tests, with their names.
pub(crate) const TESTS: &[(&str, Test)] = &rows! {
    "one_packet_in_a_hundred_is_lost", one_in_a_hundred_is_lost;
    "five_megabits_and_a_deep_queue", five_megabits;
    "the_link_goes_down_and_returns", the_link_goes_down;
    "sent_packets_are_dropped_for_a_while", sent_packets_are_dropped;
    "all_packets_are_dropped_for_a_while", all_packets_are_dropped;
    "the_far_end_is_stopped_for_a_while", the_far_end_stops;
    "a_cut_cable_ends_a_connection_as_over_tcp", a_cut_cable_is_seen;
};

/// One of the two networks.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// The network of the suite.
    Near,
    /// The second network.
    Far,
}

const BOTH: [End; 2] = [End::Near, End::Far];

/// The cable and the programs at its ends.
pub(crate) struct Line {
    environment: Environment,
    veth: Veth,
}

/// Two programs with a connection between them, first the program in the near network.
pub(crate) type Pair = [Process; 2];

impl Line {
    /// Makes the cable. Returns `None`, with a message, if a cable cannot be made.
    fn new(protocol: &'static OffloadProtocol) -> Result<Option<Self>> {
        let environment = Environment::new(protocol)?;
        let Some(veth) = environment.cable()? else {
            not_run("network namespaces are not permitted");
            return Ok(None);
        };
        let line = Self { environment, veth };
        for (tool, probe) in [
            ("nft", "add table inet probe"),
            (
                "tc",
                "qdisc add dev lo root tbf rate 1gbit burst 64kb latency 1s",
            ),
        ] {
            if let Err(error) = line.run(End::Far, tool, probe) {
                not_run(&format!("the cable cannot be impaired here: {error:#}"));
                return Ok(None);
            }
        }
        Ok(Some(line))
    }

    fn start(&self, end: End, role: &str) -> Result<Process> {
        self.start_with(end, role, |_| {})
    }

    fn start_with(&self, end: End, role: &str, with: impl FnOnce(&mut Command)) -> Result<Process> {
        let mut entered = Ok(());
        let process = Process::start_with(role, &self.environment, |command| {
            with(command);
            command.env(HOST, Veth::FAR_V4.to_string());
            if let End::Far = end {
                entered = self.veth.at_far_end(command);
            }
        })?;
        entered.map(|()| process)
    }

    fn run(&self, end: End, program: &str, args: &str) -> Result<()> {
        let command = Program::new(program)
            .args_line(args)
            .named(&format!("{program} {args}"));
        let command = match end {
            End::Near => command,
            End::Far => command.in_network_of(&self.veth)?,
        };
        command.run(TOOL).map(drop)
    }

    /// Limits both ends to this rate.
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

    /// Makes these ends drop received packets that match `which`.
    fn drop_received(&self, ends: &[End], which: &str) -> Result<()> {
        for end in ends {
            for command in [
                "add table inet cable",
                "add chain inet cable received { type filter hook input priority 0 ; }",
                &format!("add rule inet cable received {which} drop"),
            ] {
                self.run(*end, "nft", command)?;
            }
        }
        Ok(())
    }

    fn stop_dropping(&self, ends: &[End]) -> Result<()> {
        let mut each = ends.iter();
        each.try_for_each(|end| self.run(*end, "nft", "delete table inet cable"))
    }

    /// Starts two programs that will swap bytes, and waits until they are connected.
    fn start_swapping(&self) -> Result<Pair> {
        let far = self.start(End::Far, "swap -")?;
        let port = far.read_line("port")?;
        let near = self.start(End::Near, &format!("swap {port}"))?;
        let pair = [near, far];
        for side in &pair {
            side.read_line("connected")?;
        }
        self.check_offloaded()
            .context("after the programs have connected")?;
        Ok(pair)
    }

    /// Starts two programs whose connection will be lost, and waits until they are connected. The
    /// near program writes, the far program reads.
    fn start_losing(&self, with: impl Fn(&mut Command)) -> Result<Pair> {
        let far = self.start_with(End::Far, "lose - taking", &with)?;
        let port = far.read_line("port")?;
        let near = self.start_with(End::Near, &format!("lose {port} writing"), &with)?;
        let pair = [near, far];
        for side in &pair {
            side.read_line("connected")?;
        }
        Ok(pair)
    }

    /// Checks that both ends of the one connection are offloaded.
    fn check_offloaded(&self) -> Result<()> {
        let listed = self.environment.listed()?;
        let is_open = |line: &&str| line.starts_with("sdp ") && line.contains(" ESTAB ");
        let is_tcp = |line: &str| line.starts_with("tcp ");
        let open = listed.lines().filter(is_open).count();
        let is_offloaded = open == 2 && !listed.lines().any(is_tcp);
        ensure!(is_offloaded, "not one connection over SDP: {listed}");
        Ok(())
    }

    /// Makes two programs swap at least this many bytes while `fault` acts on them and on the
    /// cable. The connection must continue, and the programs run for as long as `fault` takes.
    fn swap(self, bytes: u64, fault: impl FnOnce(&Self, &Pair) -> Result<()>) -> Result<()> {
        let mut pair = self.start_swapping()?;
        for side in &mut pair {
            side.write_line("go on")?;
        }
        fault(&self, &pair)?;
        for side in &mut pair {
            side.write_line(&bytes.to_string())?;
        }
        let mut swapped = Vec::new();
        for side in pair {
            let line = side.read_line_within("swapped", LONG)?;
            let (written, read) = line.split_once(' ').context("two numbers")?;
            swapped.push((written.parse::<u64>()?, read.parse::<u64>()?));
            side.finish()?;
        }
        let [near, far] = swapped[..] else {
            bail!("{swapped:?} of two");
        };
        ensure!(near == (far.1, far.0), "{near:?} and {far:?}");
        ensure!(near.0.min(near.1) >= bytes, "{near:?} of {bytes}");
        self.environment.check_end()
    }

    /// Waits while the cable or the peer is unusable, and checks that the connection remains.
    fn pause(&self) -> Result<()> {
        thread::sleep(Duration::from_secs(size(1, 30)));
        self.check_offloaded().context("during the pause")
    }
}

fn size(quick: u64, full: u64) -> u64 {
    if is_full() { full } else { quick }
}

/// Packets that are lost are retransmitted below the RDMA stream.
fn one_in_a_hundred_is_lost(protocol: &'static OffloadProtocol) -> Result<()> {
    let line = available!(Line::new(protocol)?);
    line.drop_received(&BOTH, "meta l4proto tcp numgen random mod 100 < 1")?;
    line.swap(size(8 << 20, 1 << 30), |_, _| Ok(()))
}

/// The queues hold bytes for several seconds, so answers are late.
fn five_megabits(protocol: &'static OffloadProtocol) -> Result<()> {
    let line = available!(Line::new(protocol)?);
    line.slow_down("5mbit burst 16kb latency 4s")?;
    line.swap(size(1 << 20, 32 << 20), |_, _| Ok(()))
}

/// Swaps bytes at [`RATE`] while a fault occurs.
fn swap_slowly(
    protocol: &'static OffloadProtocol,
    fault: impl FnOnce(&Line, &Pair) -> Result<()>,
) -> Result<()> {
    let line = available!(Line::new(protocol)?);
    line.slow_down(RATE)?;
    line.swap(size(8 << 20, 256 << 20), |line, pair| {
        thread::sleep(SOON);
        fault(line, pair)
    })
}

/// The routes disappear with the link and are restored.
fn the_link_goes_down(protocol: &'static OffloadProtocol) -> Result<()> {
    swap_slowly(protocol, |line, _| {
        line.run(End::Near, "ip", "link set near down")?;
        line.pause()?;
        line.run(End::Near, "ip", "link set near up")
    })
}

fn packets_are_dropped(protocol: &'static OffloadProtocol, ends: &[End]) -> Result<()> {
    swap_slowly(protocol, |line, _| {
        line.drop_received(ends, "meta l4proto tcp")?;
        line.pause()?;
        line.stop_dropping(ends)
    })
}

/// Packets are dropped in one direction.
fn sent_packets_are_dropped(protocol: &'static OffloadProtocol) -> Result<()> {
    packets_are_dropped(protocol, &[End::Far])
}

/// Packets are dropped in both directions.
fn all_packets_are_dropped(protocol: &'static OffloadProtocol) -> Result<()> {
    packets_are_dropped(protocol, &BOTH)
}

/// The kernel of the stopped program acknowledges the data, and no program reads the data.
fn the_far_end_stops(protocol: &'static OffloadProtocol) -> Result<()> {
    swap_slowly(protocol, |line, [_, far]| {
        far.signal(Signal::SIGSTOP)?;
        line.pause()?;
        far.signal(Signal::SIGCONT)
    })
}

/// If the cable is cut for good, the writing end and the reading end of a connection get an error
/// within their timeout. The errors equal those of a TCP pair under the same conditions.
fn a_cut_cable_is_seen(protocol: &'static OffloadProtocol) -> Result<()> {
    let line = available!(Line::new(protocol)?);
    line.slow_down(RATE)?;
    let without_library = |command: &mut Command| {
        command.env_remove("LD_PRELOAD");
    };
    let ours = line.start_losing(|_| {})?;
    line.check_offloaded()?;
    let plain = line.start_losing(without_library)?;
    let mut all = ours.into_iter().chain(plain).collect::<Vec<_>>();
    for side in &mut all {
        side.write_line("go on")?;
    }
    thread::sleep(SOON);
    line.drop_received(&BOTH, "meta l4proto tcp")?;
    let mut lines = Vec::new();
    for side in all {
        // TCP checks the timeout when it retransmits, at growing intervals; the rest of the time is
        // for a busy machine.
        lines.push(side.read_line_within("lost", PATIENCE * 45)?);
        side.finish()?;
    }
    ensure!(lines[0].starts_with("by TimedOut"), "{lines:?}");
    ensure!(lines[..2] == lines[2..], "{lines:?}");
    line.environment.check_end()
}
