//! The files with the results, which grow by the row: one JSON object, or comma-separated values.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::measure::Plan;
use crate::results::{self, Entry};

/// The files that the caller named.
#[derive(Debug)]
pub(crate) struct Files {
    json: Option<Growing>,
    csv: Option<Growing>,
}

/// A file that grows by a row at a time.
#[derive(Debug)]
struct Growing {
    path: PathBuf,
    file: File,
    /// Bytes at the end that the next row replaces; 0 in a pipe or a terminal, which gets the end
    /// once, after the last row.
    tail: usize,
    is_plain: bool,
    has_rows: bool,
}

impl Files {
    /// Creates the files, with all that precedes the rows.
    pub(crate) fn create(json: Option<&Path>, csv: Option<&Path>, plan: Plan) -> Result<Self> {
        let mut files = Self {
            json: json.map(Growing::create).transpose()?,
            csv: csv.map(Growing::create).transpose()?,
        };
        if let Some(json) = &mut files.json {
            json.append(&results::json_head(plan), &tail(false))?;
        }
        if let Some(csv) = &mut files.csv {
            csv.append(&results::csv_head()?, "")?;
        }
        Ok(files)
    }

    /// Writes a row that is complete.
    pub(crate) fn row(&mut self, row: &Entry<'_>) -> Result<()> {
        if let Some(json) = &mut self.json {
            let separator = if json.has_rows { ",\n" } else { "\n" };
            json.append(&format!("{separator}{}", row.json()), &tail(false))?;
            json.has_rows = true;
        }
        if let Some(csv) = &mut self.csv {
            csv.append(&row.csv()?, "")?;
        }
        Ok(())
    }

    /// Marks the run as complete.
    pub(crate) fn end(&mut self) -> Result<()> {
        let Some(json) = &mut self.json else {
            return Ok(());
        };
        match json.is_plain {
            true => json.append("", &tail(true)),
            false => json.append(&tail(true), ""),
        }
    }
}

/// The end of the JSON object, below the rows.
fn tail(is_complete: bool) -> String {
    format!("\n], \"complete\": {is_complete}}}\n")
}

impl Growing {
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path);
        let file = file.with_context(|| format!("creating {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            is_plain: file.metadata().is_ok_and(|metadata| metadata.is_file()),
            file,
            tail: 0,
            has_rows: false,
        })
    }

    /// Replaces the tail by a text and a new tail.
    fn append(&mut self, text: &str, tail: &str) -> Result<()> {
        let tail = if self.is_plain { tail } else { "" };
        self.put(text, tail)
            .with_context(|| format!("writing {}", self.path.display()))
    }

    fn put(&mut self, text: &str, tail: &str) -> io::Result<()> {
        if self.tail > 0 {
            self.file.seek(SeekFrom::Current(-(self.tail as i64)))?;
        }
        self.tail = tail.len();
        // One write, so that a reader sees the old state or the new one.
        self.file.write_all(format!("{text}{tail}").as_bytes())?;
        match self.is_plain {
            true => {
                let end = self.file.stream_position()?;
                self.file.set_len(end)
            }
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::results::tests::{measured, not_run};

    const PLAN: Plan = Plan {
        rounds: 3,
        sample_s: 0.12,
    };

    #[test]
    fn the_files_are_complete_texts_after_each_row() {
        let dir = tempfile::tempdir().unwrap();
        let [json, csv] = ["a.json", "a.csv"].map(|name| dir.path().join(name));
        let value =
            || -> Value { serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap() };
        let lines = || std::fs::read_to_string(&csv).unwrap().lines().count();
        let mut files = Files::create(Some(&json), Some(&csv), PLAN).unwrap();
        assert_eq!((&value()["rows"], lines()), (&json!([]), 1));
        assert_eq!(value()["rounds"], json!(3));
        files.row(&Entry::Measured(&measured())).unwrap();
        assert_eq!((value()["rows"].as_array().unwrap().len(), lines()), (1, 3));
        files.row(&Entry::NotRun(&not_run())).unwrap();
        assert_eq!(value()["complete"], json!(false));
        files.end().unwrap();
        assert_eq!(value()["complete"], json!(true));
        let rows = value()["rows"].clone();
        assert_eq!(rows[0]["case"], "send-ping:64:1@tcp");
        assert_eq!(
            (rows[1]["not_run"].as_str(), lines()),
            (Some("no \"right\""), 4)
        );
        // A row has a line of its own.
        let text = std::fs::read_to_string(&json).unwrap();
        assert_eq!(text.lines().count(), 4, "{text}");
    }

    #[test]
    fn an_error_names_the_file() {
        let error = Files::create(None, Some(Path::new("/nonexistent/a")), PLAN).unwrap_err();
        assert_eq!(error.to_string(), "creating /nonexistent/a");
    }
}
