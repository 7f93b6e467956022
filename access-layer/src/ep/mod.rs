//! Endpoint: one side of a connection (DAT 2.0 section 6.6, `dat_ep_*`).
//!
//! Owns the DAT state of the endpoint (`state`), its attributes and the RNIC's queue pair. The
//! queue pair has states of its own, which only the RNIC reads. Calls and upcalls synchronise the
//! two state machines.
//!
//! | File | Holds |
//! |---|---|
//! | `state.rs` | the state machine |
//! | `connect.rs` | connecting, accepting, ending, and the RNIC's events for them |
//! | `post.rs` | the data path |
//! | `modify.rs` | `dat_ep_modify` and the creation of the queue pair |
//! | `attr.rs` | attributes, defaults and limits |
//! | `parts.rs` | the objects that an endpoint uses |
//! | `private_data.rs` | bytes that the consumer reads through an event |
//! | `qp_cell.rs` | the cell that stores the queue pair |
//!
//! # Locks
//!
//! One lock guards the state and everything that changes with it. Connection events are posted to
//! the EVD under this lock, so they are in the order of the state changes, and a consumer that has
//! read an event finds the endpoint in the state that the event reports. No lock is held during the
//! calls of the RNIC that connect, accept or disconnect, because the upcall may precede their
//! return. The data path takes no lock: it reads a copy of the state's number.

mod attr;
mod connect;
mod modify;
mod parts;
mod post;
pub(crate) mod private_data;
mod qp_cell;
pub(crate) mod state;

pub use connect::ConnectArgs;
pub(crate) use connect::{Acceptance, SocketConnectArgs, check_private_data};
pub use parts::EpParts;
pub(crate) use parts::Held;
pub(crate) use post::check_flags;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dat_abi::*;
use host::locks::IgnorePoison as _;

use self::attr::{EpAttrs, SegmentLimits};
use self::parts::{HeldParts, handle_of};
use self::private_data::PrivateData;
use self::qp_cell::QpCell;
use self::state::{CrId, Machine, Released, SpId, State, WrongState};
use crate::addr::SharedAddress;
use crate::consumer_socket::ConsumerSocket;
use crate::counters::{EpCounters, TrafficCounters};
use crate::error::{DatError, DatResult};
use crate::evd::Evd;
use crate::handle::{Handle, Kind, Object, Pinned};
use crate::ia::{Child, Ia};
use crate::pz::Pz;
use crate::rnic::{Rnic, Traffic};
use crate::srq::Srq;

/// An endpoint.
pub struct Ep<R: Rnic> {
    handle: Handle,
    /// The state's number, for readers that must not wait for the lock. Written under the lock.
    state_code: AtomicU32,
    queue_pair: QpCell<QueuePair<R>>,
    /// The payload of the replaced queue pairs that were destroyed.
    replaced_traffic: Mutex<Traffic>,
    local: SharedAddress,
    remote: SharedAddress,
    counters: EpCounters,
    traffic: TrafficCounters,
    inner: Mutex<Inner<R>>,
    ia: Arc<Ia<R>>,
}

opaque_debug!(Ep<R> {
    handle,
    state_code,
    local,
    remote
});

/// The queue pair and the other data that the data path needs.
struct QueuePair<R: Rnic> {
    qp: R::Qp,
    segments: SegmentLimits,
    /// True if the receives belong to a shared receive queue.
    shares_receives: bool,
}

struct Inner<R: Rnic> {
    machine: Machine,
    parts: HeldParts<R>,
    attrs: EpAttrs,
    /// Number of receives held from a shared receive queue above which the connection ends.
    hard_watermark: Option<u32>,
    /// The consumer's communicator.
    comm: DatComm,
    /// Communicator of the socket that the connection, or the attempt to connect, uses.
    inherited_comm: Option<DatComm>,
    local_port: u64,
    remote_port: u64,
    remote_address: Option<SocketAddr>,
    /// The last private data of the peer; events point at it.
    private_data: PrivateData,
    socket: Option<ConsumerSocket>,
    /// True if the handle is retired: no operation may begin and no event is posted.
    abandoned: bool,
}

