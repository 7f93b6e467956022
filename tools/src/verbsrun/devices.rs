//! The devices that the library shows.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

type GetList = unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void;
type GetName = unsafe extern "C" fn(*mut c_void) -> *const c_char;

/// Returns the names of the devices, one a line.
pub(crate) fn list(library: &Path) -> Result<String> {
    let path = CString::new(library.as_os_str().as_bytes()).context("the path of the library")?;
    // SAFETY: the path is a string.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        bail!("{} cannot be loaded", library.display());
    }
    let symbol = |name: &CStr| {
        // SAFETY: the handle is that of a library that is never closed.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        (!found.is_null())
            .then_some(found)
            .with_context(|| format!("{} has no {}", library.display(), name.to_string_lossy()))
    };
    let (get_list, get_name) = (
        symbol(c"ibv_get_device_list")?,
        symbol(c"ibv_get_device_name")?,
    );
    // SAFETY: the functions of these names have these types.
    let (get_list, get_name) = unsafe {
        (
            std::mem::transmute::<*mut c_void, GetList>(get_list),
            std::mem::transmute::<*mut c_void, GetName>(get_name),
        )
    };
    let mut count = 0;
    // SAFETY: the count is a variable of this frame.
    let devices = unsafe { get_list(&raw mut count) };
    if devices.is_null() {
        return Err(std::io::Error::last_os_error()).context("listing the devices");
    }
    let mut names = String::new();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` devices, whose names are strings that live as long as the
        // library.
        let name = unsafe { CStr::from_ptr(get_name(*devices.add(index))) };
        names.push_str(&name.to_string_lossy());
        names.push('\n');
    }
    Ok(names)
}
