//! `dat.conf` and the registry. The cases of the registry file run with the library of dat-rs and
//! with OFA's library of Debian: a program must get the same providers from both.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stack_tests::{CProgram, Finished, IA_NAME, Program, Registry, StackEnv, not_run};

const DEADLINE: Duration = Duration::from_secs(60);

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// Returns a valid line for the adapter `name`.
fn line(name: &str) -> String {
    format!("{name} u2.0 nonthreadsafe default lib.so pro.1.0 \"params\" \"\"\n")
}

/// The program, run with the staged library and with the system's library.
struct Both {
    env: StackEnv,
    program: CProgram,
}

impl Both {
    fn new() -> Result<Self> {
        let env = StackEnv::new()?;
        let program = CProgram::compile(&env.stage, "registry")?;
        Ok(Self { env, program })
    }

    /// Lists the providers of the registry file `dat_override` with the staged library, and with
    /// OFA's library.
    fn list(&self, dat_override: &str) -> Result<[Finished; 2]> {
        let ours = self.env.program(self.program.file()).named("our library");
        let theirs = Program::new(self.program.file())
            .env_remove("LD_LIBRARY_PATH")
            .named("OFA's library");
        let run = |program: Program| {
            program
                .env("DAT_OVERRIDE", dat_override)
                .arg("list")
                .spawn()?
                .finish(DEADLINE)
        };
        Ok([run(ours)?.success()?, run(theirs)?.success()?])
    }
}

fn providers(finished: &Finished) -> Vec<&str> {
    finished
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("PROVIDER "))
        .collect()
}

/// Lists `text` with both libraries; both must list exactly `wanted`.
fn shows(text: &str, wanted: &[&str]) -> Result<Finished> {
    let registry = Registry::with_text(text)?;
    let path = registry.file().display().to_string();
    let [ours, theirs] = Both::new()?.list(&path)?;
    ensure!(
        providers(&theirs) == wanted,
        "the expectation is wrong; OFA's library lists:\n{theirs:?}"
    );
    ensure!(
        providers(&ours) == wanted,
        "wanted {wanted:?}, got:\n{}",
        ours.tail()
    );
    Ok(ours)
}

/// Checks that both libraries ignore the line `bad` and list the lines before and after it.
fn refuses(bad: &str) -> Result<()> {
    let text = format!("{}{bad}\n{}", line("before"), line("after"));
    let kept = ["[before] 2.0 nonthreadsafe", "[after] 2.0 nonthreadsafe"];
    let ours = shows(&text, &kept)?;
    let is_reported = ours.text.lines().any(|line| !line.starts_with("PROVIDER"));
    ensure!(is_reported, "the bad line was not reported");
    Ok(())
}

#[test]
fn lines_are_listed_in_file_order() -> Result<()> {
    let wanted = ["[b] 2.0 nonthreadsafe", "[a] 2.0 nonthreadsafe"];
    shows(&format!("{}{}", line("b"), line("a")), &wanted).map(drop)
}

#[test]
fn comments_blanks_and_a_missing_final_newline_are_fine() -> Result<()> {
    let text = format!(
        "# a comment\n\n   \t{}  # another\n\t{}",
        line("a"),
        line("b").trim_end()
    );
    shows(&text, &["[a] 2.0 nonthreadsafe", "[b] 2.0 nonthreadsafe"]).map(drop)
}

#[test]
fn kernel_and_nondefault_entries_are_not_shown() -> Result<()> {
    let text = format!(
        "{}{}{}",
        line("kernel").replace("u2.0", "k2.0"),
        line("spare").replace(" default", " nondefault"),
        line("a")
    );
    shows(&text, &["[a] 2.0 nonthreadsafe"]).map(drop)
}

#[test]
fn the_minor_number_of_a_version_is_optional() -> Result<()> {
    let text = format!(
        "{}{}",
        line("a").replace("u2.0", "u2"),
        line("b").replace("u2.0", "u1.")
    );
    shows(&text, &["[a] 2.0 nonthreadsafe", "[b] 1.0 nonthreadsafe"]).map(drop)
}

