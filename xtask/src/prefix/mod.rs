//! The stage copied below a prefix, and removed again.
//!
//! Nothing is built here and cargo is not called, so that root needs no cargo and leaves no files
//! in its directories. The list of installed files is stored below the prefix. A file that is not
//! on the list, or that has changed since, belongs to another owner: it is neither replaced nor
//! removed.

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::stage::layout::{self, Layout};
use crate::stage::manifest::{self, Entry, Manifest};
use crate::stage::{DAT_CONF, LIBDIR, flags_of};

/// The path of the sample of the registry file, which no program reads. If there is an
/// `/etc/dat.conf`, only the adapters in it exist, so the administrator must decide about it.
const SAMPLE: &str = "share/dat-rs/dat.conf";

/// The mode of a file that all users may read; and of a file or directory that all may execute or
/// enter.
const READABLE: u32 = 0o644;
const EXECUTABLE: u32 = 0o755;

/// A prefix, and the directory that replaces `/`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Place {
    /// The directory above bin, lib, include and share, such as /usr/local.
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
    /// A directory that replaces /, for packagers.
    #[arg(long, value_name = "DIR")]
    destdir: Option<PathBuf>,
}

/// The options of `install`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// The directory of the libraries, below the prefix.
    #[arg(long, value_name = "DIR", default_value = LIBDIR)]
    libdir: String,
}

/// The path of the stage, which is next to the directory of this program (`debug` in cargo's target
/// directory).
pub(crate) fn stage() -> Result<PathBuf> {
    let program = std::env::current_exe().context("finding xtask itself")?;
    let target = program.ancestors().nth(2);
    Ok(target.context("xtask is in no directory")?.join("stage"))
}

impl Place {
    /// The path of the prefix on this machine during the installation.
    fn root(&self) -> Result<PathBuf> {
        let below = self.prefix.strip_prefix("/").with_context(|| {
            format!(
                "the prefix {} is not an absolute path",
                self.prefix.display()
            )
        })?;
        Ok(match &self.destdir {
            Some(destdir) => destdir.join(below),
            None => self.prefix.clone(),
        })
    }
}

/// Copies the files in `stage`. Changes nothing if a file of another owner is in the way.
pub(crate) fn install(stage: &Path, options: &Options) -> Result<Installed> {
    let root = options.place.root()?;
    ensure!(
        manifest::is_below(&options.libdir),
        "the directory of the libraries is not a path below the prefix: {}",
        options.libdir
    );
    let staged = Manifest::read(stage)?.with_context(|| {
        format!(
            "nothing is staged in {}; run `cargo xtask stage`",
            stage.display()
        )
    })?;
    let sources = sources(stage, &staged, options)?;
    let old = Manifest::read(&root)?.unwrap_or_default();
    refuse_to_replace_others(&root, &sources, &old)?;

    let mut list = old.clone();
    let mut target = Layout::open(root.clone())?;
    let copied = sources
        .iter()
        .try_for_each(|source| source.put(&root, &mut target, &mut list));
    let kept = match copied {
        Ok(()) => remove_dropped(&root, &sources, &mut list),
        Err(error) => Err(error),
    };
    // Written even after an error, so that a failed installation can be uninstalled.
    make_directories(&root, manifest::PLACE, &mut list)?;
    target.text(&list.text(), manifest::PLACE)?;
    set_mode(&root.join(manifest::PLACE), READABLE)?;
    Ok(Installed {
        files: sources.len(),
        renewed: target.renewed(),
        libdir: options.place.prefix.join(&options.libdir),
        sample: options.place.prefix.join(SAMPLE),
        is_live: options.place.destdir.is_none(),
        root,
        kept: kept?,
    })
}

/// A file or link to install.
#[derive(Debug)]
struct Source {
    to: String,
    entry: Entry,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Copy(PathBuf),
    Text(String),
    Link(String),
}

fn sources(stage: &Path, staged: &Manifest, options: &Options) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for (path, entry) in &staged.0 {
        let from = stage.join(path);
        ensure!(
            Entry::at(&from)?.as_ref() == Some(entry),
            "{} has changed since it was staged; run `cargo xtask stage`",
            from.display()
        );
        let to = match path
            .strip_prefix(LIBDIR)
            .and_then(|it| it.strip_prefix('/'))
        {
            Some(rest) => format!("{}/{rest}", options.libdir),
            None if path == DAT_CONF => SAMPLE.to_owned(),
            None => path.clone(),
        };
        let content = match entry {
            Entry::Link(content) => Content::Link(content.to_string_lossy().into_owned()),
            _ => match flags_of(path) {
                Some(library) => {
                    let prefix = options.place.prefix.to_str();
                    let prefix = prefix.context("the prefix is not UTF-8")?;
                    Content::Text(layout::pkg_config(library, prefix, &options.libdir))
                }
                None => Content::Copy(from),
            },
        };
        let entry = match &content {
            Content::Text(text) => Entry::of_bytes(text.as_bytes()),
            _ => entry.clone(),
        };
        sources.push(Source { to, entry, content });
    }
    Ok(sources)
}

impl Source {
    fn put(&self, root: &Path, target: &mut Layout, list: &mut Manifest) -> Result<()> {
        make_directories(root, &self.to, list)?;
        match &self.content {
            Content::Link(content) => target.link(content, &self.to)?,
            Content::Text(text) => {
                target.text(text, &self.to)?;
                set_mode(&root.join(&self.to), READABLE)?;
            }
            Content::Copy(from) => {
                let installed = target.file(from, &self.to)?;
                let is_executable = fs::metadata(from)?.permissions().mode() & 0o111 != 0;
                let mode = if is_executable { EXECUTABLE } else { READABLE };
                set_mode(&installed, mode)?;
            }
        }
        list.0.insert(self.to.clone(), self.entry.clone());
        Ok(())
    }
}

