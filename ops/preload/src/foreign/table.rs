//! The C table of a protocol, and its calls.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::{self, NonNull};

use host::descriptors::OwnDescriptor;
use libc::{iovec, sockaddr_storage, ssize_t};
use ops::Target;
use rustix::io::Errno;

use crate::process::guard;
use crate::tcp::names;

const VERSION: u32 = 1;

/// `struct ops_target`.
#[repr(C)]
struct RawTarget {
    service: sockaddr_storage,
    mapped: sockaddr_storage,
    local: sockaddr_storage,
    next_hop: sockaddr_storage,
}

/// `struct ops_names`.
#[repr(C)]
struct RawNames {
    local: sockaddr_storage,
    peer: sockaddr_storage,
}

type Made = (*mut *mut c_void, *mut c_int);

/// `struct ops_protocol`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Raw {
    version: u32,
    size: u32,
    name: *const c_char,
    capabilities: u32,
    priority: i32,
    connect: Option<unsafe extern "C" fn(*const RawTarget, *mut *mut c_void, *mut c_int) -> c_int>,
    connected: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    listen: Option<
        unsafe extern "C" fn(*const sockaddr_storage, c_int, *mut *mut c_void, *mut c_int) -> c_int,
    >,
    accept: Option<
        unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_int, *mut RawNames) -> c_int,
    >,
    unlisten: Option<unsafe extern "C" fn(*mut c_void)>,
    send: Option<unsafe extern "C" fn(*mut c_void, *const iovec, c_int) -> ssize_t>,
    receive: Option<unsafe extern "C" fn(*mut c_void, *const iovec, c_int, c_int) -> ssize_t>,
    shutdown: Option<unsafe extern "C" fn(*mut c_void, c_int) -> c_int>,
    close: Option<unsafe extern "C" fn(*mut c_void, c_int)>,
    changed: Option<unsafe extern "C" fn(u32)>,
}

/// A table that was checked. Its functions exist, except for `changed`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table {
    raw: &'static Raw,
    name: &'static str,
}

/// A pointer of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(NonNull<c_void>);

// SAFETY: the header permits calls from any thread, and only the object dereferences the pointer.
unsafe impl Send for Handle {}
// SAFETY: as for `Send`.
unsafe impl Sync for Handle {}
// SAFETY: the structure is never written, and its functions may be called from any thread.
unsafe impl Sync for Raw {}
// SAFETY: as for `Sync`.
unsafe impl Send for Raw {}

impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Raw").finish_non_exhaustive()
    }
}

/// Calls a function of the table.
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),*)) => {{
        let _inside = guard::enter();
        let function = $table.raw.$function.expect("checked when the table was loaded");
        // SAFETY: the object has declared the function in this form, and the arguments are valid
        // for the call.
        unsafe { function($($argument),*) }
    }};
}

/// The result of a function that returns 0 or a negative error number.
fn done(result: c_int) -> Result<(), Errno> {
    match decided(result)? {
        false => Ok(()),
        true => Err(Errno::PROTO),
    }
}

/// The result of a function that returns 1, 0 or a negative error number.
fn decided(result: c_int) -> Result<bool, Errno> {
    match result {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(errno_of(result.into())),
    }
}

/// The number of bytes of a result; `EPROTO` if there cannot be so many.
fn counted(result: ssize_t, room: usize) -> Result<usize, Errno> {
    match usize::try_from(result) {
        Ok(count) if count <= room => Ok(count),
        Ok(_) => Err(Errno::PROTO),
        Err(_) => Err(errno_of(result as i64)),
    }
}

fn errno_of(result: i64) -> Errno {
    match result {
        -4095..=-1 => Errno::from_raw_os_error(-result as i32),
        _ => Errno::PROTO,
    }
}

