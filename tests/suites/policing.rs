//! The administrator's limits of shared resources (`dat-limits.conf`), between processes.
//!
//! Source: `dat-limits.conf(5)`; OpenRDMA Software Architecture 1.0, section 2.1.1.

use std::process::Command;

use anyhow::{Result, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use stack_tests::raw::{REQUEST, RawPeer};
use stack_tests::{DEADLINE, Finished, Peers, Running, not_over_devices, not_run, orderly};

/// The settings of the adapter, under which silent peers are never closed.
const PATIENT: &str = "half_open_ms=3600000 mpa_timeout_ms=0";

/// The return code of a call that a limit refuses.
const REFUSED: &str = "DAT_INSUFFICIENT_RESOURCES";

/// Programs on a host with these limits, and the directory that is its `/etc`. `None` where this
/// test cannot make such a host.
fn host(limits: &str) -> Result<Option<(Peers, tempfile::TempDir)>> {
    if not_over_devices("the limits are those of the software provider") {
        return Ok(None);
    }
    let peers = Peers::with_params(PATIENT)?;
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNS) {
        not_run(&format!("no mount namespace can be made: {error}"));
        return Ok(None);
    }
    let etc = tempfile::tempdir()?;
    // Files that this user may not read are not needed.
    let _ = Command::new("cp")
        .args(["-a", "/etc/."])
        .arg(etc.path())
        .output()?;
    std::fs::write(etc.path().join("dat-limits.conf"), limits)?;
    let none = None::<&str>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(none, "/", none, private, none)?;
    mount(Some(etc.path()), "/etc", none, MsFlags::MS_BIND, none)?;
    // The processes of other tests are not counted.
    let own = MsFlags::empty();
    mount(none, "/dev/shm", Some("tmpfs"), own, Some("mode=1777"))?;
    Ok(Some((peers, etc)))
}

fn listen(peers: &Peers, port: u16, args: &str) -> Result<Running> {
    peers.start_ready(&format!("listen port={port} {args}"))
}

/// Starts a process in which a call is refused, with the line of the log that names the limit.
fn refused(peers: &Peers, args: &str, limit: &str) -> Result<Finished> {
    let program = peers.prepare(args).env("DAT_LOG", "warn");
    let finished = program.spawn()?.finish(DEADLINE)?;
    ensure!(!finished.status.success(), "{}", finished.tail());
    let line = "which line 1 of /etc/dat-limits.conf sets";
    finished
        .prints(REFUSED)?
        .prints(&format!("the limit `{limit}` is reached, {line}"))
}

/// Starts two processes with a connection that stays until one of them is killed.
fn connected(peers: &Peers, port: u16) -> Result<(Running, Running)> {
    let passive = listen(peers, port, "hold=1 hold_ms=100000000")?;
    let active = peers.start(&format!("connect port={port} hold=1 hold_ms=100000000"))?;
    active.wait_for("PRIVATE", DEADLINE)?;
    passive.wait_for("CALLER", DEADLINE)?;
    Ok((passive, active))
}

fn kill(process: Running) -> Result<()> {
    process.signal(Signal::SIGKILL)?;
    process.finish(DEADLINE)?;
    Ok(())
}

/// Checks that a connection carries data now.
fn expect_data(peers: &Peers, port: u16) -> Result<()> {
    let passive = listen(peers, port, "")?;
    let active = peers.start(&format!("connect port={port}"))?;
    orderly(active)?.prints("DATA 10 messages")?;
    orderly(passive)?;
    Ok(())
}

/// The lines of `datinfo --check` about limits.
fn check(peers: &Peers) -> Result<String> {
    let program = peers.env.program(peers.env.stage.bin("datinfo"));
    let finished = program.args_line("--check -v").spawn()?.finish(DEADLINE)?;
    let lines = finished.text.lines();
    Ok(lines.filter(|line| line.contains("policing: ")).collect())
}

