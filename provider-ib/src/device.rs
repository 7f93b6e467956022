//! From a name in `dat.conf` to an open device.
//!
//! librdmacm determines which device serves an address: it fills in the device of an id that is
//! bound to the address. So a network device or a host name is resolved to an address first. For a
//! verbs device, all addresses of this machine are tried until one belongs to it. The device is
//! then opened once more, for this RNIC alone: librdmacm shares its own context, and the context's
//! queue of asynchronous events, with all users in the process.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use dat_abi::CSocketAddr;
use host::descriptors::raise;
use rnic::net_device;
use rnic::{Resource, RnicError};
use verbs_dl::Libraries;
use verbs_dl::types::*;

use crate::config::Config;
use crate::offset_guard::OffsetGuard;
use crate::quirks::{Quirks, Transport};

/// An open device and its attributes.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) libraries: Arc<Libraries>,
    context: NonNull<ibv_context>,
    pub(crate) name: String,
    /// Address of the interface adapter, with port 0.
    pub(crate) address: SocketAddr,
    pub(crate) port: u8,
    pub(crate) transport: Transport,
    pub(crate) attr: ibv_device_attr,
    pub(crate) port_attr: ibv_port_attr,
    quirks: Quirks,
    offset_guard: Option<OffsetGuard>,
}

// SAFETY: contexts and library functions may be used by any thread (ibv_open_device(3)).
unsafe impl Send for Device {}
// SAFETY: contexts and library functions may be used by any thread (ibv_open_device(3)).
unsafe impl Sync for Device {}

struct Served {
    name: String,
    port: u8,
    address: SocketAddr,
}

impl Device {
    /// Finds and opens the device that `config` names.
    pub(crate) fn open(config: &Config) -> Result<Self, RnicError> {
        let libraries = Libraries::load().map_err(|why| RnicError::NoDevice(why.to_string()))?;
        let libraries = Arc::new(libraries);
        let served = find(&libraries, config)?;
        let context = open_by_name(&libraries, &served.name)?;
        let mut device = Self::new(libraries, context, served, Transport::InfiniBand);
        device.query()?;
        device.quirks = Quirks::of(device.transport, device.attr.vendor_id);
        if !device.quirks.maps_any_offset {
            // SAFETY: the context was opened above, and nothing has been created on it.
            device.offset_guard =
                unsafe { OffsetGuard::create(&device.libraries, device.context()) };
        }
        Ok(device)
    }

    /// Creates a device for tests, which must not be dropped: `libraries` cannot close it.
    #[cfg(test)]
    pub(crate) fn fake(
        libraries: Arc<Libraries>,
        context: NonNull<ibv_context>,
        transport: Transport,
    ) -> Self {
        let served = Served {
            name: "fake".to_owned(),
            port: 1,
            address: ([127, 0, 0, 1], 0).into(),
        };
        Self::new(libraries, context, served, transport)
    }

    fn new(
        libraries: Arc<Libraries>,
        context: NonNull<ibv_context>,
        served: Served,
        transport: Transport,
    ) -> Self {
        Self {
            libraries,
            context,
            name: served.name,
            address: served.address,
            port: served.port,
            transport,
            attr: ibv_device_attr::default(),
            port_attr: ibv_port_attr::default(),
            quirks: Quirks::of(transport, 0),
            offset_guard: None,
        }
    }

    pub(crate) fn quirks(&self) -> Quirks {
        self.quirks
    }

    /// True if the device has atomics and writes with immediate data, which verbs do not offer on
    /// iWARP.
    pub(crate) fn has_immediate_and_atomics(&self) -> bool {
        self.transport == Transport::InfiniBand && self.attr.atomic_cap != IBV_ATOMIC_NONE
    }

    /// The descriptor that is readable when the device has asynchronous events. Reading it does not
    /// block.
    pub(crate) fn event_fd(&self) -> Result<RawFd, RnicError> {
        // SAFETY: the context is open as long as `self`, and its descriptor does not change.
        let fd = unsafe { self.context.as_ref() }.async_fd;
        set_nonblocking(fd)?;
        Ok(fd)
    }

    /// The largest payload of a packet, in bytes; 0 if unknown.
    pub(crate) fn mtu(&self) -> u32 {
        match self.port_attr.active_mtu {
            code @ IBV_MTU_256..=IBV_MTU_4096 => 128 << code,
            _ => 0,
        }
    }