/// Returns the object and the library's own copy of its descriptor.
fn made((handle, fd): (*mut c_void, c_int)) -> Result<(Handle, OwnDescriptor), Errno> {
    let handle = Handle(NonNull::new(handle).ok_or(Errno::PROTO)?);
    if fd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the number is not negative; if it is not open, the kernel returns EBADF.
    let copy = host::descriptors::copy(unsafe { BorrowedFd::borrow_raw(fd) })?;
    Ok((handle, copy.into()))
}

fn storage(address: Option<SocketAddr>) -> sockaddr_storage {
    // SAFETY: the structure consists of numbers, for which zero is a value.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    if let Some(address) = address {
        let (bytes, len) = names::raw(address);
        let len = len.min(size_of_val(&storage));
        // SAFETY: the structure has room for `len` bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut storage).cast(), len) };
    }
    storage
}

fn address(storage: &sockaddr_storage) -> Result<SocketAddr, Errno> {
    let len = size_of_val(storage) as libc::socklen_t;
    // SAFETY: the structure has `len` bytes.
    unsafe { names::read_address(ptr::from_ref(storage).cast(), len) }.ok_or(Errno::PROTO)
}

/// The name of a protocol, if the object's is one.
fn name_of(name: *const c_char) -> Option<&'static str> {
    const LONGEST: usize = 15;
    if name.is_null() {
        return None;
    }
    let mut bytes = Vec::new();
    for at in 0..=LONGEST {
        // SAFETY: the object returns a string, and no byte before this one was its end.
        match unsafe { name.add(at).read() } as u8 {
            0 if bytes.is_empty() => return None,
            0 => break,
            byte @ (b'a'..=b'z' | b'0'..=b'9' | b'-') if at < LONGEST => bytes.push(byte),
            _ => return None,
        }
    }
    let name = String::from_utf8(bytes).ok()?;
    let is_keyword = ["tcp", "both", "offload"].contains(&name.as_str());
    // An object is loaded once in a process.
    (!is_keyword).then(|| &*name.leak())
}

impl Table {
    pub(super) fn load(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let file = CString::new(path.as_os_str().as_bytes());
        let file = file.map_err(|_| format!("{shown}: not a path"))?;
        let _inside = guard::enter();
        // SAFETY: the path is a string; the administrator has named the object to be run.
        let object = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if object.is_null() {
            // SAFETY: the loader's text is a string or null.
            let text = unsafe { libc::dlerror() };
            // SAFETY: as above, and not null.
            let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
            let text = text.map_or("not loaded".into(), CStr::to_string_lossy);
            return Err(format!("{shown}: {text}"));
        }
        // SAFETY: the object is open, and stays so.
        let entry = unsafe { libc::dlsym(object, c"ops_protocol".as_ptr()) };
        if entry.is_null() {
            return Err(format!("{shown}: no function ops_protocol"));
        }
        // SAFETY: the header declares the function in this form.
        let entry: unsafe extern "C" fn() -> *const Raw = unsafe { std::mem::transmute(entry) };
        // SAFETY: as above.
        let raw = unsafe { entry() };
        // SAFETY: the object returns a table, which begins with its version and its size.
        unsafe { Self::checked(raw) }.map_err(|why| format!("{shown}: {why}"))
    }