/// Result of `dat_ep_get_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpStatus {
    /// State.
    pub state: DatEpState,
    /// True if every posted receive has completed.
    pub recv_idle: bool,
    /// True if every posted request has completed.
    pub request_idle: bool,
}

impl<R: Rnic> Object for Ep<R> {
    const KIND: Kind = Kind::Ep;
}

impl From<WrongState> for DatError {
    fn from(wrong: WrongState) -> Self {
        Self::invalid_state(wrong.subtype())
    }
}

impl<R: Rnic> Ep<R> {
    /// Implements `dat_ep_create` and `dat_ep_create_with_srq`; `attr: None` selects the defaults.
    pub fn create(
        ia: &Arc<Ia<R>>,
        parts: EpParts<R>,
        attr: Option<&DatEpAttr>,
    ) -> DatResult<Handle> {
        let bad_attr = DatError::bare(DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
        let has_srq = parts.srq.is_some();
        let (has_recv, has_request) = (parts.recv_evd.is_some(), parts.request_evd.is_some());
        let parts = HeldParts::hold(ia, parts)?;
        let attrs = match attr {
            Some(attr) => EpAttrs::from_dat(attr, ia.attr()).ok_or(bad_attr)?,
            None => EpAttrs::defaults(ia.attr(), has_recv, has_request),
        };
        attrs.check_evds(has_recv || has_srq, has_request)?;
        Self::install(ia, Machine::new(), parts, attrs)
    }

    /// Creates a reserved endpoint for service point `sp`, to which the consumer passed no
    /// endpoint.
    pub(crate) fn create_reserved(ia: &Arc<Ia<R>>, sp: SpId) -> DatResult<Handle> {
        let attrs = EpAttrs::defaults(ia.attr(), false, false);
        Self::install(ia, Machine::new_reserved(sp), HeldParts::none(), attrs)
    }

    /// Creates an endpoint for connection request `cr`, because the consumer passed none.
    pub(crate) fn create_tentative(ia: &Arc<Ia<R>>, cr: CrId) -> DatResult<Handle> {
        let attrs = EpAttrs::defaults(ia.attr(), false, false);
        Self::install(ia, Machine::new_tentative(cr), HeldParts::none(), attrs)
    }

    fn install(
        ia: &Arc<Ia<R>>,
        machine: Machine,
        parts: HeldParts<R>,
        attrs: EpAttrs,
    ) -> DatResult<Handle> {
        let reservation = ia.reserve()?;
        let local = SharedAddress::new();
        local.set(ia.attr().address);
        let ep = Arc::new(Self {
            handle: reservation.handle(),
            state_code: AtomicU32::new(machine.state().code()),
            queue_pair: QpCell::empty(),
            replaced_traffic: Mutex::default(),
            local,
            remote: SharedAddress::new(),
            counters: EpCounters::new(),
            traffic: TrafficCounters::default(),
            inner: Mutex::new(Inner {
                machine,
                parts,
                attrs,
                hard_watermark: None,
                comm: DatComm::zeroed(),
                inherited_comm: None,
                local_port: 0,
                remote_port: 0,
                remote_address: None,
                private_data: PrivateData::EMPTY,
                socket: None,
                abandoned: false,
            }),
            ia: ia.clone(),
        });
        ep.create_queue_pair(&ep.lock())?;
        ia.install(reservation, ep)
    }

    /// Implements `dat_ep_query`. Fills all members, because consumers read members that they did
    /// not request.
    pub fn query(&self) -> DatEpParam {
        let inner = self.lock();
        let parts = &inner.parts;
        DatEpParam {
            ia_handle: self.ia.consumer_handle(),
            ep_state: inner.machine.state().code(),
            comm: inner.inherited_comm.unwrap_or(inner.comm),
            local_ia_address_ptr: self.local.as_dat(),
            local_port_qual: inner.local_port,
            remote_ia_address_ptr: self.remote.as_dat(),
            remote_port_qual: inner.remote_port,
            pz_handle: handle_of(parts.pz.as_ref(), Pz::handle),
            recv_evd_handle: handle_of(parts.recv_evd.as_ref(), Evd::handle),
            request_evd_handle: handle_of(parts.request_evd.as_ref(), Evd::handle),
            connect_evd_handle: handle_of(parts.connect_evd.as_ref(), Evd::handle),
            srq_handle: handle_of(parts.srq.as_ref(), Srq::handle),
            ep_attr: inner.attrs.to_dat(),
        }
    }

    /// Implements `dat_ep_get_status`. Idle means that nothing is pending, as in the specification.
    /// Makes progress, because a consumer may call nothing else until its requests are done.
    pub fn status(&self) -> EpStatus {
        self.ia.rnic().drive();
        let (recvs, requests) = self
            .queue_pair
            .get()
            .map_or((0, 0), |queue_pair| self.ia.rnic().pending(&queue_pair.qp));
        EpStatus {
            state: self.state_code.load(Ordering::Acquire),
            recv_idle: recvs == 0,
            request_idle: requests == 0,
        }
    }

    /// Implements `dat_ep_recv_query`: returns the number of receives that the endpoint holds and
    /// that have not completed, and their span: the number of queue entries from the first of these
    /// receives to the last. The two are equal, because a stream delivers messages in order and the
    /// endpoint holds every posted receive if it has no shared receive queue. Makes progress like
    /// [`Self::status`].
    pub fn recv_query(&self) -> DatResult<(DatCount, DatCount)> {
        self.ia.rnic().drive();
        let queue_pair = self.queue_pair.get().ok_or(connect::NOT_READY)?;
        let (recvs, _) = self.ia.rnic().pending(&queue_pair.qp);
        let count = DatCount::try_from(recvs).unwrap_or(DatCount::MAX);
        Ok((count, count))
    }

    /// Returns the number of receives of `srq` that endpoints have taken for messages that are
    /// still being received.
    pub(crate) fn outstanding_of(srq: &Srq<R>) -> DatCount {
        let eps = srq.ia().children::<Self>();
        let held = eps.map(|ep| ep.receives_held_of(srq.handle())).sum::<u32>();
        DatCount::try_from(held).unwrap_or(DatCount::MAX)
    }

    /// Returns the number of receives of shared receive queue `srq` that the endpoint has taken and
    /// not completed.
    fn receives_held_of(&self, srq: Handle) -> u32 {
        let uses_it = {
            let inner = self.lock();
            let own = inner.parts.srq.as_ref();
            own.is_some_and(|own| own.object().handle() == srq)
        };
        match self.queue_pair.get().filter(|_| uses_it) {
            Some(queue_pair) => self.ia.rnic().pending(&queue_pair.qp).0,
            None => 0,
        }
    }

    /// Implements `dat_ep_set_watermark`: sets the number of receives of its shared receive queue
    /// that the endpoint may hold before the consumer is notified (`soft`) and before the
    /// connection is broken (`hard`).
    pub fn set_watermark(&self, soft: DatCount, hard: DatCount) -> DatResult {
        let soft_count = soft;
        let soft = watermark(soft).ok_or(DatError::invalid_arg(2))?;
        let hard = watermark(hard).ok_or(DatError::invalid_arg(3))?;
        let queue_pair = self.queue_pair.get().ok_or(connect::NOT_READY)?;
        if !queue_pair.shares_receives {
            return Err(DatError::invalid_state(DAT_INVALID_STATE_EP_RECV_WATERMARK));
        }
        self.ia
            .rnic()
            .set_recv_watermarks(&queue_pair.qp, soft, hard)?;
        let mut inner = self.lock();
        inner.attrs.srq_soft_hw = soft_count;
        inner.hard_watermark = hard;
        Ok(())
    }

    /// Returns the maximum number of request completions that can be in progress or unread: twice
    /// the requested numbers, because an RNIC may grant more than was requested.
    pub(crate) fn completions_max(&self) -> usize {
        let inner = self.lock();
        let unread = inner.parts.request_evd.as_ref();
        let unread = unread.map_or(0, |evd| evd.object().qlen());
        2 * (inner.attrs.request_dtos().max(1) + unread)
    }

    /// Returns the handle of the protection zone.
    pub fn pz(&self) -> Option<Handle> {
        self.lock().parts.pz.as_ref().map(|pz| pz.object().handle())
    }

    pub(crate) fn counters(&self) -> &EpCounters {
        &self.counters
    }

    pub(crate) fn traffic_counters(&self) -> &TrafficCounters {
        &self.traffic
    }

    /// Returns the payload of the endpoint's connections by transport; `None` if the RNIC has one
    /// transport only.
    pub(crate) fn traffic(&self) -> Option<Traffic> {
        let mut sum = *self.replaced_traffic.lock().ignore_poison();
        for queue_pair in self.queue_pair.all() {
            sum += self.ia.rnic().traffic(&queue_pair.qp)?;
        }
        Some(sum)
    }

    /// Returns the traffic of all endpoints of an IA, including freed endpoints.
    pub(crate) fn traffic_of(ia: &Ia<R>) -> Traffic {
        let mut sum = ia.traffic_counters().freed();
        for traffic in ia.children::<Self>().filter_map(|ep| ep.traffic()) {
            sum += traffic;
        }
        sum
    }

    /// Counts a receive whose completion event was taken.
    pub(crate) fn count_receive(&self, dto: &DatDtoCompletionEventData) {
        let index = match dto.operation {
            DAT_DTO_RECEIVE | DAT_DTO_RECEIVE_WITH_INVALIDATE => DCNT_EP_RECV,
            DAT_IB_DTO_RECV_IMMED => DCNT_EP_RECV_RDMA_IMM,
            DAT_IB_DTO_RECV_MSG_IMMED => DCNT_EP_RECV_IMM,
            _ => return,
        };
        // The length is unsigned.
        let bytes = u64::from(dto.transfered_length);
        self.counters.transfer(index, bytes);
    }

    /// The handle of the endpoint.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn ia(&self) -> &Arc<Ia<R>> {
        &self.ia
    }

