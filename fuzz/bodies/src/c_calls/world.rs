//! The handles, memory and sockets of one program.
//!
//! Pointer arguments are null or point at memory that lives for as long as the library may access
//! it: out-parameters for the call, payload for ever. Every other argument is arbitrary.

use std::{
    collections::BTreeSet,
    ffi::CStr,
    fs, io,
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    ptr::{self, null_mut},
    sync::OnceLock,
    time::{Duration, Instant},
};

use dat_api::abi::*;
use nix::sys::resource::{UsageWho, getrusage};

use crate::input::Input;

use super::{calls::Calls, memory, session};

/// Bytes of payload memory. Peers may write to it while this program does not access it.
const ARENA_LEN: usize = 1 << 16;
/// The maximum number of objects of one program.
const OBJECTS_MAX: usize = 64;
/// The time after which a close may count as hanging.
const CLOSE_MAX: Duration = Duration::from_secs(8);
/// The number of times that this thread may sleep in one close; the library polls every 2 ms while
/// it waits.
const SLEEPS_MAX: i64 = 1000;
/// The first port for service points whose port the library does not choose.
const PORT_BASE: u64 = 47_100;

/// The kind of object for which a handle was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Interface adapter.
    Ia,
    /// Endpoint.
    Ep,
    /// Event dispatcher.
    Evd,
    /// Consumer notification object.
    Cno,
    /// Connection request.
    Cr,
    /// Local memory region.
    Lmr,
    /// Memory window.
    Rmr,
    /// Protection zone.
    Pz,
    /// Common service point.
    Csp,
    /// Public service point.
    Psp,
    /// Reserved service point.
    Rsp,
    /// Socket service point.
    Ssp,
    /// Shared receive queue.
    Srq,
}

/// A handle that was valid once.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// The kind of the object.
    pub kind: Kind,
    /// The handle that the library returned.
    pub handle: DatHandle,
    /// False once the program has freed the object, as far as the program knows.
    pub live: bool,
}

/// The implementation behind the functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The staged libraries: real sockets and threads.
    Staged,
    /// The stack linked into this program, over an RNIC in memory whose events are delivered
    /// between calls.
    Memory,
}

/// The state of one program.
pub struct World {
    pub(super) library: &'static Calls,
    pub(super) backend: Backend,
    pub(super) objects: Vec<Object>,
    /// Keys of regions and windows.
    pub(super) contexts: Vec<u32>,
    /// Connection qualifiers for which this program has created a service point.
    pub(super) quals: BTreeSet<u64>,
    /// Connected sockets to pass to the library, with the links in `/proc` that identify them.
    sockets: Vec<(RawFd, PathBuf)>,
    /// Other descriptors, with the links in `/proc` that identify them.
    dummies: Vec<(RawFd, PathBuf)>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("objects", &self.objects)
            .finish_non_exhaustive()
    }
}

impl World {
    /// A program with no open object.
    #[must_use]
    pub fn new(library: &'static Calls, backend: Backend) -> Self {
        Self {
            library,
            backend,
            objects: Vec::new(),
            contexts: vec![0, u32::MAX],
            quals: BTreeSet::new(),
            sockets: Vec::new(),
            dummies: Vec::new(),
        }
    }

    /// Opens the IA.
    pub fn open_ia(&mut self) {
        let (mut ia, mut evd) = (null_mut(), null_mut());
        let name: *const CStr = match self.backend {
            Backend::Staged => session::IA_NAME,
            Backend::Memory => memory::IA_NAME,
        };
        let name = name.cast_mut().cast();
        // SAFETY: the name is NUL-terminated and static, the out-pointers are local variables.
        let opened = unsafe { (self.library.dat_ia_openv)(name, 8, &mut evd, &mut ia, 2, 0, 0) };
        if self.check(opened) {
            self.add(Kind::Evd, evd);
            self.add(Kind::Ia, ia);
        }
    }

