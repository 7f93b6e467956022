//! `DAT_RETURN`: class, type and subtype packed into 32 bits (DAT 2.0 chapter 4).

use core::ffi::CStr;
use core::fmt;

/// Set in the return code of a call that failed.
pub const DAT_CLASS_ERROR: u32 = 0x8000_0000;
/// Set in the return code of a call that succeeded with a restriction.
pub const DAT_CLASS_WARNING: u32 = 0x4000_0000;
/// No class bit: the call succeeded.
pub const DAT_CLASS_SUCCESS: u32 = 0;
/// Bits 29 to 16, see [`DatReturnType`].
pub const DAT_TYPE_MASK: u32 = 0x3FFF_0000;
/// Bits 15 to 0, see [`DatReturnSubtype`].
pub const DAT_SUBTYPE_MASK: u32 = 0x0000_FFFF;

/// Return value of a DAT call.
///
/// The usual failure is [`DatReturn::error`]; a few OFA calls omit the class bit, which
/// [`DatReturn::without_class`] reproduces for consumers that compare whole values.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct DatReturn(pub u32);

/// Type part of a [`DatReturn`], in place (bits 29 to 16).
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatReturnType(pub u32);

/// Subtype part of a [`DatReturn`] (bits 15 to 0).
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatReturnSubtype(pub u32);

impl DatReturn {
    /// No class, no type and no subtype: the call succeeded.
    pub const SUCCESS: Self = Self(0);

    /// Creates an error of a type and a subtype.
    pub const fn error(ty: DatReturnType, subtype: DatReturnSubtype) -> Self {
        Self(DAT_CLASS_ERROR | ty.0 | subtype.0)
    }

    /// Creates a type and subtype without a class bit, as some calls return them.
    pub const fn without_class(ty: DatReturnType, subtype: DatReturnSubtype) -> Self {
        Self(ty.0 | subtype.0)
    }

    /// Returns the type, which is the kind of failure.
    #[must_use]
    pub const fn ty(self) -> DatReturnType {
        DatReturnType(self.0 & DAT_TYPE_MASK)
    }

    /// Returns the subtype, which is the argument, handle, state or resource concerned.
    #[must_use]
    pub const fn subtype(self) -> DatReturnSubtype {
        DatReturnSubtype(self.0 & DAT_SUBTYPE_MASK)
    }

    /// Returns true if the call succeeded: no class bit of error and type `DAT_SUCCESS`.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & (DAT_CLASS_ERROR | DAT_TYPE_MASK) == 0
    }

    /// Returns true if the call failed with this type, with or without the class bit.
    #[must_use]
    pub const fn is(self, ty: DatReturnType) -> bool {
        self.ty().0 == ty.0
    }
}

impl DatReturnType {
    /// Returns the C name of a defined type.
    #[must_use]
    pub fn name(self) -> Option<&'static CStr> {
        TYPE_NAMES
            .iter()
            .find(|(ty, _)| *ty == self)
            .map(|(_, name)| *name)
    }
}

impl DatReturnSubtype {
    /// Returns the C name of a defined subtype.
    #[must_use]
    pub fn name(self) -> Option<&'static CStr> {
        SUBTYPE_NAMES
            .iter()
            .find(|(subtype, _)| *subtype == self)
            .map(|(_, name)| *name)
    }
}

impl fmt::Debug for DatReturn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.ty())?;
        if self.subtype() != DAT_NO_SUBTYPE {
            write!(f, "/{:?}", self.subtype())?;
        }
        write!(f, " ({:#010x})", self.0)
    }
}

impl fmt::Debug for DatReturnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, self.name(), self.0)
    }
}

impl fmt::Debug for DatReturnSubtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, self.name(), self.0)
    }
}

fn write_name(f: &mut fmt::Formatter<'_>, name: Option<&CStr>, value: u32) -> fmt::Result {
    match name.and_then(|name| name.to_str().ok()) {
        Some(name) => f.write_str(name),
        None => write!(f, "{value:#x}"),
    }
}

