//! The cases of a range of sizes: each operation of DAT, its latency and its bandwidth.

use anyhow::{Result, ensure};
use tool_args::bench::Args;
use tool_args::bench::case::{Case, Operation, SIZE_MAX, Wire, Work};

const LATENCY: [Work; 3] = [Work::SendPing, Work::WritePing, Work::ReadPing];
const ONE_WAY: [Work; 3] = [Work::StreamSend, Work::StreamWrite, Work::StreamRead];
const BOTH_WAYS: [Work; 3] = [
    Work::Bidirectional(Operation::Send),
    Work::Bidirectional(Operation::Write),
    Work::Bidirectional(Operation::Read),
];

/// The size of a row about latency, and of one about bandwidth, where the caller names none.
const DEFAULT_SIZES: [usize; 2] = [64, 64 << 10];
/// The size from which on fewer operations fill the path.
const LARGE: usize = 4 << 10;

/// The rows, size by size for each work.
pub(crate) fn rows(args: &Args) -> Result<Vec<Case>> {
    let wires: &[Wire] = match (&args.host, args.place.as_slice()) {
        (Some(_), _) => &[Wire::Network],
        (None, []) => &[Wire::Local],
        (None, places) => places,
    };
    let mut cases = Vec::new();
    for wire in wires {
        match args.cases.is_empty() {
            true => cases.extend(works(args).map(|work| plain(work, *wire))),
            false => cases.extend(given(args)?),
        }
    }
    let sizes = sizes(args);
    let sized = cases.into_iter().flat_map(|case| match sizes.is_empty() {
        true => vec![case],
        false => sizes
            .iter()
            .map(|size| Case {
                size: *size,
                ..case
            })
            .collect(),
    });
    Ok(sized.map(|case| with_depth(args, case)).collect())
}

/// The cases that the caller named. Those of another host are on the network to it.
fn given(args: &Args) -> Result<Vec<Case>> {
    let Some(host) = &args.host else {
        return Ok(args.cases.clone());
    };
    let of_network = args.cases.iter().map(|case| {
        let is_free = matches!(case.wire, Wire::Local | Wire::Network);
        ensure!(is_free, "{case} is on this host, and {host} is another one");
        Ok(Case {
            wire: Wire::Network,
            ..*case
        })
    });
    of_network.collect()
}

/// The works that the caller chose by kind.
fn works(args: &Args) -> impl Iterator<Item = Work> {
    let is_free = !args.one_way && !args.bidirectional;
    let kinds = [
        (is_free, LATENCY),
        (is_free || args.one_way, ONE_WAY),
        (args.bidirectional, BOTH_WAYS),
    ];
    let chosen = kinds.into_iter().filter(|(is_chosen, _)| *is_chosen);
    chosen.flat_map(|(_, works)| works)
}

fn plain(work: Work, wire: Wire) -> Case {
    let case = Case::new(work, 1, 1, wire);
    let [latency, bandwidth] = DEFAULT_SIZES;
    Case {
        size: if case.is_ping() { latency } else { bandwidth },
        ..case
    }
}

/// The sizes that the caller chose; none for those of the cases.
fn sizes(args: &Args) -> Vec<usize> {
    match args.all {
        true => (1..=SIZE_MAX.ilog2()).map(|power| 1 << power).collect(),
        false => args.size.iter().map(|size| *size as usize).collect(),
    }
}

/// The case with as many operations queued as fill the path, if the caller named no case.
fn with_depth(args: &Args, case: Case) -> Case {
    let depth = match case.size {
        _ if !args.cases.is_empty() => case.depth,
        _ if case.is_ping() => 1,
        size if size < LARGE => 64,
        _ => 16,
    };
    Case { depth, ..case }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn names(line: &str) -> Vec<String> {
        let words = ["dat-bench"].into_iter().chain(line.split(' '));
        let args = Args::parse_from(words);
        let rows = rows(&args).unwrap();
        rows.iter().map(Case::to_string).collect()
    }

    #[test]
    fn options_choose_works_sizes_and_place() {
        let all = names("-a host");
        assert_eq!(all.len(), 6 * 20);
        assert_eq!(all[0], "send-ping:2:1@network");
        assert_eq!(all[6 * 20 - 1], "read:1048576:16@network");
        let both = names("-b -s 64,4096");
        assert_eq!(
            both[..2],
            ["send-bidirectional:64:64", "send-bidirectional:4096:16"]
        );
        assert_eq!(names("--one-way host")[2], "read:65536:16@network");
        assert_eq!(names("host --cases send:8:3"), ["send:8:3@network"]);
        assert_eq!(names("-s 2 --cases send:8:3@tcp"), ["send:2:3@tcp"]);
        let elsewhere = ["dat-bench", "host", "--cases", "send:8:3@tcp"];
        assert!(rows(&Args::parse_from(elsewhere)).is_err());
    }
}
