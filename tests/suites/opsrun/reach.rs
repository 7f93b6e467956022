//! Programs into which the library cannot be loaded. The programs themselves report whether it was.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::unistd::Uid;
use stack_tests::{Stage, not_run};
use tempfile::TempDir;

use super::{command, text};

/// Prints `with` if the library is in the process, `without` otherwise. A script passes its own
/// path as an argument, which is ignored.
const SOURCE: &str = "
#include <stdio.h>
#include <string.h>
int main(void) {
    static char line[9000];
    const char *found = \"without\";
    FILE *maps = fopen(\"/proc/self/maps\", \"r\");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, \"libops-preload.so\"))
            found = \"with\";
    puts(found);
    return 0;
}
";

const WARNING: &str = " runs without the library, because ";

/// A user without privileges, and a group.
const OTHER: u32 = 65534;

struct Programs {
    dir: TempDir,
}

impl Programs {
    fn new() -> Result<Self> {
        let dir = TempDir::new()?;
        // Another user executes the programs.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        fs::write(dir.path().join("source.c"), SOURCE)?;
        let programs = Self { dir };
        programs.compile("plain", &[])?;
        Ok(programs)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn compile(&self, name: &str, flags: &[&str]) -> Result<()> {
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let output = Command::new(compiler)
            .args(["-O1", "-o"])
            .arg(self.path(name))
            .arg(self.path("source.c"))
            .args(flags)
            .output()?;
        ensure!(output.status.success(), "{output:?}");
        Ok(())
    }

    /// Copies a program, with another mode, and of another owner where one is named.
    fn copy(&self, from: &str, name: &str, mode: u32, owner: Option<(u32, u32)>) -> Result<()> {
        let path = self.path(name);
        fs::copy(self.path(from), &path)?;
        if let Some((user, group)) = owner {
            chown(&path, Some(user), Some(group))?;
        }
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
    }

    fn script(&self, name: &str, line: &str) -> Result<()> {
        fs::write(self.path(name), line)?;
        let mode = fs::Permissions::from_mode(0o755);
        Ok(fs::set_permissions(self.path(name), mode)?)
    }

    /// Returns the explanation for a connection of the program.
    fn explained(&self, name: &str) -> Result<String> {
        let mut opsrun = command(Stage::find()?.bin("opsrun"));
        opsrun
            .args(["--explain", "connect", "--program"])
            .arg(self.path(name))
            .arg("127.0.0.1:9");
        let output = opsrun.output()?;
        ensure!(output.status.success(), "{output:?}");
        Ok(text(&output.stdout))
    }

    /// Runs the program as a user. It must report that the library is absent exactly if `opsrun`
    /// warns in one line, which gives the reason.
    fn check(&self, name: &str, user: Option<u32>, reason: Option<&str>) -> Result<()> {
        let mut opsrun = command(Stage::find()?.bin("opsrun"));
        opsrun.arg(self.path(name));
        if let Some(user) = user {
            opsrun.uid(user).gid(user);
        }
        let output = opsrun.output()?;
        let (printed, warned) = (text(&output.stdout), text(&output.stderr));
        match reason {
            None => ensure!(
                printed == "with\n" && warned.is_empty(),
                "{name}: {output:?}"
            ),
            Some(reason) => {
                let begin = format!("opsrun: warning: {}{WARNING}", self.path(name).display());
                let is_warning = warned.starts_with(&begin)
                    && warned.trim_end().ends_with(reason)
                    && warned.lines().count() == 1;
                ensure!(printed == "without\n" && is_warning, "{name}: {output:?}");
            }
        }
        Ok(())
    }
}

#[test]
fn a_program_without_the_library_is_reported_in_one_line() -> Result<()> {
    const STATIC: &str = "it is statically linked";
    let programs = Programs::new()?;
    programs.compile("static", &["-static"])?;
    programs.compile("static-pie", &["-static-pie"])?;
    let at = |name: &str| programs.path(name).display().to_string();
    programs.script("runs-static", &format!("#!{} -x\n", at("static")))?;
    programs.script("runs-script", &format!("#! {}\n", at("runs-static")))?;
    programs.script("runs-plain", &format!("#!{}", at("plain")))?;
    let called = format!("#!/usr/bin/env -S A=b {}\n", at("static"));
    programs.script("runs-by-env", &called)?;
    programs.script(
        "runs-by-shell",
        &format!("#!/bin/sh\nexec {}\n", at("plain")),
    )?;
    programs.script("without-interpreter", &format!("exec {}\n", at("plain")))?;
    for name in [
        "plain",
        "runs-plain",
        "runs-by-shell",
        "without-interpreter",
    ] {
        programs.check(name, None, None)?;
        let explained = programs.explained(name)?;
        ensure!(
            !explained.contains("the library cannot be loaded"),
            "{explained}"
        );
    }
    let all = [
        "static",
        "static-pie",
        "runs-static",
        "runs-script",
        "runs-by-env",
    ];
    for name in all {
        programs.check(name, None, Some(STATIC))?;
        let explained = programs.explained(name)?;
        let verdict = "verdict  tcp, because the library cannot be loaded: it is ";
        let is_last = explained
            .lines()
            .nth(1)
            .is_some_and(|line| line.starts_with(verdict));
        ensure!(
            is_last && explained.ends_with(&format!("{STATIC}\n")),
            "{explained}"
        );
    }
    Ok(())
}

/// The loaders and processors of these programs are absent, so `--explain` alone is called.
#[test]
fn a_program_of_another_c_library_or_processor_is_reported() -> Result<()> {
    let programs = Programs::new()?;
    programs.compile("musl", &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"])?;
    programs.compile(
        "nix",
        &["-Wl,--dynamic-linker=/nix/x/lib/ld-linux-x86-64.so.2"],
    )?;
    let mut image = fs::read(programs.path("plain"))?;
    // The low byte of the machine; 0xF1 is assigned to none that this project runs on.
    image[18] = 0xf1;
    fs::write(programs.path("foreign"), &image)?;
    // The path of the loader is beyond the end of the file.
    image.truncate(512);
    fs::write(programs.path("cut"), &image)?;
    fs::write(programs.path("empty"), "")?;
    let musl = "/lib/ld-musl-x86_64.so.1, that of another C library\n";
    let of_musl = programs.explained("musl")?;
    ensure!(of_musl.ends_with(musl), "{of_musl}");
    let foreign = programs.explained("foreign")?;
    ensure!(
        foreign.ends_with("it is for another kind of processor\n"),
        "{foreign}"
    );
    for name in ["nix", "cut", "empty", "nonexistent"] {
        let explained = programs.explained(name)?;
        let is_silent = !explained.contains("the library cannot be loaded");
        ensure!(
            is_silent || !cfg!(target_arch = "x86_64"),
            "{name}: {explained}"
        );
    }
    Ok(())
}

/// The loader itself is a program, and loads the library.
#[test]
fn the_loader_as_a_program_is_not_reported() -> Result<()> {
    let programs = Programs::new()?;
    let found = Command::new("ldd").arg(programs.path("plain")).output()?;
    let listed = text(&found.stdout);
    let loader = listed
        .split_whitespace()
        .find(|word| word.starts_with('/') && word.contains("/ld"))
        .context("no loader")?;
    let words = [OsStr::new(loader), programs.path("plain").as_os_str()].map(OsString::from);
    let output = command(Stage::find()?.bin("opsrun")).args(words).output()?;
    ensure!(text(&output.stdout) == "with\n", "{output:?}");
    ensure!(output.stderr.is_empty(), "{output:?}");
    Ok(())
}

/// The kernel decides whether an execution raises privileges, and the C library then ignores the
/// library.
#[test]
fn a_program_with_privileges_of_its_file_is_reported() -> Result<()> {
    if !Uid::effective().is_root() {
        not_run("only root can make a program with privileges of its file");
        return Ok(());
    }
    let programs = Programs::new()?;
    let user = "the rights of another user (set-user-ID)";
    let group = "the rights of another group (set-group-ID)";
    programs.copy("plain", "own-user", 0o4755, Some((0, 0)))?;
    programs.copy("plain", "other-user", 0o4755, Some((OTHER, 0)))?;
    programs.copy("plain", "other-group", 0o2755, Some((0, OTHER)))?;
    programs.copy("plain", "not-executable", 0o2745, Some((0, OTHER)))?;
    programs.copy("plain", "capable", 0o755, None)?;
    programs.copy("plain", "permitted", 0o755, None)?;
    programs.copy("plain", "incapable", 0o755, None)?;
    let capabilities = |name: &str, flags: u32, permitted: u32| {
        // `struct vfs_cap_data` of the second revision.
        let words = [0x0200_0000 | flags, permitted, 0, 0, 0].map(u32::to_le_bytes);
        set_capabilities(&programs.path(name), &words.concat())
    };
    capabilities("capable", 1, 1 << 10)?;
    capabilities("permitted", 0, 1 << 10)?;
    capabilities("incapable", 0, 0)?;
    programs.check("own-user", None, None)?;
    programs.check("other-user", None, Some(user))?;
    programs.check("other-group", None, Some(group))?;
    programs.check("not-executable", None, None)?;
    programs.check("capable", None, None)?;
    let mut as_other = command(Stage::find()?.bin("opsrun"));
    as_other.arg("--version").uid(OTHER).gid(OTHER);
    if !as_other
        .output()
        .is_ok_and(|output| output.status.success())
    {
        not_run("another user cannot read the staged files");
        return Ok(());
    }
    programs.check("own-user", Some(OTHER), Some(user))?;
    programs.check("other-group", Some(OTHER), None)?;
    programs.check("capable", Some(OTHER), Some("capabilities"))?;
    programs.check("permitted", Some(OTHER), Some("capabilities"))?;
    programs.check("incapable", Some(OTHER), None)
}

fn set_capabilities(path: &Path, value: &[u8]) -> Result<()> {
    let flags = rustix::fs::XattrFlags::empty();
    Ok(rustix::fs::setxattr(
        path,
        "security.capability",
        value,
        flags,
    )?)
}
