//! Records every message in a file, in the format that `sdp-checker` reads.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use host::descriptors::{OwnDescriptor, out_of_the_way};
use rustix::{fs::OFlags, io::Errno};
use sdp_checker::TraceWriter;

/// The environment variable that names the directory of the trace files.
const TRACE_ENV: &str = "SDP_TRACE";

/// The record of one connection, or `None` if no record is made.
///
/// Each message is written to the file before it is sent. A process may end at any time without
/// dropping its connections, and its last messages are then the ones of interest.
#[derive(Debug)]
pub(crate) struct Trace(Option<TraceWriter<TraceFile>>);

/// The file of a record. A program that closes all its descriptors closes this one as well, and may
/// reuse the number for a file of its own.
#[derive(Debug)]
struct TraceFile(OwnDescriptor);

impl From<File> for TraceFile {
    fn from(file: File) -> Self {
        Self(out_of_the_way(file.into()))
    }
}

impl io::Write for TraceFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.is_lost() {
            return Err(Errno::BADF.into());
        }
        Ok(rustix::io::write(&self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Trace {
    /// Starts the record of a connection that this end requested (`active`) or accepted.
    pub(crate) fn start(active: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some(directory) = host::environment::variable(TRACE_ENV).map(PathBuf::from) else {
            return Self(None);
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let side = if active { "active" } else { "passive" };
        let name = format!("{}-{number}.{side}", std::process::id());
        let made = fs::create_dir_all(&directory).and_then(|()| create(&directory.join(name)));
        match made {
            Ok(file) => Self(Some(TraceWriter::new(file.into()))),
            Err(error) => {
                tracing::warn!(%error, directory = %directory.display(), "no trace is written");
                Self(None)
            }
        }
    }

    pub(crate) fn setup(&mut self, hello: &[u8], ack: &[u8]) {
        if let Some(writer) = &mut self.0 {
            let written = writer.hello(hello).and_then(|()| writer.hello_ack(ack));
            self.check(written);
        }
    }

    pub(crate) fn sent(&mut self, head: &[u8], len: usize) {
        if let Some(writer) = &mut self.0 {
            let written = writer.sent(head, len);
            self.check(written);
        }
    }

    pub(crate) fn received(&mut self, head: &[u8], len: usize) {
        if let Some(writer) = &mut self.0 {
            let written = writer.received(head, len);
            self.check(written);
        }
    }

    /// Ends the record after a failed write, because a record with a gap is useless.
    fn check(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            tracing::warn!(%error, "the trace ends here");
            self.0 = None;
        }
    }
}

/// Creates a file, or empties an old one. A link of that name is refused: the directory may be
/// writable for everybody, and the names are easy to guess, so somebody else may have placed the
/// link.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use host::descriptors::Identity;

    use super::*;

    #[test]
    fn a_link_is_not_followed() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let (precious, name) = (
            directory.path().join("precious"),
            directory.path().join("1"),
        );
        fs::write(&precious, "kept")?;
        std::os::unix::fs::symlink(&precious, &name)?;
        assert!(create(&name).is_err());
        assert_eq!(fs::read(&precious)?, b"kept");
        fs::remove_file(&name)?;
        fs::write(&name, "an old record")?;
        assert_eq!(create(&name)?.metadata()?.len(), 0);
        Ok(())
    }

    /// A program may exit with its connections open.
    #[test]
    fn a_record_is_whole_while_the_connection_is_open() -> io::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        let mut trace = Trace(Some(TraceWriter::new(file.reopen()?.into())));
        trace.setup(&[0; 92], &[1; 196]);
        trace.sent(&[2; 16], 1000);
        let head = 6;
        assert_eq!(fs::read(file.path())?.len(), 3 * head + 92 + 196 + 16);
        drop(trace);
        Ok(())
    }

    #[test]
    #[allow(unsafe_code, reason = "the program closes the number")]
    fn a_file_of_the_program_that_has_the_number_is_unchanged() -> io::Result<()> {
        let (records, programs) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let file = TraceFile::from(records.try_clone()?);
        let number = file.0.as_raw_fd();
        let mut trace = Trace(Some(TraceWriter::new(file)));
        // SAFETY: both numbers are open, and the record's number is that of the program from here
        // on.
        assert_eq!(unsafe { libc::dup2(programs.as_raw_fd(), number) }, number);
        trace.sent(&[2; 16], 1000);
        drop(trace);
        assert_eq!(
            Identity::of_number(number),
            Ok(Identity::of(&programs)?),
            "the number is open"
        );
        assert_eq!(
            (records.metadata()?.len(), programs.metadata()?.len()),
            (0, 0)
        );
        Ok(())
    }
}
