//! Errors: `DAT_RETURN` with names and advice, and the errors that this crate detects itself.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr;

use dat_abi::*;

use crate::library::{Library, LoadError};

/// Result of the calls of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reasons for which a call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The registry library is missing or unusable.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// A DAT call returned a failure.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The loaded registry library does not export a call that DAT 2.0 declares.
    #[error("{call} is not exported by this registry library; dat-rs's libdat2 has it")]
    Missing {
        /// The C name of the call.
        call: &'static str,
    },
    /// An offset and length are not within a memory region.
    #[error("bytes {offset}..{offset}+{len} are not within a region of {region_len} bytes")]
    OutOfBounds {
        /// First byte, counted from the start of the region.
        offset: usize,
        /// Length in bytes.
        len: usize,
        /// Length of the region in bytes.
        region_len: usize,
    },
    /// A length, count or name that the C interface cannot express.
    #[error("{what} is too large or malformed for DAT")]
    Unrepresentable {
        /// Name of the value.
        what: &'static str,
    },
    /// Memory for a region could not be allocated.
    #[error("cannot allocate {len} bytes for a memory region")]
    OutOfMemory {
        /// Number of bytes that was requested.
        len: usize,
    },
    /// A wait for an outcome timed out.
    #[error("no event occurred before the timeout; is the peer alive?")]
    TimedOut,
    /// No adapter of the registry has this address.
    #[error("no adapter has the address {address}; `datinfo` lists the adapters")]
    NoAdapter {
        /// The address.
        address: std::net::IpAddr,
    },
    /// Posted work did not succeed.
    #[error("{0}")]
    Failed(crate::event::DtoStatus),
    /// A connection was not established.
    #[error("no connection: {0}")]
    Refused(crate::event::ConnectionKind),
    /// The operating system returned an error for a socket.
    #[error("socket: {0}")]
    Socket(#[from] SocketError),
}

impl Error {
    /// Type of the `DAT_RETURN` of this error, if a DAT call failed.
    #[must_use]
    pub fn return_type(&self) -> Option<DatReturnType> {
        match self {
            Self::Call(error) => Some(error.code.ty()),
            _ => None,
        }
    }

    /// Returns true if the call failed with this type, with or without the class bit.
    #[must_use]
    pub fn is(&self, ty: DatReturnType) -> bool {
        self.return_type() == Some(ty)
    }

    /// Returns true if the library or the provider does not support the request, as opposed to an
    /// operation that failed.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Missing { .. })
            || self.is(DAT_MODEL_NOT_SUPPORTED)
            || self.is(DAT_NOT_IMPLEMENTED)
    }
}

/// An `errno` of a call on a socket, in a form that can be cloned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", std::io::Error::from_raw_os_error(*errno))]
pub struct SocketError {
    /// The `errno` value.
    pub errno: i32,
}

impl SocketError {
    pub(crate) fn last() -> Self {
        Self {
            errno: std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        }
    }
}

/// A `DAT_RETURN` that is not success, and the call that returned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallError {
    /// The C name of the call.
    pub call: &'static str,
    /// The code that the call returned.
    pub code: DatReturn,
}

impl CallError {
    /// The C name of the type, such as `DAT_INVALID_STATE`.
    #[must_use]
    pub fn type_name(&self) -> String {
        name_or(
            self.code.ty().name(),
            || strerror(self.code).0,
            self.code.ty().0,
        )
    }

    /// The C name of the subtype, such as `DAT_INVALID_STATE_EP_CONNECTED`; empty without one.
    #[must_use]
    pub fn subtype_name(&self) -> String {
        if self.code.subtype() == DAT_NO_SUBTYPE {
            return String::new();
        }
        name_or(
            self.code.subtype().name(),
            || strerror(self.code).1,
            self.code.subtype().0,
        )
    }

