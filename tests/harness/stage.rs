//! Where the staged libraries, headers and tools are.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// A staging directory, as `cargo xtask stage` lays it out.
#[derive(Debug, Clone)]
pub struct Stage {
    root: PathBuf,
}

impl Stage {
    /// The stage named by `DAT_STAGE`, otherwise `target/stage` of this workspace.
    ///
    /// # Errors
    /// When nothing is staged there; the message says how to stage.
    pub fn find() -> Result<Self> {
        let root = env::var_os("DAT_STAGE").map_or_else(Self::default_root, PathBuf::from);
        Self::at(root)
    }

    /// The stage at `root`.
    ///
    /// # Errors
    /// When `root` holds no staged `libdat2.so.2`.
    pub fn at(root: PathBuf) -> Result<Self> {
        let stage = Self { root };
        let library = stage.lib().join("libdat2.so.2");
        ensure!(
            library.exists(),
            "{} is missing; run `cargo xtask stage`",
            library.display()
        );
        Ok(stage)
    }

    /// The directory of the shared libraries.
    #[must_use]
    pub fn lib(&self) -> PathBuf {
        self.root.join("lib")
    }

    /// The directory above `dat2/udat.h`.
    #[must_use]
    pub fn include(&self) -> PathBuf {
        self.root.join("include")
    }

    /// The directory of `dat2.pc`.
    #[must_use]
    pub fn pkgconfig(&self) -> PathBuf {
        self.lib().join("pkgconfig")
    }

    /// A tool in `bin/`, whether it exists or not.
    #[must_use]
    pub fn bin(&self, name: &str) -> PathBuf {
        self.root.join("bin").join(name)
    }

    /// The software provider.
    #[must_use]
    pub fn provider(&self) -> PathBuf {
        self.lib().join("libdapl-iwarp.so.2")
    }

    /// The staging directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn default_root() -> PathBuf {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
        target.join("stage")
    }
}