    /// # Safety
    /// `raw` is null, misaligned, or begins with the size of the table.
    unsafe fn checked(raw: *const Raw) -> Result<Self, &'static str> {
        if raw.is_null() || !raw.is_aligned() {
            return Err("no table");
        }
        // SAFETY: a table begins with these two words.
        let [version, size] = unsafe { raw.cast::<[u32; 2]>().read() };
        if version != VERSION || (size as usize) < size_of::<Raw>() {
            return Err("the table has another version");
        }
        // SAFETY: the table has the size that it states.
        let raw = unsafe { raw.read() };
        let name = name_of(raw.name).ok_or("the protocol has no proper name")?;
        let is_complete = raw.connect.is_some()
            && raw.connected.is_some()
            && raw.listen.is_some()
            && raw.accept.is_some()
            && raw.unlisten.is_some()
            && raw.send.is_some()
            && raw.receive.is_some()
            && raw.shutdown.is_some()
            && raw.close.is_some();
        if !is_complete {
            return Err("a function is missing");
        }
        let raw = Box::leak(Box::new(raw));
        Ok(Self { raw, name })
    }

    pub(super) fn name(self) -> &'static str {
        self.name
    }

    pub(super) fn can(self, capability: u32) -> bool {
        self.raw.capabilities & capability != 0
    }

    pub(super) fn priority(self) -> i32 {
        self.raw.priority
    }

    pub(super) fn connect(self, to: &Target<'_>) -> Result<(Handle, OwnDescriptor), Errno> {
        let hop = to.next_hop.map(|ip: IpAddr| SocketAddr::new(ip, 0));
        let target = RawTarget {
            service: storage(Some(to.service)),
            mapped: storage(Some(to.mapped)),
            local: storage(Some(to.local)),
            next_hop: storage(hop),
        };
        let mut result = (ptr::null_mut(), -1);
        let (handle, fd): Made = (&raw mut result.0, &raw mut result.1);
        done(call!(self, connect(&raw const target, handle, fd)))?;
        self.made_connection(result)
    }

    /// A connection with a bad descriptor is closed.
    fn made_connection(
        self,
        result: (*mut c_void, c_int),
    ) -> Result<(Handle, OwnDescriptor), Errno> {
        made(result).inspect_err(|_| {
            if let Some(handle) = NonNull::new(result.0) {
                self.close(Handle(handle), true);
            }
        })
    }

    pub(super) fn connected(self, connection: Handle) -> Result<bool, Errno> {
        decided(call!(self, connected(connection.0.as_ptr())))
    }

    pub(super) fn listen(
        self,
        at: SocketAddr,
        backlog: u32,
    ) -> Result<(Handle, OwnDescriptor), Errno> {
        let at = storage(Some(at));
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        let mut result = (ptr::null_mut(), -1);
        let (handle, fd): Made = (&raw mut result.0, &raw mut result.1);
        done(call!(self, listen(&raw const at, backlog, handle, fd)))?;
        made(result).inspect_err(|_| {
            if let Some(handle) = NonNull::new(result.0) {
                self.unlisten(Handle(handle));
            }
        })
    }

    /// Accepts a connection: the object, its descriptor, the local and the peer's address.
    pub(super) fn accept(
        self,
        listener: Handle,
    ) -> Result<Option<(Handle, OwnDescriptor, SocketAddr, SocketAddr)>, Errno> {
        let mut names = RawNames {
            local: storage(None),
            peer: storage(None),
        };
        let mut result = (ptr::null_mut(), -1);
        let (handle, fd): Made = (&raw mut result.0, &raw mut result.1);
        let listener = listener.0.as_ptr();
        let accepted = decided(call!(self, accept(listener, handle, fd, &raw mut names)));
        match accepted {
            Ok(true) => {}
            Ok(false) | Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        let (connection, fd) = self.made_connection(result)?;
        match (address(&names.local), address(&names.peer)) {
            (Ok(local), Ok(peer)) => Ok(Some((connection, fd, local, peer))),
            (Err(errno), _) | (_, Err(errno)) => {
                self.close(connection, true);
                Err(errno)
            }
        }
    }

    pub(super) fn unlisten(self, listener: Handle) {
        call!(self, unlisten(listener.0.as_ptr()));
    }

    pub(super) fn send(self, to: Handle, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let room = parts.iter().map(|part| part.len()).sum();
        let count = c_int::try_from(parts.len()).unwrap_or(c_int::MAX);
        // An `IoSlice` has the layout of an `iovec`.
        let parts = parts.as_ptr().cast();
        let sent = counted(call!(self, send(to.0.as_ptr(), parts, count)), room)?;
        match sent {
            0 if room > 0 => Err(Errno::PROTO),
            sent => Ok(sent),
        }
    }

    pub(super) fn receive(
        self,
        from: Handle,
        parts: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<usize, Errno> {
        let room = parts.iter().map(|part| part.len()).sum();
        let count = c_int::try_from(parts.len()).unwrap_or(c_int::MAX);
        // An `IoSliceMut` has the layout of an `iovec`.
        let parts = parts.as_mut_ptr().cast_const().cast();
        let from = from.0.as_ptr();
        counted(call!(self, receive(from, parts, count, peek.into())), room)
    }

    pub(super) fn shutdown(self, connection: Handle, how: c_int) -> Result<(), Errno> {
        done(call!(self, shutdown(connection.0.as_ptr(), how)))
    }

    pub(super) fn close(self, connection: Handle, aborts: bool) {
        call!(self, close(connection.0.as_ptr(), aborts.into()));
    }

    /// Returns false if the protocol is not interested.
    pub(super) fn changed(self, what: u32) -> bool {
        let Some(changed) = self.raw.changed else {
            return false;
        };
        if what != 0 {
            let _inside = guard::enter();
            // SAFETY: the object has declared the function in this form.
            unsafe { changed(what) };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_that_the_header_does_not_permit_are_errors() {
        assert_eq!(decided(1), Ok(true));
        assert_eq!(decided(0), Ok(false));
        for result in [2, c_int::MAX, -4096, c_int::MIN] {
            assert_eq!(decided(result), Err(Errno::PROTO), "{result}");
        }
        assert_eq!(done(1), Err(Errno::PROTO));
        assert_eq!(done(-libc::EAGAIN), Err(Errno::AGAIN));
        assert_eq!(counted(7, 7), Ok(7));
        for result in [8, isize::MAX, isize::MIN, -4096] {
            assert_eq!(counted(result, 7), Err(Errno::PROTO), "{result}");
        }
    }

    #[test]
    fn objects_and_descriptors_that_do_not_exist_are_refused() {
        let object = NonNull::dangling().as_ptr();
        assert_eq!(made((ptr::null_mut(), 0)).err(), Some(Errno::PROTO));
        assert_eq!(made((object, -7)).err(), Some(Errno::BADF));
        assert_eq!(made((object, 1_000_999)).err(), Some(Errno::BADF));
        assert!(address(&storage(None)).is_err());
        let address_of_peer = "[2001:db8::1]:80".parse().unwrap();
        assert_eq!(
            address(&storage(Some(address_of_peer))),
            Ok(address_of_peer)
        );
    }

    #[test]
    fn names_are_short_and_plain() {
        for (name, is_good) in [
            (c"unix-2", true),
            (c"fifteen-letters", true),
            (c"sixteen-letters-", false),
            (c"", false),
            (c"Unix", false),
            (c"a b", false),
            (c"both", false),
        ] {
            assert_eq!(name_of(name.as_ptr()).is_some(), is_good, "{name:?}");
        }
        assert!(name_of(ptr::null()).is_none());
    }

    #[test]
    fn a_table_of_another_form_is_refused() {
        // SAFETY: all members are numbers, pointers and functions, for which zero is a value.
        let mut raw: Raw = unsafe { std::mem::zeroed() };
        let mut check = |version, size| {
            (raw.version, raw.size) = (version, size);
            // SAFETY: the structure is a table.
            unsafe { Table::checked(&raw const raw) }.err()
        };
        let size = size_of::<Raw>() as u32;
        assert!(check(VERSION + 1, size).is_some());
        assert!(check(VERSION, size - 1).is_some());
        assert_eq!(
            check(VERSION, size),
            Some("the protocol has no proper name")
        );
        raw.name = c"empty".as_ptr();
        // SAFETY: as above, and null is permitted.
        unsafe {
            assert_eq!(
                Table::checked(&raw const raw).err(),
                Some("a function is missing")
            );
            assert_eq!(Table::checked(ptr::null()).err(), Some("no table"));
        }
    }
}
