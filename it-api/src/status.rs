//! `it_status_t`, and the one table by which a return code of DAT becomes a status.

use dat_abi::*;

/// `it_status_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

/// The result of a step of a call.
pub(crate) type Outcome<T = ()> = Result<T, Status>;

macro_rules! statuses {
    ($($name:ident = $number:literal,)+) => {
        $(pub(crate) const $name: Status = Status($number);)+
    };
}

statuses! {
    SUCCESS = 0,
    ABORT = 1,
    ACCESS = 2,
    AEVD_NOT_ALLOWED = 4,
    ASYNC_AFF_EVD_EXISTS = 5,
    ASYNC_UNAFF_EVD_EXISTS = 6,
    CALLBACK_EXISTS = 7,
    CANNOT_RESET = 8,
    CONN_QUAL_BUSY = 9,
    EVD_BUSY = 12,
    EVD_QUEUE_FULL = 14,
    FAULT = 15,
    INTERRUPT = 18,
    INVALID_ADDR_MODE = 19,
    INVALID_ADDRESS = 20,
    INVALID_AEVD = 21,
    INVALID_ATOMIC_OP = 24,
    INVALID_CN_EST_FLAGS = 26,
    INVALID_CN_EST_ID = 27,
    INVALID_CONN_EVD = 28,
    INVALID_CONN_QUAL = 29,
    INVALID_CONVERSION = 30,
    INVALID_DTO_FLAGS = 31,
    INVALID_EP = 32,
    INVALID_EP_ATTR = 33,
    INVALID_EP_STATE = 35,
    INVALID_EVD = 37,
    INVALID_EVD_STATE = 38,
    INVALID_EVD_TYPE = 39,
    INVALID_FLAGS = 40,
    INVALID_HANDLE = 41,
    INVALID_IA = 42,
    INVALID_LENGTH = 44,
    INVALID_LISTEN = 45,
    INVALID_LMR = 46,
    INVALID_MAJOR_VERSION = 48,
    INVALID_MASK = 49,
    INVALID_MINOR_VERSION = 50,
    INVALID_NAME = 51,
    INVALID_NETADDR = 52,
    INVALID_NUM_SEGMENTS = 53,
    INVALID_PDATA_LENGTH = 54,
    INVALID_PRIVS = 55,
    INVALID_PZ = 56,
    INVALID_QUEUE_SIZE = 57,
    INVALID_RECV_EVD = 59,
    INVALID_REQ_EVD = 61,
    INVALID_RMR = 64,
    INVALID_RMR_TYPE = 66,
    INVALID_SOFT_EVD = 68,
    INVALID_SPIGOT = 70,
    INVALID_SRQ = 71,
    INVALID_SRQ_SIZE = 72,
    INVALID_THRESHOLD = 73,
    INVALID_WATERMARK = 77,
    LMR_BUSY = 78,
    MISMATCH_FD = 79,
    NO_CONTEXT = 80,
    NO_PERMISSION = 81,
    OP_NOT_SUPPORTED = 82,
    PRIV_OPS_UNAVAILABLE = 85,
    PZ_BUSY = 86,
    QUEUE_EMPTY = 87,
    RANGE = 88,
    RESOURCES = 89,
    RESOURCE_IRD = 90,
    RESOURCE_ORD = 92,
    RESOURCE_QUEUE_SIZE = 93,
    RESOURCE_RECV_DTO = 94,
    RESOURCE_REQ_DTO = 95,
    RESOURCE_RRSEG = 96,
    RESOURCE_RSEG = 97,
    RESOURCE_RWSEG = 98,
    RESOURCE_SSEG = 99,
    SRQ_BUSY = 101,
    TIMEOUT_EXPIRED = 104,
    TOO_MANY_POSTS = 105,
    WAITER_LIMIT = 106,
}

/// The table for types of return codes whose subtype does not matter. [`RANGE`] stands for a bad
/// argument, which a call replaces by its own status with [`argument`].
const TYPES: &[(DatReturnType, Status)] = &[
    (DAT_ABORT, ABORT),
    (DAT_CONN_QUAL_IN_USE, CONN_QUAL_BUSY),
    (DAT_CONN_QUAL_UNAVAILABLE, CONN_QUAL_BUSY),
    (DAT_PORT_IN_USE, CONN_QUAL_BUSY),
    (DAT_INSUFFICIENT_RESOURCES, RESOURCES),
    (DAT_INTERNAL_ERROR, FAULT),
    (DAT_INVALID_HANDLE, INVALID_HANDLE),
    (DAT_INVALID_PARAMETER, RANGE),
    (DAT_INVALID_STATE, INVALID_EVD_STATE),
    (DAT_LENGTH_ERROR, INVALID_LENGTH),
    (DAT_MODEL_NOT_SUPPORTED, OP_NOT_SUPPORTED),
    (DAT_NOT_IMPLEMENTED, OP_NOT_SUPPORTED),
    (DAT_COMM_NOT_SUPPORTED, OP_NOT_SUPPORTED),
    (DAT_PROVIDER_NOT_FOUND, INVALID_NAME),
    (DAT_PRIVILEGES_VIOLATION, NO_PERMISSION),
    (DAT_PROTECTION_VIOLATION, ACCESS),
    (DAT_QUEUE_EMPTY, QUEUE_EMPTY),
    (DAT_QUEUE_FULL, EVD_QUEUE_FULL),
    (DAT_TIMEOUT_EXPIRED, TIMEOUT_EXPIRED),
    (DAT_INVALID_ADDRESS, INVALID_ADDRESS),
    (DAT_INTERRUPTED_CALL, INTERRUPT),
];

