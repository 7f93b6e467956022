//! The packages that programs and libraries need at run time, from their dynamic sections.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use super::output;

/// The needs of some files.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needed {
    /// The newest version of the C library's symbols, such as 2.34.
    glibc: Option<(u32, u32)>,
    /// True if the unwinder of GCC is needed.
    libgcc: bool,
}

/// Returns the value of `Depends` for these files. Fails if one needs a library of a package that
/// is not known here.
pub(super) fn packages(binaries: &[PathBuf]) -> Result<String> {
    let mut needed = Needed::default();
    for binary in binaries {
        needed.add(&output(Command::new("objdump").arg("-p").arg(binary))?)?;
    }
    Ok(needed.packages())
}

impl Needed {
    /// Adds the needs of one file, from the output of `objdump -p`.
    fn add(&mut self, dynamic_section: &str) -> Result<()> {
        for line in dynamic_section.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["NEEDED", library] => self.add_library(library)?,
                // "0x06969197 0x00 09 GLIBC_2.17"; the definitions of a library have three fields.
                [_, _, _, version] => self.glibc = self.glibc.max(glibc_version(version)),
                _ => (),
            }
        }
        Ok(())
    }

    fn add_library(&mut self, library: &str) -> Result<()> {
        match library {
            "libc.so.6" | "libm.so.6" | "ld-linux-x86-64.so.2" => {
                self.glibc = self.glibc.max(Some((2, 2)));
            }
            "libgcc_s.so.1" => self.libgcc = true,
            other => bail!("the package of {other} is not known"),
        }
        Ok(())
    }

    fn packages(&self) -> String {
        let glibc = self
            .glibc
            .map(|(major, minor)| format!("libc6 (>= {major}.{minor})"));
        // The first version of the package that has all symbols which Rust uses.
        let libgcc = self.libgcc.then(|| "libgcc-s1 (>= 4.2)".to_owned());
        let packages: BTreeSet<String> = glibc.into_iter().chain(libgcc).collect();
        packages.into_iter().collect::<Vec<_>>().join(", ")
    }
}

fn glibc_version(version: &str) -> Option<(u32, u32)> {
    let numbers = version.strip_prefix("GLIBC_")?;
    let mut numbers = numbers.split('.').map(str::parse);
    let major = numbers.next()?.ok()?;
    let minor = numbers.next()?.ok()?;
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_all_files_counts() {
        let one = "  NEEDED               libgcc_s.so.1\n  NEEDED               libc.so.6\n\
                   Version definitions:\n1 0x01 0x0865f4e4 GLIBC_9.9x\n\
                   Version References:\n  required from libc.so.6:\n\
                   \x20   0x069691b9 0x00 09 GLIBC_2.39\n    0x06969188 0x00 11 GLIBC_2.4\n";
        let two = "  NEEDED  libc.so.6\n    0x09691a75 0x00 02 GLIBC_2.2.5\n";
        let mut needed = Needed::default();
        needed.add(two).unwrap();
        assert_eq!(needed.packages(), "libc6 (>= 2.2)");
        needed.add(&one.replace("GLIBC_9.9x", "DAT_2.0")).unwrap();
        assert_eq!(needed.packages(), "libc6 (>= 2.39), libgcc-s1 (>= 4.2)");
        let unknown = needed.add("  NEEDED  libother.so.1\n");
        assert!(unknown.unwrap_err().to_string().contains("libother.so.1"));
    }

    #[test]
    fn private_versions_of_the_c_library_are_no_numbers() {
        assert_eq!(glibc_version("GLIBC_PRIVATE"), None);
        assert_eq!(glibc_version("GCC_3.0"), None);
        assert_eq!(glibc_version("GLIBC_2.2.5"), Some((2, 2)));
    }
}