    /// Closes every IA abruptly, which must succeed, and the sockets that are still open.
    pub fn finish(&mut self) {
        let open = |object: &&Object| object.kind == Kind::Ia && object.live;
        let ias: Vec<_> = self.objects.iter().filter(open).copied().collect();
        for ia in ias {
            let (started, slept) = (Instant::now(), sleeps());
            // SAFETY: the handle is an integer; the library resolves it or refuses it.
            let closed = unsafe { (self.library.dat_ia_close)(ia.handle, DAT_CLOSE_ABRUPT_FLAG) };
            assert!(self.has_closed(closed), "an abrupt close gives {closed:?}");
            // No call is in progress, so there is nothing to wait for. A long time alone is no
            // evidence, because the machine may have been suspended meanwhile.
            assert!(
                started.elapsed() < CLOSE_MAX || sleeps() - slept < SLEEPS_MAX,
                "the close waited for something"
            );
        }
        for (fd, identity) in self.sockets.drain(..).chain(self.dummies.drain(..)) {
            if fs::read_link(format!("/proc/self/fd/{fd}")).ok() == Some(identity) {
                // SAFETY: the link shows that the number still names the socket that was opened for
                // it. No value in this process owns the socket: `released` has ended the ownership.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    }

    /// Returns true if a close of an IA freed the IA.
    pub(super) fn has_closed(&self, result: DatReturn) -> bool {
        match self.backend {
            Backend::Staged => self.check(result),
            Backend::Memory => memory::has_closed(result),
        }
    }

    /// Returns true if a call succeeded. Panics on an internal error, which no call may return.
    pub(super) fn check(&self, result: DatReturn) -> bool {
        assert!(!result.is(DAT_INTERNAL_ERROR), "{result:?}");
        result.is_success()
    }

    /// Records a new handle.
    pub(super) fn add(&mut self, kind: Kind, handle: DatHandle) {
        assert!(!handle.is_null(), "success without a handle: {kind:?}");
        if let Some(old) = self.objects.iter_mut().find(|old| old.handle == handle) {
            *old = Object {
                kind,
                handle,
                live: true,
            };
        } else {
            self.objects.push(Object {
                kind,
                handle,
                live: true,
            });
        }
    }

    /// Returns true if there is room for one more object.
    pub(super) fn has_room(&self) -> bool {
        self.objects.len() < OBJECTS_MAX
    }

    /// Marks the object of a handle as freed. Freeing an IA also frees all its objects. Which
    /// objects those are is not recorded, so all objects count as freed once no IA is open.
    pub(super) fn forget(&mut self, handle: DatHandle) {
        let mut closed_ia = false;
        for object in self.objects.iter_mut().filter(|o| o.handle == handle) {
            object.live = false;
            closed_ia |= object.kind == Kind::Ia;
        }
        let is_open = |object: &Object| object.kind == Kind::Ia && object.live;
        if closed_ia && !self.objects.iter().any(is_open) {
            self.objects
                .iter_mut()
                .for_each(|object| object.live = false);
        }
    }

    /// Chooses a handle: mostly a live one of the right kind, counted from the newest.
    pub(super) fn handle(&self, kind: Kind, input: &mut Input<'_>) -> DatHandle {
        let choice = input.byte();
        let nth = usize::from(choice & 0x0F);
        let any = |index: usize| self.objects.iter().rev().nth(index).map(|o| o.handle);
        let found = match choice {
            0..=0xBF => {
                let wanted = |o: &&Object| o.kind == kind && o.live;
                let count = self.objects.iter().filter(wanted).count().max(1);
                let mut live = self.objects.iter().rev().filter(wanted);
                live.nth(nth % count).map(|o| o.handle)
            }
            0xC0..=0xCF => {
                let gone = |o: &&Object| !o.live;
                self.objects
                    .iter()
                    .rev()
                    .filter(gone)
                    .nth(nth)
                    .map(|o| o.handle)
            }
            0xD0..=0xDF => any(nth),
            0xE0..=0xEF => any(0).map(|handle| handle.wrapping_byte_add(8 * nth + 1)),
            _ => Some(garbage(nth)),
        };
        found.unwrap_or(null_mut())
    }

    /// Chooses a piece of payload memory.
    pub(super) fn memory(&self, input: &mut Input<'_>) -> (*mut u8, u64) {
        let offset = usize::from(input.short()) % ARENA_LEN;
        let len = usize::from(input.short()).min(ARENA_LEN - offset);
        (arena().wrapping_add(offset), len as u64)
    }

    /// Chooses a list of segments, as long as the longest list of a legal call, and the length to
    /// pass for it.
    pub(super) fn segments(&self, input: &mut Input<'_>) -> ([DatLmrTriplet; 64], DatCount) {
        let count = input.byte();
        let context = self.context(input);
        let (start, len) = (u64::from(input.byte()) * 64, u32::from(input.short()));
        // Long segments are rare, because they take most of the time.
        let len = if len < 0xF000 { len & 0x0FFF } else { len };
        let segment = DatLmrTriplet {
            virtual_address: arena().addr() as u64 + start,
            segment_length: len,
            lmr_context: context,
        };
        let count = match count {
            0xFF => -1,
            0xFE => i32::MAX,
            0xFD => i32::MIN,
            count => i32::from(count % 65),
        };
        ([segment; 64], count)
    }

    /// Chooses a piece of a peer's memory, which is this program's own.
    pub(super) fn remote(&self, input: &mut Input<'_>) -> DatRmrTriplet {
        let start = u64::from(input.byte()) * 64;
        DatRmrTriplet {
            virtual_address: arena().addr() as u64 + start,
            segment_length: 64,
            rmr_context: self.context(input),
        }
    }

    /// Chooses the key of a region or window, counted from the newest.
    pub(super) fn context(&self, input: &mut Input<'_>) -> u32 {
        let nth = input.below(self.contexts.len());
        self.contexts[self.contexts.len() - 1 - nth]
    }

    /// Chooses private data and the length to pass for it.
    pub(super) fn private_data(&self, input: &mut Input<'_>) -> (*const u8, DatCount) {
        let choice = input.byte();
        let len = match choice {
            0xF0.. => i32::MAX,
            0xE0.. => -1,
            0xD0.. => 4096,
            0xC0.. => 500 + i32::from(choice & 0x0F),
            len => i32::from(len),
        };
        let data: *const u8 = if choice & 0x1F == 0x1F {
            ptr::null()
        } else {
            arena()
        };
        (data, len)
    }

    /// Chooses a timeout in microseconds for an operation that continues after the call.
    pub(super) fn timeout_us(&self, input: &mut Input<'_>) -> DatTimeout {
        input.pick(&[0, 10, 1_000, 5_000, 60_000_000, u32::MAX])
    }

    /// Chooses a time to wait, in microseconds; waiting is always harmless. In memory no event is
    /// delivered during a wait, so the time is 0.
    pub(super) fn patience_us(&self, input: &mut Input<'_>) -> DatTimeout {
        let patience = input.pick(&[0, 10, 1_000, 5_000]);
        match self.backend {
            Backend::Staged => patience,
            Backend::Memory => 0,
        }
    }

    /// Chooses a connection qualifier: one of a service point of this program, one from
    /// `PORT_BASE` on, or an invalid one.
    pub(super) fn qual(&self, input: &mut Input<'_>) -> DatConnQual {
        let choice = input.byte();
        match choice {
            0xF0.. => u64::MAX - u64::from(choice),
            0xE0.. => 0,
            0xD0.. => PORT_BASE + u64::from(choice & 3),
            _ => {
                let nth = usize::from(choice) % self.quals.len().max(1);
                let known = self.quals.iter().rev().nth(nth).copied();
                known.unwrap_or(PORT_BASE + u64::from(choice & 3))
            }
        }
    }

    /// Chooses a socket for the library, connected to another one; or another descriptor; or none.
    pub(super) fn socket(&mut self, input: &mut Input<'_>) -> RawFd {
        match input.byte() {
            0xFF => -1,
            0xFE => 9999,
            0xFD => i32::MIN,
            choice @ 0xF0.. => self.dummy(choice & 3),
            choice => {
                if self.sockets.is_empty() {
                    self.sockets.extend(socket_pair());
                }
                let nth = usize::from(choice) % self.sockets.len().max(1);
                self.sockets.get(nth).map_or(-1, |(fd, _)| *fd)
            }
        }
    }

    /// Chooses a descriptor that is no connected TCP socket.
    fn dummy(&mut self, choice: u8) -> RawFd {
        let made: io::Result<OwnedFd> = match choice {
            0 => UnixStream::pair().map(|(near, _)| near.into()),
            1 => TcpListener::bind("127.0.0.1:0").map(OwnedFd::from),
            2 => io::pipe().map(|(reader, _)| reader.into()),
            _ => UdpSocket::bind("127.0.0.1:0").map(OwnedFd::from),
        };
        let Ok(made) = made else { return -1 };
        self.dummies.push(released(made));
        self.dummies.last().map_or(-1, |(fd, _)| *fd)
    }
}

/// The number of voluntary context switches of this thread.
fn sleeps() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.voluntary_context_switches())
}

/// Payload memory that is never freed, because an engine may still write to it.
pub(super) fn arena() -> *mut u8 {
    static ARENA: OnceLock<usize> = OnceLock::new();
    let address = ARENA.get_or_init(|| {
        let arena: *mut [u8] = Box::into_raw(vec![0x5A; ARENA_LEN].into_boxed_slice());
        arena.cast::<u8>().expose_provenance()
    });
    ptr::with_exposed_provenance_mut(*address)
}

/// Words that no library returned as a handle: small numbers, addresses of code and data, invalid
/// addresses.
fn garbage(nth: usize) -> DatHandle {
    let address = match nth {
        0 => 0,
        1..=3 => nth,
        4 => usize::MAX,
        5 => usize::MAX - 7,
        6 => 0xDEAD_BEEF,
        7 => 0xDEAD_BEEF_0000_0000,
        8 => arena().addr(),
        9 => arena().addr() + 1,
        10 => arena().addr() + ARENA_LEN - 4,
        11 => garbage as *const () as usize,
        12 => session::IA_NAME.as_ptr().addr(),
        13 => 0x0000_7FFF_FFFF_FFF8,
        14 => 4096,
        _ => 0x8000_0000_0000_0000,
    };
    ptr::without_provenance_mut(address)
}

fn socket_pair() -> Vec<(RawFd, PathBuf)> {
    let pair = || -> std::io::Result<_> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        Ok([near, far])
    };
    let ends = pair().into_iter().flatten();
    ends.map(|end| released(end.into())).collect()
}

/// The number of a descriptor that from now on belongs to the owner of the number, and its link in
/// `/proc`.
fn released(owned: OwnedFd) -> (RawFd, PathBuf) {
    let fd = owned.into_raw_fd();
    let identity = fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    (fd, identity)
}
