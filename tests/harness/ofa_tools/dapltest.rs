//! dapltest: transactions, performance, limits and functions, with the command that stops a server.

use anyhow::{Context, Result, ensure};

use super::Case;
use super::line::{End, Line, ToolsFault, cut, deadline, no_complaint, no_complaint_but};
use crate::{Finished, IA_NAME, StackEnv};

/// The port on which the server listens; its test connections use the ports above.
const PORT: u16 = 62000;

/// Appends the operations with which most of OFA's lines end to `options`: Writes, Reads and Sends
/// of both sides.
macro_rules! every_kind {
    ($options:literal) => {
        concat!(
            $options,
            " client RW 4096 1 server RW 2048 4 server RR 1024 1 client RR 2048 1",
            " client SR 1024 3 -f server SR 256 3 -f"
        )
    };
}

/// Lines: the name, the options, and the value of `#` in the quick form and in OFA's line.
macro_rules! lines {
    ($($name:literal: $options:expr $(=> $few:literal or $all:literal)?;)+) => {
        &[$(cut($name, $options, concat!($($few)?), concat!($($all)?))),+]
    };
}

/// `-T T` lines: OFA's regression lists, then lines for features that the lists do not cover.
const TRANSACTIONS: &[Line] = lines! {
    "conn": "-i 1 -t 1 -w 1 client SR 4096 server SR 4096";
    "trans": "-i # -t 1 -w 1 client SR 4096 server SR 4096" => "1000" or "8192";
    "transm": every_kind!("-P -t 1 -w 1 -i #") => "300" or "4096";
    "transmx": "-P -i # client RW 32768 4 server RW 32768 4 server RR 32768 1 client RR 32768 1 \
         client SR 16384 4 -f server SR 16384 4 -f" => "100" or "8192";
    "transt": "-i # -t 4 -w 1 client SR 8192 3 server SR 8192 3" => "100" or "4096";
    "transme": every_kind!("-P -t 1 -w 4 -i #") => "50" or "4096";
    "transmet": every_kind!("-P -t 2 -w 4 -i #") => "20" or "4096";
    "transmete": every_kind!("-P -t 4 -w 4 -i #") => "10" or "8192";
    "threads": "-i # -t 6 -w 1 client SR 8192 3 server SR 8192 3" => "100" or "4096";
    "threadsm": "-i # -t 4 -w 4 client SR 8192 3 server SR 8192 3" => "30" or "4096";
    "epa 10": "-i # -t 10 -w 10 client SR 8192 3 server SR 8192 3" => "5" or "4096";
    "epa 20": "-i # -t 10 -w 20 client SR 8192 3 server SR 8192 3" => "3" or "4096";
    "epa 30": "-i # -t 10 -w 30 client SR 8192 3 server SR 8192 3" => "2" or "4096";
    "epa 40": "-i # -t 10 -w 40 client SR 8192 3 server SR 8192 3" => "1" or "4096";
    "epa 50": "-i # -t 10 -w 50 client SR 8192 3 server SR 8192 3" => "1" or "4096";
    "regress 1": "-i # client SR 256 server SR 256" => "500" or "10000";
    "regress 2": "-i # client SR 256 server SR 256 server RW 4096" => "300" or "10000";
    "regress 3": "-i # client SR 256 server SR 256 server RR 4096" => "300" or "10000";
    "regress 4": every_kind!("-i #") => "100" or "10000";
    "regress 5": every_kind!("-i # -w 8") => "30" or "10000";
    "regress 6": every_kind!("-i # -t 4 -w 8") => "5" or "10000";
    "complicated": "-V -d -t 2 -w 4 -i # client RW 4096 1 server RW 2048 4 client SR 1024 4 \
         server SR 4096 2 client SR 1024 3 -f server SR 2048 1 -f" => "20" or "55555";
    "through reserved service points":
        "-r -i # -t 1 -w 2 client SR 4096 server SR 4096" => "200" or "4096";
    "polling": "-P -i # client SR 4096 server SR 4096" => "300" or "4096";
};

