//! Every input of the committed corpora, without a fuzzer.

use std::{
    fs,
    path::{Path, PathBuf},
};

use fuzz_bodies::target::{C_CALLS_STAGED, PURE, Target};

/// Runs all inputs of one target; a missing corpus is a failure, not a pass.
fn replay(target: Target) {
    let dir = corpora().join(target.name);
    let files = inputs(&dir);
    assert!(!files.is_empty(), "{} holds no input", dir.display());
    for file in files {
        let data = fs::read(&file).expect("a file of the corpus");
        println!("{}", file.display());
        (target.run)(&data);
    }
}

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus")
}

fn inputs(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable directory").path())
        .collect();
    files.sort();
    files
}

fn pure(name: &str) -> Target {
    let target = PURE.into_iter().find(|target| target.name == name);
    target.expect("a target of this name")
}

/// Declares a test for the corpus of each target.
macro_rules! replays {
    ($($test:ident = $target:literal,)+) => {$(
        #[test]
        fn $test() {
            replay(pure($target));
        }
    )+};
}

replays! {
    mpa_startup_corpus_holds = "mpa_startup",
    fpdu_stream_corpus_holds = "fpdu_stream",
    marked_stream_corpus_holds = "marked_stream",
    ddp_rdmap_reassembly_corpus_holds = "ddp_rdmap_reassembly",
    terminate_corpus_holds = "terminate",
    dat_conf_corpus_holds = "dat_conf",
    rule_file_corpus_holds = "rule_file",
    port_mapper_corpus_holds = "port_mapper",
    sdp_message_corpus_holds = "sdp_message",
    sdp_hello_corpus_holds = "sdp_hello",
    sdp_sequence_corpus_holds = "sdp_sequence",
    sdp_trace_corpus_holds = "sdp_trace",
    ring_contents_corpus_holds = "ring_contents",
    ring_sequence_corpus_holds = "ring_sequence",
    c_calls_corpus_holds_in_memory = "c_calls",
    admission_corpus_holds = "admission",
}

#[test]
fn each_target_has_a_corpus_and_a_program_and_nothing_else_has() {
    let mut corpus_names: Vec<_> = PURE.iter().map(|target| target.name).collect();
    corpus_names.sort_unstable();
    let mut program_names = corpus_names.clone();
    program_names.push(C_CALLS_STAGED.name);
    program_names.sort_unstable();
    let programs = inputs(&corpora().join("../fuzz_targets"));
    for (directory, files, names) in [
        ("corpus", inputs(&corpora()), corpus_names),
        ("fuzz_targets", programs, program_names),
    ] {
        let found: Vec<_> = files
            .iter()
            .filter_map(|file| file.file_stem().and_then(|stem| stem.to_str()))
            .collect();
        assert_eq!(found, names, "{directory}");
    }
}

/// Seeds are kept as files, so that fuzzers start from them; this test keeps the files equal to the
/// list.
#[test]
fn seeds_are_in_the_corpora() {
    for seed in fuzz_bodies::seeds::all() {
        let file = corpora()
            .join(seed.target)
            .join(format!("seed-{}", seed.name));
        if std::env::var_os("FUZZ_WRITE_SEEDS").is_some() {
            fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
            fs::write(&file, &seed.bytes).expect("a writable corpus");
        }
        let found = fs::read(&file).unwrap_or_else(|error| {
            panic!("{}: {error}; set FUZZ_WRITE_SEEDS=1 once", file.display())
        });
        assert_eq!(found, seed.bytes, "{}", file.display());
    }
}
