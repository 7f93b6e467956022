//! The share of the processors that other processes used during a measurement. Figures that were
//! measured next to a busy process are not meaningful.

use std::fs;

/// Processor time up to now, in ticks of all CPUs together.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    all: u64,
    /// Ticks spent for processes or stolen by the host. Interrupt work is left out, because
    /// loopback traffic is delivered in it.
    processes: u64,
    /// Ticks spent for the processes of this program on this host.
    ours: u64,
}

/// Measures the load from its creation on.
#[derive(Debug)]
pub(crate) struct LoadMeter {
    peer: Option<u32>,
    start: Option<Ticks>,
}

impl LoadMeter {
    /// Starts to measure; `peer` is the process id of a second process on this host.
    pub(crate) fn start(peer: Option<u32>) -> Self {
        Self {
            peer,
            start: Ticks::read(peer),
        }
    }

    /// The share of all CPUs that other processes used, between 0 and 1, if the kernel reports it.
    pub(crate) fn foreign_share(&self) -> Option<f64> {
        let (start, now) = (self.start?, Ticks::read(self.peer)?);
        let all = now.all.checked_sub(start.all).filter(|all| *all > 0)?;
        let processes = now.processes.saturating_sub(start.processes);
        let ours = now.ours.saturating_sub(start.ours);
        Some(processes.saturating_sub(ours) as f64 / all as f64)
    }
}

impl Ticks {
    fn read(peer: Option<u32>) -> Option<Self> {
        let (all, processes) = parse_cpu_line(&fs::read_to_string("/proc/stat").ok()?)?;
        let of = |process: &str| {
            parse_process(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
        };
        Some(Self {
            all,
            processes,
            ours: of("self")? + peer.map_or(Some(0), |peer| of(&peer.to_string()))?,
        })
    }
}

/// Sum of all columns, and of user, nice, system and steal, of the first line of `/proc/stat`.
fn parse_cpu_line(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let columns: Vec<u64> = line
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    let [
        user,
        nice,
        system,
        _idle,
        _iowait,
        _irq,
        _softirq,
        steal,
        ..,
    ] = columns[..]
    else {
        return None;
    };
    // Guest time, in the columns that follow, is part of user time already.
    Some((columns.iter().take(8).sum(), user + nice + system + steal))
}

/// User and system time of one process: columns 14 and 15 of its `stat`. The second column is a
/// name in parentheses, which may contain any character.
fn parse_process(stat: &str) -> Option<u64> {
    let mut columns = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(columns.next()?.parse::<u64>().ok()? + columns.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_parsed_by_column() {
        let stat = "cpu  10 1 20 100 5 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse_cpu_line(stat), Some((145, 35)));
        assert_eq!(parse_cpu_line("intr 1\n"), None);
        let process = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0 1 0\n";
        assert_eq!(parse_process(process), Some(42));
        assert_eq!(parse_process("7 (short) R 1"), None);
    }
}
