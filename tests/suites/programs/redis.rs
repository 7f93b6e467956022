//! redis: many small requests, a large value, and a snapshot by a forked child under load.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use stack_tests::Running;

use crate::arrangement::Side;
use crate::case::Case;
use crate::scene::{HOST, Scene};

const PORT: u16 = 6379;
/// The port of the server that loads the snapshot.
const SECOND_PORT: u16 = 6380;

pub(crate) const CASES: &[Case] = &[
    Case::new(
        "redis: redis-benchmark, a value of 8 MiB",
        PORT,
        |scene| start(scene, ""),
        benchmark,
    ),
    Case::new(
        "redis: BGSAVE under load",
        PORT,
        // The child is slowed down, so that it runs while the load continues.
        |scene| start(scene, "--rdb-key-save-delay 50"),
        snapshot,
    ),
];

fn start(scene: &Scene, more: &str) -> Result<Running> {
    let program = scene.server("redis-server");
    program
        .args_line(&format!("--port {PORT} {more}"))
        .args_line("--bind 127.0.0.1 --save")
        .arg("")
        .spawn()
}

fn benchmark(scene: &Scene, side: Side) -> Result<()> {
    let requests = if scene.is_long() { 60_000 } else { 2_000 };
    let line = format!("-h {HOST} -p {PORT} -n {requests} -c 20 -d 200 -q -t");
    let tests = "ping_inline,ping_mbulk,set,get,incr,lpush,lpop,sadd,hset,lrange_100,mset";
    let benchmark = scene.program(side, "redis-benchmark").args_line(&line);
    let finished = scene.run(benchmark.arg(tests))?.never_prints("error")?;
    let figures = finished.text.matches("requests per second").count();
    ensure!(figures >= 11, "{figures} figures\n{}", finished.tail());

    scene.file("value", 8 << 20)?;
    let cli = format!("redis-cli -h {HOST} -p {PORT}");
    let there_and_back = format!(
        "{cli} -x set blob < value; {cli} --raw get blob | head -c {} | cmp - value",
        8 << 20
    );
    scene.run(scene.shell(side, &there_and_back)).map(drop)
}

/// Scripts that write values with a known sum, and that return the sum.
const FILL: &str = "for i = 1, 5000 do redis.call('set', 'fixed:' .. i, string.rep(i, 40)) end";
const SUM: &str = "local all = {} for i = 1, 5000 do all[i] = redis.call('get', 'fixed:' .. i) end \
                   return redis.sha1hex(table.concat(all))";

fn snapshot(scene: &Scene, side: Side) -> Result<()> {
    let ask = |port: u16, side: Side, words: &[&str]| -> Result<String> {
        let cli = scene.program(side, "redis-cli");
        let cli = cli.args_line(&format!("-h {HOST} -p {port}"));
        let cli = words.iter().fold(cli, |cli, word| cli.arg(word));
        Ok(scene.run(cli)?.text.trim().to_owned())
    };
    ask(PORT, side, &["eval", FILL, "0"])?;
    let sum = ask(PORT, side, &["eval", SUM, "0"])?;
    ensure!(sum.len() == 40, "no sum: {sum}");

    let load = format!("-h {HOST} -p {PORT} -l -n 2000 -c 10 -P 4 -d 100 -r 1000 -t set,get -q");
    let load = scene.program(side, "redis-benchmark").args_line(&load);
    let load = load.spawn()?;
    load.wait_for("GET", scene.deadline())
        .context("waiting for the load")?;
    let said = ask(PORT, side, &["bgsave"])?;
    ensure!(said.contains("started"), "{said}");
    let end = Instant::now() + scene.deadline();
    loop {
        let finished = ask(PORT, side, &["info", "persistence"])?;
        if finished.contains("rdb_bgsave_in_progress:0") {
            ensure!(finished.contains("rdb_last_bgsave_status:ok"), "{finished}");
            break;
        }
        ensure!(Instant::now() < end, "the snapshot does not end");
        thread::sleep(Duration::from_millis(20));
    }
    ensure!(!load.has_ended(), "the load ended: {}", load.text());
    drop(load);
    ensure!(
        ask(PORT, side, &["eval", SUM, "0"])? == sum,
        "values have changed"
    );
    check_snapshot(scene, |words| ask(SECOND_PORT, Side::Plain, words), &sum)
}

/// A second server, which runs without the library, loads the snapshot and must have the same
/// values.
fn check_snapshot(scene: &Scene, ask: impl Fn(&[&str]) -> Result<String>, sum: &str) -> Result<()> {
    let second = scene.program(Side::Plain, "redis-server");
    let second = second
        .args_line(&format!("--port {SECOND_PORT} --bind {HOST} --save"))
        .arg("")
        .spawn()?;
    scene
        .net
        .wait_for_listener_of(&second, SECOND_PORT, scene.deadline())?;
    // The server listens before it has loaded, and returns an error to clients until then.
    second.wait_for("Ready to accept connections", scene.deadline())?;
    let found = ask(&["eval", SUM, "0"])?;
    ensure!(found == sum, "the snapshot holds other values: {found}");
    Ok(())
}
