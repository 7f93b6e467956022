//! The pages that hold a table.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::Table;
use crate::workspace::Workspace;

/// A page of `docs`, and what makes it.
#[derive(Debug)]
pub(crate) struct Page {
    /// Its file, from the workspace's root.
    pub(crate) file: &'static str,
    /// What stands above its lines.
    pub(crate) title: &'static str,
    /// What is typed to make it.
    pub(crate) command: &'static str,
}

/// Whether a run had all the tests to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// It did.
    Whole,
    /// A filter left some out.
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

impl Page {
    /// Fails unless the page says of every line and ground what this run has found.
    pub(crate) fn check(&self, workspace: &Workspace, output: &str, scope: Scope) -> Result<()> {
        let (page, renewed) = self.before_and_after(workspace, output, scope)?;
        ensure!(
            page == renewed,
            "{} is not what this run has found; run `{}`",
            self.file,
            self.command
        );
        Ok(())
    }

    /// Takes what a run has found over into the page. True if that changed it.
    pub(crate) fn write(&self, workspace: &Workspace, output: &str, scope: Scope) -> Result<bool> {
        let (page, renewed) = self.before_and_after(workspace, output, scope)?;
        let file = workspace.root().join(self.file);
        fs::write(&file, &renewed).with_context(|| format!("writing {}", file.display()))?;
        Ok(page != renewed)
    }

    /// Does one or the other, and says what came of it.
    pub(crate) fn settle(
        &self,
        workspace: &Workspace,
        output: &str,
        scope: Scope,
        is_written: bool,
    ) -> Result<String> {
        if !is_written {
            self.check(workspace, output, scope)?;
            return Ok(format!("{} says the same", self.file));
        }
        let changed = self.write(workspace, output, scope)?;
        let what = if changed { "changed" } else { "stays" };
        Ok(format!("{} {what}", self.file))
    }

    /// The page as it is, and as it would be.
    fn before_and_after(
        &self,
        workspace: &Workspace,
        output: &str,
        scope: Scope,
    ) -> Result<(String, String)> {
        let file = workspace.root().join(self.file);
        let page = fs::read_to_string(&file);
        let page = page.with_context(|| format!("reading {}", file.display()))?;
        let told = Table::of_page(&page).with_context(|| self.file.to_owned())?;
        let run = Table::of_run(output);
        let table = match scope {
            Scope::Whole => told.renewed_by(&run),
            Scope::Part => told.extended_by(&run),
        };
        let renewed = table.written_into(&page, self.title)?;
        Ok((page, renewed))
    }
}
