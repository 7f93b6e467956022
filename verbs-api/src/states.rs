//! The transitions of `ibv_modify_qp(3)`, and the attributes that each needs and permits.
//!
//! The tables are those of the InfiniBand specification, release 1.3, section 11.2.5.2, as Linux
//! checks them.

use std::net::IpAddr;
use std::time::Duration;

use rnic::Access;
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::abi::{AddressVector, Gid};
use crate::fault::Fault;

/// The only port of a device.
const PORT: u8 = 1;

/// The service of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Reliable connected.
    Connected,
    /// Unreliable connected.
    Unreliable,
    Datagram,
}

/// One permitted transition, with the attributes that it requires and those that it permits.
#[derive(Debug, Clone, Copy)]
struct Transition {
    from: ibv_qp_state,
    to: ibv_qp_state,
    required: ibv_qp_attr_mask,
    optional: ibv_qp_attr_mask,
}

const fn transition(
    from: ibv_qp_state,
    to: ibv_qp_state,
    required: ibv_qp_attr_mask,
    optional: ibv_qp_attr_mask,
) -> Transition {
    Transition {
        from,
        to,
        required,
        optional,
    }
}

const INIT: ibv_qp_attr_mask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
const READY_TO_RECEIVE: ibv_qp_attr_mask = IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_DEST_QPN
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER;
const READY_TO_SEND: ibv_qp_attr_mask =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
const WHILE_SENDING: ibv_qp_attr_mask = IBV_QP_CUR_STATE
    | IBV_QP_ALT_PATH
    | IBV_QP_ACCESS_FLAGS
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_PATH_MIG_STATE;

const WHILE_STOPPED: ibv_qp_attr_mask = IBV_QP_PORT
    | IBV_QP_AV
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_MAX_QP_RD_ATOMIC
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_ALT_PATH
    | IBV_QP_ACCESS_FLAGS
    | IBV_QP_PKEY_INDEX
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_PATH_MIG_STATE;

