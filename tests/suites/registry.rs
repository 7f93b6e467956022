//! `dat.conf` and the registry: adapters that open and adapters that do not, and the output of
//! `datinfo` for them. The tests of `libdat2` compare the grammar of the file with OFA's library.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stack_tests::{
    CProgram, IA_NAME, Program, Registry, SOFTWARE, StackEnv, adapter_line, is_full, not_run,
};

const DEADLINE: Duration = Duration::from_secs(60);

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// The program `registry`, and the environment in which it runs.
struct Consumer {
    env: StackEnv,
    program: CProgram,
}

impl Consumer {
    fn new() -> Result<Self> {
        let env = StackEnv::new()?;
        let program = CProgram::compile(&env.stage, "registry")?;
        Ok(Self { env, program })
    }

    /// The program, which finds the adapters of `registry`.
    fn with(&self, registry: &Registry) -> Program {
        self.env.program_with(self.program.file(), registry.file())
    }

    /// The program, which finds the adapters that the environment names.
    fn staged(&self) -> Program {
        self.env.program(self.program.file())
    }
}

#[test]
fn a_listed_adapter_opens_and_closes() -> Result<()> {
    let consumer = Consumer::new()?;
    consumer
        .staged()
        .args_line("open")
        .arg(IA_NAME)
        .run(DEADLINE)?
        .prints("RETURN dat_ia_open 0x00000000")?
        .prints("RETURN dat_ia_close 0x00000000")?;
    Ok(())
}

#[test]
fn adapters_of_this_host_open_although_a_file_lists_others() -> Result<()> {
    let consumer = Consumer::new()?;
    let registry = Registry::with_text(&adapter_line("other", "/no/such/lib.so", ""))?;
    for name in ["iwarp-lo", "127.0.0.1"] {
        let program = consumer.with(&registry).args_line("open").arg(name);
        program
            .run(DEADLINE)?
            .prints("RETURN dat_ia_open 0x00000000")?
            .prints("RETURN dat_ia_close 0x00000000")?;
    }
    Ok(())
}

#[test]
fn an_unlisted_name_is_reported_by_its_code() -> Result<()> {
    let consumer = Consumer::new()?;
    // PROVIDER_NOT_FOUND with NAME_NOT_REGISTERED.
    let opened = consumer.staged().args_line("open no-such-ia").spawn()?;
    opened
        .finish(DEADLINE)?
        .prints("RETURN dat_ia_open 0x800a0064")?;
    Ok(())
}

#[test]
fn a_missing_provider_library_is_reported_by_its_code() -> Result<()> {
    let consumer = Consumer::new()?;
    let registry = Registry::with_text(&adapter_line("lost", "/no/such/lib.so", ""))?;
    let program = consumer.with(&registry);
    let opened = program.args_line("open lost").spawn()?.finish(DEADLINE)?;
    ensure!(!opened.status.success());
    opened.prints("RETURN dat_ia_open 0x800a")?;
    Ok(())
}

/// Opens `name`: an adapter whose device does not exist, or a name without an entry. Returns the
/// number of times that `reason` is printed if the environment variables `set` are set.
fn reasons(consumer: &Consumer, name: &str, reason: &str, set: &[(&str, &str)]) -> Result<usize> {
    let registry = Registry::with_text(&adapter_line("lost", SOFTWARE, "nosuchif 0"))?;
    let mut program = consumer.with(&registry).env_remove("DAT_LOG");
    for (variable, value) in set {
        program = program.env(variable, value);
    }
    let opened = program.args_line("open").arg(name).spawn()?;
    let finished = opened.finish(DEADLINE)?.prints("RETURN dat_ia_open 0x80")?;
    Ok(finished.text.matches(reason).count())
}

