//! The directories of the libraries that were installed with this program.

use std::path::{Path, PathBuf};

/// Debian's directory of libraries for this architecture, below the prefix.
pub(crate) const MULTIARCH: &str = if cfg!(target_arch = "x86_64") {
    "lib/x86_64-linux-gnu"
} else if cfg!(target_arch = "aarch64") {
    "lib/aarch64-linux-gnu"
} else if cfg!(target_arch = "powerpc64") {
    "lib/powerpc64le-linux-gnu"
} else if cfg!(target_arch = "s390x") {
    "lib/s390x-linux-gnu"
} else if cfg!(target_arch = "riscv64") {
    "lib/riscv64-linux-gnu"
} else {
    "lib/linux-gnu"
};

/// Returns the directories of the libraries, the likeliest first: the one that the packager named
/// in `OPS_LIBDIR` at compile time, then those below the prefix whose `bin` contains the program.
pub(crate) fn directories(program: &Path) -> Vec<PathBuf> {
    let packagers = option_env!("OPS_LIBDIR").map(PathBuf::from);
    let prefix = program.parent().and_then(Path::parent);
    let below = prefix
        .into_iter()
        .flat_map(|prefix| ["lib", MULTIARCH, "lib64"].map(|directory| prefix.join(directory)));
    packagers.into_iter().chain(below).collect()
}
