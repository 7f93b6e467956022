//! A random walk: the same calls on an offloaded pair and on a TCP pair. After each call the
//! results, error numbers, bytes, readiness and counts of both are the same.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use stack_tests::let_others_run;

use crate::pair::Pair;
use crate::scripts::NATIVE;
use crate::step::{Outcome, Step, agree, await_bytes, has_edge, unread};

/// The number of rounds of [`let_others_run`] after which the peer has received the end of a
/// stream, even if the peer's socket does not show the end.
const UNSEEN: usize = 3;
const PAUSE: Duration = Duration::from_millis(2);
const CONNECTIONS: usize = 8;
const STEPS: usize = 60;
/// The limit of bytes in flight in one direction, so that neither kind of socket is ever full.
const UNDER_WAY_MAX: usize = 24 * 1024;

/// Walks with seeds from here on fork.
pub(crate) const FORKING: u64 = 100;

/// Runs the walk with this seed. Returns the exit status of the process.
pub(crate) fn run(seed: u64) -> ExitCode {
    let mut dice = Dice(seed);
    for connection in 0..CONNECTIONS {
        if let Err(error) = walk(&mut dice, seed >= FORKING) {
            println!("seed {seed}, connection {connection}: {error:#}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn walk(dice: &mut Dice, forking: bool) -> Result<()> {
    let mut pairs = [Pair::over("127.0.0.1", true)?, Pair::over(NATIVE, false)?];
    let mut history = Vec::new();
    let mut under_way = [0; 2];
    let mut open = [true; 2];
    let mut listening = [true; 2];
    for number in 0..STEPS {
        let end = dice.below(2);
        if !open[end] {
            continue;
        }
        let room = UNDER_WAY_MAX - under_way[end];
        let step = if forking {
            choose_forking(dice, number, room)
        } else {
            choose(dice, number, room)
        };
        if IS_LOCAL.with(|is| *is) && !is_alike(step, &history) {
            continue;
        }
        history.push((end, step));
        let outcomes = pairs
            .each_mut()
            .map(|pair| step.apply(pair, end, number as u8));
        let [ours, tcp] = &outcomes;
        let is_same = ours == tcp || forking && is_end_unseen(step, &pairs[0], end, &outcomes);
        ensure!(is_same, "{history:?}: {ours:?} where TCP has {tcp:?}");
        match step {
            Step::Send(len) | Step::SendInChild(len) if ours.result.is_ok() => {
                under_way[end] += len;
                let is_readable = open[1 - end] && listening[1 - end];
                await_bytes(&pairs, 1 - end, under_way[end], is_readable);
                if len > 0 && is_readable {
                    for (name, pair) in ["offloaded", "TCP"].iter().zip(&pairs) {
                        ensure!(has_edge(pair, 1 - end), "{history:?}: no edge of {name}");
                    }
                }
            }
            Step::Discard(_) => {
                let count = ours.result.unwrap_or(0);
                under_way[1 - end] -= usize::try_from(count).unwrap_or(0);
            }
            Step::UrgentWhenFull => under_way[end] = 0,
            Step::ReceiveInChild(_) => under_way[1 - end] -= ours.bytes.len(),
            Step::Receive(_, flags) if flags & libc::MSG_PEEK == 0 => {
                under_way[1 - end] -= ours.bytes.len();
            }
            Step::ShutDown(how) => {
                listening[end] &= how == libc::SHUT_WR;
                let_others_run(UNSEEN, PAUSE);
            }
            Step::Await => under_way[1 - end] -= ours.bytes.len(),
            Step::Close | Step::Reset => {
                open[end] = false;
                let_others_run(UNSEEN, PAUSE);
            }
            _ => {}
        }
        for end in (0..2).filter(|end| open[*end]) {
            if let Err([ours, tcp]) = agree(&pairs, end, forking) {
                anyhow::bail!("{history:?}: end {end} shows {ours:?} where TCP shows {tcp:?}");
            }
        }
    }
    Ok(())
}

thread_local! {
    /// True for connections within the host, which are sockets of the kernel.
    static IS_LOCAL: bool = std::env::var("SUITE_PROTOCOL").is_ok_and(|name| name == "local");
}

/// True for steps in which the kernel's sockets within a host behave like TCP. opsrun(1) lists the
/// differences: a reset, a close after an end of sending, the end of reading, and the size of the
/// buffer, which both ends share.
fn is_alike(step: Step, before: &[(usize, Step)]) -> bool {
    match step {
        Step::Reset => false,
        Step::Close => !before
            .iter()
            .any(|(_, step)| matches!(step, Step::ShutDown(_))),
        Step::ShutDown(how) => {
            let mut before = before.iter();
            how == libc::SHUT_WR && !before.any(|(_, step)| matches!(step, Step::ShutDown(_)))
        }
        Step::SetOption(libc::SOL_SOCKET, libc::SO_SNDBUF, _) => false,
        _ => true,
    }
}

/// True if a difference is permitted because the end is not visible yet. Processes that share a
/// connection see the end after the last unread byte. Before that, a connection that has ended
/// otherwise may be shut down once more.
fn is_end_unseen(step: Step, ours: &Pair, end: usize, outcomes: &[Outcome; 2]) -> bool {
    matches!(step, Step::ShutDown(_))
        && unread(ours, end) > 0
        && outcomes[0].result == Ok(0)
        && outcomes[1].result == Err(libc::ENOTCONN)
}

fn choose(dice: &mut Dice, number: usize, room: usize) -> Step {
    let len = [0, 1, 2, 100, 1459, 4096][dice.below(6)];
    match dice.below(23) {
        20 => Step::Discard(len.max(1)),
        21 => [
            Step::AwaitPeek(len.max(1)),
            Step::Receive(len.max(1), libc::MSG_PEEK | libc::MSG_WAITALL),
        ][dice.below(2)],
        // The step is rare, because it is slow, and both ends must still read and write.
        22 if number <= STEPS / 2 && dice.below(3) == 0 => Step::UrgentWhenFull,
        0..7 => Step::Send(len.min(room)),
        7..11 => Step::Receive(len.max(1), 0),
        11 => Step::Receive(len.max(1), libc::MSG_PEEK),
        12 => Step::Receive(len.max(1), libc::MSG_WAITALL),
        13 => Step::Receive(len.max(1), libc::MSG_TRUNC),
        14 => Step::Duplicate,
        15 => option(dice),
        16 => [Step::Kind, Step::PendingError][dice.below(2)],
        17 => Step::Await,
        // Steps that end a direction are in the second half, because otherwise most walks would be
        // short.
        18 if number > STEPS / 2 => {
            Step::ShutDown([libc::SHUT_WR, libc::SHUT_RD, libc::SHUT_RDWR][dice.below(3)])
        }
        19 if number > STEPS / 2 => [Step::Close, Step::Reset][dice.below(2)],
        _ => Step::Receive(UNDER_WAY_MAX, 0),
    }
}

/// Chooses a step of a connection that several processes use, without `MSG_TRUNC` and the end of
/// reading, in which a Unix socket, which carries the bytes, differs from TCP.
fn choose_forking(dice: &mut Dice, number: usize, room: usize) -> Step {
    let len = [0, 1, 2, 100, 1459, 4096][dice.below(6)];
    match dice.below(20) {
        0 => Step::Fork,
        1 | 2 if number > STEPS / 4 => Step::SendInChild(len.min(room)),
        3 | 4 if number > STEPS / 4 => Step::ReceiveInChild(len.max(1)),
        5..9 => Step::Send(len.min(room)),
        9..12 => Step::Receive(len.max(1), 0),
        12 => Step::Receive(len.max(1), libc::MSG_PEEK),
        13 => Step::Receive(len.max(1), libc::MSG_WAITALL),
        14 => Step::Duplicate,
        15 => option(dice),
        16 => [Step::Kind, Step::PendingError][dice.below(2)],
        17 => Step::Await,
        18 if number > STEPS / 2 => Step::ShutDown(libc::SHUT_WR),
        19 if number == STEPS - 1 => [Step::Close, Step::Reset][dice.below(2)],
        _ => Step::Receive(UNDER_WAY_MAX, 0),
    }
}

/// Chooses an option that programs set, or an option that does not exist.
fn option(dice: &mut Dice) -> Step {
    let (level, name) = [
        (libc::IPPROTO_TCP, libc::TCP_NODELAY),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
        (libc::SOL_SOCKET, libc::SO_SNDBUF),
        (libc::SOL_SOCKET, libc::SO_PRIORITY),
        (libc::IPPROTO_IP, libc::IP_TOS),
        (libc::SOL_SOCKET, 9999),
    ][dice.below(8)];
    // This option is in milliseconds: after a short time the kernel would reset a full TCP
    // connection, and a step may take long on a busy machine.
    let unit = match name {
        libc::TCP_USER_TIMEOUT => 600_000,
        _ => 1,
    };
    Step::SetOption(level, name, unit * [0, 1, 7][dice.below(3)])
}

/// Random numbers that a seed reproduces.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}
