//! Checks the symbols of the staged libraries: they export exactly the listed symbols, under the
//! right version, and import none that is unsafe in the process of another program.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The version node of every symbol of `libdat2.so.2`. Programs that are linked against OFA's
/// library require it from the loader, and do not start without it.
pub(crate) const VERSION_NODE: &str = "DAT_2.0";

/// The symbols that a provider library may export: its two entry points, the symbol by which
/// consumers of OFA's providers recognise the extension interface, and the functions by
/// which `libdat2` gets the reason of a failure and has locks held during a fork.
const PROVIDER_EXPORTS: [&str; 5] = [
    "dapl_extensions",
    "dat_provider_fini",
    "dat_provider_init",
    "dat_rs_fork",
    "dat_rs_open_error",
];

/// Functions of the C library that no library of ours may call. They use a descriptor among those
/// of the program, and end the process if the program takes its number.
const FORBIDDEN_IMPORTS: [&str; 2] = ["getifaddrs", "if_nameindex"];

/// A defined dynamic symbol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Export {
    name: String,
    version: Option<String>,
}

/// Compares `library` with the list in `list`, one name per line. Returns the number of exports.
pub(crate) fn check_registry(library: &Path, list: &Path) -> Result<usize> {
    let text = fs::read_to_string(list).with_context(|| format!("reading {}", list.display()))?;
    let wanted = names_in(&text)
        .map(|name| Export {
            name: name.into(),
            version: Some(VERSION_NODE.into()),
        })
        .collect();
    compare(library, &wanted, &exports_of(library)?)
}

/// Compares `library` with the version nodes of `map`. Returns the number of exports.
pub(crate) fn check_versions(library: &Path, map: &Path) -> Result<usize> {
    let text = fs::read_to_string(map).with_context(|| format!("reading {}", map.display()))?;
    let wanted = in_map(&text)
        .map(|(node, name)| Export {
            name: name.into(),
            version: Some(node.into()),
        })
        .collect();
    compare(library, &wanted, &exports_of(library)?)
}

/// Checks that a provider exports its entry points and nothing else. Returns the number of exports.
pub(crate) fn check_provider(library: &Path) -> Result<usize> {
    let wanted = PROVIDER_EXPORTS
        .map(|name| Export {
            name: name.into(),
            version: None,
        })
        .into();
    compare(library, &wanted, &exports_of(library)?)
}

/// Checks the name by which the loader finds a library, and that the loader never unloads it.
pub(crate) fn check_loading(library: &Path, wanted: &str) -> Result<()> {
    let text = output_of(Command::new("readelf").arg("-d").arg(library))?;
    let line = text
        .lines()
        .find(|line| line.contains("(SONAME)"))
        .unwrap_or("none at all");
    ensure!(
        line.contains(&format!("[{wanted}]")),
        "{}: soname should be {wanted}, is {}",
        library.display(),
        line.trim()
    );
    ensure!(
        text.contains("NODELETE"),
        "{}: should be linked with -z nodelete",
        library.display()
    );
    Ok(())
}

/// Checks that a library imports none of the forbidden functions.
pub(crate) fn check_imports(library: &Path) -> Result<()> {
    let mut nm = Command::new("nm");
    nm.args(["-D", "--undefined-only"]).arg(library);
    let imported = parse_nm(&output_of(&mut nm)?);
    let forbidden = |import: &&Export| FORBIDDEN_IMPORTS.contains(&import.name.as_str());
    let found: Vec<&str> = imported
        .iter()
        .filter(forbidden)
        .map(|import| import.name.as_str())
        .collect();
    ensure!(
        found.is_empty(),
        "{}: imports {}; use the modules of `host::netlink`",
        library.display(),
        found.join(" ")
    );
    Ok(())
}