    /// The state of the port, in the words of OFA's providers.
    pub(crate) fn port_status(&self) -> &'static str {
        match self.port_attr.state {
            IBV_PORT_ACTIVE => "PORT_ACTIVE",
            IBV_PORT_ARMED => "PORT_ARMED",
            IBV_PORT_INIT => "PORT_INIT",
            IBV_PORT_DOWN => "PORT_DOWN",
            _ => "UNKNOWN",
        }
    }

    pub(crate) fn context(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    fn query(&mut self) -> Result<(), RnicError> {
        let context = self.context();
        // SAFETY: an open context points to its device.
        if unsafe { (*(*context).device).transport_type } == IBV_TRANSPORT_IWARP {
            self.transport = Transport::Iwarp;
        }
        let verbs = &self.libraries.verbs;
        // SAFETY: the context is open, and `attr` is one `ibv_device_attr`.
        checked(unsafe { verbs.ibv_query_device(context, &raw mut self.attr) })?;
        let place = (&raw mut self.port_attr).cast::<_compat_ibv_port_attr>();
        // SAFETY: the exported function writes the beginning of the structure that the header calls
        // `ibv_port_attr` today; the rest stays zero.
        checked(unsafe { verbs.ibv_query_port(context, self.port, place) })?;
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(guard) = self.offset_guard.take() {
            // SAFETY: the device is closed below.
            unsafe { guard.destroy(&self.libraries) };
        }
        // SAFETY: opened by `Device::open` and closed once; every object created on the device
        // keeps it alive.
        unsafe { self.libraries.verbs.ibv_close_device(self.context()) };
        if !is_verbs_device(&self.libraries, &self.name) {
            forget_removed(&self.libraries);
        }
    }
}

/// Makes librdmacm close the devices that are being removed.
///
/// librdmacm keeps open every device to which an id was bound, and software devices (rxe, siw)
/// exist until the last process has closed them. A request for the list of all devices makes
/// librdmacm check which devices still exist. The request also opens devices to which no id was
/// bound. If no device exists any more, librdmacm does not check; the removal then completes when
/// the process ends.
fn forget_removed(libraries: &Libraries) {
    // SAFETY: the count is optional, so null is allowed.
    let list = unsafe { libraries.cm.rdma_get_devices(ptr::null_mut()) };
    if list.is_null() {
        tracing::warn!("librdmacm keeps a removed device open until the process ends");
        return;
    }
    // SAFETY: the list is from the call above, and is freed once.
    unsafe { libraries.cm.rdma_free_devices(list) };
}

/// Moves a descriptor of the libraries to a number that the program does not use. A program that
/// closes all descriptors above some number would otherwise close it, and the kernel could then
/// assign its number to a file of the program.
///
/// # Safety
/// `fd` is the only record of a descriptor, which is open, or negative.
pub(crate) unsafe fn renumber(fd: &mut RawFd) {
    if *fd < 0 {
        return;
    }
    // SAFETY: guaranteed by the caller.
    let owned = unsafe { OwnedFd::from_raw_fd(*fd) };
    *fd = raise(owned).map_or(-1, IntoRawFd::into_raw_fd);
}

/// Makes a descriptor of the libraries non-blocking.
pub(crate) fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: the call takes no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: the call takes no pointers.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Converts the return value of a verb: 0 is success, anything else an error.
pub(crate) fn checked(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        code => Err(io::Error::from_raw_os_error(code.abs())),
    }
}

/// The error of the last verb, which failed to create a `resource`.
pub(crate) fn refused(resource: Resource) -> RnicError {
    of(io::Error::last_os_error(), resource)
}

/// Converts the error of a verb.
pub(crate) fn of(error: io::Error, resource: Resource) -> RnicError {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::ENOSPC | libc::EAGAIN) => RnicError::NoResources(resource),
        Some(libc::EMFILE | libc::ENFILE) => RnicError::NoResources(Resource::Descriptor),
        Some(libc::EINVAL | libc::EFAULT) => RnicError::InvalidArgument("refused by the device"),
        Some(libc::EPERM | libc::EACCES) => RnicError::NotPermitted("refused by the device"),
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => {
            RnicError::NotSupported("not offered by the device")
        }
        _ => RnicError::Os(error),
    }
}

fn find(libraries: &Libraries, config: &Config) -> Result<Served, RnicError> {
    let word = config.adapter.as_str();
    if is_verbs_device(libraries, word) {
        return serve_any(libraries, word, config.port);
    }
    let adapter = net_device::resolve(word)?;
    let address = with_scope(adapter.address, adapter.scope_id);
    served_by(libraries, address)?.ok_or_else(|| {
        RnicError::NoDevice(format!(
            "{word} ({}) belongs to no RDMA device; `rdma link` lists the RDMA devices",
            adapter.address
        ))
    })
}

fn with_scope(address: IpAddr, scope_id: u32) -> SocketAddr {
    let mut address = SocketAddr::new(address, 0);
    if let SocketAddr::V6(v6) = &mut address
        && v6.ip().is_unicast_link_local()
    {
        v6.set_scope_id(scope_id);
    }
    address
}

/// Returns the device by name, with its first IPv4 address, otherwise its first address.
fn serve_any(libraries: &Libraries, name: &str, port: Option<u8>) -> Result<Served, RnicError> {
    let mut addresses: Vec<SocketAddr> = net_device::interfaces()
        .map_err(io::Error::from)?
        .iter()
        .map(|i| with_scope(i.address, i.scope_id))
        .collect();
    addresses.sort_by_key(|address| !address.is_ipv4());
    for address in addresses {
        let served = served_by(libraries, address)?;
        let fits = |s: &Served| s.name == name && port.is_none_or(|port| port == s.port);
        if let Some(served) = served.filter(fits) {
            return Ok(served);
        }
    }
    let port = port.map_or(String::new(), |port| format!(" port {port}"));
    Err(RnicError::NoDevice(format!(
        "{name}{port} has no network device with an address; add one with `ip address add`"
    )))
}

