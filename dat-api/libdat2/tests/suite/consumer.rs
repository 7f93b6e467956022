//! The shared library in use by C programs: exports, the registry row by row, handles, extensions.
//!
//! The programs in `tests/c` run with this library, and with OFA's library if that is installed,
//! except for the rows in which the two libraries differ by design.

use crate::support::{Stage, source_dir, succeed, text_of};
use std::path::Path;
use std::process::Command;

use stack_tests::not_run;

/// Directory in which Debian installs OFA's library.
fn ofa_directory() -> String {
    format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH)
}

/// Returns true if OFA's library is installed; otherwise prints that the test does not run.
fn has_ofa_library() -> bool {
    let is_installed = Path::new(&ofa_directory()).join("libdat2.so.2").exists();
    if !is_installed {
        not_run("OFA's library is not installed; Debian has it in libdapl2");
    }
    is_installed
}

/// A registry with an entry for every behaviour of the test provider, bad lines included.
const CONF: &str = "\
# name version safety default library version params platform
good        u2.0 nonthreadsafe default    {lib} test.1.0 \"ok with blanks\" \"\"
bad line
fail-open   u2.0 nonthreadsafe default    {lib} test.1.0 fail-open \"\"
fallback    u2.0 nonthreadsafe default    /no/such/library.so test.1.0 \"ok first\" \"\"
fallback    u2.0 nonthreadsafe default    {lib} test.1.0 \"ok second\" \"\"
missing     u2.0 nonthreadsafe default    /no/such/library.so test.1.0 ok \"\"
fail-query  u2.0 nonthreadsafe default    {lib} test.1.0 fail-query \"\"
other-key   u2.0 nonthreadsafe default    {lib} test.1.0 other-key \"\"
no-register u2.0 nonthreadsafe default    {lib} test.1.0 no-register \"\"
bad-handle  u2.0 nonthreadsafe default    {lib} test.1.0 bad-handle \"\"
reenter     u2.0 nonthreadsafe default    {lib} test.1.0 reenter \"\"
no-extensions u2.0 nonthreadsafe default  {lib} test.1.0 no-extensions \"\"
nondefault  u2.0 nonthreadsafe nondefault {lib} test.1.0 ok \"\"
kernel      k2.0 nonthreadsafe default    {lib} test.1.0 ok \"\"
";

fn conf_for(stage: &Stage, library: &str) -> std::path::PathBuf {
    stage.write("dat.conf", CONF.replace("{lib}", library))
}

/// Runs a program with the test provider and this library.
fn run(name: &str) {
    run_with(name, |_| {});
}

/// Runs a program with the test provider and OFA's library, if installed.
fn run_over_ofa(name: &str) {
    if has_ofa_library() {
        run_with(name, |program| {
            program.arg("ofa").env("LD_LIBRARY_PATH", ofa_directory());
        });
    }
}

fn run_with(name: &str, prepare: impl FnOnce(&mut Command)) {
    let stage = Stage::new();
    let provider = stage.provider("libtest-provider.so");
    let conf = conf_for(&stage, &provider.display().to_string());
    let mut program = stage.command(&stage.program(name), &conf);
    prepare(&mut program);
    println!("{}", succeed(&mut program));
}

#[test]
fn the_registry_behaves_row_by_row() {
    run("registry");
}

#[test]
fn the_registry_of_ofa_agrees_row_by_row() {
    run_over_ofa("registry");
}

#[test]
fn extension_operations_find_their_provider() {
    run("extension");
}

#[test]
fn extension_operations_find_their_provider_over_ofa() {
    run_over_ofa("extension");
}

#[test]
fn no_handle_value_crashes_a_call() {
    run("handles");
}

