//! `DatError`: an error in the form of DAT, and the conversion of an RNIC's error.

use std::io;

use dat_abi::*;

use crate::rnic::{Resource, RnicError, SocketFault};

/// The error of a call: type and subtype, with or without the class bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}")]
pub struct DatError(DatReturn);

/// Result of the calls of this layer.
pub type DatResult<T = ()> = Result<T, DatError>;

impl DatError {
    /// Creates an error of this type and subtype.
    #[must_use]
    pub const fn new(ty: DatReturnType, subtype: DatReturnSubtype) -> Self {
        Self(DatReturn::error(ty, subtype))
    }

    /// Creates an error of this type without subtype.
    #[must_use]
    pub const fn of(ty: DatReturnType) -> Self {
        Self::new(ty, DAT_NO_SUBTYPE)
    }

    /// Creates an error of this type and subtype without the class bit, for cases in which OFA's
    /// providers omit the bit and consumers compare whole values.
    #[must_use]
    pub const fn bare(ty: DatReturnType, subtype: DatReturnSubtype) -> Self {
        Self(DatReturn::without_class(ty, subtype))
    }

    /// `DAT_INVALID_HANDLE`.
    #[must_use]
    pub const fn invalid_handle(subtype: DatReturnSubtype) -> Self {
        Self::new(DAT_INVALID_HANDLE, subtype)
    }

    /// `DAT_INVALID_PARAMETER` for argument `n`, counted from 1 to 10.
    #[must_use]
    pub const fn invalid_arg(n: u32) -> Self {
        Self::new(
            DAT_INVALID_PARAMETER,
            DatReturnSubtype(DAT_INVALID_ARG1.0 + n - 1),
        )
    }

    /// `DAT_INVALID_STATE`.
    #[must_use]
    pub const fn invalid_state(subtype: DatReturnSubtype) -> Self {
        Self::new(DAT_INVALID_STATE, subtype)
    }

    /// `DAT_INSUFFICIENT_RESOURCES`.
    #[must_use]
    pub const fn no_resources(subtype: DatReturnSubtype) -> Self {
        Self::new(DAT_INSUFFICIENT_RESOURCES, subtype)
    }

    /// `DAT_MODEL_NOT_SUPPORTED`, without the class bit as in all providers.
    #[must_use]
    pub const fn not_supported() -> Self {
        Self::bare(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE)
    }

    /// `DAT_INTERNAL_ERROR`: an error of this library.
    #[must_use]
    pub const fn internal() -> Self {
        Self::of(DAT_INTERNAL_ERROR)
    }

    /// Returns the error as a code for C.
    pub const fn code(self) -> DatReturn {
        self.0
    }
}

/// Converts the result to the return value of a call of the C interface.
pub fn to_return(result: DatResult) -> DatReturn {
    match result {
        Ok(()) => DatReturn::SUCCESS,
        Err(error) => error.code(),
    }
}

impl From<DatReturn> for DatError {
    /// Wraps a code that is known to be a failure.
    fn from(code: DatReturn) -> Self {
        Self(code)
    }
}

impl From<Resource> for DatError {
    fn from(resource: Resource) -> Self {
        Self::no_resources(match resource {
            Resource::Memory | Resource::WorkRequest => DAT_RESOURCE_MEMORY,
            Resource::ProtectionDomain => DAT_RESOURCE_PROTECTION_DOMAIN,
            Resource::MemoryRegion => DAT_RESOURCE_MEMORY_REGION,
            Resource::QueuePair => DAT_RESOURCE_TEP,
            Resource::CompletionQueue => DAT_RESOURCE_TEVD,
            Resource::SharedReceiveQueue => DAT_RESOURCE_SRQ,
            Resource::Descriptor | Resource::Port | Resource::Policy => DAT_RESOURCE_DEVICE,
        })
    }
}

impl From<RnicError> for DatError {
    fn from(error: RnicError) -> Self {
        match error {
            // The first argument of dat_ia_open is the name of the IA, which selects the device.
            RnicError::NoDevice(_) | RnicError::BadConfig(_) => Self::invalid_arg(1),
            RnicError::NoResources(resource) => resource.into(),
            RnicError::InvalidArgument(_) => Self::of(DAT_INVALID_PARAMETER),
            RnicError::Length(_) => Self::of(DAT_LENGTH_ERROR),
            RnicError::InvalidState(_) => Self::of(DAT_INVALID_STATE),
            RnicError::AddressInUse => Self::of(DAT_CONN_QUAL_IN_USE),
            RnicError::BadAddress(_) => {
                Self::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNSUPPORTED)
            }
            RnicError::NotPermitted(_) => Self::of(DAT_PRIVILEGES_VIOLATION),
            RnicError::NotSupported(_) => Self::not_supported(),
            RnicError::Os(error) => from_errno(&error),
        }
    }
}

