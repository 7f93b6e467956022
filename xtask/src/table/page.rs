//! The pages that hold a table.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::Table;
use crate::workspace::Workspace;

/// A page of `docs`, and the command that generates it.
#[derive(Debug)]
pub(crate) struct Page {
    /// The path from the workspace's root.
    pub(crate) file: &'static str,
    /// The heading of the column of lines.
    pub(crate) title: &'static str,
    /// The command that generates the page.
    pub(crate) command: &'static str,
}

/// The part of the suite that a run covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Whole,
    /// A part, because a filter left some tests out.
    Part,
}

impl Scope {
    /// The scope of a run that was given this filter.
    pub(crate) fn of(filter: &str) -> Self {
        if filter.is_empty() {
            Self::Whole
        } else {
            Self::Part
        }
    }
}

/// The use of a run's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The page is compared with the results.
    Check,
    /// The results are merged into the page.
    Write,
}

impl Action {
    /// The action that the option `--write` selects.
    pub(crate) fn of(write: bool) -> Self {
        if write { Self::Write } else { Self::Check }
    }
}

impl Page {
    /// Fails unless the page agrees with the run for every line and configuration.
    pub(crate) fn check(&self, workspace: &Workspace, output: &str, scope: Scope) -> Result<()> {
        let (page, renewed) = self.before_and_after(workspace, output, scope)?;
        ensure!(
            page == renewed,
            "{} differs from the results of this run; run `{}`",
            self.file,
            self.command
        );
        Ok(())
    }

    /// Merges the results of a run into the page. Returns true if that changed the page.
    fn write(&self, workspace: &Workspace, output: &str, scope: Scope) -> Result<bool> {
        let (page, renewed) = self.before_and_after(workspace, output, scope)?;
        let file = workspace.root().join(self.file);
        fs::write(&file, &renewed).with_context(|| format!("writing {}", file.display()))?;
        Ok(page != renewed)
    }

    /// Checks or writes the page, and returns a text with the result.
    pub(crate) fn apply(
        &self,
        action: Action,
        workspace: &Workspace,
        output: &str,
        scope: Scope,
    ) -> Result<String> {
        match action {
            Action::Check => {
                self.check(workspace, output, scope)?;
                Ok(format!("{} agrees", self.file))
            }
            Action::Write => {
                let has_changed = self.write(workspace, output, scope)?;
                let result = if has_changed { "changed" } else { "unchanged" };
                Ok(format!("{} is {result}", self.file))
            }
        }
    }

    /// The current text of the page, and the text after the merge.
    fn before_and_after(
        &self,
        workspace: &Workspace,
        output: &str,
        scope: Scope,
    ) -> Result<(String, String)> {
        let file = workspace.root().join(self.file);
        let page = fs::read_to_string(&file);
        let page = page.with_context(|| format!("reading {}", file.display()))?;
        let old = Table::of_page(&page).with_context(|| self.file.to_owned())?;
        let run = Table::of_run(output);
        let table = match scope {
            Scope::Whole => old.renewed_by(&run),
            Scope::Part => old.extended_by(&run),
        };
        let renewed = table.written_into(&page, self.title)?;
        Ok((page, renewed))
    }
}
