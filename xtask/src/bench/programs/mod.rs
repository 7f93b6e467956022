//! Programs under `opsrun`, compared with the same programs without it.
//!
//! | File | Contents |
//! |---|---|
//! | `rows` | the rows of the table and their targets |
//! | `work` | the servers, the clients, and the figures that they print |

mod rows;
mod work;

use anyhow::{Context, Result, anyhow};
use stack_tests::{OffloadProtocol, Stage};

use self::rows::ROWS;
use self::work::{NEEDS, Setup};
use super::contest::{Row, Table};
use crate::install;
use crate::workspace::Workspace;

/// Measures every row and prints the table.
pub(super) fn measure(workspace: &Workspace, stage: &Stage, quick: bool, word: &str) -> Result<()> {
    install::provide(workspace, NEEDS)?;
    let absent = install::missing(NEEDS);
    if !absent.is_empty() {
        println!("programs: not run: {}", install::advice(&absent));
        return Ok(());
    }
    let is_default = |protocol: &&OffloadProtocol| protocol.name == "local";
    let protocol = OffloadProtocol::ALL.iter().find(is_default);
    let protocol = protocol.context("no protocol")?;
    let setup = Setup::new(stage, protocol, quick)?;
    let mut table = Table::begin("program", vec!["plain", "opsrun"]);
    for row in ROWS.iter().filter(|row| row.title.contains(word)) {
        let ways = setup.compete(row.work, row.way).and_then(|ways| {
            let measured = ways.into_iter().collect::<Result<Vec<_>, String>>();
            measured.map_err(|why| anyhow!(why))
        });
        let ways = ways.with_context(|| row.title.to_owned())?;
        let (compared, target) = row.target;
        table.print(&Row {
            title: row.title.to_owned(),
            unit: row.work.unit(),
            series: ways.into_iter().map(|figures| Some(Ok(figures))).collect(),
            compared,
            target: Some(target),
        });
    }
    table.end(&format!("Offloaded is by the {}.", protocol.name));
    Ok(())
}
