//! Latency and bandwidth on the guest's devices, and the table of `docs/rdma-performance.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::kernel::provide;
use super::{FILES, Job, Kernel, Machine, Output};
use crate::bench::figures::BenchRow;
use crate::install::Need;
use crate::workspace::Workspace;

/// The page, from the workspace's root.
pub(super) const PAGE: &str = "docs/rdma-performance.md";

const BEGIN: &str = "<!-- figures: begin -->\n";
const END: &str = "<!-- figures: end -->\n";

/// The time limit, under emulation, on a machine that may have other work.
const DEADLINE: Duration = Duration::from_secs(45 * 60);

/// The contender that is compared with siw, because neither computes a CRC.
const FAIR: &str = "soft-no-crc";

/// The contenders, as `tests/vm/bench.sh` names them.
const CONTENDERS: [(&str, &str); 5] = [
    ("soft", "software iWARP, user space"),
    (FAIR, "the same, crc=off"),
    ("siw", "siw, provider-ib"),
    ("perftest", "siw, perftest"),
    ("rxe", "rxe, provider-ib"),
];

/// A row of one contender.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figure {
    own: f64,
    /// The ratio to raw TCP; of the same round, if the contender was measured with it.
    ratio: f64,
}

/// The results of a run.
#[derive(Debug, Default, PartialEq)]
struct Figures {
    /// Cases in their order: title, unit, and raw TCP's medians, one per contender.
    cases: Vec<(String, String, Vec<f64>)>,
    figures: BTreeMap<(String, String), Figure>,
}

/// The program that is measured in addition to ours.
const NEEDS: &[Need] = &[Need::new("ib_send_lat", "perftest")];

/// Boots, measures, and returns the table.
pub(super) fn run(workspace: &Workspace, rounds: u32) -> Result<String> {
    provide(workspace, NEEDS)?;
    let job = Job::new(workspace.root().join(FILES).join("bench.sh"))
        .args(&[rounds.to_string().into()])
        .env("DAT_STAGE", workspace.stage_dir())
        .deadline(DEADLINE);
    let kernel = Kernel::get(workspace)?;
    let finished = Machine::new(workspace, &kernel)
        .run(&job, Output::Shown)?
        .success()?;
    let figures = Figures::of(&finished.text);
    ensure!(
        !figures.figures.is_empty(),
        "dat-bench has printed no figure; its output is above"
    );
    Ok(figures.table())
}

pub(super) fn write_page(workspace: &Workspace, table: &str) -> Result<()> {
    let file = workspace.root().join(PAGE);
    let page = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    fs::write(&file, renewed(&page, table)?).with_context(|| format!("writing {}", file.display()))
}

fn renewed(page: &str, table: &str) -> Result<String> {
    let no_place = || format!("{PAGE} has no place for the figures");
    let begin = page.find(BEGIN).with_context(no_place)? + BEGIN.len();
    let end = begin + page[begin..].find(END).with_context(no_place)?;
    Ok(format!("{}\n{table}\n{}", &page[..begin], &page[end..]))
}

impl Figures {
    /// Parses the output of `tests/vm/bench.sh`.
    fn of(output: &str) -> Self {
        let mut figures = Self::default();
        let mut contender = String::new();
        for line in output.lines() {
            if let Some(name) = line.strip_prefix("== ") {
                contender = name.trim().to_owned();
            } else if let Some((title, own)) = perftest_row(line) {
                figures.add_perftest(title, own);
            } else if let Some(row) = BenchRow::of(line) {
                figures.add(&contender, row);
            }
        }
        figures
    }

    fn add(&mut self, contender: &str, row: BenchRow) {
        let figure = Figure {
            own: row.own,
            ratio: row.ratio,
        };
        let key = (contender.to_owned(), row.title.clone());
        self.figures.insert(key, figure);
        match self.cases.iter_mut().find(|case| case.0 == row.title) {
            Some(case) => case.2.push(row.raw),
            None => self.cases.push((row.title, row.unit, vec![row.raw])),
        }
    }