/// The table for subtypes of `DAT_INVALID_HANDLE` and `DAT_INVALID_STATE` that name an object.
const SUBTYPES: &[(DatReturnSubtype, Status)] = &[
    (DAT_INVALID_HANDLE_IA, INVALID_IA),
    (DAT_INVALID_HANDLE_EP, INVALID_EP),
    (DAT_INVALID_HANDLE_LMR, INVALID_LMR),
    (DAT_INVALID_HANDLE_RMR, INVALID_RMR),
    (DAT_INVALID_HANDLE_PZ, INVALID_PZ),
    (DAT_INVALID_HANDLE_PSP, INVALID_LISTEN),
    (DAT_INVALID_HANDLE_CR, INVALID_CN_EST_ID),
    (DAT_INVALID_HANDLE_CNO, INVALID_AEVD),
    (DAT_INVALID_HANDLE_EVD_CR, INVALID_CONN_EVD),
    (DAT_INVALID_HANDLE_EVD_REQUEST, INVALID_EVD),
    (DAT_INVALID_HANDLE_EVD_RECV, INVALID_RECV_EVD),
    (DAT_INVALID_HANDLE_EVD_CONN, INVALID_CONN_EVD),
    (DAT_INVALID_HANDLE_SRQ, INVALID_SRQ),
    (DAT_INVALID_STATE_EVD_IN_USE, EVD_BUSY),
    (DAT_INVALID_STATE_EVD_WAITER, WAITER_LIMIT),
    (DAT_INVALID_STATE_LMR_IN_USE, LMR_BUSY),
    (DAT_INVALID_STATE_PZ_IN_USE, PZ_BUSY),
    (DAT_INVALID_STATE_SRQ_IN_USE, SRQ_BUSY),
];

/// The result of a DAT call.
pub(crate) fn checked(code: DatReturn) -> Outcome {
    if code.is_success() {
        return Ok(());
    }
    Err(status_of(code))
}

fn status_of(code: DatReturn) -> Status {
    let subtype = code.subtype();
    let named = SUBTYPES.iter().find(|(named, _)| *named == subtype);
    let names_object = code.is(DAT_INVALID_HANDLE) || code.is(DAT_INVALID_STATE);
    if let Some((_, status)) = named.filter(|_| names_object) {
        return *status;
    }
    let of_endpoint = DAT_INVALID_STATE_EP_UNCONNECTED.0..=DAT_INVALID_STATE_EP_UNCONFTENTATIVE.0;
    if code.is(DAT_INVALID_STATE) && of_endpoint.contains(&subtype.0) {
        return INVALID_EP_STATE;
    }
    let known = TYPES.iter().find(|(ty, _)| code.is(*ty));
    known.map_or(FAULT, |(_, status)| *status)
}

/// Replaces the status of a bad argument by the one of the call.
pub(crate) fn argument(of_call: Status) -> impl Fn(Status) -> Status {
    instead(RANGE, of_call)
}

/// Replaces one status by another.
pub(crate) fn instead(general: Status, of_call: Status) -> impl Fn(Status) -> Status {
    move |status| match status == general {
        true => of_call,
        false => status,
    }
}

/// Runs the body of a call. A panic becomes a status, because it must not unwind into C.
pub(crate) fn answer(body: impl FnOnce() -> Outcome) -> Status {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    outcome.unwrap_or(Err(FAULT)).err().unwrap_or(SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_of_a_bad_handle_or_state_is_named() {
        let code = DatReturn::error(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
        assert_eq!(status_of(code), INVALID_PZ);
        let code = DatReturn::error(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
        assert_eq!(status_of(code), INVALID_EP_STATE);
        let code = DatReturn::error(DAT_INVALID_STATE, DAT_INVALID_STATE_PZ_IN_USE);
        assert_eq!(status_of(code), PZ_BUSY);
    }

    #[test]
    fn the_class_bit_does_not_matter() {
        let code = DatReturn::without_class(DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE);
        assert_eq!(status_of(code), QUEUE_EMPTY);
        assert_eq!(checked(DatReturn(0)), Ok(()));
    }

    #[test]
    fn an_unknown_code_is_a_fault() {
        let code = DatReturn::error(DatReturnType(0x0018_0000), DAT_NO_SUBTYPE);
        assert_eq!(status_of(code), FAULT);
    }

    #[test]
    fn a_panic_is_a_fault() {
        assert_eq!(answer(|| panic!("for the test")), FAULT);
        assert_eq!(answer(|| Ok(())), SUCCESS);
    }
}
