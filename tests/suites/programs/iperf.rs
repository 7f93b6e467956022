//! iperf3: parallel streams in both directions, with and without `sendfile`.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use stack_tests::Finished;

use crate::arrangement::Side;
use crate::case::Case;
use crate::scene::{HOST, Scene};

const PORT: u16 = 5201;

pub(crate) const CASES: &[Case] = &[Case::new(
    "iperf3: -P 4, -R, -Z, --bidir",
    PORT,
    |scene| {
        scene
            .server("iperf3")
            .args_line(&format!("-s -B {HOST} -p {PORT}"))
            .spawn()
    },
    run_clients,
)];

fn run_clients(scene: &Scene, side: Side) -> Result<()> {
    let amount = if scene.is_long() { "4G" } else { "32M" };
    for how in ["", "-P 4", "-R", "-P 4 -R", "-Z", "-Z -R", "-P 2 --bidir"] {
        let line = format!("-c {HOST} -p {PORT} -n {amount} {how}");
        let before = listeners()?;
        let finished = admitted(scene, side, &line)?
            .prints("iperf Done.")?
            .never_prints("error")?;
        for end in ["sender", "receiver"] {
            let lines = || {
                finished
                    .text
                    .lines()
                    .filter(|line| line.trim_end().ends_with(end))
            };
            ensure!(
                lines().next().is_some(),
                "no figures of a {end}\n{}",
                finished.tail()
            );
            for line in lines() {
                let moved = transferred(line).with_context(|| line.to_owned())?;
                ensure!(moved > 0.0, "{how}: {line}");
            }
        }
        await_next_listener(scene, &before)?;
    }
    Ok(())
}

/// Waits until the server has replaced its listening socket, as it does after each client. A
/// client that connects meanwhile is reset, or finds the new socket before it is offered: both use
/// TCP.
fn await_next_listener(scene: &Scene, before: &[String]) -> Result<()> {
    let until = Instant::now() + scene.deadline();
    loop {
        let now = listeners()?;
        if !now.is_empty() && !now.iter().any(|one| before.contains(one)) {
            break;
        }
        ensure!(Instant::now() < until, "the server does not listen again");
        sleep(Duration::from_millis(5));
    }
    match scene.is_sdp() && scene.side() == Side::Offloading {
        true => scene.await_offer(PORT),
        false => Ok(()),
    }
}

/// The inodes of the sockets that listen at the port.
fn listeners() -> Result<Vec<String>> {
    const LISTEN: &str = "0A";
    let table = fs::read_to_string("/proc/thread-self/net/tcp").context("reading listeners")?;
    let rows = table.lines().skip(1).map(str::split_whitespace);
    let rows = rows.map(Iterator::collect::<Vec<_>>);
    let ours = rows.filter(|row| row[1].ends_with(&format!(":{PORT:04X}")) && row[3] == LISTEN);
    Ok(ours.map(|row| row[9].to_owned()).collect())
}

/// Runs a client, and repeats it while the server has not finished with the previous client. The
/// server accepts new clients before it notices the end of the previous client. After each client
/// the server closes its listening socket, so a client that connects at that time is refused or
/// reset.
fn admitted(scene: &Scene, side: Side, line: &str) -> Result<Finished> {
    let until = Instant::now() + scene.deadline();
    loop {
        let finished = scene.run_to_end(scene.program(side, "iperf3").args_line(line))?;
        let too_early = [
            "the server is busy running a test",
            "unable to connect to server: Connection refused",
            "unable to receive control message: Connection reset by peer",
        ];
        let is_too_early = too_early.iter().any(|words| finished.text.contains(words));
        if !is_too_early || Instant::now() > until {
            return finished.success();
        }
        sleep(Duration::from_millis(20));
    }
}

/// `[  5]   0.00-0.01   sec  32.0 MBytes  ...`
fn transferred(line: &str) -> Option<f64> {
    line.split_once(" sec ")?
        .1
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}