/// The names in an export list, one per line; blank lines and `#` comments are ignored.
pub(crate) fn names_in(list: &str) -> impl Iterator<Item = &str> {
    list.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The symbols of a linker's map that lists them by name, each with its version node.
pub(crate) fn in_map(map: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut node = "";
    names_in(map).filter_map(move |line| {
        if let Some(opened) = line.strip_suffix('{') {
            node = opened.trim();
        }
        let name = line.strip_suffix(';')?;
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_name.then_some((node, name))
    })
}

fn compare(library: &Path, wanted: &BTreeSet<Export>, found: &BTreeSet<Export>) -> Result<usize> {
    let shown = |set: BTreeSet<&Export>| set.into_iter().map(Export::shown).collect::<Vec<_>>();
    let missing = shown(wanted.difference(found).collect());
    let extra = shown(found.difference(wanted).collect());
    if missing.is_empty() && extra.is_empty() {
        return Ok(found.len());
    }
    bail!(
        "{}: not exported: [{}]; exported but not listed: [{}]",
        library.display(),
        missing.join(" "),
        extra.join(" ")
    )
}

fn exports_of(library: &Path) -> Result<BTreeSet<Export>> {
    let mut nm = Command::new("nm");
    nm.args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(library);
    Ok(parse_nm(&output_of(&mut nm)?))
}

/// Reads lines such as `0000000000001234 T dat_ep_free@@DAT_2.0`.
fn parse_nm(text: &str) -> BTreeSet<Export> {
    let columns = text
        .lines()
        .map(|line| line.split_whitespace().rev().collect::<Vec<_>>());
    columns
        .filter_map(|columns| match columns[..] {
            // The version node itself is listed as an absolute symbol.
            [_, "A", ..] | [] | [_] => None,
            [symbol, ..] => Some(Export::parse(symbol)),
        })
        .collect()
}

fn output_of(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("running {:?} (package binutils)", command.get_program()))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", complaint.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Export {
    fn parse(symbol: &str) -> Self {
        match symbol.split_once("@@").or_else(|| symbol.split_once('@')) {
            Some((name, version)) => Self {
                name: name.into(),
                version: Some(version.into()),
            },
            None => Self {
                name: symbol.into(),
                version: None,
            },
        }
    }

    fn shown(&self) -> String {
        match &self.version {
            Some(version) => format!("{}@@{version}", self.name),
            None => self.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NM: &str = "0000000000000000 A DAT_2.0\n\
                      0000000000001000 T dat_ep_free@@DAT_2.0\n\
                      0000000000002000 T stray\n";

    #[test]
    fn nm_output_is_read_without_the_version_node() {
        let found: Vec<String> = parse_nm(NM).iter().map(Export::shown).collect();
        assert_eq!(found, ["dat_ep_free@@DAT_2.0", "stray"]);
    }

    #[test]
    fn a_map_is_read_with_its_nodes() {
        let map = "# comment\nA_1 {\n global:\n  f;\n  g;\n local:\n  *;\n};\n\
                   A_2 {\n global:\n  h;\n} A_1;\n";
        let found: Vec<_> = in_map(map).collect();
        assert_eq!(found, [("A_1", "f"), ("A_1", "g"), ("A_2", "h")]);
    }

    #[test]
    fn missing_and_extra_names_are_both_reported() {
        let wanted = BTreeSet::from([Export::parse("dat_ep_free@@DAT_2.0"), Export::parse("b")]);
        let error = compare(Path::new("x.so"), &wanted, &parse_nm(NM))
            .unwrap_err()
            .to_string();
        assert!(error.contains("not exported: [b]"), "{error}");
        assert!(error.contains("but not listed: [stray]"), "{error}");
    }

    #[test]
    fn a_wrong_version_is_a_difference() {
        let wanted = BTreeSet::from([Export::parse("dat_ep_free"), Export::parse("stray")]);
        assert!(compare(Path::new("x.so"), &wanted, &parse_nm(NM)).is_err());
    }

    #[test]
    fn export_lists_may_contain_comments() {
        let names: Vec<&str> = names_in("# calls\n\ndat_a\n  dat_b \n").collect();
        assert_eq!(names, ["dat_a", "dat_b"]);
    }
}
