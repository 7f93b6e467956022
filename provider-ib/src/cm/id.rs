//! Ids of the connection manager, and the channel that carries their events.

use std::ffi::CStr;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use dat_abi::{CSocketAddr, read_socket_addr};
use verbs_dl::Libraries;
use verbs_dl::types::*;

use crate::device::{checked, renumber, set_nonblocking};
use crate::qp::Qp;

/// The timeout for resolving a peer's link address or a path, in milliseconds.
const RESOLVE_MS: i32 = 4000;
/// The maximum number of connection requests to a service that the kernel queues for the channel.
const BACKLOG: i32 = 1024;

/// The number by which an event names its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) usize);

impl Key {
    fn as_context(self) -> *mut std::ffi::c_void {
        ptr::without_provenance_mut(self.0)
    }
}

/// The event channel of one RNIC. Its descriptor is readable when there are events, and does not
/// block.
#[derive(Debug)]
pub(crate) struct Channel {
    libraries: Arc<Libraries>,
    raw: NonNull<rdma_event_channel>,
}

// SAFETY: librdmacm's calls may be made from any thread, and only the engine's thread reads the
// channel.
unsafe impl Send for Channel {}
// SAFETY: any thread may make the calls, and only the engine's thread reads the channel.
unsafe impl Sync for Channel {}

/// A copy of an event. The event has been acknowledged, so the destruction of its id does not wait.
#[derive(Debug)]
pub(crate) struct CmEvent {
    pub(crate) key: Key,
    pub(crate) kind: rdma_cm_event_type,
    pub(crate) status: i32,
    pub(crate) private_data: Vec<u8>,
    pub(crate) depth: Depth,
    /// The new id of a connection request; `key` names its listener.
    pub(crate) request: Option<Id>,
}

/// The maximum numbers of outstanding RDMA Reads and atomics, from this end's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Depth {
    /// Inbound (IRD, `responder_resources`).
    pub(crate) inbound: u8,
    /// Outbound (ORD, `initiator_depth`).
    pub(crate) outbound: u8,
}

#[derive(Debug, Clone)]
pub(crate) struct ConnParam {
    pub(crate) private_data: Vec<u8>,
    pub(crate) depth: Depth,
    pub(crate) has_srq: bool,
    pub(crate) qp_number: u32,
}

/// The number of retries of the transport before it reports failure. Seven is the maximum, which
/// OFA's providers use too.
const RETRIES: u8 = 7;
/// The number of retries if the peer has no receive posted; seven means without limit.
const RNR_RETRIES: u8 = 7;

impl Channel {
    pub(crate) fn open(libraries: &Arc<Libraries>) -> io::Result<Self> {
        // SAFETY: no conditions; the result is checked.
        let raw = unsafe { libraries.cm.rdma_create_event_channel() };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let channel = Self {
            libraries: libraries.clone(),
            raw,
        };
        // SAFETY: the channel was just created. librdmacm reads the number from it at each use.
        unsafe { renumber(&mut (*raw.as_ptr()).fd) };
        set_nonblocking(channel.as_fd().as_raw_fd())?;
        Ok(channel)
    }

    /// Returns the next event, if there is one. Only one thread may call this at a time.
    ///
    /// # Errors
    /// The event may still be queued. The caller must read the channel again, because its
    /// descriptor may not become ready again.
    pub(crate) fn next(self: &Arc<Self>) -> io::Result<Option<CmEvent>> {
        let cm = &self.libraries.cm;
        let mut raw: *mut rdma_cm_event = ptr::null_mut();
        // SAFETY: the channel is open, and the out-pointer is of this frame.
        let get = || match unsafe { cm.rdma_get_cm_event(self.raw.as_ptr(), &raw mut raw) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        if !has_next(get)? {
            return Ok(None);
        }
        // SAFETY: the event and its id are valid until the event is acknowledged below.
        let event = unsafe { &*raw };
        // SAFETY: the id is valid as long as the event; a thread that sets the key meanwhile uses
        // an atomic store too. The context of a new id is that of its listener.
        let context = unsafe { AtomicPtr::from_ptr(&raw mut (*event.id).context) };
        let key = Key(context.load(Ordering::Relaxed).addr());
        let is_request = event.event == RDMA_CM_EVENT_CONNECT_REQUEST;
        // SAFETY: the events of all ids but a watch use this member of the union. The member for a
        // watch begins with the same fields for private data, and any bytes are valid numbers.
        let conn = unsafe { &event.param.conn };
        let copy = CmEvent {
            key,
            kind: event.event,
            status: event.status,
            // SAFETY: the header guarantees this many bytes until the event is acknowledged.
            private_data: unsafe { bytes(conn.private_data, conn.private_data_len) },
            depth: Depth {
                inbound: conn.responder_resources,
                outbound: conn.initiator_depth,
            },
            request: NonNull::new(event.id).filter(|_| is_request).map(|raw| Id {
                channel: self.clone(),
                raw,
            }),
        };
        // SAFETY: the event was received above, and is acknowledged once.
        unsafe { cm.rdma_ack_cm_event(raw) };
        Ok(Some(copy))
    }

    /// Creates an id whose events carry `key`.
    pub(crate) fn new_id(self: &Arc<Self>, key: Key) -> io::Result<Id> {
        self.new_id_in(RDMA_PS_TCP, key)
    }

    /// Creates an id that receives only the events of the device that serves `address`. Its port
    /// space differs from that of connections and services, so it occupies none of their ports.
    pub(crate) fn new_watch(self: &Arc<Self>, key: Key, address: SocketAddr) -> io::Result<Id> {
        let id = self.new_id_in(RDMA_PS_UDP, key)?;
        id.bind(address)?;
        Ok(id)
    }

    fn new_id_in(self: &Arc<Self>, space: rdma_port_space, key: Key) -> io::Result<Id> {
        let cm = &self.libraries.cm;
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is open, and the out-pointer is of this frame.
        checked(unsafe {
            cm.rdma_create_id(self.raw.as_ptr(), &raw mut raw, key.as_context(), space)
        })?;
        let raw = NonNull::new(raw).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Id {
            channel: self.clone(),
            raw,
        })
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open as long as `self`, and so is its descriptor.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: every id keeps the channel alive, so none is left.
        unsafe {
            self.libraries
                .cm
                .rdma_destroy_event_channel(self.raw.as_ptr());
        };
    }
}

