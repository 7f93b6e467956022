//! Other implementations on the work of `dat-bench`, in the same rounds and in one table.
//!
//! - `rows.rs` lists the cases and the peers with which they are compared.
//! - `runs.rs` runs one sample.

mod rows;
mod runs;

use anyhow::{Result, anyhow, ensure};
use stack_tests::Stage;

use self::rows::{Group, Peer, Row};
pub(super) use self::rows::{OTHERS, VERBS};
pub(super) use self::runs::cpus;
use self::runs::{Ours, Setup};
use super::contest::{self, Compared, Series, Table, rounds};
use crate::install::{self, Need, PERFTEST};
use crate::workspace::Workspace;

const TASKSET: Need = Need::new("taskset", "util-linux");

/// The share of the processors above which a round is called disturbed by other programs.
const FOREIGN_SHARE_MAX: f64 = 0.05;

/// The column of DAT, behind that of raw TCP and in front of those of the peers.
const DAT: usize = 1;

/// Measures every row of a group and prints the table.
pub(super) fn measure(
    workspace: &Workspace,
    stage: &Stage,
    group: &Group,
    quick: bool,
) -> Result<()> {
    let mut needs: Vec<Need> = group.peers.iter().map(|peer| need(*peer)).collect();
    needs.push(TASKSET);
    if let Err(why) = install::provide(workspace, &needs) {
        println!("peers: not installed: {why:#}");
    }
    let (count, sample_ms) = super::plan(quick);
    let setup = Setup::new(stage.clone(), sample_ms)?;
    let peers = group.peers.iter().map(|peer| peer.title());
    let columns = ["raw TCP", "DAT"].into_iter().chain(peers).collect();
    let mut table = Table::begin("other implementations", columns);
    let (mut on_tcp, mut disturbed) = (Vec::new(), 0);
    for row in group.rows {
        let (ours, series) = compete(&setup, group, row, count);
        if ours.iter().any(|sample| !sample.is_shared) {
            on_tcp.push(row.case.to_string());
        }
        let is_disturbed = |sample: &&Ours| sample.row.foreign_share > FOREIGN_SHARE_MAX;
        disturbed += ours.iter().filter(is_disturbed).count();
        let against = group.peers.iter().position(|peer| *peer == row.against);
        let against = DAT + 1 + against.unwrap_or_default();
        table.print(&contest::Row {
            title: row.case.title(),
            unit: row.case.unit().label(),
            series,
            compared: match row.against {
                Peer::Verbs => Compared::Ratio(against, DAT),
                _ => Compared::Ratio(DAT, against),
            },
            target: row.target,
        });
    }
    table.end(group.note);
    if !on_tcp.is_empty() {
        println!("DAT stayed on TCP in some rounds: {}", on_tcp.join(", "));
    }
    let all = count * group.rows.len();
    println!("disturbed: other programs used much of the CPUs in {disturbed} of {all} rounds.");
    Ok(())
}

fn need(peer: Peer) -> Need {
    match peer {
        Peer::FabricShm => Need::new("fi_pingpong", "libfabric-bin"),
        Peer::Verbs => PERFTEST,
        _ => Need::new("ucx_perftest", "ucx-utils"),
    }
}

/// Measures DAT and all peers of a row in the same rounds. Returns the samples of DAT, and the
/// columns.
fn compete(
    setup: &Setup,
    group: &Group,
    row: &Row,
    count: usize,
) -> (Vec<Ours>, Vec<Option<Series>>) {
    let peers = group.peers.iter().copied();
    let able: Vec<Peer> = peers.filter(|peer| row.has(*peer)).collect();
    let iterations: Vec<Result<u64>> = able.iter().map(|peer| ready(setup, *peer, row)).collect();
    let mut ours: Vec<Ours> = Vec::new();
    let measured = rounds(count, 1 + able.len(), |way| {
        let Some(at) = way.checked_sub(1) else {
            let sample = setup.ours(row.case)?;
            let figure = sample.row.own;
            ours.push(sample);
            return Ok(figure);
        };
        let iterations = iterations[at].as_ref().map_err(|why| anyhow!("{why:#}"))?;
        setup.sample(able[at], row, *iterations)
    });
    let mut measured = measured.into_iter();
    let raw = Ok(ours.iter().map(|sample| sample.row.raw).collect());
    let mut series = vec![Some(raw), measured.next()];
    let peers = group.peers.iter();
    series.extend(peers.map(|peer| row.has(*peer).then(|| measured.next()).flatten()));
    (ours, series)
}

/// The number of iterations of a peer that fill a sample, unless the peer cannot be measured here.
fn ready(setup: &Setup, peer: Peer, row: &Row) -> Result<u64> {
    let absent = install::missing(&[need(peer), TASKSET]);
    ensure!(absent.is_empty(), install::advice(&absent));
    setup.calibrate(peer, row)
}