    /// perftest does not measure TCP, so the ratio uses the mean of raw TCP over all contenders of
    /// this run.
    fn add_perftest(&mut self, title: &str, own: f64) {
        let ratio = own / self.raw(title);
        let figure = Figure { own, ratio };
        self.figures
            .insert(("perftest".into(), title.into()), figure);
    }

    /// The mean of raw TCP's figures over all contenders; NaN if there are none.
    fn raw(&self, title: &str) -> f64 {
        let case = self.cases.iter().find(|case| case.0 == title);
        let raws = case.map_or(&[] as &[f64], |case| &case.2);
        raws.iter().sum::<f64>() / raws.len() as f64
    }

    fn get(&self, contender: &str, title: &str) -> Option<Figure> {
        self.figures.get(&(contender.into(), title.into())).copied()
    }

    fn table(&self) -> String {
        let heads = CONTENDERS.map(|(_, head)| head).join(" | ");
        let rule = "---|".repeat(CONTENDERS.len() + 4);
        let mut text = format!("| case | unit | raw TCP | {heads} | crc=off to siw |\n|{rule}\n");
        for (title, unit, _) in &self.cases {
            let _ = write!(text, "| {title} | {unit} | {} |", shown(self.raw(title)));
            for (name, _) in CONTENDERS {
                let _ = match self.get(name, title) {
                    Some(figure) => write!(text, " {} ({:.2}) |", shown(figure.own), figure.ratio),
                    None => write!(text, " - |"),
                };
            }
            let _ = match (self.get(FAIR, title), self.get("siw", title)) {
                (Some(soft), Some(siw)) => writeln!(text, " {:.2} |", soft.ratio / siw.ratio),
                _ => writeln!(text, " - |"),
            };
        }
        text
    }
}

/// `perftest TITLE: FIGURE`.
fn perftest_row(line: &str) -> Option<(&str, f64)> {
    let (title, own) = line.strip_prefix("perftest ")?.split_once(": ")?;
    Some((title, own.trim().parse().ok()?))
}

/// The figure with three significant digits.
fn shown(figure: f64) -> String {
    match figure {
        figure if figure >= 100.0 => format!("{figure:.0}"),
        figure if figure >= 10.0 => format!("{figure:.1}"),
        figure if figure >= 1.0 => format!("{figure:.2}"),
        figure => format!("{figure:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of the script.
    fn output() -> String {
        let row = |title: &str, unit: &str, raw: f64, own: f64| {
            let ratio = own / raw;
            format!(
                "{{\"case\":\"c\",\"title\":\"{title}\",\"unit\":\"{unit}\",\
                 \"figure\":{{\"median\":{own}}},\"raw\":{{\"median\":{raw}}},\
                 \"ratio\":{{\"median\":{ratio}}}}},\n"
            )
        };
        let ping = "64 B send ping-pong";
        [
            "== soft\n{\"program\": \"dat-bench\", \"rows\": [\n",
            &row(ping, "us", 200.0, 220.0),
            &row("64 KiB send, 16 queued", "GB/s", 0.1, 0.09),
            "== soft-no-crc\n",
            &row(ping, "us", 250.0, 225.0),
            "== siw\n",
            &row(ping, "us", 300.0, 600.0),
            "siw: exit status 1\n== perftest\nperftest 64 B send ping-pong: 500.0\n\
             perftest 64 KiB send, 16 queued failed\n",
        ]
        .concat()
    }

    #[test]
    fn a_run_becomes_a_table() {
        let table = Figures::of(&output()).table();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| 64 B send ping-pong | us | 250 | 220 (1.10) | 225 (0.90) | 600 (2.00) \
                 | 500 (2.00) | - | 0.45 |",
                "| 64 KiB send, 16 queued | GB/s | 0.100 | 0.090 (0.90) | - | - | - | - | - |",
            ]
        );
    }

    #[test]
    fn a_table_replaces_the_old_one() {
        let page = format!("text\n{BEGIN}\nold\n\n{END}more\n");
        let page = renewed(&page, "new\n").unwrap();
        assert_eq!(page, format!("text\n{BEGIN}\nnew\n\n{END}more\n"));
        assert!(renewed("no marks", "new").is_err());
    }
}
