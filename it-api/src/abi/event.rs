//! `it_event_t`: numbers, and the members of the union.

use super::{Boolean, ConnQual, Handle, NetAddr, Path};

/// `it_event_type_t`: an event, or a stream of events.
pub(crate) type EventNumber = u32;

macro_rules! events {
    ($($name:ident = $number:literal,)+) => {
        $(pub(crate) const $name: EventNumber = $number;)+
    };
}

events! {
    DTO_STREAM = 0x00000,
    SEND_CMPL = 0x00001,
    RC_RECV_CMPL = 0x00002,
    RDMA_WRITE_CMPL = 0x00004,
    RDMA_READ_CMPL = 0x00005,
    RMR_LINK_CMPL = 0x00006,
    FETCH_ADD_CMPL = 0x00007,
    CMP_SWAP_CMPL = 0x00008,
    CM_REQ_STREAM = 0x01000,
    CONN_REQUEST = 0x01001,
    CM_MSG_STREAM = 0x02000,
    CONN_ESTABLISHED = 0x02002,
    CONN_DISCONNECT = 0x02003,
    CONN_PEER_REJECT = 0x02004,
    CONN_NONPEER_REJECT = 0x02005,
    CONN_BROKEN = 0x02006,
    AFF_STREAM = 0x04000,
    AFF_SEVD_ENQUEUE_FAILURE = 0x04001,
    AFF_EP_FAILURE = 0x04002,
    AFF_EP_SOFT_HI_WATERMARK = 0x04060,
    AFF_SRQ_LOW_WATERMARK = 0x04100,
    AFF_SRQ_CATASTROPHIC = 0x04101,
    UNAFF_STREAM = 0x08000,
    SPIGOT_OFFLINE = 0x08003,
    SOFTWARE_STREAM = 0x10000,
    SOFTWARE_EVENT = 0x10001,
    AEVD_STREAM = 0x20000,
    AEVD_NOTIFICATION = 0x20001,
}

/// `it_conn_reject_code_t`.
pub(crate) type RejectCode = u32;
pub(crate) const REJ_OTHER: RejectCode = 0;
pub(crate) const REJ_TIMEOUT: RejectCode = 1;
pub(crate) const REJ_BAD_PATH: RejectCode = 2;

/// `IT_MAX_PRIV_DATA`.
pub(crate) const PRIVATE_DATA: usize = 64;

/// Private data in an event: it has no length, and is filled up with zeros.
pub(crate) type PrivateData = [u8; PRIVATE_DATA];

/// The room of an `it_event_t`. A member of the union is written at its beginning.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event([u64; 34]);

/// `it_dto_cmpl_event_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct DtoEvent {
    pub(crate) number: EventNumber,
    pub(crate) evd: Handle,
    pub(crate) ep: Handle,
    pub(crate) cookie: u64,
    pub(crate) status: u32,
    pub(crate) transferred_length: u32,
    pub(crate) unlinked: Handle,
}

/// `it_conn_request_event_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestEvent {
    pub(crate) number: EventNumber,
    pub(crate) evd: Handle,
    pub(crate) private_data: PrivateData,
    pub(crate) has_private_data: Boolean,
    pub(crate) id: Handle,
    pub(crate) conn_qual: ConnQual,
    pub(crate) source: NetAddr,
    pub(crate) spigot: usize,
    pub(crate) max_message_size: u32,
    pub(crate) rdma_read_ird: u32,
    pub(crate) rdma_read_ord: u32,
}

/// `it_connection_event_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionEvent {
    pub(crate) number: EventNumber,
    pub(crate) evd: Handle,
    pub(crate) private_data: PrivateData,
    pub(crate) has_private_data: Boolean,
    pub(crate) id: Handle,
    pub(crate) ep: Handle,
    pub(crate) rdma_read_ird: u32,
    pub(crate) rdma_read_ord: u32,
    pub(crate) path: Path,
    pub(crate) reason: RejectCode,
}

/// `it_affiliated_event_t` and `it_software_event_t`: an object or a pointer of the program.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordEvent {
    pub(crate) number: EventNumber,
    pub(crate) evd: Handle,
    pub(crate) word: u64,
}

/// `it_unaffiliated_event_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnaffiliatedEvent {
    pub(crate) number: EventNumber,
    pub(crate) evd: Handle,
    pub(crate) ia: Handle,
    pub(crate) spigot: usize,
}

/// `it_aevd_notification_event_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotificationEvent {
    pub(crate) number: EventNumber,
    pub(crate) aevd: Handle,
    pub(crate) sevd: Handle,
}

const _: () = {
    assert!(size_of::<Event>() == 272);
    assert!(size_of::<DtoEvent>() == 48);
    assert!(size_of::<RequestEvent>() == 272);
    assert!(size_of::<ConnectionEvent>() == 208);
    assert!(size_of::<WordEvent>() == 24);
    assert!(size_of::<UnaffiliatedEvent>() == 32);
    assert!(size_of::<NotificationEvent>() == 24);
};