    /// Implements `dat_ep_free`: disconnects first if necessary, and drops unread events.
    pub fn free(this: &Pinned<Self>) -> DatResult {
        {
            let mut inner = this.lock();
            inner.machine.may_free()?;
            inner.abandoned = true;
        }
        let ended = Self::abandon(this).then_some(());
        ended.ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_EP))
    }

    /// Reserves the endpoint for service point `sp`.
    pub(crate) fn reserve(&self, sp: SpId) -> DatResult {
        self.begin(|inner| Ok(inner.machine.on_reserve(sp)?))
    }

    /// Moves the endpoint from service point `sp` to connection request `cr`, which waits for an
    /// answer.
    pub(crate) fn request(&self, sp: SpId, cr: CrId) -> DatResult {
        self.begin(|inner| Ok(inner.machine.on_request(sp, cr)?))
    }

    /// Releases the endpoint from service point `sp`.
    pub(crate) fn release(this: &Pinned<Self>, sp: SpId) {
        let released = this.change(|inner| inner.machine.on_release(sp));
        Self::after_release(this, released);
    }

    /// Releases the endpoint from connection request `cr`, which was rejected or has ended.
    pub(crate) fn reject(this: &Pinned<Self>, cr: CrId) {
        let released = this.change(|inner| inner.machine.on_reject(cr));
        Self::after_release(this, released);
    }

    fn after_release(this: &Pinned<Self>, released: Released) {
        if released == Released::Destroy {
            Self::abandon(this);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<R>> {
        self.inner.lock().ignore_poison()
    }

    /// Runs one change of the state and copies the new state's number for the data path.
    fn change<T>(&self, change: impl FnOnce(&mut Inner<R>) -> T) -> T {
        let mut inner = self.lock();
        let value = change(&mut inner);
        self.mirror(&inner);
        value
    }

    /// Runs [`change`](Self::change) for a consumer's call. Refuses if the endpoint is being freed.
    fn begin<T>(&self, change: impl FnOnce(&mut Inner<R>) -> DatResult<T>) -> DatResult<T> {
        self.change(|inner| {
            if inner.abandoned {
                return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_EP));
            }
            change(inner)
        })
    }

    /// Runs [`change`](Self::change) and posts the resulting event, if any, before another thread
    /// can change the state.
    fn change_and_post(&self, change: impl FnOnce(&mut Inner<R>) -> Option<DatEventNumber>) {
        let mut inner = self.lock();
        let number = change(&mut inner);
        self.mirror(&inner);
        let Some(number) = number else { return };
        tracing::debug!(ep = ?self.handle, name = event_name(number), "connection event");
        let Some(evd) = inner
            .parts
            .connect_evd
            .as_ref()
            .filter(|_| !inner.abandoned)
        else {
            return;
        };
        evd.object().post(self.connection_event(&inner, number));
    }

    fn connection_event(&self, inner: &Inner<R>, number: DatEventNumber) -> DatEvent {
        let carries_data = matches!(
            number,
            DAT_CONNECTION_EVENT_ESTABLISHED | DAT_CONNECTION_EVENT_PEER_REJECTED
        );
        let none = PrivateData::EMPTY;
        let data = if carries_data {
            &inner.private_data
        } else {
            &none
        };
        let mut event = DatEvent::zeroed();
        event.event_number = number;
        event.event_data.connect_event_data = DatConnectionEventData {
            ep_handle: self.handle.as_dat(),
            private_data_size: data.len(),
            private_data: data.as_ptr(),
        };
        event
    }

    /// Replaces the private data of the peer. Unread events point at the old data, so their
    /// pointers are cleared first.
    fn replace_private_data(&self, inner: &mut Inner<R>, new: PrivateData) {
        if !inner.private_data.is_empty()
            && let Some(evd) = &inner.parts.connect_evd
        {
            evd.object().cut_private_data_of(self.handle);
        }
        inner.private_data = new;
    }

    fn mirror(&self, inner: &Inner<R>) {
        self.state_code
            .store(inner.machine.state().code(), Ordering::Release);
    }
}

