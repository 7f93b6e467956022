//! The paths of the staged libraries, headers and tools.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, ensure};

/// A staging directory, as `cargo xtask stage` lays it out.
#[derive(Debug, Clone)]
pub struct Stage {
    root: PathBuf,
}

impl Stage {
    /// The stage named by `DAT_STAGE`, otherwise `target/stage` of this workspace.
    ///
    /// # Errors
    /// When nothing is staged there. The message names the command that stages.
    pub fn find() -> Result<Self> {
        let root = env::var_os("DAT_STAGE").map_or_else(Self::default_root, PathBuf::from);
        Self::at(root)
    }

    /// The stage at `root`.
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

    /// A copy of the libraries and of `opsrun` below `dir`, for users that cannot enter the
    /// workspace.
    pub fn copied_below(&self, dir: &Path) -> Result<Self> {
        let root = dir.join("stage");
        for directory in ["bin", "lib"] {
            fs::create_dir_all(root.join(directory))?;
        }
        fs::copy(self.bin("opsrun"), root.join("bin/opsrun")).context("copying opsrun")?;
        for entry in fs::read_dir(self.lib())? {
            let from = entry?.path();
            // The target of a link is copied under the link's name.
            if let (true, Some(name)) = (from.is_file(), from.file_name()) {
                fs::copy(&from, root.join("lib").join(name))
                    .with_context(|| format!("copying {}", from.display()))?;
            }
        }
        Self::at(root)
    }

    /// The directory of the shared libraries.
    pub fn lib(&self) -> PathBuf {
        self.root.join("lib")
    }

    /// The directory of files that do not depend on the machine.
    pub fn share(&self) -> PathBuf {
        self.root.join("share")
    }

    /// The directory above `dat2/udat.h`.
    pub fn include(&self) -> PathBuf {
        self.root.join("include")
    }

    /// The directory of `dat2.pc`.
    pub fn pkgconfig(&self) -> PathBuf {
        self.lib().join("pkgconfig")
    }

    /// The path of a tool in `bin/`; the tool need not exist.
    pub fn bin(&self, name: &str) -> PathBuf {
        self.root.join("bin").join(name)
    }

    /// An example of dat-api, by its name in that crate with hyphens.
    pub fn example(&self, name: &str) -> PathBuf {
        self.bin(&format!("dat-example-{name}"))
    }

    /// The software provider.
    pub fn provider(&self) -> PathBuf {
        self.lib().join(crate::SOFTWARE)
    }

    /// The staging directory itself.
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