#[test]
fn quotes_may_contain_blanks_and_escapes() -> Result<()> {
    let text = line(r#""a name with \"quotes\" and \\ in it""#);
    shows(
        &text,
        &[r#"[a name with "quotes" and \ in it] 2.0 nonthreadsafe"#],
    )
    .map(drop)
}

#[test]
fn equal_keys_are_listed_once_and_other_keys_of_a_name_separately() -> Result<()> {
    let text = format!(
        "{}{}{}",
        line("a"),
        line("a").replace("lib.so", "other.so"),
        line("a").replace("nonthreadsafe", "threadsafe")
    );
    shows(&text, &["[a] 2.0 nonthreadsafe", "[a] 2.0 threadsafe"]).map(drop)
}

#[test]
fn an_upper_case_api_letter_is_refused() -> Result<()> {
    refuses(line("bad").replace("u2.0", "U2.0").trim_end())
}

#[test]
fn an_unknown_thread_safety_is_refused() -> Result<()> {
    refuses(line("bad").replace("nonthreadsafe", "unsafe").trim_end())
}

#[test]
fn a_provider_version_without_id_is_refused() -> Result<()> {
    refuses(line("bad").replace("pro.1.0", "1.0").trim_end())
}

#[test]
fn a_line_of_seven_fields_is_refused() -> Result<()> {
    refuses(line("bad").trim_end().trim_end_matches("\"\""))
}

#[test]
fn a_line_of_nine_fields_is_refused() -> Result<()> {
    refuses(&format!("{} more", line("bad").trim_end()))
}

#[test]
fn an_open_quote_ends_at_the_end_of_its_line() -> Result<()> {
    refuses(line("bad").trim_end().trim_end_matches('"'))
}

#[test]
fn a_carriage_return_is_not_a_blank() -> Result<()> {
    refuses(&line("bad").replace('\n', "\r"))
}

#[test]
fn names_are_limited_to_255_bytes() -> Result<()> {
    let (fits, too_long) = ("n".repeat(255), "m".repeat(256));
    let text = format!("{}{}{}", line(&fits), line(&too_long), line("a"));
    shows(
        &text,
        &[
            &format!("[{fits}] 2.0 nonthreadsafe"),
            "[a] 2.0 nonthreadsafe",
        ],
    )
    .map(drop)
}

#[test]
fn the_registry_is_empty_without_a_registry_file() -> Result<()> {
    for path in ["/no/such/dat.conf", "", "/"] {
        let [ours, theirs] = Both::new()?.list(path)?;
        ensure!(
            providers(&theirs).is_empty(),
            "the expectation is wrong for {path:?}"
        );
        ensure!(providers(&ours).is_empty(), "{path:?}: {}", ours.tail());
    }
    Ok(())
}

#[test]
fn a_listed_adapter_opens_and_closes() -> Result<()> {
    let both = Both::new()?;
    both.env
        .program(both.program.file())
        .args_line("open")
        .arg(IA_NAME)
        .spawn()?
        .finish(DEADLINE)?
        .success()?
        .prints("RETURN dat_ia_open 0x00000000")?
        .prints("RETURN dat_ia_close 0x00000000")?;
    Ok(())
}

#[test]
fn an_unlisted_name_is_reported_by_its_code() -> Result<()> {
    let both = Both::new()?;
    // PROVIDER_NOT_FOUND with NAME_NOT_REGISTERED.
    let opened = both
        .env
        .program(both.program.file())
        .args_line("open no-such-ia")
        .spawn()?;
    opened
        .finish(DEADLINE)?
        .prints("RETURN dat_ia_open 0x800a0064")?;
    Ok(())
}

#[test]
fn a_missing_provider_library_is_reported_by_its_code() -> Result<()> {
    let both = Both::new()?;
    let registry = Registry::with_text(&line("lost").replace("lib.so", "/no/such/lib.so"))?;
    let program = both.env.program_with(both.program.file(), registry.file());
    let opened = program.args_line("open lost").spawn()?.finish(DEADLINE)?;
    ensure!(!opened.status.success());
    opened.prints("RETURN dat_ia_open 0x800a")?;
    Ok(())
}

/// Opens `name`: an adapter whose device does not exist, or a name without an entry. Returns the
/// number of times that `reason` is printed if the environment variables `set` are set.
fn reasons(both: &Both, name: &str, reason: &str, set: &[(&str, &str)]) -> Result<usize> {
    let text = "lost u2.0 nonthreadsafe default libdapl-iwarp.so.2 x.1.0 \"nosuchif 0\" \"\"\n";
    let registry = Registry::with_text(text)?;
    let mut program = both.env.program_with(both.program.file(), registry.file());
    program = program.env_remove("DAT_LOG");
    for (variable, value) in set {
        program = program.env(variable, value);
    }
    let opened = program.args_line("open").arg(name).spawn()?;
    let finished = opened.finish(DEADLINE)?.prints("RETURN dat_ia_open 0x80")?;
    Ok(finished.text.matches(reason).count())
}

#[test]
fn an_adapter_that_does_not_open_is_explained_once() -> Result<()> {
    let both = Both::new()?;
    for (name, reason) in [
        ("lost", "no device: nosuchif"),
        ("no-such-ia", "no entry of"),
    ] {
        let count = |set: &[(&str, &str)]| reasons(&both, name, reason, set);
        for (set, times) in [
            (&[][..], 1),
            (&[("DAT_LOG", "warn")], 1),
            (&[("DAT_LOG", "debug")], 1),
            (&[("DAT_LOG", "libdat2=warn")], 1),
            (&[("DAT_LOG", "off")], 0),
            (&[("DAT_DBG_TYPE", "0")], 0),
        ] {
            let found = count(set)?;
            ensure!(found == times, "{name} with {set:?}: {found}");
        }
    }
    Ok(())
}

#[test]
fn a_file_that_took_the_number_of_standard_error_gets_no_line() -> Result<()> {
    let both = Both::new()?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("taken");
    let run = |log: Option<&str>| -> Result<String> {
        let mut program = both.env.program(both.program.file()).env_remove("DAT_LOG");
        if let Some(log) = log {
            program = program.env("DAT_LOG", log);
        }
        let opened = program.args_line("open no-such-ia").arg(&file).spawn()?;
        opened.finish(DEADLINE)?.prints("RETURN dat_ia_open 0x80")?;
        Ok(fs::read_to_string(&file)?)
    };
    ensure!(run(None)?.is_empty(), "the file contains a log line");
    let requested = run(Some("warn"))?;
    ensure!(requested.contains("no entry of"), "DAT_LOG has no effect");
    Ok(())
}

/// On most machines the provider for RDMA devices has no device to serve. It must load without one.
#[test]
fn the_verbs_provider_reports_that_there_is_no_device() -> Result<()> {
    if Path::new("/dev/infiniband").exists() {
        not_run("this machine has RDMA devices");
        return Ok(());
    }
    let both = Both::new()?;
    for adapter in ["lo 0", "127.0.0.1 0", "rxe0 1"] {
        let text =
            format!("none u2.0 nonthreadsafe default libdapl-ib.so.2 x.1.0 \"{adapter}\" \"\"\n");
        let registry = Registry::with_text(&text)?;
        let program = both.env.program_with(both.program.file(), registry.file());
        let opened = program
            .env("DAT_LOG", "info")
            .args_line("open none")
            .spawn()?;
        // INVALID_PARAMETER of the first argument.
        opened
            .finish(DEADLINE)?
            .prints("RETURN dat_ia_open 0x80060025")?
            .prints("no device: ")?;
    }
    Ok(())
}

/// A script that runs datinfo for an adapter must notice that the adapter does not exist.
#[test]
fn datinfo_fails_for_an_adapter_that_does_not_exist() -> Result<()> {
    let env = StackEnv::new()?;
    let datinfo = |args: &str| {
        let program = env.program(env.stage.bin("datinfo")).args_line(args);
        program.spawn()?.finish(DEADLINE)
    };
    for form in ["", "--list ", "--json "] {
        let absent = datinfo(&format!("{form}no-such-ia {IA_NAME}"))?;
        ensure!(absent.status.code() == Some(1), "{form}: {}", absent.status);
        absent
            .prints("no interface adapter \"no-such-ia\" in the registry")?
            .prints("`datinfo -v` lists all adapters")?
            .never_prints(&format!("no interface adapter \"{IA_NAME}\""))?;
        datinfo(&format!("{form}{IA_NAME}"))?.success()?;
    }
    Ok(())
}

/// The user of a program with raised privileges must not choose the libraries that the program
/// loads.
#[test]
fn a_program_with_raised_privileges_ignores_the_environment() -> Result<()> {
    let env = StackEnv::new()?;
    // The file is on the stage's file system, because the file system of temporary files often
    // forbids raising privileges.
    let dir = tempfile::TempDir::new_in(env.stage.root())?;
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
    let datinfo = dir.path().join("datinfo");
    fs::copy(env.stage.bin("datinfo"), &datinfo)?;
    let named = dir.path().join("chosen.so");
    let run = |mode| -> Result<String> {
        fs::set_permissions(&datinfo, Permissions::from_mode(mode))?;
        let mut command = Command::new(&datinfo);
        let output = command.env("DAT_LIBRARY", &named).uid(NOBODY).output()?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let Ok(ordinary) = run(0o755) else {
        not_run("only root can run a program as another user");
        return Ok(());
    };
    ensure!(ordinary.contains("chosen.so"), "{ordinary}");
    let raised = run(0o4755)?;
    ensure!(!raised.contains("chosen.so"), "{raised}");
    Ok(())
}

#[test]
fn datinfo_fails_for_an_empty_registry_with_advice() -> Result<()> {
    let env = StackEnv::new()?;
    for form in ["", "--list", "--json"] {
        let program = env.program(env.stage.bin("datinfo")).args_line(form);
        let program = program.env("DAT_OVERRIDE", "/no/such/dat.conf");
        let finished = program.spawn()?.finish(DEADLINE)?;
        ensure!(
            finished.status.code() == Some(1),
            "{form}: {}",
            finished.status
        );
        finished
            .prints("DAT_OVERRIDE, bad filename - /no/such/dat.conf, aborting")?
            .prints("name a file that can be read, or unset DAT_OVERRIDE")?
            .prints("datinfo: the registry is empty")?;
    }
    Ok(())
}

/// The code that DAT returns for a bad setting does not name the setting; the provider's log does.
#[test]
fn datinfo_reports_why_an_adapter_cannot_be_opened() -> Result<()> {
    let env = StackEnv::new()?;
    let provider = env.stage.provider().display().to_string();
    let bad = |name: &str, library: &str, params: &str| {
        format!("{name} u2.0 nonthreadsafe default {library} dat-rs.1.0 \"{params}\" \"\"\n")
    };
    let text = [
        bad("setting", &provider, "lo 0 crc=maybe"),
        bad("device", &provider, "eth9 0"),
        bad("library", "libno-such-provider.so.2", "lo 0"),
    ];
    let registry = Registry::with_text(&text.concat())?;
    let datinfo = |args: &str| {
        let program = env.program_with(env.stage.bin("datinfo"), registry.file());
        let program = program.env_remove("DAT_LOG").args_line(args);
        program.spawn()?.finish(DEADLINE)?.success()
    };
    for form in ["-v", "--json"] {
        datinfo(form)?
            .prints("bad ia_params: crc=maybe: on or off")?
            .prints("eth9")?
            .prints("DAT_INVALID_PARAMETER / DAT_INVALID_ARG1")?
            .prints("provider library does not load: ")?
            .never_prints("DAT_LOG")?
            .never_prints(" WARN ")?;
    }
    datinfo("-v")?
        .prints("cannot be opened: bad ia_params: crc=maybe: on or off (dat_ia_open: ")?;
    let short = datinfo("")?;
    let line = |name: &str| short.text.lines().find(|line| line.starts_with(name));
    let setting = line("setting ").context("no line for the adapter")?;
    let words: Vec<&str> = setting.split_whitespace().collect();
    ensure!(words[1..4] == ["unusable", "lo", "-"], "{setting}");
    ensure!(setting.ends_with("crc=maybe: on or off"), "{setting}");
    Ok(())
}

/// The check names each line that is wrong, and the action.
#[test]
fn datinfo_checks_the_registry_file_and_its_adapters() -> Result<()> {
    let env = StackEnv::new()?;
    let provider = env.stage.provider().display().to_string();
    let check = |text: &str| {
        let registry = Registry::with_text(text)?;
        let program = env.program_with(env.stage.bin("datinfo"), registry.file());
        let program = program.env_remove("DAT_LOG").args_line("--check -v");
        program.spawn()?.finish(DEADLINE)
    };
    let line = |name: &str, library: &str, params: &str| {
        format!("{name} u2.0 nonthreadsafe default {library} dat-rs.1.0 \"{params}\" \"\"\n")
    };
    let good = check(&line("good", &provider, "lo 0"))?;
    good.prints("ok: registry: ")?
        .prints("ok: adapters: usable: good\n")?
        .never_prints("problem: registry")?
        .never_prints("problem: adapters")?;
    let bad = check(
        &[
            line("good", &provider, "lo 0"),
            "bad v2.0 nonthreadsafe default x y.1.0 \"\" \"\"\n".to_owned(),
            line("setting", &provider, "lo 0 crc=maybe"),
            line("device", &provider, "eth9 0"),
            line("device2", &provider, "eth8 0"),
            line("library", "libno-such-provider.so.2", "lo 0"),
        ]
        .concat(),
    )?;
    ensure!(bad.status.code() == Some(1), "{}", bad.status);
    bad.prints(":2:5: api_version: expected u<major>.<minor>")?
        .prints(":3 (setting): bad ia_params: crc=maybe: on or off; fix: correct the line")?
        .prints(", lines 4-5: this host has no device eth9, eth8; fix: remove the lines")?
        .prints(":6 (library): provider library does not load: ")?
        .prints("fix: install libno-such-provider.so.2")?
        .prints("ok: adapters: usable: good\n")?;
    Ok(())
}

#[test]
fn datinfo_reports_the_carrier_of_payload_within_the_host() -> Result<()> {
    let env = StackEnv::new()?;
    let library = env.stage.provider().display().to_string();
    let settings = [
        ("on", "lo 0"),
        ("off", "lo 0 local=off"),
        ("other", "lo 0 long_fpdus=off"),
    ];
    let line = |(name, params): (&str, &str)| {
        format!("{name} u2.0 nonthreadsafe default {library} dat-rs.1.0 \"{params}\" \"\"\n")
    };
    let registry = Registry::with_text(&settings.map(line).concat())?;
    let datinfo = |args: &str| {
        let program = env.program_with(env.stage.bin("datinfo"), registry.file());
        program.args_line(args).spawn()?.finish(DEADLINE)?.success()
    };
    datinfo("--counters on")?
        .prints("through shared memory")?
        .prints("DCNT_RS_MOVED_SENT ")?
        .prints("DCNT_RS_RING_SENT_DATA ")?;
    datinfo("--counters off")?
        .prints("over TCP: local=off")?
        .prints("DCNT_RS_TCP_OFF ")?
        .never_prints("DCNT_RS_RING")?;
    datinfo("--counters other")?.prints("over TCP: the ends have not agreed on it")?;
    datinfo("--json on")?.never_prints("DCNT_RS_")?;
    Ok(())
}

#[test]
fn datinfo_prints_enums_and_flags_by_their_names() -> Result<()> {
    let env = StackEnv::new()?;
    for form in ["", "--json "] {
        let program = env.program(env.stage.bin("datinfo"));
        let line = format!("{form}{IA_NAME}");
        program
            .args_line(&line)
            .spawn()?
            .finish(DEADLINE)?
            .success()?
            .prints("DAT_PSP_CREATES_EP_IFASKED")?
            .prints("DAT_COMPLETION_SUPPRESS_FLAG DAT_COMPLETION_SOLICITED_WAIT_FLAG")?;
    }
    Ok(())
}

#[test]
fn the_registry_of_ofa_loads_our_provider() -> Result<()> {
    let both = Both::new()?;
    let registry = Registry::loopback(&both.env.stage.provider().display().to_string())?;
    Program::new(both.program.file())
        .env("DAT_OVERRIDE", registry.file())
        .env_remove("LD_LIBRARY_PATH")
        .args_line("open")
        .arg(IA_NAME)
        .named("OFA's library with our provider")
        .spawn()?
        .finish(DEADLINE)?
        .success()?
        .prints("RETURN dat_ia_close 0x00000000")?;
    Ok(())
}

#[test]
fn our_registry_loads_the_provider_of_ofa() -> Result<()> {
    let both = Both::new()?;
    let text = "theirs u2.0 nonthreadsafe default libdaploscm.so.2 dapl.2.0 \"no-device 1\" \"\"\n";
    let registry = Registry::with_text(text)?;
    let program = both.env.program_with(both.program.file(), registry.file());
    let opened = program.args_line("open theirs").spawn()?.finish(DEADLINE)?;
    // Without a device OFA's dat_ia_open fails, but the library must have been found, loaded and
    // called.
    ensure!(!opened.text.contains("0x800a"), "{}", opened.tail());
    opened.prints("RETURN dat_ia_open 0x")?;
    Ok(())
}
