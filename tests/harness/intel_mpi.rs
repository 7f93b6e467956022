//! Intel MPI 2018, the last release with DAPL, as PyPI has it. Its licence permits the use and
//! forbids the redistribution, so it is installed next to the stage and never into a package.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::fcntl::{Flock, FlockArg};
use tempfile::TempDir;

use crate::{CProgram, Program, StackEnv, Stage};

const PACKAGE: &str = "impi==2018.0.3";
/// The time limit of the installation, which fetches 17 MB.
const INSTALL_TIME: Duration = Duration::from_secs(240);

/// An installed Intel MPI.
#[derive(Debug)]
pub struct IntelMpi {
    root: PathBuf,
    /// The library that reports an unlimited `RLIMIT_MEMLOCK`: Intel MPI does not open a provider
    /// otherwise, and raising the limit needs a privilege.
    memlock: CProgram,
}

impl IntelMpi {
    /// Returns the directory of Intel MPI next to the stage, where pip installs it if it is
    /// missing.
    ///
    /// # Errors
    /// When pip is missing or cannot fetch the package.
    pub fn install(stage: &Stage) -> Result<PathBuf> {
        let dir = stage.root().with_file_name("intel-mpi");
        let lock = File::create(dir.with_extension("lock"))?;
        let _alone = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
        if !dir.exists() {
            install(&dir)?;
        }
        // Debian's pip appends `local` to a prefix.
        let mut roots = [dir.join("local"), dir].into_iter();
        let root = roots.find(|root| launcher(root).exists());
        root.context("the package has no mpiexec.hydra")
    }

    /// The Intel MPI of a directory that [`Self::install`] has returned.
    pub fn at(root: PathBuf) -> Result<Self> {
        let memlock = CProgram::compile_shared("unlimited_memlock")?;
        Ok(Self { root, memlock })
    }

    /// Compiles `tests/c/<name>.c` as an MPI program.
    pub fn compile(&self, name: &str) -> Result<CProgram> {
        CProgram::compile_with_library(name, &self.root.join("lib"), "mpi")
    }

    /// The launcher of ranks in the network of `env`, which use `fabrics` and nothing else. The
    /// caller appends the options that select the ranks, and the program.
    pub fn launcher(&self, env: &StackEnv, fabrics: &str) -> Program {
        let libraries = [env.stage.lib(), self.root.join("lib")];
        let libraries = libraries.map(|dir| dir.display().to_string()).join(":");
        env.program(launcher(&self.root))
            .env("I_MPI_ROOT", &self.root)
            .env("LD_LIBRARY_PATH", libraries)
            .env("LD_PRELOAD", self.memlock.file())
            // Otherwise the launcher starts its proxies by ssh.
            .env("I_MPI_HYDRA_BOOTSTRAP", "fork")
            .env("I_MPI_FABRICS", fabrics)
            .env("I_MPI_FALLBACK", "0")
            // Prints the fabrics and the provider.
            .env("I_MPI_DEBUG", "2")
    }
}

fn launcher(root: &Path) -> PathBuf {
    root.join("bin/mpiexec.hydra")
}

/// Installs the package into a directory of its own, which then gets its name.
fn install(dir: &Path) -> Result<()> {
    let parent = dir.parent().context("no directory for Intel MPI")?;
    let fresh = TempDir::with_prefix_in("intel-mpi-", parent)?;
    let finished = Program::new("python3")
        .args_line("-m pip install --quiet --no-deps --retries 1 --timeout 30 --prefix")
        .arg(fresh.path())
        .arg(PACKAGE)
        .named("pip")
        .spawn()?
        .finish(INSTALL_TIME)?;
    let reason = finished.text.lines().rfind(|line| line.contains("ERROR"));
    ensure!(
        finished.status.success(),
        "pip cannot install {PACKAGE}: {}",
        reason.unwrap_or("no reason")
    );
    fs::rename(fresh.keep(), dir).context("naming the directory of Intel MPI")
}
