//! Registered memory and posted receives that record what they granted.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use crate::{
    Access, InvalidateFault, MemoryTable, ProtectionFault, ReceiveBuffer, ReceiveQueue, Stag,
};

/// A registration.
#[derive(Clone, Debug)]
pub struct Region {
    /// Tagged offset of the first byte.
    pub base: u64,
    /// The memory.
    pub bytes: Vec<u8>,
    /// The rights of peers; any other access is refused.
    pub rights: &'static [Access],
    /// True if the registration belongs to another stream.
    pub foreign: bool,
    /// True if the peer may invalidate the registration.
    pub invalidatable: bool,
}

impl Region {
    /// Memory of this stream with every right.
    #[must_use]
    pub fn open(base: u64, bytes: Vec<u8>) -> Self {
        use Access::{ReadSink, RemoteAtomic, RemoteRead, RemoteWrite};
        Self {
            base,
            bytes,
            rights: &[RemoteWrite, RemoteRead, ReadSink, RemoteAtomic],
            foreign: false,
            invalidatable: true,
        }
    }

    /// The index range of the `len` bytes from `to`; `None` if they are not all inside.
    fn range(&self, to: u64, len: u32) -> Option<Range<usize>> {
        let start = usize::try_from(to.checked_sub(self.base)?).ok()?;
        let end = start.checked_add(len as usize)?;
        (end <= self.bytes.len()).then_some(start..end)
    }
}

/// A range that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The kind of access.
    pub access: Access,
    /// The registration.
    pub stag: Stag,
    /// The tagged offset of the first byte.
    pub to: u64,
    /// The length in bytes.
    pub len: u32,
}

/// All registrations.
#[derive(Debug, Default)]
pub struct Memory {
    /// Registrations by STag.
    pub regions: BTreeMap<u32, Region>,
    /// Grants to read that may still be answered, oldest first.
    readable: RefCell<VecDeque<Grant>>,
}

impl Memory {
    /// Panics unless the peer was granted to read every byte of the range. Requests are answered in
    /// their order, so a grant is void once a later one is used.
    pub fn assert_readable(&self, stag: Stag, to: u64, len: u32) {
        let covers = |grant: &Grant| {
            let offset = u128::from(to.wrapping_sub(grant.to));
            grant.stag == stag && offset + u128::from(len) <= u128::from(grant.len)
        };
        let mut readable = self.readable.borrow_mut();
        while readable.front().is_some_and(|grant| !covers(grant)) {
            readable.pop_front();
        }
        assert!(
            !readable.is_empty(),
            "{len} bytes at {stag} + {to:#x} are sent and were never granted"
        );
    }

    /// The bytes of a range that was granted.
    pub fn slice(&mut self, stag: Stag, to: u64, len: usize) -> &mut [u8] {
        let region = self.regions.get_mut(&stag.0).expect("granted");
        let range = region.range(to, len as u32).expect("granted");
        &mut region.bytes[range]
    }
}

impl MemoryTable for Memory {
    type Place = Grant;

    fn resolve(
        &self,
        access: Access,
        stag: Stag,
        to: u64,
        len: u32,
    ) -> Result<Grant, ProtectionFault> {
        assert!(len > 0, "empty segments are never checked");
        let region = self
            .regions
            .get(&stag.0)
            .ok_or(ProtectionFault::InvalidStag)?;
        if region.foreign {
            return Err(ProtectionFault::NotAssociated);
        }
        if !region.rights.contains(&access) {
            return Err(ProtectionFault::AccessViolation);
        }
        to.checked_add(u64::from(len))
            .ok_or(ProtectionFault::Wrap)?;
        region.range(to, len).ok_or(ProtectionFault::Bounds)?;
        let grant = Grant {
            access,
            stag,
            to,
            len,
        };
        if access == Access::RemoteRead {
            self.readable.borrow_mut().push_back(grant);
        }
        Ok(grant)
    }

    fn check_invalidate(&self, stag: Stag) -> Result<(), InvalidateFault> {
        let region = self
            .regions
            .get(&stag.0)
            .ok_or(InvalidateFault::InvalidStag)?;
        if region.foreign {
            return Err(InvalidateFault::NotAssociated);
        }
        if region.invalidatable {
            Ok(())
        } else {
            Err(InvalidateFault::NotInvalidatable)
        }
    }
}

/// Posted receives.
#[derive(Debug, Default)]
pub struct Receives {
    /// Receives that no message has taken yet.
    pub posted: VecDeque<ReceiveBuffer>,
    /// Tokens of the receives that were taken, in order.
    pub taken: Vec<u64>,
}

impl ReceiveQueue for Receives {
    fn next(&mut self) -> Option<ReceiveBuffer> {
        let buffer = self.posted.pop_front()?;
        self.taken.push(buffer.token);
        Some(buffer)
    }
}
