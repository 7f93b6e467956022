//! Scalar types, the 8-byte context union and the two socket address shapes (DAT 2.0 chapter 5).

use core::ffi::{c_char, c_int, c_void};
use core::fmt;

/// `DAT_UINT32`.
pub type DatUint32 = u32;
/// `DAT_UINT64`.
pub type DatUint64 = u64;
/// `DAT_UVERYLONG`.
pub type DatUverylong = u64;
/// `DAT_COUNT`: a signed count; negative values are errors or [`DAT_VALUE_UNKNOWN`].
pub type DatCount = i32;
/// `DAT_BOOLEAN`: an int-sized C enum; every value other than [`DAT_FALSE`] counts as true.
pub type DatBoolean = u32;
/// `DAT_TIMEOUT` in microseconds; [`DAT_TIMEOUT_INFINITE`] never expires.
pub type DatTimeout = u32;
/// `DAT_PVOID`.
pub type DatPvoid = *mut c_void;
/// `DAT_NAME_PTR`: a NUL-terminated string.
pub type DatNamePtr = *mut c_char;
/// `DAT_CONN_QUAL`: the service at an IA address, in host byte order.
pub type DatConnQual = u64;
/// `DAT_PORT_QUAL`: the port of one end of a connection, in host byte order.
pub type DatPortQual = u64;
/// `DAT_SEG_LENGTH` in bytes.
pub type DatSegLength = u32;
/// `DAT_VLEN` in bytes.
pub type DatVlen = u64;
/// `DAT_VADDR`: an address in the consumer's address space.
pub type DatVaddr = u64;
/// `DAT_PADDR`: a physical address (kernel consumers only).
pub type DatPaddr = u64;
/// `DAT_LMR_CONTEXT`: the key under which the local side names a memory region.
pub type DatLmrContext = u32;
/// `DAT_RMR_CONTEXT`: the key under which the remote side names a memory region.
pub type DatRmrContext = u32;
/// `DAT_FD`.
pub type DatFd = c_int;
/// `DAT_EXTENDED_OP`: number of an extension operation.
pub type DatExtendedOp = c_int;
/// `DAT_HA_LB`: load-balancing abilities as bits.
pub type DatHaLb = u32;
/// `DAT_LMR_COOKIE`: pointer to a shared-memory name of [`DAT_LMR_COOKIE_SIZE`] bytes.
pub type DatLmrCookie = *mut [c_char; DAT_LMR_COOKIE_SIZE];
/// `DAT_IA_ADDRESS_PTR`: a socket address owned by the provider.
pub type DatIaAddressPtr = *mut DatSockAddr;
/// A C `va_list` parameter. On x86-64 (System V) and aarch64 (AAPCS64) it is passed as one pointer.
pub type DatVaList = *mut c_void;

named_constants! { DatBoolean:
    DAT_FALSE = 0,
    DAT_TRUE = 1,
}

constants! { DatCount:
    /// The provider does not know the value.
    DAT_VALUE_UNKNOWN = -2,
    /// No watermark.
    DAT_WATERMARK_INFINITE = -1,
    /// The hardware's default.
    DAT_HW_DEFAULT = -1,
    /// Default low watermark of a shared receive queue: no event.
    DAT_SRQ_LW_DEFAULT = 0,
}

constants! { usize:
    /// Size of a name field including its terminating NUL.
    DAT_NAME_MAX_LENGTH = 256,
    /// Size of a shared-memory cookie.
    DAT_LMR_COOKIE_SIZE = 40,
}

constants! { DatUint32:
    /// Major version of the interface described here.
    DAT_VERSION_MAJOR = 2,
    /// Minor version of the interface described here.
    DAT_VERSION_MINOR = 0,
    /// Buffer alignment in bytes that suits every provider.
    DAT_OPTIMAL_ALIGNMENT = 256,
}

/// Wait without limit.
pub const DAT_TIMEOUT_INFINITE: DatTimeout = 0xFFFF_FFFF;

named_constants! { DatHaLb:
    DAT_HA_LB_NONE = 0,
    /// Load is balanced between communicators.
    DAT_HA_LB_INTERCOMM = 1,
    /// Load is balanced within a communicator.
    DAT_HA_LB_INTRACOMM = 2,
}

/// `DAT_CONTEXT`: eight bytes of the consumer's choice that are returned unchanged.
#[repr(C)]
#[derive(Clone, Copy)]
pub union DatContext {
    /// As a pointer.
    pub as_ptr: DatPvoid,
    /// As a number.
    pub as_64: DatUint64,
    /// As an index.
    pub as_index: DatUverylong,
}

/// `DAT_DTO_COOKIE`: context of a data transfer operation.
pub type DatDtoCookie = DatContext;
/// `DAT_RMR_COOKIE`: context of a bind operation.
pub type DatRmrCookie = DatContext;

impl DatContext {
    /// Creates a context that contains a number.
    #[must_use]
    pub const fn from_u64(value: u64) -> Self {
        Self { as_64: value }
    }

    /// Creates a context that contains a pointer.
    #[must_use]
    pub const fn from_ptr(value: DatPvoid) -> Self {
        Self { as_ptr: value }
    }

    /// Returns the eight bytes as a number, for any member.
    #[must_use]
    pub fn to_u64(self) -> u64 {
        // SAFETY: all members cover the same eight bytes and every bit pattern is a valid u64.
        unsafe { self.as_64 }
    }

    /// Returns the eight bytes as a pointer, for any member.
    #[must_use]
    pub fn to_ptr(self) -> DatPvoid {
        // SAFETY: all members cover the same eight bytes and every bit pattern is a valid raw
        // pointer.
        unsafe { self.as_ptr }
    }
}

impl PartialEq for DatContext {
    fn eq(&self, other: &Self) -> bool {
        self.to_u64() == other.to_u64()
    }
}

impl Eq for DatContext {}

impl fmt::Debug for DatContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatContext({:#x})", self.to_u64())
    }
}

c_structs! {
    /// `DAT_COMM`: names a communicator by the arguments of `socket(2)`.
    #[derive(PartialEq, Eq)]
    pub struct DatComm, size 12 {
        domain @ 0: c_int,
        r#type @ 4: c_int,
        protocol @ 8: c_int,
    }

    /// `DAT_SOCK_ADDR`: `struct sockaddr`.
    #[derive(PartialEq, Eq)]
    pub struct DatSockAddr, size 16 {
        /// Address family in host byte order.
        sa_family @ 0: u16,
        /// Family-specific bytes; for `AF_INET` port and address in network byte order, then zeros.
        sa_data @ 2: [u8; 14],
    }

    /// `DAT_SOCK_ADDR6`: `struct sockaddr_in6`.
    #[derive(PartialEq, Eq)]
    pub struct DatSockAddr6, size 28 {
        /// Address family in host byte order.
        sin6_family @ 0: u16,
        /// Port in network byte order.
        sin6_port @ 2: u16,
        /// Flow information in network byte order.
        sin6_flowinfo @ 4: u32,
        /// Address in network byte order.
        sin6_addr @ 8: [u8; 16],
        /// Scope (interface index) in host byte order.
        sin6_scope_id @ 24: u32,
    }
}

assert_layout!(DatContext, size 8);
const _: () = assert!(align_of::<DatSockAddr>() == 2 && align_of::<DatSockAddr6>() == 4);

impl_zeroed!(DatContext);