/// Declares codes under their C names, and the table that maps them back to those names. The
/// documentation of each names the type; text that is written here follows.
macro_rules! codes {
    ($table:ident, $ty:ident: $($(#[$meta:meta])* $name:ident = $value:literal),+ $(,)?) => {
        $(
            #[doc = concat!("A value of [`", stringify!($ty), "`].")]
            $(#[$meta])*
            pub const $name: $ty = $ty($value);
        )+

        static $table: &[($ty, &CStr)] = &[
            $(($name, match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a C identifier holds no NUL"),
            })),+
        ];
    };
}

codes! { TYPE_NAMES, DatReturnType:
    /// The call succeeded.
    DAT_SUCCESS = 0x0000_0000,
    /// The operation was aborted because the IA was closed or the process is ending.
    DAT_ABORT = 0x0001_0000,
    /// The connection qualifier is in use.
    DAT_CONN_QUAL_IN_USE = 0x0002_0000,
    /// A resource ran out; the subtype says which.
    DAT_INSUFFICIENT_RESOURCES = 0x0003_0000,
    /// A fault inside the provider or the registry.
    DAT_INTERNAL_ERROR = 0x0004_0000,
    /// The handle is not that of a live object of the right kind; the subtype says which.
    DAT_INVALID_HANDLE = 0x0005_0000,
    /// An argument is out of range; the subtype says which.
    DAT_INVALID_PARAMETER = 0x0006_0000,
    /// An object is in the wrong state; the subtype says which.
    DAT_INVALID_STATE = 0x0007_0000,
    /// A length does not fit.
    DAT_LENGTH_ERROR = 0x0008_0000,
    /// The provider does not have the requested model.
    DAT_MODEL_NOT_SUPPORTED = 0x0009_0000,
    /// No provider is registered under the name and version.
    DAT_PROVIDER_NOT_FOUND = 0x000A_0000,
    /// Memory privileges do not allow the access.
    DAT_PRIVILEGES_VIOLATION = 0x000B_0000,
    /// Protection zones do not match.
    DAT_PROTECTION_VIOLATION = 0x000C_0000,
    /// There is no event.
    DAT_QUEUE_EMPTY = 0x000D_0000,
    /// There is no room for another event.
    DAT_QUEUE_FULL = 0x000E_0000,
    /// The timeout expired.
    DAT_TIMEOUT_EXPIRED = 0x000F_0000,
    /// The name and version are registered already.
    DAT_PROVIDER_ALREADY_REGISTERED = 0x0010_0000,
    /// The provider has open IAs.
    DAT_PROVIDER_IN_USE = 0x0011_0000,
    /// The address is unusable; the subtype says why.
    DAT_INVALID_ADDRESS = 0x0012_0000,
    /// A signal ended the wait.
    DAT_INTERRUPTED_CALL = 0x0013_0000,
    /// No connection qualifier is free.
    DAT_CONN_QUAL_UNAVAILABLE = 0x0014_0000,
    /// The reserved LMR does not allow this use (kernel only).
    DAT_RESERVED_LMR = 0x0015_0000,
    /// The port is in use.
    DAT_PORT_IN_USE = 0x0016_0000,
    /// The communicator is not supported.
    DAT_COMM_NOT_SUPPORTED = 0x0017_0000,
    /// First type reserved for extensions.
    DAT_EXTENSION_BASE = 0x1000_0000,
    /// The provider does not implement the call.
    DAT_NOT_IMPLEMENTED = 0x3FFF_0000,
}

/// Older name of [`DAT_PROVIDER_NOT_FOUND`].
pub const DAT_NAME_NOT_FOUND: DatReturnType = DAT_PROVIDER_NOT_FOUND;

codes! { SUBTYPE_NAMES, DatReturnSubtype:
    DAT_NO_SUBTYPE = 0,
    DAT_SUB_INTERRUPTED = 1,
    DAT_RESOURCE_MEMORY = 2,
    DAT_RESOURCE_DEVICE = 3,
    DAT_RESOURCE_TEP = 4,
    DAT_RESOURCE_TEVD = 5,
    DAT_RESOURCE_PROTECTION_DOMAIN = 6,
    DAT_RESOURCE_MEMORY_REGION = 7,
    DAT_RESOURCE_ERROR_HANDLER = 8,
    DAT_RESOURCE_CREDITS = 9,
    DAT_RESOURCE_SRQ = 10,
    DAT_INVALID_HANDLE_IA = 11,
    DAT_INVALID_HANDLE_EP = 12,
    DAT_INVALID_HANDLE_LMR = 13,
    DAT_INVALID_HANDLE_RMR = 14,
    DAT_INVALID_HANDLE_PZ = 15,
    DAT_INVALID_HANDLE_PSP = 16,
    DAT_INVALID_HANDLE_RSP = 17,
    DAT_INVALID_HANDLE_CR = 18,
    DAT_INVALID_HANDLE_CNO = 19,
    DAT_INVALID_HANDLE_EVD_CR = 20,
    DAT_INVALID_HANDLE_EVD_REQUEST = 21,
    DAT_INVALID_HANDLE_EVD_RECV = 22,
    DAT_INVALID_HANDLE_EVD_CONN = 23,
    DAT_INVALID_HANDLE_EVD_ASYNC = 24,
    DAT_INVALID_HANDLE_SRQ = 25,
    DAT_INVALID_HANDLE_CSP = 26,
    DAT_INVALID_HANDLE1 = 27,
    DAT_INVALID_HANDLE2 = 28,
    DAT_INVALID_HANDLE3 = 29,
    DAT_INVALID_HANDLE4 = 30,
    DAT_INVALID_HANDLE5 = 31,
    DAT_INVALID_HANDLE6 = 32,
    DAT_INVALID_HANDLE7 = 33,
    DAT_INVALID_HANDLE8 = 34,
    DAT_INVALID_HANDLE9 = 35,
    DAT_INVALID_HANDLE10 = 36,
    DAT_INVALID_ARG1 = 37,
    DAT_INVALID_ARG2 = 38,
    DAT_INVALID_ARG3 = 39,
    DAT_INVALID_ARG4 = 40,
    DAT_INVALID_ARG5 = 41,
    DAT_INVALID_ARG6 = 42,
    DAT_INVALID_ARG7 = 43,
    DAT_INVALID_ARG8 = 44,
    DAT_INVALID_ARG9 = 45,
    DAT_INVALID_ARG10 = 46,
    DAT_INVALID_STATE_EP_UNCONNECTED = 47,
    /// The EP is connecting.
    DAT_INVALID_STATE_EP_ACTCONNPENDING = 48,
    /// The EP has a pending connection request.
    DAT_INVALID_STATE_EP_PASSCONNPENDING = 49,
    /// The EP was created for a pending connection request.
    DAT_INVALID_STATE_EP_TENTCONNPENDING = 50,
    DAT_INVALID_STATE_EP_CONNECTED = 51,
    DAT_INVALID_STATE_EP_DISCONNECTED = 52,
    DAT_INVALID_STATE_EP_RESERVED = 53,
    /// The EP waits for the connection to complete.
    DAT_INVALID_STATE_EP_COMPLPENDING = 54,
    DAT_INVALID_STATE_EP_DISCPENDING = 55,
    /// The provider controls the EP.
    DAT_INVALID_STATE_EP_PROVIDERCONTROL = 56,
    /// The EP lacks a PZ or an EVD.
    DAT_INVALID_STATE_EP_NOTREADY = 57,
    /// A receive watermark of the EP is set.
    DAT_INVALID_STATE_EP_RECV_WATERMARK = 58,
    DAT_INVALID_STATE_EP_PZ = 59,
    DAT_INVALID_STATE_EP_EVD_REQUEST = 60,
    DAT_INVALID_STATE_EP_EVD_RECV = 61,
    DAT_INVALID_STATE_EP_EVD_CONNECT = 62,
    DAT_INVALID_STATE_EP_UNCONFIGURED = 63,
    DAT_INVALID_STATE_EP_UNCONFRESERVED = 64,
    DAT_INVALID_STATE_EP_UNCONFPASSIVE = 65,
    DAT_INVALID_STATE_EP_UNCONFTENTATIVE = 66,
    /// EVDs refer to the CNO.
    DAT_INVALID_STATE_CNO_IN_USE = 67,
    /// The CNO was freed.
    DAT_INVALID_STATE_CNO_DEAD = 68,
    DAT_INVALID_STATE_EVD_OPEN = 69,
    DAT_INVALID_STATE_EVD_ENABLED = 70,
    DAT_INVALID_STATE_EVD_DISABLED = 71,
    DAT_INVALID_STATE_EVD_WAITABLE = 72,
    DAT_INVALID_STATE_EVD_UNWAITABLE = 73,
    /// Other objects refer to the EVD.
    DAT_INVALID_STATE_EVD_IN_USE = 74,
    DAT_INVALID_STATE_EVD_CONFIG_NOTIFY = 75,
    DAT_INVALID_STATE_EVD_CONFIG_SOLICITED = 76,
    DAT_INVALID_STATE_EVD_CONFIG_THRESHOLD = 77,
    /// The EVD has a waiter.
    DAT_INVALID_STATE_EVD_WAITER = 78,
    DAT_INVALID_STATE_EVD_ASYNC = 79,
    /// Objects of the IA are left.
    DAT_INVALID_STATE_IA_IN_USE = 80,
    /// Windows refer to the LMR.
    DAT_INVALID_STATE_LMR_IN_USE = 81,
    DAT_INVALID_STATE_LMR_FREE = 82,
    /// Objects refer to the PZ.
    DAT_INVALID_STATE_PZ_IN_USE = 83,
    DAT_INVALID_STATE_PZ_FREE = 84,
    DAT_INVALID_STATE_SRQ_OPERATIONAL = 85,
    DAT_INVALID_STATE_SRQ_ERROR = 86,
    /// Endpoints use the SRQ.
    DAT_INVALID_STATE_SRQ_IN_USE = 87,
    DAT_INVALID_STATE_SRQ_SHUTDOWN = 88,
    DAT_PRIVILEGES_READ = 89,
    DAT_PRIVILEGES_WRITE = 90,
    DAT_PRIVILEGES_RDMA_READ = 91,
    DAT_PRIVILEGES_RDMA_WRITE = 92,
    DAT_PROTECTION_READ = 93,
    DAT_PROTECTION_WRITE = 94,
    DAT_PROTECTION_RDMA_READ = 95,
    DAT_PROTECTION_RDMA_WRITE = 96,
    DAT_INVALID_ADDRESS_UNSUPPORTED = 97,
    DAT_INVALID_ADDRESS_UNREACHABLE = 98,
    DAT_INVALID_ADDRESS_MALFORMED = 99,
    DAT_NAME_NOT_REGISTERED = 100,
    DAT_MAJOR_NOT_FOUND = 101,
    DAT_MINOR_NOT_FOUND = 102,
    DAT_THREAD_SAFETY_NOT_FOUND = 103,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_carries_class_type_and_subtype() {
        let code = DatReturn::error(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
        assert_eq!(code.0, 0x8005_000B);
        assert_eq!(code.ty(), DAT_INVALID_HANDLE);
        assert_eq!(code.subtype(), DAT_INVALID_HANDLE_IA);
        assert!(!code.is_success());
    }

    #[test]
    fn a_code_without_class_bit_is_still_a_failure() {
        let code = DatReturn::without_class(DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE);
        assert_eq!(code.0, 0x000D_0000);
        assert!(!code.is_success());
        assert!(code.is(DAT_QUEUE_EMPTY));
    }

    #[test]
    fn every_known_code_has_its_c_name_and_each_value_only_one() {
        for (index, (subtype, name)) in SUBTYPE_NAMES.iter().enumerate() {
            assert_eq!(subtype.0 as usize, index, "{name:?}");
        }
        assert_eq!(SUBTYPE_NAMES.len(), 104);
        assert_eq!(
            DAT_INVALID_STATE_SRQ_SHUTDOWN.name(),
            Some(c"DAT_INVALID_STATE_SRQ_SHUTDOWN")
        );
        assert_eq!(DAT_NOT_IMPLEMENTED.name(), Some(c"DAT_NOT_IMPLEMENTED"));
        assert_eq!(DatReturnType(0x0018_0000).name(), None);
    }
}