impl<R: Rnic> Child for Ep<R> {
    fn on_retired(this: &Pinned<Self>) {
        let connected = {
            let mut inner = this.lock();
            inner.abandoned = true;
            !matches!(
                inner.machine.state(),
                State::Unconnected
                    | State::Reserved(..)
                    | State::Passive(_)
                    | State::Tentative(_)
                    | State::Disconnected
            )
        };
        if let Some(queue_pair) = this.queue_pair.get().filter(|_| connected) {
            this.ia.rnic().disconnect(&queue_pair.qp, true);
        }
        let parts = {
            let mut inner = this.lock();
            inner.end_socket();
            std::mem::replace(&mut inner.parts, HeldParts::none())
        };
        for evd in parts.evds() {
            evd.forget_ep(this.handle);
        }
        this.ia.binds().forget_ep(this.handle);
        drop(parts);
        if let Some(traffic) = this.traffic() {
            this.ia.traffic_counters().add_freed(traffic);
        }
        this.ia.disown(Kind::Ep, this.handle);
    }
}

impl<R: Rnic> Inner<R> {
    /// Called when the connection over a consumer's socket, or the attempt to connect, has ended.
    fn end_socket(&mut self) {
        if let Some(mut socket) = self.socket.take() {
            socket.on_released();
        }
    }
}

/// Converts a DAT watermark; the outer `None` means that the value is invalid.
fn watermark(value: DatCount) -> Option<Option<u32>> {
    if value == DAT_WATERMARK_INFINITE {
        return Some(None);
    }
    u32::try_from(value).ok().map(Some)
}

#[cfg(test)]
mod tests;