/// The transitions besides those to RESET and ERR, which every state permits without attributes.
const CONNECTED: [Transition; 8] = [
    transition(IBV_QPS_RESET, IBV_QPS_INIT, INIT, 0),
    transition(IBV_QPS_INIT, IBV_QPS_INIT, 0, INIT),
    transition(
        IBV_QPS_INIT,
        IBV_QPS_RTR,
        READY_TO_RECEIVE,
        IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
    ),
    transition(IBV_QPS_RTR, IBV_QPS_RTS, READY_TO_SEND, WHILE_SENDING),
    transition(IBV_QPS_RTS, IBV_QPS_RTS, 0, WHILE_SENDING),
    transition(IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
    transition(IBV_QPS_SQD, IBV_QPS_RTS, 0, WHILE_SENDING),
    transition(IBV_QPS_SQD, IBV_QPS_SQD, 0, WHILE_STOPPED),
];

const UNRELIABLE_PATH: ibv_qp_attr_mask =
    IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
const UNRELIABLE_SENDING: ibv_qp_attr_mask =
    IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;

/// The transitions of unreliable connected queue pairs, besides those to RESET and ERR.
const UNRELIABLE: [Transition; 8] = [
    transition(IBV_QPS_RESET, IBV_QPS_INIT, INIT, 0),
    transition(IBV_QPS_INIT, IBV_QPS_INIT, 0, INIT),
    transition(
        IBV_QPS_INIT,
        IBV_QPS_RTR,
        UNRELIABLE_PATH,
        IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
    ),
    transition(IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, UNRELIABLE_SENDING),
    transition(IBV_QPS_RTS, IBV_QPS_RTS, 0, UNRELIABLE_SENDING),
    transition(IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
    transition(IBV_QPS_SQD, IBV_QPS_RTS, 0, UNRELIABLE_SENDING),
    transition(
        IBV_QPS_SQD,
        IBV_QPS_SQD,
        0,
        IBV_QP_AV
            | IBV_QP_ALT_PATH
            | IBV_QP_ACCESS_FLAGS
            | IBV_QP_PKEY_INDEX
            | IBV_QP_PATH_MIG_STATE,
    ),
];

const DATAGRAM_INIT: ibv_qp_attr_mask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
const DATAGRAM_SENDING: ibv_qp_attr_mask = IBV_QP_CUR_STATE | IBV_QP_QKEY;

/// The transitions of datagram queue pairs, besides those to RESET and ERR.
const DATAGRAM: [Transition; 8] = [
    transition(IBV_QPS_RESET, IBV_QPS_INIT, DATAGRAM_INIT, 0),
    transition(IBV_QPS_INIT, IBV_QPS_INIT, 0, DATAGRAM_INIT),
    transition(
        IBV_QPS_INIT,
        IBV_QPS_RTR,
        0,
        IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
    ),
    transition(IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, DATAGRAM_SENDING),
    transition(IBV_QPS_RTS, IBV_QPS_RTS, 0, DATAGRAM_SENDING),
    transition(IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
    transition(IBV_QPS_SQD, IBV_QPS_RTS, 0, DATAGRAM_SENDING),
    transition(IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
];

/// Checks a transition and the attributes that it is called with.
///
/// # Errors
/// `EINVAL` for a transition that the table does not contain, and for attributes that are missing
/// or not permitted.
pub(crate) fn check(
    service: Service,
    from: ibv_qp_state,
    to: ibv_qp_state,
    mask: ibv_qp_attr_mask,
) -> Result<(), Fault> {
    let (required, optional) = match to {
        IBV_QPS_RESET | IBV_QPS_ERR => (0, 0),
        _ => table(service)
            .iter()
            .find(|transition| transition.from == from && transition.to == to)
            .map(|transition| (transition.required, transition.optional))
            .ok_or(Errno::INVAL)?,
    };
    let is_complete = mask & required == required;
    let is_permitted = mask & !(required | optional | IBV_QP_STATE) == 0;
    match is_complete && is_permitted {
        true => Ok(()),
        false => Err(Errno::INVAL),
    }
}

fn table(service: Service) -> &'static [Transition] {
    match service {
        Service::Connected => &CONNECTED,
        Service::Unreliable => &UNRELIABLE,
        Service::Datagram => &DATAGRAM,
    }
}

/// Checks the values of port and partition key in `mask`.
pub(crate) fn check_port(new: &ibv_qp_attr, mask: ibv_qp_attr_mask) -> Result<(), Fault> {
    let has = |bit| mask & bit != 0;
    let is_bad = (has(IBV_QP_PORT) && new.port_num != PORT)
        || (has(IBV_QP_PKEY_INDEX) && new.pkey_index != 0);
    match is_bad {
        true => Err(Errno::INVAL),
        false => Ok(()),
    }
}

/// Checks a path, which needs the GIDs of both ends, as on RoCE.
pub(crate) fn check_path(vector: &AddressVector) -> Result<(), Fault> {
    match vector.is_global != 0 && vector.sgid_index == 0 && vector.port_num == PORT {
        true => Ok(()),
        false => Err(Errno::INVAL),
    }
}

/// Stores the attributes in `mask`, for `ibv_query_qp(3)`.
pub(crate) fn store(attr: &mut ibv_qp_attr, new: &ibv_qp_attr, mask: ibv_qp_attr_mask) {
    macro_rules! store {
        ($($bit:ident: $($field:ident),+;)+) => {
            $(if mask & $bit != 0 {
                $(attr.$field = new.$field;)+
            })+
        };
    }
    store! {
        IBV_QP_ACCESS_FLAGS: qp_access_flags;
        IBV_QP_PKEY_INDEX: pkey_index;
        IBV_QP_QKEY: qkey;
        IBV_QP_PORT: port_num;
        IBV_QP_AV: ah_attr;
        IBV_QP_PATH_MTU: path_mtu;
        IBV_QP_TIMEOUT: timeout;
        IBV_QP_RETRY_CNT: retry_cnt;
        IBV_QP_RNR_RETRY: rnr_retry;
        IBV_QP_RQ_PSN: rq_psn;
        IBV_QP_SQ_PSN: sq_psn;
        IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic;
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer;
        IBV_QP_DEST_QPN: dest_qp_num;
        IBV_QP_PATH_MIG_STATE: path_mig_state;
        IBV_QP_ALT_PATH: alt_ah_attr, alt_pkey_index, alt_port_num, alt_timeout;
    }
}

/// Returns the attributes with which a queue pair of the program that `rdma_cm` connects to a peer
/// enters a state, and their mask. The number of the peer's queue pair is 0.
pub(crate) fn attributes_of(
    state: ibv_qp_state,
    peer: IpAddr,
    timeout: u8,
) -> Result<(ibv_qp_attr, ibv_qp_attr_mask), Fault> {
    /// The number of outstanding Reads, and of retries without limit.
    const READS: u8 = 16;
    const RETRIES: u8 = 7;
    /// About 67 ms.
    const TIMEOUT: u8 = 14;
    let mut attr = ibv_qp_attr {
        qp_state: state,
        port_num: PORT,
        ..ibv_qp_attr::default()
    };
    let mask = match state {
        IBV_QPS_INIT => {
            attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE
                | IBV_ACCESS_REMOTE_WRITE
                | IBV_ACCESS_REMOTE_READ
                | IBV_ACCESS_REMOTE_ATOMIC;
            INIT
        }
        IBV_QPS_RTR => {
            AddressVector::to(Gid::of(peer), PORT).store(&mut attr.ah_attr);
            attr.path_mtu = IBV_MTU_4096;
            attr.max_dest_rd_atomic = READS;
            READY_TO_RECEIVE
        }
        IBV_QPS_RTS => {
            attr.timeout = if timeout > 0 { timeout } else { TIMEOUT };
            (attr.retry_cnt, attr.rnr_retry) = (RETRIES, RETRIES);
            attr.max_rd_atomic = READS;
            READY_TO_SEND
        }
        _ => return Err(Errno::INVAL),
    };
    Ok((attr, mask | IBV_QP_STATE))
}

/// Returns the rights that `qp_access_flags` grant to the peer.
pub(crate) fn remote_access(flags: u32) -> Access {
    let has = |flag: ibv_access_flags| flags & flag != 0;
    Access {
        remote_read: has(IBV_ACCESS_REMOTE_READ),
        remote_write: has(IBV_ACCESS_REMOTE_WRITE),
        remote_atomic: has(IBV_ACCESS_REMOTE_ATOMIC),
        ..Access::default()
    }
}

/// Returns the pause that a value of `min_rnr_timer` stands for (InfiniBand specification, section
/// 9.7.5.2.8).
pub(crate) fn rnr_pause(timer: u8) -> Duration {
    const HUNDREDTHS_OF_MS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    let pause = HUNDREDTHS_OF_MS[usize::from(timer % 32)];
    Duration::from_micros(u64::from(pause) * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [ibv_qp_state; 7] = [
        IBV_QPS_RESET,
        IBV_QPS_INIT,
        IBV_QPS_RTR,
        IBV_QPS_RTS,
        IBV_QPS_SQD,
        IBV_QPS_SQE,
        IBV_QPS_ERR,
    ];

    /// The attributes that a transition needs; `None` if there is no such transition.
    fn needed(from: ibv_qp_state, to: ibv_qp_state) -> Option<ibv_qp_attr_mask> {
        match (from, to) {
            (_, IBV_QPS_RESET | IBV_QPS_ERR) => Some(0),
            (IBV_QPS_RESET, IBV_QPS_INIT) => Some(INIT),
            (IBV_QPS_INIT, IBV_QPS_INIT)
            | (IBV_QPS_RTS | IBV_QPS_SQD, IBV_QPS_RTS | IBV_QPS_SQD) => Some(0),
            (IBV_QPS_INIT, IBV_QPS_RTR) => Some(READY_TO_RECEIVE),
            (IBV_QPS_RTR, IBV_QPS_RTS) => Some(READY_TO_SEND),
            _ => None,
        }
    }

    #[test]
    fn every_pair_of_states_has_its_outcome() {
        for from in STATES {
            for to in STATES {
                let needed = needed(from, to);
                let outcome = check(
                    Service::Connected,
                    from,
                    to,
                    IBV_QP_STATE | needed.unwrap_or(0),
                );
                assert_eq!(outcome.is_ok(), needed.is_some(), "{from} to {to}");
            }
        }
    }

    #[test]
    fn each_required_attribute_is_required_and_no_foreign_one_is_permitted() {
        let all = [Service::Connected, Service::Unreliable, Service::Datagram];
        let all = all.map(|service| table(service).iter().map(move |one| (service, *one)));
        for (service, transition) in all.into_iter().flatten() {
            let Transition {
                from,
                to,
                required,
                optional,
            } = transition;
            let check = |from, to, mask| check(service, from, to, mask);
            let whole = IBV_QP_STATE | required | optional;
            assert_eq!(check(from, to, whole), Ok(()));
            for bit in (0..32).map(|bit| 1 << bit) {
                let expected = required & bit == 0;
                let without = check(from, to, whole & !bit);
                assert_eq!(without.is_ok(), expected, "{from} to {to} without {bit:#x}");
                let expected = whole & bit != 0;
                let with = check(from, to, whole | bit);
                assert_eq!(with.is_ok(), expected, "{from} to {to} with {bit:#x}");
            }
        }
    }
}