/// Returns the device that serves an address, according to librdmacm.
fn served_by(libraries: &Libraries, address: SocketAddr) -> Result<Option<Served>, RnicError> {
    let mut id: *mut rdma_cm_id = ptr::null_mut();
    let (none, space) = (ptr::null_mut(), RDMA_PS_TCP);
    // SAFETY: the out-pointer is of this frame; without a channel the id is synchronous.
    let made = unsafe {
        libraries
            .cm
            .rdma_create_id(none, &raw mut id, none.cast(), space)
    };
    if made != 0 {
        return Err(no_cm(&io::Error::last_os_error()));
    }
    let mut name = CSocketAddr::from(address);
    // SAFETY: the id is alive, and the address is as long as its family requires.
    let bound = unsafe { libraries.cm.rdma_bind_addr(id, name.as_ptr().cast()) } == 0;
    // SAFETY: the id was just created, and no other thread has it.
    let (context, port) = unsafe { ((*id).verbs, (*id).port_num) };
    let served = (bound && !context.is_null()).then(|| Served {
        // SAFETY: a bound id's context is open and points to its device, whose name ends in zero.
        name: unsafe { CStr::from_ptr((*(*context).device).name.as_ptr()) }
            .to_string_lossy()
            .into_owned(),
        port,
        address,
    });
    // SAFETY: created above, and not used any more.
    unsafe { libraries.cm.rdma_destroy_id(id) };
    Ok(served)
}

fn no_cm(why: &io::Error) -> RnicError {
    RnicError::NoDevice(format!(
        "the RDMA connection manager (/dev/infiniband/rdma_cm) cannot be opened: {why}; it comes \
         with an RDMA device and the kernel module rdma_ucm"
    ))
}

fn is_verbs_device(libraries: &Libraries, name: &str) -> bool {
    with_device(libraries, name, |_| ()).is_some()
}

fn open_by_name(libraries: &Libraries, name: &str) -> Result<NonNull<ibv_context>, RnicError> {
    let open = |device| {
        // SAFETY: the device is one of the list that is alive during this call.
        NonNull::new(unsafe { libraries.verbs.ibv_open_device(device) })
            .ok_or_else(io::Error::last_os_error)
    };
    match with_device(libraries, name, open) {
        Some(Ok(context)) => {
            let raw = context.as_ptr();
            // SAFETY: the context was just opened for this RNIC alone. The libraries and the
            // drivers read both numbers from the context at each use, and close them with it.
            unsafe {
                renumber(&mut (*raw).cmd_fd);
                renumber(&mut (*raw).async_fd);
            }
            Ok(context)
        }
        Some(Err(why)) => Err(RnicError::NoDevice(format!(
            "{name} cannot be opened: {why}; /dev/infiniband/uverbs* must exist and be writable"
        ))),
        None => Err(RnicError::NoDevice(format!("{name} no longer exists"))),
    }
}

/// Calls `then` with the device of this name, if there is one.
fn with_device<T>(
    libraries: &Libraries,
    name: &str,
    then: impl FnOnce(*mut ibv_device) -> T,
) -> Option<T> {
    let mut count = 0;
    // SAFETY: the out-pointer is of this frame; this function owns the list and frees it below.
    let list = unsafe { libraries.verbs.ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        return None;
    }
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the list has `count` devices.
    let devices = unsafe { std::slice::from_raw_parts(list, count) };
    let found = devices.iter().copied().find(|device| {
        // SAFETY: an element of the list, whose name ends in zero.
        let its_name = unsafe { CStr::from_ptr((**device).name.as_ptr()) };
        its_name.to_bytes() == name.as_bytes()
    });
    let result = found.map(then);
    // SAFETY: from `ibv_get_device_list`, freed once; opened devices stay open.
    unsafe { libraries.verbs.ibv_free_device_list(list) };
    result
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_descriptor_of_the_libraries_is_moved_away_from_those_of_the_program() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut fd = near.into_raw_fd();
        // SAFETY: `fd` is the only record of the descriptor.
        unsafe { renumber(&mut fd) };
        assert!(fd >= host::descriptors::lowest(), "{fd}");
        // SAFETY: `fd` is the only record of the descriptor.
        let mut near = unsafe { UnixStream::from_raw_fd(fd) };
        near.write_all(b"a").unwrap();
        drop(near);
        let mut all = Vec::new();
        far.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"a", "no other descriptor is open");
        let mut none = -1;
        // SAFETY: negative.
        unsafe { renumber(&mut none) };
        assert_eq!(none, -1);
    }
}
