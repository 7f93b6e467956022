//! The C interface: headers that compile, structures with the right layout, a library that links.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stack_tests::{CProgram, Program, Stage};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(60);

/// Checks that `source` compiles without warnings.
fn compiles(stage: &Stage, compiler: &str, flags: &str, name: &str, source: &str) -> Result<()> {
    let dir = TempDir::new()?;
    let file = dir.path().join(name);
    fs::write(&file, source)?;
    Program::new(compiler)
        .args_line(flags)
        .args_line("-fsyntax-only -Wall -Wextra -Werror -I")
        .arg(stage.include())
        .arg(&file)
        .spawn()?
        .finish(DEADLINE)?
        .success()
        .with_context(|| format!("compiling\n{source}"))?;
    Ok(())
}

/// A `_Static_assert` for each size and each member of the golden table.
fn assertions(table: &str) -> Result<String> {
    let mut source = String::from("#include <stddef.h>\n#include <dat2/udat.h>\n");
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(name), Some(size)) = (words.next(), words.next()) else {
            continue;
        };
        let mut claim = |what: String, value: &str| {
            writeln!(
                source,
                "_Static_assert({what} == {value}, \"{what} is not {value}\");"
            )
        };
        claim(format!("sizeof({name})"), size)?;
        while let (Some(member), Some(place)) = (words.next(), words.next()) {
            let (offset, size) = place.split_once(':').context("a place is offset:size")?;
            claim(format!("offsetof({name}, {member})"), offset)?;
            claim(format!("sizeof((({name} *)0)->{member})"), size)?;
        }
    }
    Ok(source)
}

#[test]
fn structures_have_the_layout_of_compiled_programs() -> Result<()> {
    let source = assertions(include_str!("../golden/layout.txt"))?;
    ensure!(source.lines().count() > 300, "the table was not read");
    compiles(&Stage::find()?, "cc", "-std=c11", "layout.c", &source)
}

#[test]
fn a_wrong_layout_is_detected() -> Result<()> {
    let source = assertions("DAT_PZ_PARAM 8 ia_handle 8:8\n")?;
    ensure!(compiles(&Stage::find()?, "cc", "-std=c11", "layout.c", &source).is_err());
    Ok(())
}

#[test]
fn the_headers_that_consumers_include_compile_alone_as_c_and_as_cpp() -> Result<()> {
    // The other headers do not compile alone: udat.h includes them, as in OFA's package.
    let stage = Stage::find()?;
    for name in [
        "udat.h",
        "dat_iw_extensions.h",
        "dat_ib_extensions.h",
        "dat_rs_counters.h",
    ] {
        let source = format!("#include <dat2/{name}>\nint main(void) {{ return 0; }}\n");
        for (flags, file) in [
            ("-std=c99", "c99.c"),
            ("-std=gnu17", "gnu17.c"),
            ("-x c++ -std=c++11", "cpp.cc"),
        ] {
            compiles(&stage, "cc", flags, file, &source)?;
        }
    }
    Ok(())
}

#[test]
fn pkg_config_finds_the_library_wherever_the_stage_is() -> Result<()> {
    let stage = Stage::find()?;
    let moved = TempDir::new()?;
    let root = moved.path().join("elsewhere");
    copy_tree(&stage.root().join("lib"), &root.join("lib"))?;
    copy_tree(&stage.include(), &root.join("include"))?;
    let flags = Program::new("pkg-config")
        .env("PKG_CONFIG_PATH", root.join("lib/pkgconfig"))
        .args_line("--cflags --libs dat2")
        .spawn()?
        .finish(DEADLINE)?
        .success()?
        .prints("-ldat2")?;
    let include = flags
        .text
        .split_whitespace()
        .find_map(|flag| flag.strip_prefix("-I"));
    let include = include.context("no -I flag")?;
    ensure!(Path::new(include).canonicalize()? == root.join("include").canonicalize()?);
    Ok(())
}

#[test]
fn the_test_programs_link_against_the_stage() -> Result<()> {
    let stage = Stage::find()?;
    for name in ["peer", "registry"] {
        CProgram::compile(&stage, name)?;
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