    /// Advice for the user, where the code alone is sufficient to give one.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        advice(self.call, self.code)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.type_name())?;
        let subtype = self.subtype_name();
        if !subtype.is_empty() {
            write!(f, " / {subtype}")?;
        }
        write!(f, " ({:#010x})", self.code.0)?;
        match self.advice() {
            Some(advice) => write!(f, ": {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CallError {}

/// Converts a number to the type of counts in C; `what` names the number in the error.
pub(crate) fn to_count(value: impl TryInto<DatCount>, what: &'static str) -> Result<DatCount> {
    value
        .try_into()
        .map_err(|_| Error::Unrepresentable { what })
}

/// Converts the code that a call returned into a `Result`.
pub(crate) fn check(call: &'static str, code: DatReturn) -> Result<(), CallError> {
    if code.is_success() {
        Ok(())
    } else {
        Err(CallError { call, code })
    }
}

fn name_or(known: Option<&CStr>, ask: impl FnOnce() -> Option<String>, value: u32) -> String {
    known
        .map(|name| name.to_string_lossy().into_owned())
        .or_else(ask)
        .unwrap_or_else(|| format!("{value:#x}"))
}

/// Returns the library's texts for a code that this crate does not define (extensions).
fn strerror(code: DatReturn) -> (Option<String>, Option<String>) {
    let Ok(library) = Library::get() else {
        return (None, None);
    };
    let (mut major, mut minor): (*const c_char, *const c_char) = (ptr::null(), ptr::null());
    // SAFETY: both out-pointers are writable for the call.
    if !unsafe { (library.dat_strerror)(code, &mut major, &mut minor) }.is_success() {
        return (None, None);
    }
    // SAFETY: on success both pointers are null or point at constant strings of the library.
    (unsafe { owned_text(major) }, unsafe { owned_text(minor) })
}

/// Copies a C string; `None` for a null pointer or an empty string.
///
/// # Safety
///
/// `text` is null or points at a NUL-terminated string.
pub(crate) unsafe fn owned_text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the pointer is not null, and the caller guarantees that the string is terminated.
    let text = unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned();
    (!text.is_empty()).then_some(text)
}

fn advice(call: &str, code: DatReturn) -> Option<&'static str> {
    Some(match (code.ty(), code.subtype()) {
        (DAT_PROVIDER_NOT_FOUND, _) => {
            "no usable dat.conf line has this IA name; `datinfo` lists the names, and DAT_OVERRIDE \
             names another dat.conf"
        }
        (DAT_NOT_IMPLEMENTED | DAT_MODEL_NOT_SUPPORTED, _) if call.contains("_iw_") => {
            "this provider has no Socket Service Points; stay in streaming mode or use an iWARP IA"
        }
        (DAT_NOT_IMPLEMENTED | DAT_MODEL_NOT_SUPPORTED, _) => {
            "this provider does not support the call; `datinfo` lists its features"
        }
        (DAT_INVALID_STATE, DAT_INVALID_STATE_EP_NOTREADY) => {
            "set the endpoint's protection zone and all three event dispatchers first"
        }
        (DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED) => "connect the endpoint first",
        (DAT_INVALID_STATE, DAT_INVALID_STATE_EP_DISCONNECTED) => {
            "reset the endpoint before it is used again"
        }
        (DAT_INVALID_STATE, _) if call == "dat_iw_ssp_create" => {
            "the endpoint must be unconnected and the socket routed through this IA"
        }
        (DAT_INVALID_STATE, _) if call == "dat_iw_socket_connect" => {
            "the endpoint must be unconnected and complete, and the socket routed through this IA"
        }
        (DAT_CONN_QUAL_IN_USE, _) => "another service uses this qualifier; choose another one",
        (DAT_CONN_QUAL_UNAVAILABLE, _) => {
            "all connection qualifiers are in use; free a service point"
        }
        (DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEVD) => "request a shorter event queue",
        (DAT_INSUFFICIENT_RESOURCES, _) if call.starts_with("dat_ep_post") => {
            "the work queue is full: reap completions, or create the endpoint with more DTOs"
        }
        (DAT_LENGTH_ERROR, _) => "the local segments do not fit the remote range or the limits",
        (DAT_PRIVILEGES_VIOLATION, _) => "register the memory with the required privileges",
        (DAT_PROTECTION_VIOLATION, _) => "memory and endpoint must share a protection zone",
        (DAT_INTERRUPTED_CALL, _) => "a signal interrupted the call; call again",
        _ if call == "dat_ia_open" => {
            "`datinfo` shows the provider's reason; so does its log, with DAT_LOG=warn"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_error_names_call_type_subtype_and_remedy() {
        let error = CallError {
            call: "dat_ep_post_send",
            code: DatReturn::error(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED),
        };
        let text = error.to_string();
        assert!(
            text.contains("dat_ep_post_send: DAT_INVALID_STATE"),
            "{text}"
        );
        assert!(text.contains("DAT_INVALID_STATE_EP_UNCONNECTED"), "{text}");
        assert!(text.contains("connect the endpoint first"), "{text}");
    }

    #[test]
    fn a_code_without_class_bit_is_an_error_too() {
        let code = DatReturn::without_class(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE);
        let error = Error::from(check("dat_csp_create", code).unwrap_err());
        assert!(error.is_unsupported());
        assert!(error.is(DAT_MODEL_NOT_SUPPORTED));
    }

    #[test]
    fn an_unknown_code_is_shown_as_a_number() {
        let error = CallError {
            call: "x",
            code: DatReturn(0x8000_0000 | 0x2345_0000 | 0x7777),
        };
        assert!(error.to_string().contains("0x2345"), "{error}");
    }
}
