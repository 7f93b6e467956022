//! The memory under attack: a few pages between two guard pages, with a known content.

use std::ptr::NonNull;

use anyhow::{Result, ensure};
use dat_api::abi::*;
use dat_api::{Library, Pz};

/// The bytes that may be accessed.
pub(crate) const ARENA_LEN: usize = 4 * PAGE;
const PAGE: usize = 4096;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) lmr: DatLmrHandle,
    pub(crate) lmr_context: u32,
    pub(crate) stag: u32,
}

/// The pages. Inaccessible pages before and after them make every overrun a crash. A pattern around
/// the registered parts shows every byte that is written to a wrong address within the pages.
#[derive(Debug)]
pub(crate) struct Arena {
    start: NonNull<u8>,
}

impl Arena {
    pub(crate) fn new() -> Result<Self> {
        let len = ARENA_LEN + 2 * PAGE;
        // SAFETY: a new private mapping; nothing refers to its address range yet.
        let whole = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        ensure!(whole != libc::MAP_FAILED, "no memory");
        // SAFETY: the result is within the mapping just made.
        let start = unsafe { whole.cast::<u8>().add(PAGE) };
        // SAFETY: the pages between the first and the last of this mapping.
        let opened =
            unsafe { libc::mprotect(start.cast(), ARENA_LEN, libc::PROT_READ | libc::PROT_WRITE) };
        ensure!(opened == 0, "no access to memory");
        let Some(start) = NonNull::new(start) else {
            anyhow::bail!("memory at null");
        };
        let arena = Self { start };
        arena.refill();
        Ok(arena)
    }

    /// Registers a part with these privileges.
    pub(crate) fn register(
        &self,
        pz: &Pz,
        at: usize,
        len: usize,
        privileges: DatMemPrivFlags,
    ) -> Result<Part> {
        ensure!(at + len <= ARENA_LEN);
        let mut lmr = DAT_HANDLE_NULL;
        let (mut lmr_context, mut stag, mut size, mut address) = (0, 0, 0, 0);
        // SAFETY: the mapping outlives the registration, because the process ends before it is
        // unmapped; every access of this program to it is volatile; the out-pointers are writable.
        let code = unsafe {
            (library().dat_lmr_create)(
                pz.ia().as_raw(),
                DAT_MEM_TYPE_VIRTUAL,
                DatRegionDescription {
                    for_va: self.start.as_ptr().add(at).cast(),
                },
                len as DatVlen,
                pz.as_raw(),
                privileges,
                DAT_VA_TYPE_VA,
                &mut lmr,
                &mut lmr_context,
                &mut stag,
                &mut size,
                &mut address,
            )
        };
        raw_ok("dat_lmr_create", code)?;
        Ok(Part {
            at,
            len,
            lmr,
            lmr_context,
            stag,
        })
    }

    /// Frees a registration.
    pub(crate) fn deregister(&self, part: Part) -> Result<()> {
        // SAFETY: the library refuses a handle that is not live, and the memory stays mapped.
        raw_ok("dat_lmr_free", unsafe {
            (library().dat_lmr_free)(part.lmr)
        })
    }

    /// The address of a byte, which is also the tagged offset.
    pub(crate) fn address(&self, at: usize) -> u64 {
        self.start.as_ptr().addr() as u64 + at as u64
    }

    /// Writes the known value to every byte.
    pub(crate) fn refill(&self) {
        for at in 0..ARENA_LEN {
            // SAFETY: the byte is within the accessible pages.
            unsafe { self.start.as_ptr().add(at).write_volatile(pattern(at)) };
        }
    }

    pub(crate) fn copy(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= ARENA_LEN);
        (at..at + len)
            // SAFETY: the byte is within the accessible pages.
            .map(|at| unsafe { self.start.as_ptr().add(at).read_volatile() })
            .collect()
    }

    /// Fails if any byte has changed, except for the bytes that `placed` lists.
    pub(crate) fn compare(&self, placed: &[(usize, Vec<u8>)]) -> Result<()> {
        let mut expected: Vec<u8> = (0..ARENA_LEN).map(pattern).collect();
        for (at, bytes) in placed {
            expected[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        let found = self.copy(0, ARENA_LEN);
        let astray = (0..ARENA_LEN).find(|&at| found[at] != expected[at]);
        if let Some(at) = astray {
            anyhow::bail!(
                "byte {at:#x} of the memory is {:#04x} instead of {:#04x}",
                found[at],
                expected[at]
            );
        }
        Ok(())
    }
}

// The mapping is never removed, because registrations may outlive this value.

/// The value of the byte at `at` before an attack.
pub(crate) fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(37) ^ (at >> 8)) as u8 | 1
}

pub(crate) fn library() -> &'static Library {
    Library::get().expect("a victim opens an adapter first, which loads the library")
}

/// Converts the return code of a raw call: an error unless it is success.
pub(crate) fn raw_ok(call: &str, code: DatReturn) -> Result<()> {
    ensure!(code.is_success(), "{call}: {code:?}");
    Ok(())
}