/// Returns true if `get` succeeded, and `false` if there is nothing to get.
fn has_next(mut get: impl FnMut() -> io::Result<()>) -> io::Result<bool> {
    loop {
        match get() {
            Ok(()) => return Ok(true),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(why) => return Err(why),
        }
    }
}

/// # Safety
/// `from` points at `len` bytes when neither is 0.
unsafe fn bytes(from: *const std::ffi::c_void, len: u8) -> Vec<u8> {
    if from.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: the caller guarantees `len` bytes at `from`.
    unsafe { std::slice::from_raw_parts(from.cast::<u8>(), usize::from(len)) }.to_vec()
}

/// An id, which is destroyed when it is dropped. librdmacm then rejects a request that was not
/// accepted, and disconnects a connection.
///
/// Only the drop destroys the id, so `raw` is valid in every method.
#[derive(Debug)]
pub(crate) struct Id {
    channel: Arc<Channel>,
    raw: NonNull<rdma_cm_id>,
}

// SAFETY: librdmacm's calls may be made from any thread. librdmacm writes the fields that this
// module reads in calls on the id and when its events are read. A thread that reads them holds the
// lock of the connection, and runs after the event that fills them in.
unsafe impl Send for Id {}
// SAFETY: the reason for `Send` covers shared use as well.
unsafe impl Sync for Id {}

impl Id {
    fn cm(&self) -> &verbs_dl::cm::RdmaCm {
        &self.channel.libraries.cm
    }

    fn as_ptr(&self) -> *mut rdma_cm_id {
        self.raw.as_ptr()
    }

    /// Sets the key that the id's events carry from now on. Called before [`accept`](Self::accept):
    /// until a request is accepted, the kernel delivers no further event of its id, and destroys
    /// the id itself if the device is removed. A late accept fails.
    pub(crate) fn set_key(&self, key: Key) {
        // SAFETY: `raw` is valid (see `Id`); the thread that reads events uses an atomic load.
        let place = unsafe { AtomicPtr::from_ptr(&raw mut (*self.as_ptr()).context) };
        place.store(key.as_context(), Ordering::Relaxed);
    }

    pub(crate) fn resolve_address(&self, from: SocketAddr, to: SocketAddr) -> io::Result<()> {
        let (mut from, mut to) = (CSocketAddr::from(from), CSocketAddr::from(to));
        // SAFETY: `raw` is valid (see `Id`), and each address is as long as its family requires.
        checked(unsafe {
            let (from, to) = (from.as_ptr().cast(), to.as_ptr().cast());
            self.cm()
                .rdma_resolve_addr(self.as_ptr(), from, to, RESOLVE_MS)
        })
    }

    pub(crate) fn resolve_route(&self) -> io::Result<()> {
        // SAFETY: `raw` is valid (see `Id`).
        checked(unsafe { self.cm().rdma_resolve_route(self.as_ptr(), RESOLVE_MS) })
    }

    fn bind(&self, at: SocketAddr) -> io::Result<()> {
        let mut name = CSocketAddr::from(at);
        // SAFETY: `raw` is valid (see `Id`), and the address is as long as its family requires.
        checked(unsafe {
            self.cm()
                .rdma_bind_addr(self.as_ptr(), name.as_ptr().cast())
        })
    }

    /// Binds to an address, listens, and returns the port.
    pub(crate) fn listen(&self, at: SocketAddr) -> io::Result<u16> {
        self.bind(at)?;
        // SAFETY: `raw` is valid (see `Id`).
        checked(unsafe { self.cm().rdma_listen(self.as_ptr(), BACKLOG) })?;
        // SAFETY: `raw` is valid (see `Id`).
        Ok(u16::from_be(unsafe {
            self.cm().rdma_get_src_port(self.as_ptr())
        }))
    }