/// `-T T -Q`, an option that the manual documents and the program lacks.
const THROUGH_A_CNO: ToolsFault = ToolsFault {
    options: "-T T -Q -i 100 client SR 4096 server SR 4096",
    end: End::Prints("Command line syntax error"),
    why: "the option string of -T T lacks the letter Q, so that it is a syntax error",
};

/// `-T P` lines.
const PERFORMANCE: &[Line] = lines! {
    "perf": "-i 2048 -m b RW 4096 2";
    "perf polling": "-i # -m p RW 4096 2" => "500" or "2048";
    "rdma-read": "-i # RR 32768 1" => "500" or "4096";
    "rdma-read blocking": "-i # -m b RR 32768 1" => "300" or "4096";
    "rdma-write": "-i # RW 32768 4" => "300" or "4096";
    "bw": "-i # -p 16 -m b RW 65536 2" => "300" or "4096";
    "latb": "-i # -p 1 -m b RW 4 1" => "1000" or "8192";
    "latp": "-i # -p 1 -m p RW 4 1" => "1000" or "100000";
};

/// `-T L` lines and the number of objects in which each ends. A failing create ends a test without
/// an error, so the number is the criterion.
const LIMITS: &[(&str, &str)] = &[
    ("-w 8 -m 100 limit_ia", "IAs opened: 100"),
    ("-w 8 -m 100 limit_pz", "PZs created: 100"),
    ("-w 8 -m 100 limit_evd", "EVDs created: 100"),
    ("-w 8 -m 100 limit_ep", "EPs created: 100"),
    ("-w 8 -m 100 limit_psp", "PSPs created: 100"),
    ("-w 8 -m 100 limit_lmr", "LMRs created: 100"),
    ("-m 15 limit_rpost", "recv buffers posted per EP: 15"),
    ("-w 16 -m 1000 limit_ia", "IAs opened: 1000"),
    ("-w 16 -m 1000 limit_pz", "PZs created: 1000"),
    ("-w 16 -m 1000 limit_cno", "CNOs created: 1000"),
    ("-w 16 -m 1000 limit_evd", "EVDs created: 1000"),
    ("-w 16 -m 1000 limit_ep", "EPs created: 1000"),
    ("-w 16 -m 1000 limit_rsp", "RSPs created: 1000"),
    ("-w 16 -m 1000 limit_psp", "PSPs created: 1000"),
    ("-w 16 -m 1000 limit_lmr", "LMRs created: 1000"),
    (
        "-w 16 -m 1000 limit_size_lmr",
        "LMR of 0x40000000 bytes OK - stopping now.",
    ),
    // Each EP accepts the 16 receives of its attributes; the 17th is refused.
    ("-w 16 -m 1000 limit_rpost", "(total posted: 256)"),
];

/// The text that reports the refused receive.
const REFUSED_RECEIVE: &str =
    "dat_ep_post_recv fails: DAT_INSUFFICIENT_RESOURCES DAT_RESOURCE_MEMORY";

/// `-T F` features with the number of cases that pass, and the number of cases that the tool
/// reports as unsupported.
const FUNCTIONS: &[(&str, usize, usize)] = &[
    ("hwconn", 4, 0),
    ("endpoint", 3, 0),
    ("pz", 3, 0),
    ("mem", 5, 0),
    ("connmgt", 2, 0),
    ("queryinfo", 17, 1),
];

