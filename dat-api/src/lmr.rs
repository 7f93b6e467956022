//! Local memory regions over memory that this crate does not own (DAT 2.0 section 6.9).
//!
//! [`Region`](crate::Region) is the safe way: registered memory that the crate owns.

use std::ptr::NonNull;

use dat_abi::*;

use crate::error::{Error, Result, check};
use crate::handle::Handle;
use crate::pz::Pz;

/// Allowed accesses to a memory region (`DAT_MEM_PRIV_FLAGS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Privileges(DatMemPrivFlags);

impl Privileges {
    /// No access. The memory can still be the source of Sends.
    pub const NONE: Self = Self(DAT_MEM_PRIV_NONE_FLAG);
    /// Source of Sends and RDMA Writes.
    pub const LOCAL_READ: Self = Self(DAT_MEM_PRIV_LOCAL_READ_FLAG);
    /// Sink of Receives and RDMA Reads.
    pub const LOCAL_WRITE: Self = Self(DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
    /// The peer may read the memory.
    pub const REMOTE_READ: Self = Self(DAT_MEM_PRIV_REMOTE_READ_FLAG);
    /// The peer may write the memory.
    pub const REMOTE_WRITE: Self = Self(DAT_MEM_PRIV_REMOTE_WRITE_FLAG);
    /// The peer may use atomics on the memory, which requires [`LOCAL_WRITE`](Self::LOCAL_WRITE) as
    /// well (IB extension).
    pub const REMOTE_ATOMIC: Self = Self(DAT_IB_MEM_PRIV_REMOTE_ATOMIC);
    /// Both local privileges.
    pub const LOCAL: Self = Self(DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
    /// All but atomics.
    pub const ALL: Self = Self(DAT_MEM_PRIV_ALL_FLAG);

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl std::ops::BitOr for Privileges {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Memory that the peer allows this program to read or write: address, length and key
/// (`DAT_RMR_TRIPLET`).
///
/// Programs exchange these descriptions in the form of [`to_bytes`](Self::to_bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRegion {
    /// First byte in the peer's address space (or offset, for zero-based regions).
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// The peer's `DAT_RMR_CONTEXT`.
    pub context: u32,
}

impl RemoteRegion {
    /// Length of the encoded form in bytes.
    pub const ENCODED_LEN: usize = 16;

    /// Encodes address, length and key, each big-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::ENCODED_LEN] {
        let mut bytes = [0; Self::ENCODED_LEN];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_be_bytes());
        bytes[12..].copy_from_slice(&self.context.to_be_bytes());
        bytes
    }

    /// Inverse of [`to_bytes`](Self::to_bytes). Any content is a valid description. Only an access
    /// shows whether the peer allows it.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::ENCODED_LEN]) -> Self {
        let word = |at| u32::from_be_bytes(std::array::from_fn(|index| bytes[at + index]));
        Self {
            addr: u64::from(word(0)) << 32 | u64::from(word(4)),
            len: word(8),
            context: word(12),
        }
    }

    /// Returns a part of the region.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] when the range is not within the region.
    pub fn slice(self, offset: u32, len: u32) -> Result<Self> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(Self {
                addr: self.addr.wrapping_add(u64::from(offset)),
                len,
                ..self
            }),
            _ => Err(Error::OutOfBounds {
                offset: offset as usize,
                len: len as usize,
                region_len: self.len as usize,
            }),
        }
    }

    /// Returns the C form, for posts through [`Library`](crate::Library).
    #[must_use]
    pub fn to_raw(self) -> DatRmrTriplet {
        DatRmrTriplet {
            virtual_address: self.addr,
            segment_length: self.len,
            rmr_context: self.context,
        }
    }
}

/// A registration of memory that the crate does not own. Dropping the value deregisters the memory.
pub struct Lmr {
    handle: Handle,
    pz: Pz,
    base: u64,
    len: usize,
    lmr_context: DatLmrContext,
    rmr_context: DatRmrContext,
}