/// Makes the directories above `path`, and lists those that did not exist.
fn make_directories(root: &Path, path: &str, list: &mut Manifest) -> Result<()> {
    let above: Vec<&Path> = Path::new(path).ancestors().skip(1).collect();
    for below in above.into_iter().rev() {
        let directory = root.join(below);
        if directory.is_dir() {
            continue;
        }
        fs::create_dir(&directory).with_context(|| format!("making {}", directory.display()))?;
        set_mode(&directory, EXECUTABLE)?;
        let below = below.to_string_lossy().into_owned();
        list.0.insert(below, Entry::Directory);
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("setting the mode of {}", path.display()))
}

/// Fails if there is a file in the way that was not installed from here, or that has changed since.
fn refuse_to_replace_others(root: &Path, sources: &[Source], old: &Manifest) -> Result<()> {
    let mut others = Vec::new();
    for source in sources {
        let path = root.join(&source.to);
        if let Some(present) = Entry::at(&path)?
            && present != source.entry
            && old.0.get(&source.to) != Some(&present)
        {
            others.push(format!("\n  {}", path.display()));
        }
    }
    if others.is_empty() {
        return Ok(());
    }
    bail!(
        "nothing was installed: these were not put there by `cargo xtask install`, or have changed \
         since; move them away first{}",
        others.concat()
    );
}

/// Removes the files that an earlier installation had and this one does not have. Returns the files
/// that have changed since, which are kept.
fn remove_dropped(root: &Path, sources: &[Source], list: &mut Manifest) -> Result<Vec<PathBuf>> {
    let is_dropped = |path: &String| !sources.iter().any(|source| source.to == *path);
    let files = list.0.iter().filter(|(_, it)| **it != Entry::Directory);
    let dropped: Vec<String> = files
        .map(|(path, _)| path.clone())
        .filter(is_dropped)
        .collect();
    let mut kept = Vec::new();
    for path in dropped {
        if remove(root, &path, &list.0[&path])? == Removal::Kept {
            kept.push(root.join(&path));
        }
        list.0.remove(&path);
    }
    Ok(kept)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removal {
    Removed,
    Gone,
    Kept,
}

/// Removes a file or link if it is the one that was installed.
fn remove(root: &Path, path: &str, entry: &Entry) -> Result<Removal> {
    let path = root.join(path);
    match Entry::at(&path)? {
        None => Ok(Removal::Gone),
        Some(present) if present == *entry => {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
            Ok(Removal::Removed)
        }
        Some(_) => Ok(Removal::Kept),
    }
}

/// Removes the files that the list below the prefix names, if they are unchanged, and the list.
pub(crate) fn uninstall(place: &Place) -> Result<Uninstalled> {
    let root = place.root()?;
    let list = Manifest::read(&root)?.with_context(|| {
        format!(
            "{} is missing: `cargo xtask install` has installed nothing below {}",
            root.join(manifest::PLACE).display(),
            root.display()
        )
    })?;
    let mut done = Uninstalled {
        root: root.clone(),
        removed: 0,
        kept: Vec::new(),
    };
    for (path, entry) in &list.0 {
        if *entry == Entry::Directory {
            continue;
        }
        match remove(&root, path, entry)? {
            Removal::Removed => done.removed += 1,
            Removal::Gone => (),
            Removal::Kept => done.kept.push(root.join(path)),
        }
    }
    // The list is removed last, so that a failed removal can be repeated.
    fs::remove_file(root.join(manifest::PLACE)).context("removing the list")?;
    let directories = list.0.iter().filter(|(_, it)| **it == Entry::Directory);
    for (path, _) in directories.rev() {
        remove_empty(&root.join(path))?;
    }
    Ok(done)
}

fn remove_empty(directory: &Path) -> Result<()> {
    match fs::remove_dir(directory) {
        Err(error)
            if !matches!(
                error.kind(),
                ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound | ErrorKind::NotADirectory
            ) =>
        {
            Err(error).with_context(|| format!("removing {}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// The result of an installation.
#[derive(Debug)]
pub(crate) struct Installed {
    root: PathBuf,
    libdir: PathBuf,
    sample: PathBuf,
    files: usize,
    renewed: usize,
    kept: Vec<PathBuf>,
    is_live: bool,
}

impl fmt::Display for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, renewed, .. } = self;
        writeln!(
            f,
            "{}: {files} files installed, {renewed} written; the list is {}",
            self.root.display(),
            manifest::PLACE
        )?;
        write_kept(f, &self.kept)?;
        writeln!(
            f,
            "no dat.conf was written or changed; a sample is {}",
            self.sample.display()
        )?;
        if self.is_live {
            let libdir = self.libdir.display();
            writeln!(
                f,
                "as root, run ldconfig if {libdir} is one of the loader's directories; \
                 otherwise programs need LD_LIBRARY_PATH={libdir}"
            )?;
        }
        Ok(())
    }
}

/// The result of a removal.
#[derive(Debug)]
pub(crate) struct Uninstalled {
    root: PathBuf,
    removed: usize,
    kept: Vec<PathBuf>,
}

impl fmt::Display for Uninstalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} files removed", self.root.display(), self.removed)?;
        write_kept(f, &self.kept)
    }
}

fn write_kept(f: &mut fmt::Formatter<'_>, kept: &[PathBuf]) -> fmt::Result {
    kept.iter()
        .try_for_each(|path| writeln!(f, "kept, because it has changed: {}", path.display()))
}