pub(super) fn cases() -> Vec<Case> {
    let transactions = TRANSACTIONS
        .iter()
        .map(|line| line.case("dapltest -T T", transaction));
    let performance = PERFORMANCE.iter().map(|line| {
        line.case("dapltest -T P", |env, options| {
            let texts = ["Total Data Exchanged", "Server: Finished performance test."];
            with_server(env, &format!("-T P {options}"), texts)
        })
    });
    let limits = LIMITS.iter().map(|(options, reached)| {
        Case::new(&format!("dapltest -T L {options}"), |env| {
            limit(env, options, reached)
        })
    });
    let functions = FUNCTIONS.iter().map(|(feature, passed, unsupported)| {
        let name = format!("dapltest -T F -f {feature}");
        Case::new(&name, |env| function(env, feature, *passed, *unsupported))
    });
    let fault = Case::new("dapltest -T T -Q, a syntax error", |env| {
        let (options, end) = (THROUGH_A_CNO.options, THROUGH_A_CNO.end);
        end.is_of(client(env, options)?, &THROUGH_A_CNO)
    });
    transactions
        .chain(performance)
        .chain(limits)
        .chain(functions)
        .chain([fault])
        .collect()
}

/// Runs a transaction test with a server of its own. A single transaction is too short for figures.
pub fn transaction(env: &StackEnv, options: &str) -> Result<()> {
    let texts = ["-----", "Server: Transaction Test Finished for this client"];
    with_server(env, &format!("-T T {options}"), texts)
}

/// Runs a server, one client, then `-T Q`. `texts` are the texts that client and server print after
/// a successful test.
fn with_server(env: &StackEnv, options: &str, texts: [&str; 2]) -> Result<()> {
    let server = env
        .program("dapltest")
        .args_line(&format!("-T S -D {IA_NAME} -n {PORT}"))
        .named("dapltest server")
        .spawn()?;
    env.net.wait_for_listener_of(&server, PORT, deadline(env))?;
    let judged = client(env, options)
        .and_then(no_complaint)
        .and_then(Finished::success)
        .and_then(|client| client.prints(texts[0])?.prints("End of Work"));
    judged.with_context(|| server.text())?;
    let quit = client(env, "-T Q")?;
    no_complaint(quit)?.success()?.prints("End of Work")?;
    no_complaint(server.finish(deadline(env))?)?
        .success()?
        .prints(texts[1])?
        .prints("Exiting.")?;
    Ok(())
}

/// Runs one command against the server.
fn client(env: &StackEnv, options: &str) -> Result<Finished> {
    // The kind of test must be the first argument.
    let (kind, rest) = options.split_at("-T T".len());
    env.program("dapltest")
        .args_line(&format!(
            "{kind} -s {} -D {IA_NAME} -n {PORT} {rest}",
            env.address
        ))
        .named(&format!("dapltest {options}"))
        .spawn()?
        .finish(deadline(env))
}

fn limit(env: &StackEnv, options: &str, reached: &str) -> Result<()> {
    let finished = alone(env, &format!("-T L -D {IA_NAME} {options}"))?;
    no_complaint_but(finished, &[REFUSED_RECEIVE])?.prints(&format!("{reached}\n"))?;
    Ok(())
}

/// Checks a function test. The tool reports a failed expectation in a separate line, but still
/// prints the result PASS.
fn function(env: &StackEnv, feature: &str, passed: usize, unsupported: usize) -> Result<()> {
    let finished = alone(
        env,
        &format!(
            "-T F -D {IA_NAME} -s {} -n {PORT} -f {feature}",
            env.address
        ),
    )?
    .never_prints("failed in file")?;
    let results = [
        ("", passed + unsupported),
        ("PASS", passed),
        ("UNSUPP", unsupported),
    ];
    for (result, wanted) in results {
        let line = format!("Result: {result}");
        let found = finished.text.matches(&line).count();
        let tail = finished.tail();
        ensure!(
            found == wanted,
            "{line:?} {found} times, not {wanted}\n{tail}"
        );
    }
    Ok(())
}

/// Runs a command that needs no server.
fn alone(env: &StackEnv, args: &str) -> Result<Finished> {
    let program = env.program("dapltest").args_line(args);
    program.run(deadline(env))
}
