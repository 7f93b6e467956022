//! The list of devices: one for each network device that is up and has an address.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Mutex, Once};

use host::locks::lock;
use host::log::{Destination, Outlet};
use rnic::net_device::{address_of, interfaces};
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::abi::Gid;
use crate::fault::{self, Fault};
use crate::interface::Interface;
use crate::object::Object;

/// The start of the names of devices.
const PREFIX: &str = "dat_";

/// A device.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) interface: String,
    pub(crate) address: IpAddr,
}

type DeviceObject = Object<ibv_device, Device>;

/// The addresses of all structures that were returned. Programs use a device after they have freed
/// the list, as long as a context of it is open, so that structures are reused and never freed.
static KNOWN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Returns the data of a device.
///
/// # Safety
/// `device` was returned by `ibv_get_device_list`.
pub(crate) unsafe fn of<'a>(device: *mut ibv_device) -> &'a Device {
    // SAFETY: structures of devices are never freed.
    unsafe { DeviceObject::own(device) }
}

/// Returns the devices that exist now.
fn devices() -> Result<Vec<Device>, Fault> {
    let interfaces = interfaces()
        .map_err(|error| Errno::from_io_error(&std::io::Error::from(error)).unwrap_or(Errno::IO))?;
    let mut devices: Vec<Device> = Vec::new();
    for interface in interfaces.iter().filter(|interface| interface.is_up) {
        let name = &interface.name;
        if devices.iter().all(|device| device.interface != *name)
            && let Some(address) = address_of(&interfaces, name)
        {
            let interface = name.clone();
            devices.push(Device { interface, address });
        }
    }
    // The device that other hosts can reach comes first, because programs use the first one.
    devices.sort_by_key(|device| device.address.is_loopback());
    Ok(devices)
}

/// Returns the structure of a device: the known one, unless the address has changed.
fn structure(device: Device) -> *mut ibv_device {
    let mut known = lock(&KNOWN);
    for address in &*known {
        let object = std::ptr::with_exposed_provenance_mut(*address);
        // SAFETY: the list contains structures of this module, which are never freed.
        let other = unsafe { of(object) };
        if other.interface == device.interface && other.address == device.address {
            return object;
        }
    }
    let mut c = ibv_device {
        // SAFETY: the operations are for the library alone, and this one does not use them.
        _ops: unsafe { std::mem::zeroed() },
        node_type: IBV_NODE_CA,
        transport_type: IBV_TRANSPORT_IB,
        name: [0; 64],
        dev_name: [0; 64],
        dev_path: [0; 256],
        ibdev_path: [0; 256],
    };
    let name = format!("{PREFIX}{}", device.interface);
    set(&mut c.name, &name);
    set(&mut c.dev_name, &format!("uverbs_{name}"));
    set(&mut c.ibdev_path, &format!("/sys/class/infiniband/{name}"));
    let object = DeviceObject::create(c, device);
    known.push(object.expose_provenance());
    object
}

/// Stores a string that ends with a zero byte.
fn set(to: &mut [c_char], from: &str) {
    for (place, byte) in to.iter_mut().rev().skip(1).rev().zip(from.bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
}

/// Returns the structures of the devices that exist now.
pub(crate) fn structures() -> Result<Vec<*mut ibv_device>, Fault> {
    Ok(devices()?.into_iter().map(structure).collect())
}

fn list(count: *mut c_int) -> Result<*mut *mut ibv_device, Fault> {
    let mut found = structures()?;
    if !count.is_null() {
        // SAFETY: the program passes null or a pointer to its variable.
        unsafe { count.write(found.len() as c_int) };
    }
    found.push(std::ptr::null_mut());
    // SAFETY: the memory is freed by `ibv_free_device_list`, with the allocator of C because only
    // that one needs no length.
    let list = unsafe { libc::calloc(found.len(), size_of::<*mut ibv_device>()) };
    let list = list.cast::<*mut ibv_device>();
    if list.is_null() {
        return Err(Errno::NOMEM);
    }
    // SAFETY: the allocation has as many places.
    unsafe { list.copy_from_nonoverlapping(found.as_ptr(), found.len()) };
    Ok(list)
}

/// `ibv_get_device_list(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    static LOG: Once = Once::new();
    LOG.call_once(|| {
        let destination = Destination::Descriptor(libc::STDERR_FILENO);
        host::log::begin(Outlet::new("libibverbs", destination), None);
    });
    fault::pointer(list(count))
}

/// `ibv_free_device_list(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: `ibv_get_device_list` allocated the list, and the program does not use it any more.
    unsafe { libc::free(list.cast()) };
}

/// `ibv_get_device_name(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the program passes a device of the list, which is never freed.
    unsafe { (&raw const (*device).name).cast() }
}

/// `ibv_get_device_guid(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: the program passes a device of the list.
    guid(unsafe { of(device) })
}

/// `ibv_get_device_index(3)`: the index of the network device.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: the program passes a device of the list.
    let interface = Interface::of(&unsafe { of(device) }.interface);
    interface.and_then(|mut found| found.index()).unwrap_or(-1)
}

/// Returns the GUID in the byte order of the network: the EUI-64 of the network device, or one that
/// is derived from its address if it has none.
pub(crate) fn guid(device: &Device) -> u64 {
    let mac = Interface::of(&device.interface).and_then(|mut found| found.ethernet_address());
    let bytes = mac.map(eui64).unwrap_or_else(|| {
        let octets = Gid::of(device.address).0;
        let mut own = [0; 8];
        own.copy_from_slice(&octets[8..]);
        own
    });
    u64::from_ne_bytes(bytes)
}

/// Returns the EUI-64 of an Ethernet address.
fn eui64([a, b, c, d, e, f]: [u8; 6]) -> [u8; 8] {
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// `ibv_read_sysfs_file`: the first bytes of a file below `dir`, without its last newline.
///
/// # Safety
/// `dir` and `file` are strings, and `buffer` has room for `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the program passes strings.
    let [dir, file] = unsafe { [CStr::from_ptr(dir), CStr::from_ptr(file)] };
    let path = [dir.to_bytes(), b"/", file.to_bytes()].concat();
    let Ok(mut content) = std::fs::read(OsStr::from_bytes(&path)) else {
        return -1;
    };
    if content.last() == Some(&b'\n') {
        content.pop();
    }
    let len = content.len().min(size);
    // SAFETY: the buffer has room for `size` bytes (caller).
    unsafe {
        buffer
            .cast::<u8>()
            .copy_from_nonoverlapping(content.as_ptr(), len)
    };
    if len < size {
        // SAFETY: as above; the string ends within the buffer.
        unsafe { buffer.add(len).write(0) };
    }
    len as c_int
}

/// `ibv_get_sysfs_path`.
#[unsafe(no_mangle)]
extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guid_is_the_eui64_of_an_ethernet_address() {
        let guid = eui64([0x02, 0x42, 0xac, 0x11, 0x00, 0x02]);
        assert_eq!(guid, [0x00, 0x42, 0xac, 0xff, 0xfe, 0x11, 0x00, 0x02]);
    }

    #[test]
    fn a_name_is_cut_before_its_zero_byte() {
        let mut name = [0; 4];
        set(&mut name, "abcdef");
        assert_eq!(name.map(|byte| byte.to_ne_bytes()[0]), *b"abc\0");
    }
}