#[test]
fn an_adapter_that_does_not_open_is_explained_once() -> Result<()> {
    let consumer = Consumer::new()?;
    for (name, reason) in [
        ("lost", "no device: nosuchif"),
        ("no-such-ia", "no entry of"),
    ] {
        let count = |set: &[(&str, &str)]| reasons(&consumer, name, reason, set);
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
    let consumer = Consumer::new()?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("taken");
    let run = |log: Option<&str>| -> Result<String> {
        let mut program = consumer.staged().env_remove("DAT_LOG");
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
    let consumer = Consumer::new()?;
    for adapter in ["lo 0", "127.0.0.1 0", "rxe0 1"] {
        let registry = Registry::with_text(&adapter_line("none", "libdapl-ib.so.2", adapter))?;
        let opened = consumer
            .with(&registry)
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
        let status = finished.status;
        ensure!(status.code() == Some(1), "{form}: {status}");
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
    let text = [
        adapter_line("setting", &provider, "lo 0 crc=maybe"),
        adapter_line("device", &provider, "eth9 0"),
        adapter_line("library", "libno-such-provider.so.2", "lo 0"),
    ];
    let registry = Registry::with_text(&text.concat())?;
    let datinfo = |args: &str| {
        let program = env.program_with(env.stage.bin("datinfo"), registry.file());
        let program = program.env_remove("DAT_LOG").args_line(args);
        program.run(DEADLINE)
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
    let good = check(&adapter_line("good", &provider, "lo 0"))?;
    good.prints("ok: registry: ")?
        .prints("ok: adapters: usable: good\n")?
        .never_prints("problem: registry")?
        .never_prints("problem: adapters")?;
    let bad = check(
        &[
            adapter_line("good", &provider, "lo 0"),
            "bad v2.0 nonthreadsafe default x y.1.0 \"\" \"\"\n".to_owned(),
            adapter_line("setting", &provider, "lo 0 crc=maybe"),
            adapter_line("device", &provider, "eth9 0"),
            adapter_line("device2", &provider, "eth8 0"),
            adapter_line("library", "libno-such-provider.so.2", "lo 0"),
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
    let lines = settings.map(|(name, params)| adapter_line(name, &library, params));
    let registry = Registry::with_text(&lines.concat())?;
    let datinfo = |args: &str| {
        let program = env.program_with(env.stage.bin("datinfo"), registry.file());
        program.args_line(args).run(DEADLINE)
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
            .run(DEADLINE)?
            .prints("DAT_PSP_CREATES_EP_IFASKED")?
            .prints("DAT_COMPLETION_SUPPRESS_FLAG DAT_COMPLETION_SOLICITED_WAIT_FLAG")?;
    }
    Ok(())
}

#[test]
fn the_registry_of_ofa_loads_our_provider() -> Result<()> {
    let consumer = Consumer::new()?;
    let registry = Registry::loopback(&consumer.env.stage.provider().display().to_string())?;
    Program::new(consumer.program.file())
        .env("DAT_OVERRIDE", registry.file())
        .env_remove("LD_LIBRARY_PATH")
        .args_line("open")
        .arg(IA_NAME)
        .named("OFA's library with our provider")
        .run(DEADLINE)?
        .prints("RETURN dat_ia_close 0x00000000")?;
    Ok(())
}

#[test]
fn our_registry_loads_the_provider_of_ofa() -> Result<()> {
    let consumer = Consumer::new()?;
    let line = adapter_line("theirs", "libdaploscm.so.2", "no-device 1");
    let registry = Registry::with_text(&line)?;
    let opened = consumer
        .with(&registry)
        .args_line("open theirs")
        .spawn()?
        .finish(DEADLINE)?;
    // Without a device OFA's dat_ia_open fails, but the library must have been found, loaded and
    // called.
    ensure!(!opened.text.contains("0x800a"), "{}", opened.tail());
    opened.prints("RETURN dat_ia_open 0x")?;
    Ok(())
}

/// The C library keeps 512 bytes of each thread's memory for the thread-local values of libraries
/// that are loaded late. Without room there a thread allocates them, and ends the process if there
/// is no memory.
#[test]
fn libraries_that_are_loaded_late_use_the_memory_of_threads() -> Result<()> {
    let env = StackEnv::new()?;
    let program = CProgram::compile_plain("late_loading")?;
    let user = CProgram::compile_shared("tls_user")?;
    let library = |name: &str| env.stage.lib().join(name);
    let registry = library("libdat2.so.2");
    let providers = [SOFTWARE, "libdapl-ib.so.2"].map(library);
    let [soft, verbs] = [&providers[0], &providers[1]];
    let user = user.file();
    for libraries in [
        vec![&registry, soft],
        vec![soft, &registry],
        vec![&registry, verbs],
        vec![&registry, soft, verbs],
    ] {
        let libraries: Vec<&Path> = libraries.into_iter().map(|it| it.as_path()).collect();
        for at in 0..=libraries.len() {
            let mut order = libraries.clone();
            order.insert(at, user);
            let mut run = env.program(program.file());
            for library in order {
                run = run.arg(library);
            }
            let finished = run.run(DEADLINE)?.prints("PASSED")?;
            // A program with two providers has room for one of them.
            let allocated = finished.text.matches("ALLOCATED").count();
            ensure!(allocated <= libraries.len() - 2, "{}", finished.text);
        }
    }
    Ok(())
}

/// Other threads open adapters and read the registry at the moment of each fork, and hold locks
/// that nobody would release in the child.
#[test]
fn the_child_of_a_fork_opens_an_adapter() -> Result<()> {
    let env = StackEnv::new()?;
    let program = CProgram::compile(&env.stage, "forks")?;
    let line = |name| adapter_line(name, env.stage.provider().display(), "lo 0");
    let registry = Registry::with_text(&(line("one") + &line("two")))?;
    let children = if is_full() { 2_000 } else { 100 };
    // Only the first forks of a process can happen while it loads the library of the provider.
    for (processes, children) in [(1, children), (50, 3)] {
        for _ in 0..processes {
            env.program_with(program.file(), registry.file())
                .args_line(&format!("{children} one two"))
                .spawn()?
                .finish(DEADLINE * 10)?
                .success()?
                .prints("PASSED")?;
        }
    }
    Ok(())
}
