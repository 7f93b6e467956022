//! The corpus of `c_calls`, in a process of its own against the staged libraries.
//!
//! The child is this test program, started again with the environment that the target needs. So a
//! crash or a hang of the library fails this test and does not end its program, and threads and
//! descriptors of other tests are not counted.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use dat_api::LIBRARY_ENV;
use fuzz_bodies::{
    c_calls::session::{IA_NAME, REGISTRY_ENV, Session},
    target::C_CALLS_STAGED,
};

/// Set for the child; its value is one input, or the directory of all.
const CHILD_ENV: &str = "FUZZ_C_CALLS_CHILD";
/// The time limit for the whole corpus.
const DEADLINE: Duration = Duration::from_secs(120);

#[test]
fn c_calls_corpus_holds() {
    if let Some(inputs) = env::var_os(CHILD_ENV) {
        replay(Path::new(&inputs));
        return;
    }
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/c_calls");
    let count = files(&corpus).len();
    assert!(count > 0, "{} holds no input", corpus.display());
    let Some(lib) = staged_libraries() else {
        panic!("{count} inputs and nothing is staged; run `cargo xtask stage`");
    };
    let dir = tempfile::tempdir().expect("a scratch directory");
    let registry = dir.path().join("dat.conf");
    fs::write(&registry, registry_text(&lib)).expect("a writable directory");
    let child = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "c_calls_corpus_holds", "--nocapture"])
        .env(CHILD_ENV, &corpus)
        .env(LIBRARY_ENV, lib.join("libdat2.so.2"))
        .env(REGISTRY_ENV, &registry)
        .stdin(Stdio::null())
        .spawn()
        .expect("this program starts");
    let status = finish(child).expect("the corpus is replayed before the deadline");
    assert!(status.success(), "{status}; the input is named last above");
}

fn replay(path: &Path) {
    for file in files(path) {
        eprintln!("{}", file.display());
        (C_CALLS_STAGED.run)(&fs::read(&file).expect("a file of the corpus"));
    }
    assert_eq!(Session::skipped(), 0, "the environment names a library");
}

fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable directory").path())
        .collect();
    files.sort();
    files
}

/// The directory into which `cargo xtask stage` has put the libraries.
fn staged_libraries() -> Option<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    let lib = target.join("stage/lib").canonicalize().ok()?;
    lib.join("libdat2.so.2").exists().then_some(lib)
}

fn registry_text(lib: &Path) -> String {
    let name = IA_NAME.to_str().expect("plain text");
    let provider = lib.join("libdapl-iwarp.so.2");
    format!(
        "{name} u2.0 nonthreadsafe default \"{}\" dat-rs.1.0 \"lo 0\" \"\"\n",
        provider.display()
    )
}

/// Waits for the child. At the deadline, kills it and returns `None`.
fn finish(mut child: Child) -> Option<ExitStatus> {
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("a child that has not ended");
    child.wait().expect("a child");
    None
}
