//! OFA's own test programs, unmodified, as Debian ships them, over our `libdat2.so.2` and provider.
//!
//! Their exit status says little (dtest exits with 0 after many failures), so both sides are judged
//! by what they print. `STACK_TESTS_FULL=1` runs the iteration counts of OFA's regression lists.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stack_tests::{Finished, IA_NAME, Registry, StackEnv, is_full};

const DEADLINE: Duration = Duration::from_secs(90);
const DEADLINE_FULL: Duration = Duration::from_secs(900);

/// Where dapltest's server listens; its test connections use the ports above.
const DAPLTEST_PORT: u16 = 62000;

/// Where the dtest family exchanges addresses before DAT begins.
const DTEST_PORT: u16 = 15828;

/// What dapltest's server says of a transaction test that worked.
const TRANSACTION_FINISHED: &str = "Server: Transaction Test Finished for this client";

fn deadline() -> Duration {
    if is_full() { DEADLINE_FULL } else { DEADLINE }
}

/// dtest says this when another EVD of its CNO had the event; it does so over OFA's stack as well.
const OTHER_EVD: &str = "WARNING: CNO notification: without EVD?";

/// Nothing in the output may speak of a failure.
fn no_complaint(finished: Finished) -> Result<Finished> {
    let mut finished = finished;
    finished.text = finished.text.replace(OTHER_EVD, "");
    for word in ["error", "fail", "warning", "mismatch", "corrupt"] {
        finished = finished.never_says(word)?;
    }
    Ok(finished)
}

/// A dapltest server, one client with `args`, then `-T Q`. `#` in `args` is the number of
/// iterations: `few`, or `all` with `STACK_TESTS_FULL`. The two texts are what each side says of a
/// test that worked.
fn dapltest(args: &str, few: u32, all: u32, client_says: &str, server_says: &str) -> Result<()> {
    let env = StackEnv::new()?;
    let iterations = if is_full() { all } else { few };
    let args = args.replace('#', &iterations.to_string());
    let run = |name: &str, args: &str| {
        env.program("dapltest")
            .args_line(args)
            .named(&format!("dapltest {name}"))
            .spawn()
    };
    let there = format!("-D {IA_NAME} -n {DAPLTEST_PORT}");
    let server = run("server", &format!("-T S {there}"))?;
    let ready = env.net.wait_for_listener(DAPLTEST_PORT, DEADLINE);
    ready.with_context(|| server.text())?;

    let (kind, rest) = args.split_at("-T T".len());
    let client = run("client", &format!("{kind} -s 127.0.0.1 {there} {rest}"))?;
    let client = client.finish(deadline()).with_context(|| server.text())?;
    let judged = no_complaint(client).and_then(Finished::success);
    let judged = judged.and_then(|client| client.says(client_says)?.says("End of Work"));
    judged.with_context(|| server.text())?;
    let quit = run("quit", &format!("-T Q -s 127.0.0.1 {there}"))?.finish(DEADLINE)?;
    no_complaint(quit)?.success()?.says("End of Work")?;
    no_complaint(server.finish(DEADLINE)?)?
        .success()?
        .says(server_says)?
        .says("Exiting.")?;
    Ok(())
}

fn transaction(args: &str, few: u32, all: u32) -> Result<()> {
    let finished = "Server: Transaction Test Finished for this client";
    dapltest(
        &format!("-T T {args}"),
        few,
        all,
        "----- Stats ----",
        finished,
    )
}

fn performance(args: &str, few: u32, all: u32) -> Result<()> {
    let finished = "Server: Finished performance test.";
    dapltest(
        &format!("-T P {args}"),
        few,
        all,
        "Total Data Exchanged",
        finished,
    )
}

/// dapltest modes that need no server.
fn dapltest_alone(args: &str) -> Result<Finished> {
    let env = StackEnv::new()?;
    let (kind, rest) = args.split_at("-T T".len());
    let alone = env
        .program("dapltest")
        .args_line(&format!("{kind} -D {IA_NAME} {rest}"))
        .spawn()?;
    alone.finish(deadline())?.success()
}

/// A limit test. A failing create ends it successfully, so the number of objects is what tells.
fn limit(args: &str, reached: &str) -> Result<()> {
    let finished = dapltest_alone(&format!("-T L {args}"))?;
    no_complaint(finished)?.says(&format!("{reached}\n"))?;
    Ok(())
}

/// A functional test. Failed expectations are told in a line of their own, after which the result
/// is called PASS all the same.
fn functional(feature: &str, cases: usize) -> Result<()> {
    let finished = dapltest_alone(&format!("-T F -s 127.0.0.1 -f {feature}"))?
        .never_says("failed in file")?
        .never_says("Result: FAIL")?;
    let passed = finished.text.matches("Result: PASS").count();
    ensure!(
        passed == cases,
        "{passed} cases of {cases} passed\n{}",
        finished.tail()
    );
    Ok(())
}

/// A server and a client of the dtest family with the same options.
fn pair(env: &StackEnv, tool: &str, options: &str, success: &str) -> Result<()> {
    let run = |side: &str, role: &str| {
        env.program(tool)
            .args_line(&format!("-P {IA_NAME} {options} {role}"))
            .named(&format!("{tool} {side}"))
            .spawn()
    };
    let server = run("server", "-s")?;
    env.net
        .wait_for_listener(DTEST_PORT, DEADLINE)
        .with_context(|| server.text())?;
    let client = run("client", "-h 127.0.0.1")?.finish(deadline());
    let client = client.with_context(|| server.text())?;
    let judged = no_complaint(client).and_then(|client| client.says(success));
    judged.with_context(|| server.text())?;
    no_complaint(server.finish(DEADLINE)?)?.says(success)?;
    Ok(())
}

