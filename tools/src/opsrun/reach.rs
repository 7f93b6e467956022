//! Programs into which the library cannot be loaded.
//!
//! The loader that a program names loads the library, unless the kernel marks the execution as one
//! that raises privileges. So the file of the program shows in advance whether its sockets can
//! leave TCP. A file that cannot be read shows nothing, and is no reason for a warning.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use elf::ElfStream;
use elf::abi::PT_INTERP;
use elf::endian::AnyEndian;
use elf::file::Class;
use rustix::fs::{StatVfsMountFlags, fgetxattr, fstatvfs};
use rustix::process::{getgid, getuid};
use rustix::thread::no_new_privs;
use thiserror::Error;

/// The reason for which a program runs without the library.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum Unreachable {
    #[error("it is statically linked")]
    Static,
    #[error("it is for another kind of processor")]
    Machine,
    #[error("its loader is {}, that of another C library", .0.display())]
    Loader(PathBuf),
    /// The loader ignores `LD_PRELOAD` then.
    #[error("its file gives it {0}")]
    Privileged(&'static str),
    #[error("it is a script of {}, of which the same is true: {why}", .path.display())]
    Script { path: PathBuf, why: Box<Self> },
}

/// The number of scripts that the kernel follows from one interpreter to the next.
const SCRIPTS_MAX: u32 = 5;

/// The length of the first line of a script that the kernel reads, in bytes.
const FIRST_LINE_MAX: usize = 256;

/// Returns the file that is executed for a name, as a shell would find it.
pub(crate) fn find(named: &OsStr) -> Option<PathBuf> {
    if named.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(named));
    }
    let path = host::environment::variable("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|directory| directory.join(named));
    files.find(|file| file.is_file())
}

/// Returns the reason if the library cannot be loaded into a program.
pub(crate) fn reason_against(named: &OsStr) -> Option<Unreachable> {
    of_file(&find(named)?, SCRIPTS_MAX)
}

fn of_file(path: &Path, scripts_left: u32) -> Option<Unreachable> {
    let file = File::open(path).ok()?;
    let mut begin = [0; FIRST_LINE_MAX];
    let len = file.read_at(&mut begin, 0).ok()?;
    if let Some(line) = begin[..len].strip_prefix(b"#!") {
        let interpreter = interpreter(line)?;
        let why = Box::new(of_file(&interpreter, scripts_left.checked_sub(1)?)?);
        return Some(Unreachable::Script {
            path: interpreter,
            why,
        });
    }
    let own = Image::read(&File::open("/proc/self/exe").ok()?).ok()??;
    let image = Image::read(&file).ok()??;
    if image.machine != own.machine {
        return Some(Unreachable::Machine);
    }
    match (image.loader, &own.loader) {
        // The loader itself is statically linked, and may be called as a program.
        (None, Some(own)) if is_same_file(path, own) => return None,
        (None, _) => return Some(Unreachable::Static),
        // Distributions have different directories for the loader of the GNU C library.
        (Some(loader), Some(own)) if loader.file_name() != own.file_name() => {
            return Some(Unreachable::Loader(loader));
        }
        _ => {}
    }
    raised_privileges(&file).map(Unreachable::Privileged)
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Returns the program that executes a script, from the line after `#!`. `env` executes the program
/// that it is called with.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line
        .split(|byte| matches!(byte, b' ' | b'\t' | b'\0'))
        .filter(|word| !word.is_empty());
    let path = PathBuf::from(OsStr::from_bytes(words.next()?));
    if path.file_name() != Some(OsStr::new("env")) {
        return Some(path);
    }
    let called = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    find(OsStr::from_bytes(called))
}

/// Returns the privileges that a process of this user gets by executing the file.
fn raised_privileges(file: &File) -> Option<&'static str> {
    const CAPABILITIES: &str = "security.capability";
    let is_ignored = no_new_privs().unwrap_or(false)
        || fstatvfs(file).is_ok_and(|it| it.f_flag.contains(StatVfsMountFlags::NOSUID));
    if is_ignored {
        return None;
    }
    let metadata = file.metadata().ok()?;
    let has = |bits| metadata.mode() & bits == bits;
    if has(libc::S_ISUID) && metadata.uid() != getuid().as_raw() {
        return Some("the rights of another user (set-user-ID)");
    }
    // Without the permission to execute, the bit has another meaning.
    if has(libc::S_ISGID | libc::S_IXGRP) && metadata.gid() != getgid().as_raw() {
        return Some("the rights of another group (set-group-ID)");
    }
    // The length of `struct vfs_ns_cap_data`: a word, two pairs of words, and a user id.
    let mut value = [0; 24];
    let len = fgetxattr(file, CAPABILITIES, &mut value).unwrap_or(0);
    let is_set = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
    let makes_effective = value[0] & 1 != 0;
    let is_raised = makes_effective || is_set(&value[4..8]) || is_set(&value[12..16]);
    // A process of root has the privileges already.
    let is_raised = len > 0 && is_raised && !getuid().is_root();
    is_raised.then_some("capabilities")
}

/// The parts of an ELF file that decide which loader loads it.
struct Image {
    machine: (Class, AnyEndian, u16),
    /// The path of the loader; `None` for a statically linked program.
    loader: Option<PathBuf>,
}

impl Image {
    /// Reads the headers. `None`: the file is no ELF file.
    fn read(file: &File) -> io::Result<Option<Self>> {
        const LOADER_MAX: u64 = 4096;
        let Ok(elf) = ElfStream::<AnyEndian, _>::open_stream(file) else {
            return Ok(None);
        };
        let mut segments = elf.segments().iter();
        let mut loader = None;
        if let Some(segment) = segments.find(|segment| segment.p_type == PT_INTERP) {
            let len = segment.p_filesz.min(LOADER_MAX);
            let mut path = vec![0; usize::try_from(len).unwrap_or(0)];
            file.read_exact_at(&mut path, segment.p_offset)?;
            path.retain(|byte| *byte != 0);
            loader = Some(PathBuf::from(OsString::from_vec(path)));
        }
        let header = &elf.ehdr;
        Ok(Some(Self {
            machine: (header.class, header.endianness, header.e_machine),
            loader,
        }))
    }
}