#[test]
fn services_of_a_user_are_limited_across_processes() -> Result<()> {
    let Some((peers, _etc)) = host("* user services 2\n")? else {
        return Ok(());
    };
    let first = listen(&peers, 7471, "")?;
    let second = listen(&peers, 7472, "")?;
    refused(&peers, "listen port=7473", "user services 2")?;
    let shown = check(&peers)?;
    ensure!(
        shown.contains("services of this user: 2 of at most 2"),
        "{shown}"
    );
    ensure!(
        shown.contains("raise the limit in line 1 of /etc/dat-limits.conf"),
        "{shown}"
    );
    kill(first)?;
    kill(second)?;
    let shown = check(&peers)?;
    ensure!(
        shown.contains("ok: policing: services of this user: 0 of at most 2"),
        "{shown}"
    );
    // Both programs of a connection have a service.
    expect_data(&peers, 7473)
}

#[test]
fn connections_of_a_user_are_limited_across_processes() -> Result<()> {
    let Some((peers, _etc)) = host("* user connections 3\n")? else {
        return Ok(());
    };
    let (passive, active) = connected(&peers, 7471)?;
    // The third is that of the connecting end. The other end's accept is refused.
    let second = peers
        .prepare("listen port=7472")
        .env("DAT_LOG", "warn")
        .spawn()?;
    second.wait_for("READY", DEADLINE)?;
    let late = peers.start("connect port=7472")?;
    orderly(late)?.prints("EVENT non-peer-rejected")?;
    let second = second.finish(DEADLINE)?;
    second
        .prints("dat_cr_accept")?
        .prints(REFUSED)?
        .prints("the limit `user connections 3` is reached")?;
    kill(passive)?;
    active.finish(DEADLINE)?;
    expect_data(&peers, 7472)
}

#[test]
fn an_attempt_beyond_the_limit_is_refused_and_the_established_stay() -> Result<()> {
    let Some((peers, _etc)) = host("* user connections 2\n")? else {
        return Ok(());
    };
    let (passive, active) = connected(&peers, 7471)?;
    let _other = listen(&peers, 7472, "")?;
    let limit = "user connections 2";
    refused(&peers, "connect port=7472", limit)?.prints("dat_ep_connect")?;
    let shown = check(&peers)?;
    ensure!(
        shown.contains("connections of this user: 2 of at most 2"),
        "{shown}"
    );
    ensure!(!passive.has_ended() && !active.has_ended());
    kill(active)?;
    passive.finish(DEADLINE)?;
    expect_data(&peers, 7473)
}

#[test]
fn a_socket_whose_conversion_is_refused_belongs_to_the_consumer() -> Result<()> {
    let Some((peers, _etc)) = host("* process connections 0\n")? else {
        return Ok(());
    };
    let _passive = peers.start("ssp socket=accept")?;
    peers.env.net.wait_for_listener(7471, DEADLINE)?;
    let limit = "process connections 0";
    refused(&peers, "upgrade socket=connect", limit)?.prints("dat_iw_socket_connect")?;
    Ok(())
}

#[test]
fn half_open_connections_of_a_user_are_limited_across_services() -> Result<()> {
    let Some((peers, _etc)) = host("* user half_open 2\n")? else {
        return Ok(());
    };
    let _first = listen(&peers, 7471, "")?;
    let second = listen(&peers, 7472, "")?;
    let silent = [RawPeer::connect(7471)?, RawPeer::connect(7471)?];
    while !check(&peers)?.contains("half_open of this user: 2 of at most 2") {
        std::thread::yield_now();
    }
    // The kernel connects, and no process accepts.
    let mut late = RawPeer::connect(7472)?;
    late.send(&REQUEST)?;
    let active = peers.start("connect port=7471 timeout_ms=300")?;
    orderly(active)?.prints("EVENT timed-out")?;
    ensure!(!second.text().contains("CALLER"));
    drop(silent);
    second.wait_for("CALLER", DEADLINE)?;
    Ok(())
}

#[test]
fn a_bad_line_is_shown_and_limits_nothing() -> Result<()> {
    let Some((peers, _etc)) = host("* user services\n")? else {
        return Ok(());
    };
    let shown = check(&peers)?;
    let problem = "problem: policing: /etc/dat-limits.conf: line 1: 3 words instead of 4";
    ensure!(shown.contains(problem), "{shown}");
    expect_data(&peers, 7471)
}
