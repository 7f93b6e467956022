//! The package and the place of each staged file, from `packaging/deb/files`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::LIBDIR;

/// The table: for each staged file the first line that matches is used.
#[derive(Debug)]
pub(super) struct Places(Vec<Line>);

#[derive(Debug)]
struct Line {
    /// The staged path, or its beginning.
    pattern: String,
    is_prefix: bool,
    package: String,
    place: String,
}

/// The package and the path of a staged file; the path has no slash in front.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) package: &'a str,
    pub(super) path: String,
}

impl Places {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file);
        let text = text.with_context(|| format!("reading {}", file.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", file.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().map(str::trim);
        lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                let (pattern, package, place) = match fields[..] {
                    [pattern, "-"] => (pattern, "-", ""),
                    [pattern, package, place] => (pattern, package, place),
                    _ => bail!("neither two nor three fields: {line}"),
                };
                Ok(Line {
                    pattern: pattern.trim_end_matches('*').to_owned(),
                    is_prefix: pattern.ends_with('*'),
                    package: package.to_owned(),
                    place: place.replace("@LIBDIR@", LIBDIR),
                })
            })
            .collect::<Result<_>>()
            .map(Self)
    }

    /// Returns the place of a staged file, or `None` if it is in no package. Fails if no line of
    /// the table matches.
    pub(super) fn of(&self, staged: &str) -> Result<Option<Place<'_>>> {
        let line = self.0.iter().find(|line| match line.is_prefix {
            true => staged.starts_with(&line.pattern),
            false => staged == line.pattern,
        });
        let line = line.with_context(|| format!("packaging/deb/files has no line for {staged}"))?;
        if line.package == "-" {
            return Ok(None);
        }
        let path = match line.place.strip_suffix('/') {
            None => line.place.clone(),
            Some(directory) => {
                // A pattern such as `bin/*` stands for the rest after the last slash.
                let kept = line.pattern.rfind('/').map_or(0, |slash| slash + 1);
                format!("{directory}/{}", &staged[kept..])
            }
        };
        Ok(Some(Place {
            package: &line.package,
            path,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(table: &str, staged: &str) -> Result<Option<(String, String)>> {
        let places = Places::parse(table)?;
        let found = places.of(staged)?;
        Ok(found.map(|it| (it.package.to_owned(), it.path)))
    }

    #[test]
    fn the_first_line_that_matches_gives_package_and_place() {
        let table = "# a comment\n\
                     lib/a.so one @LIBDIR@/\n\
                     bin/x-* -\n\
                     bin/* two usr/bin/\n\
                     share/* two usr/share/\n\
                     etc/b one usr/share/doc/c\n";
        let found = |staged: &str| place(table, staged).unwrap();
        let expected = |package: &str, path: &str| Some((package.to_owned(), path.to_owned()));
        assert_eq!(
            found("lib/a.so"),
            expected("one", "usr/lib/x86_64-linux-gnu/a.so")
        );
        assert_eq!(found("bin/x-1"), None);
        assert_eq!(found("bin/y"), expected("two", "usr/bin/y"));
        assert_eq!(found("share/man/y.1"), expected("two", "usr/share/man/y.1"));
        assert_eq!(found("etc/b"), expected("one", "usr/share/doc/c"));
        assert!(
            place(table, "lib/a.so.1").is_err(),
            "a library without a line"
        );
        assert!(Places::parse("bin/* two usr/bin/ more").is_err());
    }
}
