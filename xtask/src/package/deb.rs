//! One Debian package: its files, its control files, and `dpkg-deb`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::tree::Tree;
use super::{ARCHITECTURE, LIBDIR, Sources, VERSION, file_name, needed, output};
use crate::exports::VERSION_NODE;
use crate::stage::layout;
use crate::stage::manifest::Entry;

/// The maintainer, unless `DEBFULLNAME` and `DEBEMAIL` name another, as for Debian's own tools.
const MAINTAINER: (&str, &str) = ("The dat-rs authors", "dat-rs@invalid.example");

/// The package of the registry library.
const LIBRARY: &str = "libdat2-rs";
/// The package of headers, which has the examples too.
const DEVELOPMENT: &str = "libdat2-rs-dev";

/// The scripts and lists that a package may have, and which of them are executed.
const CONTROL_FILES: [(&str, bool); 4] = [
    ("preinst", true),
    ("postrm", true),
    ("triggers", false),
    ("shlibs", false),
];

/// Makes the package in `directory`. Returns the path of its file.
pub(super) fn make(sources: &Sources, name: &str, directory: &Path) -> Result<PathBuf> {
    let tree = Tree::new()?;
    place_staged(sources, name, &tree)?;
    place_documents(sources, name, &tree)?;
    if name == DEVELOPMENT {
        place_examples(sources, &tree)?;
    }
    let search_path = place_search_path(sources, name, &tree)?;
    tree.strip()?;
    let pages = tree.files()?;
    let pages = pages
        .into_iter()
        .filter(|it| is_compressed(it))
        .collect::<Vec<_>>();
    tree.compress(&pages)?;

    // Measured before the control files are added.
    let size = tree.size_kib()?;
    let checksums = checksums(&tree)?;
    let control = control(sources, name, size, &needed::packages(&tree.binaries()?)?)?;
    tree.text(&control, "DEBIAN/control")?;
    tree.text(&checksums, "DEBIAN/md5sums")?;
    if let Some(path) = search_path {
        tree.text(&format!("/{path}\n"), "DEBIAN/conffiles")?;
    }
    place_control_files(sources, name, &tree)?;

    let file = directory.join(file_name(name));
    let mut dpkg_deb = Command::new("dpkg-deb");
    dpkg_deb
        .args(["--root-owner-group", "-Zxz", "--build"])
        .arg(tree.root())
        .arg(&file)
        // Newer times of files are replaced by this one.
        .env("SOURCE_DATE_EPOCH", &sources.epoch.seconds);
    output(&mut dpkg_deb)?;
    Ok(file)
}

/// Copies those staged files that belong to the package.
fn place_staged(sources: &Sources, name: &str, tree: &Tree) -> Result<()> {
    for (path, entry) in &sources.staged.0 {
        if *entry == Entry::Directory {
            continue;
        }
        let Some(place) = sources.places.of(path)? else {
            continue;
        };
        if place.package != name {
            ensure!(
                super::PACKAGES.contains(&place.package),
                "packaging/deb/files names the package {}, which does not exist",
                place.package
            );
            continue;
        }
        match crate::stage::flags_of(path) {
            Some(library) => {
                let libdir = LIBDIR.trim_start_matches("usr/");
                tree.text(&layout::pkg_config(library, "/usr", libdir), &place.path)?;
            }
            None => tree.entry(&sources.stage.join(path), entry, &place.path)?,
        }
    }
    Ok(())
}

/// Writes the documents that every package of Debian has.
fn place_documents(sources: &Sources, name: &str, tree: &Tree) -> Result<()> {
    let place = format!("usr/share/doc/{name}");
    let copyright = read(&sources.packaging("copyright"))?;
    let licence = read(&sources.root.join("LICENSE-MIT"))?;
    let copyright = copyright.replace("@LICENSE_MIT@", &field(&permission(&licence)?));
    tree.text(&copyright, &format!("{place}/copyright"))?;
    tree.copy(
        &sources.root.join("CHANGELOG.md"),
        &format!("{place}/changelog"),
    )?;
    let changes = format!(
        "dat-rs ({VERSION}) unstable; urgency=medium\n\n  \
         * Made by `cargo xtask package`; changelog.gz has the changes.\n\n \
         -- {}  {}\n",
        maintainer(),
        sources.epoch.date
    );
    tree.text(&changes, &format!("{place}/changelog.Debian"))?;
    tree.text(&sources.notices, &format!("{place}/third-party"))?;
    tree.text(&sources.components, &format!("{place}/sbom.cdx.json"))?;
    let overrides = sources.packaging(&format!("{name}/overrides"));
    if overrides.exists() {
        tree.text(
            &read(&overrides)?,
            &format!("usr/share/lintian/overrides/{name}"),
        )?;
    }
    Ok(())
}

