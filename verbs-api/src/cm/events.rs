//! Event channels.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use host::locks::lock;
use verbs_dl::types::*;

use crate::abi::AddressVector;
use crate::fault::{self, Fault};
use crate::object::Object;
use crate::qp::READS_MAX;

use super::id::{Channel, Event, Id, IdObject};

type ChannelObject = Object<rdma_event_channel, Arc<Channel>>;
type EventObject = Object<rdma_cm_event, Received>;

/// The data of an event that the program has received and not acknowledged.
struct Received {
    /// The program's structure points to it.
    _private_data: Vec<u8>,
    /// The identifier that cannot be destroyed until the acknowledgement.
    blocks: Arc<Id>,
}

/// `struct rdma_ud_param`.
#[repr(C)]
struct UdParam {
    private_data: *const libc::c_void,
    private_data_len: u8,
    path: AddressVector,
    qp_num: u32,
    qkey: u32,
}

const _: () = assert!(size_of::<UdParam>() == size_of::<rdma_ud_param>());

/// Returns a channel.
///
/// # Safety
/// `channel` is a live channel of this library.
pub(super) unsafe fn channel_of<'a>(channel: *mut rdma_event_channel) -> &'a Arc<Channel> {
    // SAFETY: the caller guarantees a live channel.
    unsafe { ChannelObject::own(channel) }
}

/// Creates the program's structure of an event, and of the identifier of a connection request.
fn received(channel: *mut rdma_event_channel, event: Event) -> *mut rdma_cm_event {
    let listen_id = event.listener.as_ref().map(|listener| listener.object());
    let id = match &event.listener {
        None => event.id.object(),
        Some(listener) => IdObject::of_request(channel, &event.id, listener),
    };
    let blocks = event.listener.unwrap_or(event.id);
    blocks.unacknowledged.add();
    let len = event.private_data.len().min(u8::MAX.into());
    let conn = rdma_conn_param {
        private_data: match len {
            0 => std::ptr::null(),
            _ => event.private_data.as_ptr().cast(),
        },
        private_data_len: len as u8,
        responder_resources: READS_MAX as u8,
        initiator_depth: READS_MAX as u8,
        flow_control: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: 0,
    };
    let mut c = rdma_cm_event {
        id,
        listen_id: listen_id.unwrap_or(std::ptr::null_mut()),
        event: event.kind,
        status: event.status,
        param: rdma_cm_event__bindgen_ty_1 { conn },
    };
    if let Some(peer) = event.peer {
        let param = UdParam {
            private_data: conn.private_data,
            private_data_len: conn.private_data_len,
            path: AddressVector::to(peer.gid, 1),
            qp_num: peer.number,
            qkey: peer.key,
        };
        // SAFETY: the union has room for this structure, which is one of its members.
        unsafe { (&raw mut c.param).cast::<UdParam>().write(param) };
    }
    let own = Received {
        _private_data: event.private_data,
        blocks,
    };
    EventObject::create(c, own)
}

/// `rdma_create_event_channel(3)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    let create = || -> Result<_, Fault> {
        let channel = Arc::new(Channel::new()?);
        let fd = channel.descriptor()?;
        Ok(ChannelObject::create(rdma_event_channel { fd }, channel))
    };
    fault::pointer(create())
}

/// The number of destroyed channels that are kept.
const KEPT: usize = 16;

/// The channels that were destroyed last. Programs such as `rping` destroy a channel while a thread
/// of theirs returns to wait for its next event; that thread then waits until the process ends.
static DESTROYED: Mutex<VecDeque<usize>> = Mutex::new(VecDeque::new());

/// `rdma_destroy_event_channel(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    let mut destroyed = lock(&DESTROYED);
    destroyed.push_back(channel.expose_provenance());
    if destroyed.len() > KEPT
        && let Some(oldest) = destroyed.pop_front()
    {
        let oldest = std::ptr::with_exposed_provenance_mut(oldest);
        let oldest: *mut rdma_event_channel = oldest;
        // SAFETY: the program has destroyed the channel long ago, and its descriptor is open.
        unsafe {
            libc::close((*oldest).fd);
            ChannelObject::destroy(oldest);
        }
    }
}

/// Returns the next event of a channel, if there is one.
///
/// # Safety
/// `channel` is a live channel of this library.
pub(crate) unsafe fn take_event(channel: *mut rdma_event_channel) -> Option<*mut rdma_cm_event> {
    // SAFETY: the caller guarantees a live channel.
    let event = unsafe { channel_of(channel) }.take()?;
    Some(received(channel, event))
}

/// `rdma_get_cm_event(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    out: *mut *mut rdma_cm_event,
) -> libc::c_int {
    // SAFETY: the program passes a live channel.
    let event = unsafe { channel_of(channel) }.next();
    fault::minus_one(event.map(|event| {
        // SAFETY: the program passes a pointer to its variable.
        unsafe { out.write(received(channel, event)) };
    }))
}

/// `rdma_ack_cm_event(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> libc::c_int {
    // SAFETY: the program passes an event that it received, and does not use it after this call.
    unsafe {
        let blocks = EventObject::own(event).blocks.clone();
        EventObject::destroy(event);
        blocks.unacknowledged.remove();
    }
    0
}