    /// Sends the request. On an iWARP device this may block until TCP is connected.
    pub(crate) fn connect(&self, param: &ConnParam) -> io::Result<()> {
        let mut param = c_param(param);
        // SAFETY: `raw` is valid (see `Id`); the private data is read before the call returns.
        checked(unsafe { self.cm().rdma_connect(self.as_ptr(), &raw mut param) })
    }

    pub(crate) fn accept(&self, param: &ConnParam) -> io::Result<()> {
        let mut param = c_param(param);
        // SAFETY: `raw` is valid (see `Id`); the private data is read before the call returns.
        checked(unsafe { self.cm().rdma_accept(self.as_ptr(), &raw mut param) })
    }

    pub(crate) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let len = u8::try_from(private_data.len()).map_err(|_| too_long())?;
        let data = private_data.as_ptr().cast();
        // SAFETY: `raw` is valid (see `Id`), and the slice is valid during the call.
        checked(unsafe { self.cm().rdma_reject(self.as_ptr(), data, len) })
    }

    pub(crate) fn establish(&self) -> io::Result<()> {
        // SAFETY: `raw` is valid (see `Id`).
        checked(unsafe { self.cm().rdma_establish(self.as_ptr()) })
    }

    pub(crate) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: `raw` is valid (see `Id`).
        checked(unsafe { self.cm().rdma_disconnect(self.as_ptr()) })
    }

    /// Returns the attributes with which a queue pair enters `state` for this connection, and the
    /// mask of the valid ones.
    pub(crate) fn qp_attr(&self, state: ibv_qp_state) -> io::Result<(ibv_qp_attr, u32)> {
        let (mut attr, mut mask) = (ibv_qp_attr::in_state(state), 0);
        // SAFETY: `raw` is valid (see `Id`); `attr` and `mask` are on the stack of this call.
        checked(unsafe {
            self.cm()
                .rdma_init_qp_attr(self.as_ptr(), &raw mut attr, &raw mut mask)
        })?;
        Ok((attr, mask as u32))
    }

    /// Returns the name of the verbs device to which the id is bound.
    pub(crate) fn device_name(&self) -> Option<String> {
        // SAFETY: `raw` is valid (see `Id`); a bound id's context is open and points to its device,
        // whose name ends in zero.
        unsafe {
            let context = (*self.as_ptr()).verbs;
            (!context.is_null()).then(|| {
                CStr::from_ptr((*(*context).device).name.as_ptr())
                    .to_string_lossy()
                    .into_owned()
            })
        }
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        // SAFETY: `raw` is valid (see `Id`); the field is large enough for every address family.
        unsafe {
            let place = &raw const (*self.as_ptr()).route.addr.__bindgen_anon_1;
            read_socket_addr(place.cast()).ok()
        }
    }

    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        // SAFETY: `raw` is valid (see `Id`); the field is large enough for every address family.
        unsafe {
            let place = &raw const (*self.as_ptr()).route.addr.__bindgen_anon_2;
            read_socket_addr(place.cast()).ok()
        }
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: the id was created or received once, and is destroyed once. Its events were
        // acknowledged when they were read, so this does not wait for another thread.
        unsafe { self.cm().rdma_destroy_id(self.as_ptr()) };
    }
}

impl ConnParam {
    pub(crate) fn of(qp: &Qp, depth: Depth, private_data: &[u8]) -> Self {
        Self {
            private_data: private_data.to_vec(),
            depth,
            has_srq: qp.has_srq(),
            qp_number: qp.num(),
        }
    }
}

fn c_param(param: &ConnParam) -> rdma_conn_param {
    rdma_conn_param {
        private_data: param.private_data.as_ptr().cast(),
        // The callers respect the transport's limit, which is below 256.
        private_data_len: u8::try_from(param.private_data.len()).unwrap_or(0),
        responder_resources: param.depth.inbound,
        initiator_depth: param.depth.outbound,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: RNR_RETRIES,
        srq: u8::from(param.has_srq),
        qp_num: param.qp_number,
    }
}

fn too_long() -> io::Error {
    io::Error::from_raw_os_error(libc::EMSGSIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_channel_has_no_event() {
        let outcome = |codes: &[i32]| {
            let mut codes = codes.iter();
            has_next(|| match codes.next() {
                Some(code) => Err(io::Error::from_raw_os_error(*code)),
                None => Ok(()),
            })
        };
        assert!(outcome(&[]).unwrap());
        assert!(!outcome(&[libc::EAGAIN]).unwrap());
        assert!(outcome(&[libc::EINTR, libc::EINTR]).unwrap());
        assert!(!outcome(&[libc::EINTR, libc::EAGAIN]).unwrap());
        let why = outcome(&[libc::ENOMEM]).unwrap_err();
        assert_eq!(why.raw_os_error(), Some(libc::ENOMEM));
    }
}