/// Copies the examples in C with their Makefile.
fn place_examples(sources: &Sources, tree: &Tree) -> Result<()> {
    let examples = sources.root.join("examples/c");
    let entries = fs::read_dir(&examples);
    for entry in entries.with_context(|| format!("reading {}", examples.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_file() && !name.starts_with('.') {
            tree.copy(
                &path,
                &format!("usr/share/doc/{DEVELOPMENT}/examples/{name}"),
            )?;
        }
    }
    Ok(())
}

/// Copies the list of directories that the loader searches before all others, if the package has
/// one, and returns its path. The loader reads the lists in the order of their names.
fn place_search_path(sources: &Sources, name: &str, tree: &Tree) -> Result<Option<String>> {
    let source = sources.packaging(&format!("{name}/ld.so.conf"));
    if !source.exists() {
        return Ok(None);
    }
    let path = format!("etc/ld.so.conf.d/00-{name}.conf");
    tree.text(&read(&source)?.replace("@LIBDIR@", LIBDIR), &path)?;
    Ok(Some(path))
}

/// Copies the scripts, triggers and lists of libraries.
fn place_control_files(sources: &Sources, name: &str, tree: &Tree) -> Result<()> {
    for (file, is_script) in CONTROL_FILES {
        let source = sources.packaging(&format!("{name}/{file}"));
        if !source.exists() {
            continue;
        }
        let text = read(&source)?.replace("@LIBDIR@", LIBDIR);
        let place = format!("DEBIAN/{file}");
        match is_script {
            true => tree.script(&text, &place)?,
            false => tree.text(&text, &place)?,
        }
    }
    if name == LIBRARY {
        let exports = read(&sources.root.join("dat-api/libdat2/exports.txt"))?;
        tree.text(&symbols(&exports), "DEBIAN/symbols")?;
    }
    Ok(())
}

/// The symbols of the registry library, which both libraries have in every version.
fn symbols(exports: &str) -> String {
    let names = exports.lines().map(str::trim);
    let names = names.filter(|name| !name.is_empty() && !name.starts_with('#'));
    let mut lines: Vec<String> = names
        .chain([VERSION_NODE])
        .map(|name| format!(" {name}@{VERSION_NODE} 0"))
        .collect();
    lines.sort();
    format!("libdat2.so.2 {LIBRARY} | libdapl2\n{}\n", lines.join("\n"))
}

fn control(sources: &Sources, name: &str, size: u64, needed: &str) -> Result<String> {
    let text = read(&sources.packaging(&format!("{name}/control")))?
        .replace("@VERSION@", VERSION)
        .replace("@ARCHITECTURE@", ARCHITECTURE)
        .replace("@MAINTAINER@", &maintainer())
        .replace("@HOMEPAGE@", env!("CARGO_PKG_REPOSITORY"))
        .replace("@SIZE@", &size.to_string())
        .replace("@NEEDED@", needed);
    if let Some(rest) = text
        .lines()
        .find(|line| line.contains(": @") || line.contains(", @"))
    {
        bail!("{name}/control has a placeholder without a value: {rest}");
    }
    Ok(text)
}

fn maintainer() -> String {
    let of = |key: &str, default: &str| env::var(key).unwrap_or_else(|_| default.to_owned());
    let (name, mail) = MAINTAINER;
    format!("{} <{}>", of("DEBFULLNAME", name), of("DEBEMAIL", mail))
}

/// Returns true if Debian's policy wants this file compressed.
fn is_compressed(path: &str) -> bool {
    let is_page = path.starts_with("usr/share/man/");
    let name = path.rsplit('/').next().unwrap_or(path);
    is_page
        || [
            "changelog",
            "changelog.Debian",
            "third-party",
            "sbom.cdx.json",
        ]
        .contains(&name)
}

/// The list `md5sums`. It has no files that an administrator may change: dpkg keeps their sums.
fn checksums(tree: &Tree) -> Result<String> {
    let mut files = tree.files()?;
    files.retain(|file| !file.starts_with("etc/"));
    let mut md5sum = Command::new("md5sum");
    md5sum.arg("--").args(files).current_dir(tree.root());
    output(&mut md5sum)
}

/// Returns the text of a licence without its title and its copyright line, which have fields of
/// their own.
fn permission(licence: &str) -> Result<String> {
    let begin = licence
        .find("Permission")
        .context("LICENSE-MIT has no permission")?;
    Ok(licence[begin..].trim_end().to_owned())
}

/// The text as the continuation of a field: each line begins with a blank, and an empty line is a
/// dot.
fn field(text: &str) -> String {
    let lines: Vec<String> = text
        .lines()
        .map(|line| match line.trim_end() {
            "" => " .".to_owned(),
            line => format!(" {line}"),
        })
        .collect();
    lines.join("\n")
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_fields_of_control_files() {
        assert_eq!(field("one\n\ntwo\n"), " one\n .\n two");
        let licence = "MIT License\n\nCopyright (c) 1\n\nPermission is\ngranted\n";
        assert_eq!(permission(licence).unwrap(), "Permission is\ngranted");
    }

    #[test]
    fn every_export_is_a_symbol_of_either_package() {
        let text = symbols("# comment\ndat_b\ndat_a\n");
        assert_eq!(
            text,
            "libdat2.so.2 libdat2-rs | libdapl2\n DAT_2.0@DAT_2.0 0\n dat_a@DAT_2.0 0\n \
             dat_b@DAT_2.0 0\n"
        );
    }

    #[test]
    fn pages_and_changes_are_compressed() {
        assert!(is_compressed("usr/share/man/man5/dat.conf.5dat-rs"));
        assert!(is_compressed("usr/share/doc/x/changelog.Debian"));
        assert!(!is_compressed("usr/share/doc/x/copyright"));
    }
}