impl Lmr {
    /// Registers `len` bytes at `ptr`.
    ///
    /// # Safety
    ///
    /// Until the result has been dropped:
    /// - the memory stays mapped, readable, and writable where `privileges` allow a write;
    /// - while work that reads the memory is outstanding, or the peer may read the memory, the
    ///   program does not write it;
    /// - while work that writes the memory is outstanding, or the peer may write the memory, the
    ///   program neither reads nor writes it.
    ///
    /// Volatile or atomic accesses are exempt from the last two rules, with the consequences of a
    /// race. In particular no Rust reference to the memory is live meanwhile, except shared
    /// references to memory that is only read.
    ///
    /// When the drop returns, the provider has stopped accessing the memory, also for work that was
    /// outstanding (`dat_lmr_free`).
    pub unsafe fn register(
        pz: &Pz,
        ptr: NonNull<u8>,
        len: usize,
        privileges: Privileges,
    ) -> Result<Self> {
        let library = pz.ia().library();
        let mut handle = DAT_HANDLE_NULL;
        let (mut lmr_context, mut rmr_context) = (0, 0);
        let (mut registered_len, mut registered_addr) = (0, 0);
        // SAFETY: IA and PZ are live, the out-pointers writable, and the caller guarantees the
        // memory.
        let code = unsafe {
            (library.dat_lmr_create)(
                pz.ia().as_raw(),
                DAT_MEM_TYPE_VIRTUAL,
                DatRegionDescription {
                    for_va: ptr.as_ptr().cast(),
                },
                len as DatVlen,
                pz.as_raw(),
                privileges.bits(),
                DAT_VA_TYPE_VA,
                &mut handle,
                &mut lmr_context,
                &mut rmr_context,
                &mut registered_len,
                &mut registered_addr,
            )
        };
        check("dat_lmr_create", code)?;
        Ok(Self {
            handle: Handle(handle),
            pz: pz.clone(),
            base: ptr.as_ptr().addr() as u64,
            len,
            lmr_context,
            rmr_context,
        })
    }

    /// Returns the description of the memory that the peer needs for RDMA operations. A longer
    /// region is truncated to 4 GiB less one byte.
    #[must_use]
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion {
            addr: self.base,
            len: u32::try_from(self.len).unwrap_or(u32::MAX),
            context: self.rmr_context,
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The protection zone of the registration.
    #[must_use]
    pub fn pz(&self) -> &Pz {
        &self.pz
    }

    /// The handle, for calls through [`Library`](crate::Library). Valid while `self` lives.
    #[must_use]
    pub fn as_raw(&self) -> DatLmrHandle {
        self.handle.0
    }

    /// Deregisters the memory and returns the provider's answer. If the provider refused, for
    /// instance because a window is still bound to the memory, the registration remains, and the
    /// error contains it with the reason.
    pub fn free(mut self) -> Result<(), (Self, Error)> {
        match self.free_once() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    /// Deregisters once; afterwards the handle is null.
    pub(crate) fn free_once(&mut self) -> Result<()> {
        if self.handle == Handle::NULL {
            return Ok(());
        }
        // SAFETY: the handle is live and, on success, not used again.
        check("dat_lmr_free", unsafe {
            (self.pz.ia().library().dat_lmr_free)(self.handle.0)
        })?;
        self.handle = Handle::NULL;
        Ok(())
    }

    pub(crate) fn triplet(&self, offset: usize, len: usize) -> Result<DatLmrTriplet> {
        check_range(offset, len, self.len)?;
        Ok(DatLmrTriplet {
            virtual_address: self.base + offset as u64,
            segment_length: u32::try_from(len).map_err(|_| Error::Unrepresentable {
                what: "a segment length",
            })?,
            lmr_context: self.lmr_context,
        })
    }
}

impl Drop for Lmr {
    fn drop(&mut self) {
        if let Err(error) = self.free_once() {
            tracing::error!(%error, "a memory region could not be deregistered; it is leaked");
            std::mem::forget(self.pz.clone());
        }
    }
}

opaque_debug!(Lmr, |it| [base: format_args!("{:#x}", it.base), len: it.len]);

/// Checks that `len` bytes from `offset` are within `region_len`.
pub(crate) fn check_range(offset: usize, len: usize, region_len: usize) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= region_len => Ok(()),
        _ => Err(Error::OutOfBounds {
            offset,
            len,
            region_len,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_region_is_decoded_as_it_was_encoded() {
        let region = RemoteRegion {
            addr: 0x1122_3344_5566_7788,
            len: 64,
            context: 0xABCD_EF01,
        };
        let bytes = region.to_bytes();
        assert_eq!(bytes[..4], [0x11, 0x22, 0x33, 0x44]);
        assert_eq!(RemoteRegion::from_bytes(&bytes), region);
    }

    #[test]
    fn a_remote_region_is_never_sliced_beyond_its_end() {
        let region = RemoteRegion {
            addr: 0x1000,
            len: 64,
            context: 7,
        };
        let part = region.slice(60, 4).unwrap();
        assert_eq!((part.addr, part.len), (0x103C, 4));
        assert!(region.slice(60, 5).is_err());
        assert!(region.slice(u32::MAX, 2).is_err());
    }

    #[test]
    fn ranges_that_wrap_are_out_of_bounds() {
        assert!(check_range(0, 0, 0).is_ok());
        assert!(check_range(usize::MAX, 1, 10).is_err());
        assert!(check_range(5, 6, 10).is_err());
    }
}
