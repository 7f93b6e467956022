//! dtest: its options one by one, and OFA's cross product of them.

use anyhow::Result;

use super::Case;
use super::line::{End, Line, Pair, ToolsFault, cut, line};
use crate::StackEnv;

/// The port on which the programs exchange addresses before DAT begins.
const PORT: u16 = 15828;

const SUCCESS: &str = "DAPL Test Complete. PASSED";

/// Both EVDs for data of `dtest -c` feed one CNO, and dtest waits for an event of one of them at a
/// time. If the other EVD receives an event first, such as a message while writes are still being
/// sent, the CNO triggers as it must. dtest prints this line and waits again, over any stack.
const OTHER_EVD: &str = "WARNING: CNO notification: without EVD?";

const LINES: &[Line] = &[
    cut("plain", "#", "-B 10", ""),
    cut("-p", "-p #", "-B 10", ""),
    cut("-c", "-c #", "-B 10", ""),
    line("-v -b 64 -B 10", "-v -b 64 -B 10"),
    line("-b 4096", "-b 4096"),
    cut("-w", "-w #", "-B 20", ""),
    cut("-w -S 9", "-w -S 9 #", "-B 20", ""),
    cut("-u", "-u #", "-B 20", ""),
    cut("-W", "-W #", "-B 10", ""),
    cut("-W -a", "-W -a #", "-B 2", ""),
    cut("-D -a", "-D -a -B #", "2", "10"),
    cut("-t", "-t #", "-B 10", ""),
];

/// The lines of the cross product that fail over any stack, and the reasons.
const FAULTS: &[ToolsFault] = &[
    ToolsFault {
        options: "-b 4096 -S 0 -B 10",
        end: End::Signal(libc::SIGFPE),
        why: "the streaming tests divide by the signal rate",
    },
    ToolsFault {
        options: "-b 0 -W -B 10",
        end: End::Prints("ERROR rdma_write: status=0x4"),
        why: "the ping-pong writes its first byte into the peer's buffer of 0 bytes",
    },
];

/// The reason why `-b 0 -w` is not run: dtest writes the last byte of its buffer of length 0. That
/// is the byte before the buffer, which belongs to the heap (valgrind shows it), so the effect is
/// undefined.
const NO_ROOM: &str = "the tool writes before its own buffer";

pub(super) fn cases() -> Vec<Case> {
    let lines = LINES.iter().map(|line| line.case("dtest", passes));
    let faults = FAULTS.iter().map(|fault| {
        let name = format!("dtest {}: {}", fault.options, fault.why);
        Case::new(&name, |env| {
            let (_server, client) = pair(env, fault.options).run_client()?;
            fault.end.is_of(client, fault)
        })
    });
    lines.chain(faults).chain(cross()).collect()
}

/// Runs a server and a client, both of which must print that they passed.
pub fn passes(env: &StackEnv, options: &str) -> Result<()> {
    let pair = pair(env, options);
    if !options.contains("-c") {
        return pair.works(SUCCESS, &[]);
    }
    pair.works(SUCCESS, &[OTHER_EVD])
}

fn pair<'a>(env: &'a StackEnv, options: &'a str) -> Pair<'a> {
    Pair {
        env,
        tool: "dtest",
        port: PORT,
        options,
    }
}

/// The product over buffer sizes, `-u`, `-w`, signal rates, `-B`, `-D` and `-W`.
fn cross() -> Vec<Case> {
    let words: [&[&str]; 7] = [
        &["-b 0", "-b 1", "-b 4096"],
        &["", "-u"],
        &["", "-w"],
        &["-S 0", "-S 9"],
        &["", "-D"],
        &["", "-W"],
        // `-B` is last, because `-D` and `-W` set its value, too.
        &["-B 10", ""],
    ];
    let mut lines = vec![String::new()];
    for choices in words {
        lines = lines
            .iter()
            .flat_map(|line| choices.iter().map(move |word| format!("{line} {word}")))
            .collect();
    }
    lines.iter().map(|line| crossed(line)).collect()
}

fn crossed(line: &str) -> Case {
    let words: Vec<&str> = line.split_whitespace().collect();
    let options = words.join(" ");
    let has = |option: &str| words.contains(&option);
    let is_ping_pong = has("-D") || has("-W");
    let fault = match (options.starts_with("-b 0"), options.contains("-S 0")) {
        (true, _) if has("-w") => Some(NO_ROOM),
        (true, _) if is_ping_pong => Some(FAULTS[1].why),
        (_, true) if !is_ping_pong => Some(FAULTS[0].why),
        _ => None,
    };
    if let Some(why) = fault {
        let name = format!("dtest {options}, not run because {why}");
        return Case::never(&name);
    }
    // Polling plain memory is slow if two programs have more threads than there are processors.
    let is_short = has("-B") && (has("4096") || options.starts_with("-b 0"));
    let is_quick = is_short && (!is_ping_pong || (has("-D") != has("-W") && !has("-w")));
    let case = Case::new(&format!("dtest {options}"), move |env| {
        passes(env, &options)
    });
    if is_quick { case } else { case.only_in_full() }
}
