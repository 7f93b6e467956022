//! The archive that the kernel unpacks and starts: cpio's "newc" format, as the kernel's
//! `buffer-format` document specifies it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context, Result};

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const TRAILER: &str = "TRAILER!!!";

/// An archive being written. Directories must be added before their content.
#[derive(Debug, Default)]
pub(super) struct Initramfs {
    bytes: Vec<u8>,
    files: u32,
}

impl Initramfs {
    pub(super) fn directory(&mut self, path: &str) -> Result<()> {
        self.entry(OsStr::new(path), DIRECTORY, &[])
    }

    /// Adds a file with execute permission.
    pub(super) fn file(&mut self, path: impl AsRef<Path>, content: &[u8]) -> Result<()> {
        self.entry(path.as_ref().as_os_str(), PROGRAM, content)
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Result<Vec<u8>> {
        self.entry(OsStr::new(TRAILER), 0, &[])?;
        Ok(self.bytes)
    }

    fn entry(&mut self, path: &OsStr, mode: u32, content: &[u8]) -> Result<()> {
        self.files += 1;
        let size = u32::try_from(content.len()).context("a file of 4 GiB or more")?;
        let name_size = u32::try_from(path.len() + 1)?;
        // Inode, mode, owner, group, links, time, size, four device numbers, name size, checksum.
        let fields = [self.files, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_the_bytes_that_the_format_requires() {
        let mut archive = Initramfs::default();
        archive.directory("a").unwrap();
        archive.file("a/b", b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        let zeros = "00000000";
        let header = |inode: &str, mode: &str, size: &str, name: &str| {
            let device = zeros.repeat(4);
            format!("070701{inode}{mode}{zeros}{zeros}00000001{zeros}{size}{device}{name}{zeros}")
        };
        let expected = [
            header("00000001", "000041ed", zeros, "00000002"),
            "a\0".into(),
            header("00000002", "000081ed", "00000005", "00000004"),
            "a/b\0\0\0".into(),
            "hello\0\0\0".into(),
            header("00000003", zeros, zeros, "0000000b"),
            "TRAILER!!!\0\0\0\0".into(),
        ]
        .concat();
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }
}
