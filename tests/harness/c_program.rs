//! Compiling the C programs of `tests/c` against the staged headers and library.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use crate::{Program, Sanitizer, Stage};

/// The time limit of the compiler on a busy machine.
const COMPILE_TIME: Duration = Duration::from_secs(240);

/// A compiled C program. The file is removed when this value is dropped.
#[derive(Debug)]
pub struct CProgram {
    _dir: TempDir,
    file: PathBuf,
}

impl CProgram {
    /// Compiles `tests/c/<name>.c` with all warnings as errors and links it with `-ldat2`.
    ///
    /// # Errors
    /// When there is no compiler, or the compiler rejects the program; the message contains the
    /// compiler's output.
    pub fn compile(stage: &Stage, name: &str) -> Result<Self> {
        Self::compile_file(stage, &source(name), name)
    }

    /// Compiles a source file at any path.
    pub fn compile_file(stage: &Stage, source: &Path, name: &str) -> Result<Self> {
        build(source, name, |compiler| {
            compiler
                .arg("-I")
                .arg(stage.include())
                .arg("-L")
                .arg(stage.lib())
                .arg("-ldat2")
        })
    }

    /// Compiles `tests/c/<name>.c` without the headers and library of dat-rs.
    pub fn compile_plain(name: &str) -> Result<Self> {
        build(&source(name), name, |compiler| compiler)
    }

    /// Compiles `tests/c/<name>.c` and links it with `library` of the directory `dir`, without the
    /// headers and library of dat-rs.
    pub fn compile_with_library(name: &str, dir: &Path, library: &str) -> Result<Self> {
        build(&source(name), name, |compiler| {
            compiler.arg("-L").arg(dir).arg(format!("-l{library}"))
        })
    }

    /// Compiles `tests/c/<name>.c` to a shared library.
    pub fn compile_shared(name: &str) -> Result<Self> {
        build(&source(name), name, |compiler| {
            compiler.args_line("-shared -fPIC")
        })
    }

    /// Compiles `tests/c/<name>.c` with the staged `it_api.h` and links it with `-litapi`.
    pub fn compile_with_itapi(stage: &Stage, name: &str) -> Result<Self> {
        Self::compile_with_itapi_as(stage, name, "c", "")
    }

    /// As [`CProgram::compile_with_itapi`] in a language, `c` or `c++`, with more options.
    pub fn compile_with_itapi_as(
        stage: &Stage,
        name: &str,
        language: &str,
        options: &str,
    ) -> Result<Self> {
        build_as(language, &source(name), name, |compiler| {
            compiler
                .args_line(options)
                .arg("-I")
                .arg(stage.include())
                .arg("-L")
                .arg(stage.lib())
                .arg("-litapi")
        })
    }

    /// Compiles `tests/c/<name>.c` with the staged `sdp_dat.h` and links it with `-lsdp-dat`.
    pub fn compile_with_sdp(stage: &Stage, name: &str) -> Result<Self> {
        Self::compile_with_sdp_as(stage, name, "c")
    }

    /// As [`CProgram::compile_with_sdp`] in a language, `c` or `c++`.
    pub fn compile_with_sdp_as(stage: &Stage, name: &str, language: &str) -> Result<Self> {
        build_as(language, &source(name), name, |compiler| {
            compiler
                .arg("-I")
                .arg(stage.include())
                .arg("-L")
                .arg(stage.lib())
                .arg("-lsdp-dat")
        })
    }

    /// Compiles against the headers and the library of the system, which are OFA's.
    pub fn compile_with_ofa(source: &Path, name: &str) -> Result<Self> {
        build(source, name, |compiler| compiler.arg("-ldat2"))
    }

    /// Compiles `tests/c/<name>.c` against the headers and the library of rdma-core.
    pub fn compile_with_verbs(name: &str) -> Result<Self> {
        build(&source(name), name, |compiler| compiler.arg("-libverbs"))
    }

    /// Compiles `tests/c/<name>.c` with the header and the library of an MPI, by its `compiler`.
    pub fn compile_with_mpi(name: &str, compiler: &str) -> Result<Self> {
        let dir = TempDir::with_prefix("dat-c-")?;
        let file = dir.path().join(name);
        let compiler = Program::new(compiler).args_line("-O1 -g -DHAS_MPI_H -o");
        compiler.arg(&file).arg(source(name)).run(COMPILE_TIME)?;
        Ok(Self { _dir: dir, file })
    }

    /// Compiles `tests/c/NAME.c` with the system's librdmacm, for a run with another one. Its
    /// headers are in a package of their own, so the program declares what it calls.
    pub fn compile_with_rdmacm(name: &str) -> Result<Self> {
        build(&source(name), name, |compiler| {
            compiler.args_line("-pthread -l:librdmacm.so.1")
        })
    }

    /// The executable.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

fn source(name: &str) -> PathBuf {
    let c = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    c.join(format!("{name}.c"))
}

fn build(source: &Path, name: &str, with: impl FnOnce(Program) -> Program) -> Result<CProgram> {
    build_as("c", source, name, with)
}

fn build_as(
    language: &str,
    source: &Path,
    name: &str,
    with: impl FnOnce(Program) -> Program,
) -> Result<CProgram> {
    let dir = TempDir::with_prefix("dat-c-")?;
    let file = dir.path().join(name);
    let sanitizer = Sanitizer::chosen();
    let compiler = compiler()
        .args_line("-O1 -g -Wall -Wextra -Werror -pthread")
        .args_line(match language {
            "c" => "-std=gnu11",
            _ => "-std=gnu++11",
        })
        .args_line(sanitizer.flags());
    // Libraries come after the sources that use them.
    let compiler = compiler.arg("-o").arg(&file);
    let compiler = compiler
        .arg("-x")
        .arg(language)
        .arg(source)
        .args_line("-x none");
    with(compiler).named("cc").run(COMPILE_TIME)?;
    sanitizer.wrap(&file)?;
    Ok(CProgram { _dir: dir, file })
}

fn compiler() -> Program {
    Program::new(env::var_os("CC").unwrap_or_else(|| "cc".into()))
}