#[test]
fn exactly_the_listed_symbols_are_exported_under_their_version() {
    let stage = Stage::new();
    let listing = succeed(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(stage.file("libdat2.so.2")),
    );
    let exported: Vec<&str> = listing
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|&name| name != "DAT_2.0")
        .map(|name| {
            name.strip_suffix("@@DAT_2.0")
                .unwrap_or_else(|| panic!("{name}: no version"))
        })
        .collect();
    let listed = std::fs::read_to_string(source_dir().join("exports.txt")).expect("exports.txt");
    let mut exported = exported;
    exported.sort_unstable();
    assert_eq!(exported, listed.lines().collect::<Vec<_>>());
    assert!(listed.lines().is_sorted());
}

#[test]
fn a_library_named_without_slash_is_found_next_to_libdat2() {
    let stage = Stage::new();
    stage.provider("libtest-provider.so");
    let conf = conf_for(&stage, "libtest-provider.so");
    let program = stage.program("extension");
    // The loader does not search in this directory: LD_PRELOAD names libdat2 by its path.
    let mut command = stage.command(&program, &conf);
    command
        .env_remove("LD_LIBRARY_PATH")
        .env("LD_PRELOAD", stage.file("libdat2.so.2"));
    println!("{}", succeed(&mut command));
}

#[test]
fn providers_load_when_libdat2_was_loaded_as_a_plug_in() {
    let stage = Stage::new();
    let provider = stage.provider("libtest-provider.so");
    let conf = conf_for(&stage, &provider.display().to_string());
    let program = stage.program("plugin");
    let mut command = stage.command(&program, &conf);
    command.arg(stage.file("libdat2.so.2"));
    println!("{}", succeed(&mut command));
}

#[test]
fn bad_lines_are_reported_with_place_and_reason() {
    let stage = Stage::new();
    let conf = conf_for(&stage, "/no/such/library.so");
    let program = stage.program("list");
    let expected = format!("{}:3:5: api_version: expected u<major>", conf.display());

    let output = stage
        .command(&program, &conf)
        .output()
        .expect("program runs");
    assert!(output.status.success(), "{}", text_of(&output));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(complaint.matches(&expected).count(), 1, "{complaint}");

    let with = |name, value| {
        let mut command = stage.command(&program, &conf);
        command.env(name, value).output().expect("runs")
    };
    for quiet in [with("DAT_DBG_TYPE", "0"), with("DAT_LOG", "error")] {
        assert_eq!(String::from_utf8_lossy(&quiet.stderr), "");
    }
    let redirected = with("DAT_DBG_DEST", "1");
    assert!(String::from_utf8_lossy(&redirected.stdout).contains(&expected));
}

#[test]
fn an_unusable_override_is_reported_and_no_other_file_is_tried() {
    let stage = Stage::new();
    let program = stage.program("list");
    let missing = stage.file("missing.conf");
    for conf in [missing.as_path(), Path::new(""), Path::new("/")] {
        let name = conf.display();
        let output = stage.command(&program, conf).output();
        let output = output.expect("program runs");
        assert!(output.stdout.is_empty(), "the registry is empty");
        let complaint = String::from_utf8_lossy(&output.stderr);
        let expected = format!("DAT Registry: DAT_OVERRIDE, bad filename - {name}, aborting");
        assert!(complaint.contains(&expected), "{complaint}");
    }
}

#[test]
fn many_threads_may_open_and_close_one_name() {
    let stage = Stage::new();
    let provider = stage.provider("libtest-provider.so");
    let conf = conf_for(&stage, &provider.display().to_string());
    let program = stage.program("threads");
    println!("{}", succeed(&mut stage.command(&program, &conf)));
}

/// Values of each of the seven fields after the name.
const VARIANTS: [&[&str]; 7] = [
    &[
        "u2", "u2.", "u002.010", "u1.2", "U2.0", "2.0", "u0x2.0", "u+2.0", "u2.0.0", "u2.0a",
        "k2.0", "\"u2.0\"", "\"\"", "u 2.0", "u2 .0",
    ],
    &[
        "threadsafe",
        "threadsafeX",
        "nonthreadsafeX",
        "thread",
        "ThreadSafe",
        "non",
        "nonnonthreadsafe",
    ],
    &[
        "defaulty",
        "nondefault",
        "nondefaulty",
        "DEFAULT",
        "defaul",
        "\"default\"",
    ],
    &["\"\"", "\"/a b/c.so\"", "l#ib.so", "#lib.so", "\"a\\\"b\""],
    &[
        "dapl",
        "dapl.2",
        "dapl.2.",
        "dapl..0",
        "dapl.x.0",
        "dapl.2.0x",
        "d.ap.2.0",
        ".2.0",
        "\"d.2.0\"",
        "2.0.0",
    ],
    &["p", "\"\"", "\"p\"\"q\"", "p\\ q", "\"p\\\\\""],
    &[
        "p",
        "",
        "\"\" extra",
        "\"\" # comment",
        "\"\"# comment",
        "\"\"\r",
        "\"\"\t \t",
        "\"open",
    ],
];