fn dtest(options: &str) -> Result<()> {
    pair(
        &StackEnv::new()?,
        "dtest",
        options,
        "DAPL Test Complete. PASSED",
    )
}

fn dtestcm(options: &str) -> Result<()> {
    pair(
        &StackEnv::new()?,
        "dtestcm",
        options,
        "DAPL Connection Test Complete.",
    )
}

#[test]
fn dapltest_conn() -> Result<()> {
    // Too quick for figures on most machines; then the client says so instead of showing them.
    let operations = "-T T -i 1 -t 1 -w 1 client SR 4096 server SR 4096";
    dapltest(operations, 1, 1, "-----", TRANSACTION_FINISHED)
}

#[test]
fn dapltest_trans() -> Result<()> {
    transaction("-i # -t 1 -w 1 client SR 4096 server SR 4096", 1000, 8192)
}

#[test]
fn dapltest_transm() -> Result<()> {
    let operations = "client RW 4096 1 server RW 2048 4 server RR 1024 1 client RR 2048 1 \
                      client SR 1024 3 -f server SR 256 3 -f";
    transaction(&format!("-P -t 1 -w 1 -i # {operations}"), 500, 4096)
}

#[test]
fn dapltest_transmx() -> Result<()> {
    let operations = "client RW 32768 4 server RW 32768 4 server RR 32768 1 client RR 32768 1 \
                      client SR 16384 4 -f server SR 16384 4 -f";
    transaction(&format!("-P -i # {operations}"), 200, 8192)
}

#[test]
fn dapltest_transt() -> Result<()> {
    transaction(
        "-i # -t 4 -w 1 client SR 8192 3 server SR 8192 3",
        300,
        4096,
    )
}

#[test]
fn dapltest_threadsm() -> Result<()> {
    transaction(
        "-i # -t 4 -w 4 client SR 8192 3 server SR 8192 3",
        100,
        4096,
    )
}

#[test]
fn dapltest_validates_what_arrives() -> Result<()> {
    let operations = "client RW 4096 1 server RW 2048 4 client SR 1024 4 server SR 4096 2 \
                      client SR 1024 3 -f server SR 2048 1 -f";
    transaction(&format!("-V -t 2 -w 4 -i # {operations}"), 100, 55_555)
}

#[test]
fn dapltest_through_reserved_service_points() -> Result<()> {
    transaction("-r -i # -t 1 -w 2 client SR 4096 server SR 4096", 200, 4096)
}

#[test]
fn dapltest_perf() -> Result<()> {
    performance("-i # -m b RW 4096 2", 2048, 2048)
}

#[test]
fn dapltest_latb() -> Result<()> {
    performance("-i # -p 1 -m b RW 4 1", 2000, 8192)
}

#[test]
fn dapltest_latp() -> Result<()> {
    performance("-i # -p 1 -m p RW 4 1", 5000, 100_000)
}

#[test]
fn dapltest_rdma_read() -> Result<()> {
    performance("-i # RR 32768 1", 1000, 4096)
}

#[test]
fn dapltest_rdma_write() -> Result<()> {
    performance("-i # RW 32768 4", 500, 4096)
}

#[test]
fn dapltest_bw() -> Result<()> {
    performance("-i # -p 16 -m b RW 65536 2", 1000, 4096)
}

#[test]
fn dapltest_limits() -> Result<()> {
    limit("-w 8 -m 100 limit_ia", "IAs opened: 100")?;
    limit("-w 8 -m 100 limit_pz", "PZs created: 100")?;
    limit("-w 8 -m 100 limit_evd", "EVDs created: 100")?;
    limit("-w 8 -m 100 limit_ep", "EPs created: 100")?;
    limit("-w 8 -m 100 limit_psp", "PSPs created: 100")?;
    limit("-w 8 -m 100 limit_lmr", "LMRs created: 100")?;
    limit("-m 15 limit_rpost", "recv buffers posted per EP: 15")
}

#[test]
fn dapltest_functional() -> Result<()> {
    functional("hwconn", 4)?;
    functional("endpoint", 3)?;
    functional("pz", 3)?;
    functional("mem", 5)?;
    // One of the 18 cases says that it is not supported by the test itself.
    functional("queryinfo", 17)
}

#[test]
fn dtest_plain() -> Result<()> {
    dtest("")
}

#[test]
fn dtest_polling() -> Result<()> {
    dtest("-p")
}

#[test]
fn dtest_through_a_cno() -> Result<()> {
    dtest("-c")
}

#[test]
fn dtest_rdma_writes_only() -> Result<()> {
    dtest("-w")
}

#[test]
fn dtest_polling_memory_for_writes() -> Result<()> {
    dtest("-W")
}

#[test]
fn dtest_with_small_buffers() -> Result<()> {
    dtest("-b 4096")
}

#[test]
fn dtest_on_ofas_registry_with_our_provider() -> Result<()> {
    let mut env = StackEnv::new()?;
    env.registry = Registry::loopback(&env.stage.provider().display().to_string())?;
    pair(
        &env.with_system_registry(),
        "dtest",
        "-b 4096",
        "DAPL Test Complete. PASSED",
    )
}

#[test]
fn dtestcm_ten_connections() -> Result<()> {
    dtestcm("-c 10 -b 10")
}

#[test]
fn dtestcm_a_thousand_connections() -> Result<()> {
    dtestcm("")
}
