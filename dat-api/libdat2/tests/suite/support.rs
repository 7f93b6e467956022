//! Builds the shared library as an installation does, and C programs against it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

/// `dat-api/libdat2` in the source tree.
pub(crate) fn source_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A directory with `libdat2.so.2`, the test provider and the files that a test adds; deleted when
/// dropped.
pub(crate) struct Stage {
    directory: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("scratch directory");
        let library = directory.path().join("libdat2.so.2");
        fs::copy(linked_library(), &library).expect("copy of the library");
        std::os::unix::fs::symlink("libdat2.so.2", directory.path().join("libdat2.so"))
            .expect("symbolic link");
        Self { directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, content).expect("scratch directory is writable");
        path
    }

    /// Compiles `tests/c/<name>.c` to a program linked against the staged library.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let output = self.file(name);
        let mut cc = self.compiler();
        cc.arg(source_dir().join("tests/c").join(name).with_extension("c"));
        // The program exports its symbols, because the provider looks up its log. Binding is lazy,
        // because the program also runs with libraries that lack some of the calls.
        cc.args(["-rdynamic", "-Wl,-z,lazy", "-fPIE", "-pie", "-L"])
            .arg(self.path());
        cc.args(["-ldat2", "-ldl", "-o"]).arg(&output);
        succeed(&mut cc);
        output
    }

    /// Compiles the test provider under the name of a library.
    pub(crate) fn provider(&self, name: &str) -> PathBuf {
        let output = self.file(name);
        let mut cc = self.compiler();
        cc.arg(source_dir().join("tests/c/provider.c"));
        // The provider is linked without a reference to libdat2, as OFA's providers are.
        cc.args([
            "-shared",
            "-fPIC",
            "-Wl,--unresolved-symbols=ignore-all",
            "-o",
        ])
        .arg(&output);
        succeed(&mut cc);
        output
    }

    /// Returns a command that finds the staged library and reads this registry file.
    pub(crate) fn command(&self, program: &Path, conf: &Path) -> Command {
        let mut command = Command::new("timeout");
        command.arg("60").arg(program);
        command
            .env_clear()
            .env("LD_LIBRARY_PATH", self.path())
            .env("DAT_OVERRIDE", conf);
        command
    }

    fn compiler(&self) -> Command {
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu99", "-g", "-Wall", "-Wextra", "-Werror", "-I"]);
        cc.arg(source_dir().join("include"));
        cc
    }
}

/// Runs a command that must succeed and returns its output.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = text_of(&output);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}",
        output.status
    );
    text
}

/// Returns the standard output and error of a finished command.
pub(crate) fn text_of(output: &Output) -> String {
    let bytes = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the shared library, linked once per test program according to `link.txt`.
fn linked_library() -> &'static Path {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = LIBRARY.get_or_init(|| {
        let directory = tempfile::tempdir().expect("scratch directory");
        let output = directory.path().join("libdat2.so.2.0.0");
        succeed(Command::new("cc").args(link_arguments(&output)));
        (directory, output)
    });
    path
}

fn link_arguments(output: &Path) -> Vec<String> {
    let read = |name| fs::read_to_string(source_dir().join(name)).expect("part of the source tree");
    let undefined: Vec<String> = read("exports.txt")
        .lines()
        .map(|name| format!("-Wl,-u,{name}"))
        .collect();
    let replace = |line: &str| {
        line.replace("{output}", &output.display().to_string())
            .replace(
                "{map}",
                &source_dir().join("libdat2.map").display().to_string(),
            )
            .replace("{staticlib}", &static_library().display().to_string())
    };
    read("link.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| match line {
            "{undefined}" => undefined.clone(),
            line => vec![replace(line)],
        })
        .collect()
}

/// Returns the static library. Cargo builds it together with the rlib on which this test depends,
/// and stores it in the directory of the test program, under a name with an unknown hash; the
/// newest file is the one just built.
fn static_library() -> PathBuf {
    let own = std::env::current_exe().expect("a test program has a file");
    let directory = own.parent().expect("a file has a directory");
    let is_ours = |path: &PathBuf| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        name.starts_with("liblibdat2-") && name.ends_with(".a")
    };
    fs::read_dir(directory)
        .expect("readable directory")
        .map(|entry| entry.expect("readable directory").path())
        .filter(is_ours)
        .max_by_key(|path| fs::metadata(path).and_then(|meta| meta.modified()).ok())
        .expect("the static library is built with the crate")
}
