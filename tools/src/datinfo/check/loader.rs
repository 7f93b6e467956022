//! The registry library that programs load, compared with the one that the tools load.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dat_api::{LIBRARY_NAME, Library, LoadError};

use super::item::Item;

const SUBJECT: &str = "loader";

/// A function of dat-rs that OFA's library lacks.
const OWN_FUNCTION: &[u8] = b"\0dat_cno_trigger\0";

/// The directories that the dynamic loader searches last.
const DEFAULT_DIRECTORIES: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// A registry library on the search path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    path: PathBuf,
    is_ours: bool,
}

/// The libraries that take part in the choice.
#[derive(Debug, Default)]
struct Choice {
    /// The library that the tools have loaded.
    of_tools: Option<Candidate>,
    /// The value of `DAT_LIBRARY`, if the tools loaded that.
    named: Option<PathBuf>,
    /// The libraries on the search path of programs; they load the first one.
    on_path: Vec<Candidate>,
    /// The library of dat-rs that was installed with this program.
    installed: Option<PathBuf>,
    /// True if there is no registry file.
    is_builtin: bool,
}

pub(super) fn items(library: Result<&Library, &LoadError>, is_builtin: bool) -> Vec<Item> {
    let named = host::environment::variable("DAT_LIBRARY").filter(|path| !path.is_empty());
    let loaded = library
        .ok()
        .and_then(|library| host::library::file_of(library.dat_ia_openv as usize));
    let mut files = search_path();
    if named.is_none() {
        // Without DAT_LIBRARY, the tools load the library that programs load.
        files.splice(..0, loaded.clone());
    }
    let choice = Choice {
        of_tools: loaded.map(Candidate::of),
        named: named.map(PathBuf::from),
        on_path: distinct(files).into_iter().map(Candidate::of).collect(),
        installed: installed(),
        is_builtin,
    };
    let mut items = judge(&choice);
    if let Err(error) = library
        && !items.iter().any(Item::is_problem)
    {
        items.push(unusable(error));
    }
    items
}

/// The problem of a library that exists and cannot be used, or that `DAT_LIBRARY` names.
fn unusable(error: &LoadError) -> Item {
    let (path, reason) = match error {
        LoadError::Open { path, reason } => (path, reason.clone()),
        LoadError::Symbol { path, symbol } => (path, format!("it has no function {symbol}")),
    };
    let fix = match host::environment::variable("DAT_LIBRARY") {
        Some(_) => "unset DAT_LIBRARY, or set it to a DAT 2.0 registry library",
        None => "install this library again",
    };
    Item::problem(
        SUBJECT,
        format!("the tools cannot load {}: {reason}", path.display()),
        fix,
    )
}

/// Returns the registry libraries in the order in which the dynamic loader searches: the
/// directories of `LD_LIBRARY_PATH`, the cache, the default directories (ld.so(8)).
fn search_path() -> Vec<PathBuf> {
    let variable = host::environment::text("LD_LIBRARY_PATH").unwrap_or_default();
    let named = variable.split([':', ';']).filter(|name| !name.is_empty());
    let named = named.map(|directory| Path::new(directory).join(LIBRARY_NAME));
    let default = DEFAULT_DIRECTORIES.map(|directory| Path::new(directory).join(LIBRARY_NAME));
    let files = named.chain(cached()).chain(default);
    files.filter(|file| file.is_file()).collect()
}

/// Returns the entries of the loader's cache. Without `ldconfig` there are none.
fn cached() -> Vec<PathBuf> {
    let programs = ["/sbin/ldconfig", "ldconfig"].into_iter();
    let mut outputs = programs.filter_map(|program| Command::new(program).arg("-p").output().ok());
    let output = outputs.next().map(|output| output.stdout);
    entries(&String::from_utf8_lossy(&output.unwrap_or_default()))
}

