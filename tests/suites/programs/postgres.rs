//! PostgreSQL: a process for each connection, forked after it was accepted.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use nix::unistd::{User, chown, geteuid};
use stack_tests::{Program, Running};

use crate::arrangement::Side;
use crate::case::Case;
use crate::scene::{HOST, Scene};

const PORT: u16 = 5432;

pub(crate) const CASES: &[Case] = &[Case::new(
    "PostgreSQL: pgbench, a long answer",
    PORT,
    start,
    run_clients,
)
.ended_by(Signal::SIGINT)];

/// The directory in which Debian keeps the programs of the newest installed version.
fn bin() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").context("looking for PostgreSQL")?;
    let mut found: Vec<(u32, PathBuf)> = versions
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .filter(|(_, path)| path.join("bin/initdb").exists())
        .collect();
    found.sort();
    let (_, newest) = found.pop().context("no version of PostgreSQL is there")?;
    Ok(newest.join("bin"))
}

/// The user for the server, which refuses to run as root.
fn ordinary_user() -> Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let user = User::from_name("postgres")?;
    Ok(Some(user.context("there is no user postgres")?))
}

fn as_ordinary_user(program: Program, user: Option<&User>) -> Program {
    match user {
        None => program,
        Some(user) => program.args_line(&format!(
            "setpriv --reuid={} --regid={} --clear-groups",
            user.uid, user.gid
        )),
    }
}

fn start(scene: &Scene) -> Result<Running> {
    let user = ordinary_user()?;
    let data = scene.path("data");
    fs::create_dir(&data)?;
    let owner = user.as_ref().map(|user| (user.uid, user.gid));
    if let Some((uid, gid)) = owner {
        chown(&data, Some(uid), Some(gid))?;
    }
    // If the user is not changed, `env` runs the program.
    let plain = |side: Side| as_ordinary_user(scene.program(side, "env"), user.as_ref());
    let initdb = plain(Side::Plain).arg(bin()?.join("initdb"));
    let initdb = initdb.args_line("--no-sync --auth=trust --username=bench --no-locale -E UTF8 -D");
    scene.run(initdb.arg(&data))?;
    let settings = format!(
        "-h {HOST} -p {PORT} -c fsync=off -c unix_socket_directories= -c max_connections=20 \
         -c shared_buffers=32MB -D"
    );
    let postgres = as_ordinary_user(scene.server("env"), user.as_ref());
    postgres
        .arg(bin()?.join("postgres"))
        .args_line(&settings)
        .arg(&data)
        .named("postgres")
        .spawn()
}

/// The four sums that each transaction of pgbench keeps equal.
const BALANCED: &str = "select (select sum(abalance) from pgbench_accounts) = \
    (select sum(delta) from pgbench_history) and (select sum(tbalance) from pgbench_tellers) = \
    (select sum(bbalance) from pgbench_branches) and (select sum(delta) from pgbench_history) = \
    (select sum(bbalance) from pgbench_branches), (select count(*) from pgbench_history)";

/// Waits until the server answers queries. For a while after it listens, the server reports to
/// clients that it is starting.
fn await_answers(scene: &Scene, side: Side, to: &str) -> Result<()> {
    let end = Instant::now() + scene.deadline();
    loop {
        let asking = scene.program(side, bin()?.join("pg_isready"));
        let asked = scene.run_to_end(asking.args_line(to))?;
        if asked.status.success() {
            return Ok(());
        }
        ensure!(Instant::now() < end, "not ready: {}", asked.text);
        thread::sleep(Duration::from_millis(50));
    }
}

fn run_clients(scene: &Scene, side: Side) -> Result<()> {
    let bin = bin()?;
    let to = format!("-h {HOST} -p {PORT} -U bench");
    await_answers(scene, side, &to)?;
    let pgbench = |words: &str| {
        let program = scene.program(side, bin.join("pgbench"));
        scene.run(program.args_line(&format!("{to} {words} postgres")))
    };
    let psql = |query: &str| {
        let program = scene.program(side, bin.join("psql"));
        let program = program.args_line(&format!("{to} -X -A -t -c"));
        Ok::<_, anyhow::Error>(scene.run(program.arg(query).arg("postgres"))?.text)
    };
    pgbench("-i -q -s 1")?;
    let each = if scene.is_long() { 5_000 } else { 50 };
    pgbench(&format!("-c 4 -j 2 -t {each}"))?.prints("number of failed transactions: 0")?;
    let balanced = psql(BALANCED)?;
    ensure!(balanced == format!("t|{}\n", 4 * each), "{balanced}");

    let rows = if scene.is_long() { 2_000_000 } else { 100_000 };
    let answer = psql(&format!(
        "select repeat(i::text, 10) from generate_series(1, {rows}) i"
    ))?;
    let expected: String = (1..=rows)
        .map(|i| i.to_string().repeat(10) + "\n")
        .collect();
    ensure!(
        answer == expected,
        "a wrong answer of {} bytes",
        answer.len()
    );
    Ok(())
}
