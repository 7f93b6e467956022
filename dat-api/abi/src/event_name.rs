//! The names of events in C, for logs and tools. DAT has no call for them.

use crate::extension::{ib::*, iw::*};
use crate::*;

/// Pairs the values of constants with their names.
macro_rules! names {
    ($($name:ident),+ $(,)?) => { &[$(($name, stringify!($name))),+] };
}

/// Every event, in the order of the numbers.
pub const EVENT_NAMES: &[(DatEventNumber, &str)] = names![
    DAT_DTO_COMPLETION_EVENT,
    DAT_RMR_BIND_COMPLETION_EVENT,
    DAT_CONNECTION_REQUEST_EVENT,
    DAT_CONNECTION_EVENT_ESTABLISHED,
    DAT_CONNECTION_EVENT_PEER_REJECTED,
    DAT_CONNECTION_EVENT_NON_PEER_REJECTED,
    DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR,
    DAT_CONNECTION_EVENT_DISCONNECTED,
    DAT_CONNECTION_EVENT_BROKEN,
    DAT_CONNECTION_EVENT_TIMED_OUT,
    DAT_CONNECTION_EVENT_UNREACHABLE,
    DAT_ASYNC_ERROR_EVD_OVERFLOW,
    DAT_ASYNC_ERROR_IA_CATASTROPHIC,
    DAT_ASYNC_ERROR_EP_BROKEN,
    DAT_ASYNC_ERROR_TIMED_OUT,
    DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR,
    DAT_HA_DOWN_TO_1,
    DAT_HA_UP_TO_MULTI_PATH,
    DAT_SOFTWARE_EVENT,
    DAT_EXTENSION_EVENT,
    DAT_IB_DTO_EVENT,
    DAT_IB_UD_CONNECTION_REQUEST_EVENT,
    DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED,
    DAT_IB_UD_CONNECTION_REJECT_EVENT,
    DAT_IB_UD_CONNECTION_ERROR_EVENT,
    DAT_IB_COLLECTIVE_EVENT,
    DAT_CONNECTION_EVENT_SOCKET_DOWN,
];

/// Returns the name of an event; `None` for a number that no event has.
pub fn event_name(number: DatEventNumber) -> Option<&'static str> {
    let found = EVENT_NAMES.binary_search_by_key(&number, |(known, _)| *known);
    found.ok().map(|at| EVENT_NAMES[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_found_by_its_number() {
        for (number, name) in EVENT_NAMES {
            assert_eq!(event_name(*number), Some(*name));
        }
        assert_eq!(event_name(0x4006), Some("DAT_CONNECTION_EVENT_BROKEN"));
        assert_eq!(event_name(0), None);
    }
}
