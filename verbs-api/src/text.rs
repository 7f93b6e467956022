//! Names of statuses, events and states, and rates.

use std::ffi::{CStr, c_char, c_int};

use verbs_dl::types::*;

/// Returns the entry of a table whose first entry has the value 0.
fn entry(names: &[&'static CStr], value: c_int, otherwise: &'static CStr) -> *const c_char {
    let index = usize::try_from(value).ok();
    let name = index.and_then(|index| names.get(index).copied());
    name.unwrap_or(otherwise).as_ptr()
}

/// `ibv_wc_status_str(3)`.
#[unsafe(no_mangle)]
extern "C" fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char {
    const NAMES: [&CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory bind error",
        c"bad response",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation",
        c"remote invalid RD request",
        c"aborted by the remote end",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout",
        c"general error",
        c"tag matching error",
        c"tag matching rendezvous incomplete",
    ];
    entry(&NAMES, status.cast_signed(), c"unknown")
}

/// `ibv_event_type_str(3)`.
#[unsafe(no_mangle)]
extern "C" fn ibv_event_type_str(event: ibv_event_type) -> *const c_char {
    const NAMES: [&CStr; 20] = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request at the local work queue",
        c"access violation at the local work queue",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration failed",
        c"device fatal error",
        c"port active",
        c"port error",
        c"LID changed",
        c"P_Key table changed",
        c"subnet manager changed",
        c"SRQ error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration requested",
        c"GID table changed",
        c"WQ fatal error",
    ];
    entry(&NAMES, event.cast_signed(), c"unknown")
}

/// `ibv_node_type_str(3)`.
#[unsafe(no_mangle)]
extern "C" fn ibv_node_type_str(node: ibv_node_type) -> *const c_char {
    const NAMES: [&CStr; 8] = [
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    entry(&NAMES, node, c"unknown")
}

/// `ibv_port_state_str(3)`.
#[unsafe(no_mangle)]
extern "C" fn ibv_port_state_str(state: ibv_port_state) -> *const c_char {
    const NAMES: [&CStr; 6] = [
        c"no state change (NOP)",
        c"down",
        c"init",
        c"armed",
        c"active",
        c"active deferred",
    ];
    entry(&NAMES, state.cast_signed(), c"invalid state")
}

/// The rates of `enum ibv_rate`: the value, the multiple of 2.5 Gb/s or 0 if it is none, and Mb/s.
const RATES: [(c_int, c_int, c_int); 23] = [
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (11, 0, 14_062),
    (6, 8, 20_000),
    (15, 0, 25_781),
    (19, 11, 28_125),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (20, 20, 53_125),
    (12, 0, 56_250),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (16, 0, 103_125),
    (13, 0, 112_500),
    (10, 48, 120_000),
    (14, 0, 168_750),
    (17, 0, 206_250),
    (18, 0, 309_375),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

/// `ibv_rate_to_mult(3)`.
#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    let found = RATES
        .iter()
        .find(|(value, multiple, _)| *value == rate && *multiple > 0);
    found.map_or(-1, |(_, multiple, _)| *multiple)
}

/// `mult_to_ibv_rate(3)`. 0 is `IBV_RATE_MAX`.
#[unsafe(no_mangle)]
extern "C" fn mult_to_ibv_rate(multiple: c_int) -> c_int {
    let found = RATES
        .iter()
        .find(|(_, of_rate, _)| *of_rate == multiple && *of_rate > 0);
    found.map_or(0, |(value, _, _)| *value)
}

/// `ibv_rate_to_mbps(3)`.
#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    let found = RATES.iter().find(|(value, _, _)| *value == rate);
    found.map_or(-1, |(_, _, mbps)| *mbps)
}

/// `mbps_to_ibv_rate(3)`. 0 is `IBV_RATE_MAX`.
#[unsafe(no_mangle)]
extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    let found = RATES.iter().find(|(_, _, of_rate)| *of_rate == mbps);
    found.map_or(0, |(value, _, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_name_and_others_are_unknown() {
        let text = |name| {
            // SAFETY: the functions return strings of the program's image.
            unsafe { CStr::from_ptr(name) }.to_str().unwrap()
        };
        assert_eq!(text(ibv_wc_status_str(IBV_WC_SUCCESS)), "success");
        assert_ne!(
            text(ibv_wc_status_str(IBV_WC_TM_RNDV_INCOMPLETE)),
            "unknown"
        );
        assert_eq!(text(ibv_wc_status_str(24)), "unknown");
        assert_eq!(
            text(ibv_event_type_str(IBV_EVENT_WQ_FATAL)),
            "WQ fatal error"
        );
        assert_eq!(text(ibv_node_type_str(IBV_NODE_UNKNOWN)), "unknown");
        assert_eq!(text(ibv_node_type_str(IBV_NODE_RNIC)), "iWARP NIC");
        assert_eq!(text(ibv_port_state_str(IBV_PORT_ACTIVE)), "active");
    }

    #[test]
    fn rates_are_converted_in_both_directions() {
        for (value, multiple, mbps) in RATES {
            assert_eq!(mbps_to_ibv_rate(mbps), value);
            assert_eq!(ibv_rate_to_mbps(value), mbps);
            if multiple > 0 {
                assert_eq!(mult_to_ibv_rate(multiple), value);
                assert_eq!(ibv_rate_to_mult(value), multiple);
            }
        }
        assert_eq!((ibv_rate_to_mbps(99), mult_to_ibv_rate(0)), (-1, 0));
    }
}
