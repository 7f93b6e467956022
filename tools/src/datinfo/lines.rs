//! The result of each line of the registry file.

use std::ffi::CStr;

use dat_api::ProviderInfo;
use serde_json::{Value, json};

use dat_conf::{Api, Entry, Source};

/// The major version of DAT that programs of this library ask for.
pub(crate) const DAT_VERSION: u32 = 2;

/// A line of the registry file.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) number: u32,
    pub(crate) library: String,
    pub(crate) params: String,
    ia_name: String,
    version: (u32, u32),
    is_thread_safe: bool,
    /// The reason why the line is not used, if it is known from the file alone.
    unused: Option<String>,
}

/// The registry file that is in force.
#[derive(Debug)]
pub(crate) enum Registry {
    /// A file that can be read.
    File {
        path: String,
        /// The lines, good and bad.
        lines: Vec<Line>,
        /// The mistakes of the bad lines, with line and column.
        mistakes: Vec<String>,
    },
    /// There is no file: each network device has an adapter.
    Builtin,
    /// The file cannot be read, and nothing else is tried.
    Unusable {
        path: String,
        error: String,
        /// True if `DAT_OVERRIDE` names the file.
        is_override: bool,
    },
}

/// Reads the registry file that libdat2 would read.
pub(crate) fn read() -> Registry {
    match Source::of_process() {
        Source::File { path, content } => {
            Registry::of_file(path.to_string_lossy().into_owned(), &content)
        }
        Source::Builtin => Registry::Builtin,
        Source::Unusable {
            path,
            error,
            is_override,
        } => Registry::Unusable {
            path: path.to_string_lossy().into_owned(),
            error: error.to_string(),
            is_override,
        },
    }
}

impl Registry {
    pub(crate) fn of_file(path: String, content: &[u8]) -> Self {
        let mistakes = dat_conf::parse(content).diagnostics;
        Self::File {
            path,
            lines: lines_of(content),
            mistakes: mistakes.iter().map(ToString::to_string).collect(),
        }
    }

    /// The path of the file, or a text that says why there is none.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::File { path, .. } => path.clone(),
            Self::Builtin => "none; the local interfaces are the registry".to_owned(),
            Self::Unusable {
                path,
                error,
                is_override,
            } => {
                let named = if *is_override {
                    " (named by DAT_OVERRIDE; nothing else is tried)"
                } else {
                    ""
                };
                format!("{path}{named}: {error}")
            }
        }
    }

    /// The lines of the file, good and bad.
    pub(crate) fn lines(&self) -> &[Line] {
        match self {
            Self::File { lines, .. } => lines,
            Self::Builtin | Self::Unusable { .. } => &[],
        }
    }
}

/// Reads the content of a registry file.
pub(crate) fn lines_of(content: &[u8]) -> Vec<Line> {
    let parsed = dat_conf::parse(content);
    let mut lines: Vec<Line> = Vec::new();
    for entry in &parsed.entries {
        let mut line = Line::of_entry(entry);
        if line.unused.is_none()
            && let Some(first) = lines
                .iter()
                .find(|other| other.unused.is_none() && other.same_key(&line))
        {
            line.unused = Some(format!(
                "line {} has the same name, version and thread safety; this one is tried only when \
                 the library of that one cannot be loaded",
                first.number
            ));
        }
        lines.push(line);
    }
    lines.extend(parsed.diagnostics.iter().map(|diagnostic| Line {
        number: diagnostic.line,
        library: String::new(),
        params: String::new(),
        ia_name: String::new(),
        version: (0, 0),
        is_thread_safe: false,
        unused: Some(format!("{}: {}", diagnostic.field, diagnostic.reason)),
    }));
    lines.sort_by_key(|line| line.number);
    lines
}

/// The lines that result in no adapter, with the reasons.
pub(crate) fn unused(lines: &[Line]) -> Vec<Value> {
    lines
        .iter()
        .filter_map(|line| {
            let reason = line.unused.as_ref()?;
            Some(json!({ "line": line.number, "ia_name": line.ia_name, "reason": reason }))
        })
        .collect()
}

impl Line {
    fn of_entry(entry: &Entry) -> Self {
        let unused = match (entry.api, entry.default) {
            (Api::Kernel, _) => Some("it is for kernel consumers (k)".to_owned()),
            (Api::User, false) => Some("it is marked nondefault".to_owned()),
            (Api::User, true) if entry.major != DAT_VERSION => Some(format!(
                "it is for DAT {}.{}; a program of DAT 2.0 opens lines with u2.0 only",
                entry.major, entry.minor
            )),
            (Api::User, true) => None,
        };
        Self {
            number: entry.line,
            library: text(&entry.lib_path),
            params: text(&entry.ia_params),
            ia_name: text(&entry.ia_name),
            version: (entry.major, entry.minor),
            is_thread_safe: entry.thread_safe,
            unused,
        }
    }

    fn same_key(&self, other: &Self) -> bool {
        self.ia_name == other.ia_name
            && self.version == other.version
            && self.is_thread_safe == other.is_thread_safe
    }

    /// Returns true if the line registers an adapter.
    pub(crate) fn is_used(&self) -> bool {
        self.unused.is_none()
    }

    /// Returns true if this line registered the given adapter.
    pub(crate) fn registers(&self, info: &ProviderInfo) -> bool {
        self.unused.is_none()
            && self.ia_name == info.ia_name
            && self.version == (info.version_major, info.version_minor)
            && self.is_thread_safe == info.is_thread_safe
    }
}

fn text(value: &CStr) -> String {
    value.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_used_or_has_a_reason() {
        let content = b"# a comment\n\
            a u2.0 nonthreadsafe default liba.so x.1.0 \"lo 0\" \"\"\n\
            a u2.0 nonthreadsafe default libb.so x.1.0 \"lo 1\" \"\"\n\
            b k2.0 nonthreadsafe default liba.so x.1.0 \"\" \"\"\n\
            c u2.0 nonthreadsafe nondefault liba.so x.1.0 \"\" \"\"\n\
            d v2.0 nonthreadsafe default liba.so x.1.0 \"\" \"\"\n\
            e u1.2 nonthreadsafe default liba.so x.1.0 \"\" \"\"\n";
        let lines = lines_of(content);
        let reasons: Vec<_> = lines
            .iter()
            .map(|line| line.unused.as_deref().unwrap_or(""))
            .collect();
        assert_eq!(reasons.len(), 6);
        assert_eq!(reasons[0], "");
        assert!(
            reasons[1].contains("line 2 has the same name"),
            "{}",
            reasons[1]
        );
        assert!(reasons[2].contains("kernel"), "{}", reasons[2]);
        assert!(reasons[3].contains("nondefault"), "{}", reasons[3]);
        assert!(reasons[4].contains("api_version"), "{}", reasons[4]);
        assert!(reasons[5].contains("DAT 1.2"), "{}", reasons[5]);
        assert_eq!(unused(&lines).len(), 5);
        let info = ProviderInfo {
            ia_name: "a".into(),
            version_major: 2,
            version_minor: 0,
            is_thread_safe: false,
        };
        let line = lines.iter().find(|line| line.registers(&info)).unwrap();
        assert_eq!(
            (line.library.as_str(), line.params.as_str()),
            ("liba.so", "lo 0")
        );
    }
}