/// Returns the files of the library in the output of `ldconfig -p`, for this word size.
fn entries(output: &str) -> Vec<PathBuf> {
    let lines = output.lines().map(str::trim);
    lines
        .filter(|line| line.split(' ').next() == Some(LIBRARY_NAME))
        // An entry of 32 bits has no word for the architecture.
        .filter(|line| cfg!(target_pointer_width = "32") || line.contains(','))
        .filter_map(|line| Some(PathBuf::from(line.split_once("=> ")?.1)))
        .collect()
}

/// Removes all but the first path of each file.
fn distinct(files: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for file in files {
        let real = file.canonicalize().unwrap_or_else(|_| file.clone());
        if !seen.contains(&real) {
            seen.push(real);
            found.push(file);
        }
    }
    found
}

/// Returns the library that was installed with this program, below the same prefix.
fn installed() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.canonicalize().ok()?;
    let prefix = program.parent()?.parent()?;
    let file = prefix.join("lib").join(LIBRARY_NAME);
    (file.is_file() && Candidate::of(file.clone()).is_ours).then_some(file)
}

impl Candidate {
    /// A file is ours if it contains the name of a function that only this library has.
    fn of(path: PathBuf) -> Self {
        let content = fs::read(&path).unwrap_or_default();
        let is_ours = content
            .windows(OWN_FUNCTION.len())
            .any(|window| window == OWN_FUNCTION);
        Self { path, is_ours }
    }

    fn describe(&self) -> String {
        let implementation = if self.is_ours {
            "dat-rs"
        } else {
            "another implementation"
        };
        format!("{} ({implementation})", self.path.display())
    }

    fn is_same(&self, path: &Path) -> bool {
        match (self.path.canonicalize(), path.canonicalize()) {
            (Ok(one), Ok(other)) => one == other,
            _ => self.path == path,
        }
    }
}

fn judge(choice: &Choice) -> Vec<Item> {
    let mut items = vec![order(choice)];
    if let (Some(named), Some(tools)) = (&choice.named, &choice.of_tools)
        && !choice
            .on_path
            .first()
            .is_some_and(|first| first.is_same(named))
    {
        let programs = match choice.on_path.first() {
            Some(first) => format!("programs load {}", first.describe()),
            None => format!("programs find no {LIBRARY_NAME}"),
        };
        items.push(Item::problem(
            SUBJECT,
            format!(
                "the tools load {} because of DAT_LIBRARY, but {programs}",
                tools.path.display()
            ),
            prepend(named),
        ));
    }
    let first = choice.on_path.first();
    if choice.is_builtin && first.is_some_and(|first| !first.is_ours) {
        items.push(Item::problem(
            SUBJECT,
            "there is no registry file, and only the library of dat-rs has adapters without one",
            "create /etc/dat.conf; dat.conf(5) describes its lines",
        ));
    }
    items
}

/// Judges the library that programs load.
fn order(choice: &Choice) -> Item {
    let Some(first) = choice.on_path.first() else {
        let text = format!("programs find no {LIBRARY_NAME}");
        if choice.named.is_some() {
            return Item::passed(
                SUBJECT,
                format!("{text}; DAT_LIBRARY names the one of the tools"),
            );
        }
        return Item::problem(
            SUBJECT,
            text,
            match &choice.installed {
                Some(installed) => prepend(installed),
                None => "install a DAT 2.0 registry library, or add its directory to \
                         LD_LIBRARY_PATH"
                    .to_owned(),
            },
        );
    };
    let later = choice.on_path.iter().skip(1).find(|other| other.is_ours);
    let ours = later.map(|other| &other.path).or(choice.installed.as_ref());
    match ours {
        Some(ours) if !first.is_ours => Item::problem(
            SUBJECT,
            format!("programs load {}, not {}", first.describe(), ours.display()),
            prepend(ours),
        ),
        _ => Item::passed(SUBJECT, format!("programs load {}", first.describe())),
    }
}

/// The action that makes programs load a library.
fn prepend(library: &Path) -> String {
    let directory = library.parent().unwrap_or(Path::new(".")).display();
    format!("run `export LD_LIBRARY_PATH={directory}:$LD_LIBRARY_PATH` before the program")
}