/// The fields after the name in a good line.
const GOOD_FIELDS: &str = "u2.0 nonthreadsafe default lib.so dapl.2.0 p \"\"";

/// Lines whose first field is their number: good lines, bad lines, and odd cases of the grammar.
/// Two kinds are omitted: versions without digits, which OFA's library accepts as 0.0 although such
/// an entry cannot be opened, and an unclosed quote in the seventh field, which crashes OFA's
/// library.
fn lines_of_all_kinds() -> Vec<String> {
    let good: Vec<_> = GOOD_FIELDS.split(' ').collect();
    let mut lines = Vec::new();
    for (index, values) in VARIANTS.iter().enumerate() {
        for value in *values {
            let mut fields = good.clone();
            fields[index] = value;
            lines.push(format!("line{} {}", lines.len(), fields.join(" ")));
        }
    }
    lines.extend(names_and_comments(GOOD_FIELDS));
    lines
}

/// Lines with odd names and equal keys, and lines without an entry.
fn names_and_comments(good: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let (fits, is_too_long) = ("n".repeat(255), "m".repeat(256));
    for name in [
        r#""a name with \"quotes\" and \\ in it""#,
        "\"\"",
        &fits,
        &is_too_long,
    ] {
        lines.push(format!("{name} {good}"));
    }
    // Of equal keys, the first is listed.
    for key in [
        good,
        &good.replace("lib.so", "b.so"),
        &good.replace("non", ""),
    ] {
        lines.push(format!("equal {key}"));
    }
    lines.extend(["# a comment", "", "  \t "].map(str::to_owned));
    lines.push(format!(" \tindented {good}  # a comment"));
    lines
}

#[test]
fn ofa_reads_the_same_entries() {
    if !has_ofa_library() {
        return;
    }
    let stage = Stage::new();
    let program = stage.program("list");
    let mut conf = String::new();
    for (index, line) in lines_of_all_kinds().iter().enumerate() {
        // A good line after each line shows where a bad line ends.
        conf += &format!("{line}\nafter{index} u2.0 nonthreadsafe default lib.so dapl.2.0 p p\n");
    }
    let conf = stage.write("odd.conf", conf);
    let names = |directory: &str| {
        let output = stage
            .command(&program, &conf)
            .env("LD_LIBRARY_PATH", directory)
            .output()
            .expect("runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines()
            .filter(|line| !line.starts_with(" ERR:"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let ours = names(&stage.path().display().to_string());
    let theirs = names(&ofa_directory());
    assert!(ours.len() > lines_of_all_kinds().len());
    assert_eq!(ours, theirs);
}

#[test]
fn without_override_the_system_file_or_the_interfaces_are_the_registry() {
    let stage = Stage::new();
    let program = stage.program("list");
    let system = Path::new("/etc/dat.conf");
    let names = |command: &mut Command| {
        let output = command.output().expect("program runs");
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let listed = names(stage.command(&program, system).env_remove("DAT_OVERRIDE"));
    if system.exists() {
        assert_eq!(listed, names(&mut stage.command(&program, system)));
    } else {
        let begin_with = |name| move |listed: &String| listed.starts_with(name);
        assert!(listed.iter().all(begin_with("iwarp-")), "{listed:?}");
        assert!(listed.iter().any(begin_with("iwarp-lo ")), "{listed:?}");
    }
}