impl From<SocketFault> for DatError {
    fn from(fault: SocketFault) -> Self {
        match fault {
            SocketFault::NotASocket => Self::invalid_arg(2),
            SocketFault::NotTcp
            | SocketFault::NotRouted
            | SocketFault::InUse
            | SocketFault::FinalMessage
            | SocketFault::QpNotIdle => Self::of(DAT_INVALID_STATE),
            SocketFault::NoResources => Self::no_resources(DAT_RESOURCE_DEVICE),
        }
    }
}

/// Converts an errno as OFA's providers do, without the class bit.
fn from_errno(error: &io::Error) -> DatError {
    let (ty, subtype) = match error.raw_os_error() {
        Some(libc::EOVERFLOW) => (DAT_LENGTH_ERROR, DAT_NO_SUBTYPE),
        Some(libc::EACCES) => (DAT_PRIVILEGES_VIOLATION, DAT_NO_SUBTYPE),
        Some(libc::EPERM) => (DAT_PROTECTION_VIOLATION, DAT_NO_SUBTYPE),
        Some(libc::EINVAL) => (DAT_INVALID_PARAMETER, DAT_NO_SUBTYPE),
        Some(libc::EISCONN) => (DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED),
        Some(libc::ECONNREFUSED) => (DAT_INVALID_STATE, DAT_INVALID_STATE_EP_NOTREADY),
        Some(libc::EALREADY) => (DAT_INVALID_STATE, DAT_INVALID_STATE_EP_ACTCONNPENDING),
        Some(libc::ETIMEDOUT) => (DAT_TIMEOUT_EXPIRED, DAT_NO_SUBTYPE),
        Some(libc::ENETUNREACH) => (DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNREACHABLE),
        Some(libc::EAFNOSUPPORT) => (DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED),
        Some(libc::EADDRINUSE) => (DAT_CONN_QUAL_IN_USE, DAT_NO_SUBTYPE),
        Some(libc::ENOMEM) => (DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY),
        Some(libc::EMFILE | libc::ENFILE) => (DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE),
        Some(libc::EAGAIN) => (DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE),
        Some(libc::EINTR) => (DAT_INTERRUPTED_CALL, DAT_NO_SUBTYPE),
        _ => (DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE),
    };
    DatError::bare(ty, subtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_counted_from_one() {
        assert_eq!(DatError::invalid_arg(1).code().0, 0x8006_0025);
        let subtype = DatError::invalid_arg(10).code().subtype();
        assert_eq!(subtype, DAT_INVALID_ARG10);
    }

    #[test]
    fn each_resource_has_its_subtype() {
        let code = |resource| DatError::from(RnicError::NoResources(resource)).code();
        assert_eq!(code(Resource::CompletionQueue).0, 0x8003_0005);
        for (resource, subtype) in [
            (Resource::WorkRequest, DAT_RESOURCE_MEMORY),
            (Resource::ProtectionDomain, DAT_RESOURCE_PROTECTION_DOMAIN),
            (Resource::MemoryRegion, DAT_RESOURCE_MEMORY_REGION),
            (Resource::QueuePair, DAT_RESOURCE_TEP),
            (Resource::SharedReceiveQueue, DAT_RESOURCE_SRQ),
            (Resource::Descriptor, DAT_RESOURCE_DEVICE),
            (Resource::Port, DAT_RESOURCE_DEVICE),
        ] {
            assert_eq!(code(resource).subtype(), subtype);
        }
    }

    #[test]
    fn a_missing_model_is_reported_without_class_bit() {
        let code = DatError::from(RnicError::NotSupported("x")).code().0;
        assert_eq!(code, 0x0009_0000);
    }

    #[test]
    fn errno_becomes_a_type_without_class_bit() {
        let code =
            |errno| DatError::from(RnicError::Os(io::Error::from_raw_os_error(errno))).code();
        assert_eq!(code(libc::ENOMEM).ty(), DAT_INSUFFICIENT_RESOURCES);
        assert_eq!(code(libc::ETIMEDOUT).0, 0x000F_0000);
        assert_eq!(code(libc::EIO).0, 0x0004_0000);
    }
}