#[cfg(test)]
mod tests {
    use super::super::item::assert_says;
    use super::*;

    const OURS: &str = "/opt/lib/libdat2.so.2";
    const THEIRS: &str = "/usr/lib/libdat2.so.2";

    fn candidate(path: &str) -> Candidate {
        Candidate {
            path: path.into(),
            is_ours: path == OURS,
        }
    }

    fn problems(choice: &Choice) -> Vec<String> {
        let items = judge(choice);
        let problems = items.iter().filter(|item| item.is_problem());
        problems.map(ToString::to_string).collect()
    }

    fn on_path(paths: &[&str]) -> Choice {
        Choice {
            of_tools: paths.first().map(|path| candidate(path)),
            on_path: paths.iter().map(|path| candidate(path)).collect(),
            ..Choice::default()
        }
    }

    #[test]
    fn another_library_in_front_of_ours_is_a_problem() {
        assert!(problems(&on_path(&[OURS])).is_empty());
        assert!(problems(&on_path(&[OURS, THEIRS])).is_empty());
        let is_absent = problems(&on_path(&[THEIRS])).is_empty();
        assert!(is_absent, "dat-rs is not installed here");
        let order = problems(&on_path(&[THEIRS, OURS]));
        assert_eq!(order.len(), 1);
        assert_says(&order[0], "(another implementation), not /opt/lib/");
        assert_says(&order[0], "LD_LIBRARY_PATH=/opt/lib:");
        let hidden = Choice {
            installed: Some(OURS.into()),
            ..on_path(&[THEIRS])
        };
        assert_eq!(problems(&hidden), order);
    }

    #[test]
    fn a_library_that_no_program_finds_is_a_problem() {
        let nothing = problems(&on_path(&[]));
        assert_says(&nothing[0], "programs find no libdat2.so.2");
        assert_says(&nothing[0], "install a DAT 2.0 registry");
    }

    #[test]
    fn tools_and_programs_that_load_different_libraries_are_a_problem() {
        let choice = |paths| Choice {
            named: Some(OURS.into()),
            of_tools: Some(candidate(OURS)),
            ..on_path(paths)
        };
        assert!(problems(&choice(&[OURS])).is_empty());
        for paths in [&[THEIRS][..], &[]] {
            let found = problems(&choice(paths));
            assert_eq!(found.len(), 1, "{found:?}");
            assert_says(&found[0], "because of DAT_LIBRARY");
        }
    }

    #[test]
    fn another_library_needs_a_registry_file() {
        let builtin = |path| Choice {
            is_builtin: true,
            ..on_path(&[path])
        };
        assert!(problems(&builtin(OURS)).is_empty());
        assert!(problems(&builtin(THEIRS))[0].contains("create /etc/dat.conf"));
    }

    #[test]
    fn entries_of_the_cache_are_files_of_this_word_size() {
        let output = "2 libs found in cache `/etc/ld.so.cache'\n\
            \tlibdat2.so.2 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libdat2.so.2\n\
            \tlibdat2.so.2 (libc6) => /usr/lib/i386-linux-gnu/libdat2.so.2\n\
            \tlibdat2.so (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libdat2.so\n";
        let expected = ["/usr/lib/x86_64-linux-gnu/libdat2.so.2"];
        assert_eq!(entries(output), expected.map(PathBuf::from));
        assert!(entries("").is_empty());
    }

    #[test]
    fn our_library_is_recognised_by_a_function_that_only_it_exports() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(LIBRARY_NAME);
        fs::write(&file, "\x7fELF\0dat_cno_wait\0dat_cno_trigger\0").unwrap();
        assert!(Candidate::of(file.clone()).is_ours);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(
            distinct(vec![file.clone(), link, file.clone()]),
            std::slice::from_ref(&file)
        );
        fs::write(&file, "\x7fELF\0dat_cno_wait\0").unwrap();
        assert!(!Candidate::of(file).is_ours);
    }
}
