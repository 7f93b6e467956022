//! Directories for tests of code that reads files.

use std::fs;

use anyhow::Result;
use tempfile::TempDir;

/// A directory with these files, each with its path and its text.
pub fn tree(files: &[(&str, &str)]) -> Result<TempDir> {
    let dir = tempfile::tempdir()?;
    for (name, text) in files {
        let file = dir.path().join(name);
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(file, text)?;
    }
    Ok(dir)
}
