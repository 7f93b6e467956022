//! Connected queue pairs. Unreliable ones are reliable ones without Reads and atomics, whose
//! requests complete before the peer has executed them.
//!
//! | Module | Contents |
//! |---|---|
//! | `modify` | the transitions of a queue pair |
//! | `by_address` | connections by address instead of by number |
//! | `meeting` | which end connects, and which requests are accepted |
//! | `early` | sends before the connection is established |
//! | `ending` | flushed work after the connection has ended |
//! | `retries` | the time for which requests to a vanished peer are repeated |
//! | `inline` | payload that is copied when it is posted |

mod by_address;
mod early;
mod ending;
mod inline;
mod meeting;
mod modify;
mod retries;

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use host::locks::lock;
use provider_iwarp_soft::{SoftQp, SoftRequest};
use rnic::{
    Completion, ConnectionEvent, QpAttr, QpToken, RecvWr, Rnic as _, RnicError, SendOp, SendWr,
    Sge, WcStatus,
};
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::adapter::{Adapter, Name, QueuePair};
use crate::cq::{Cq, Owner, token_of, token_of_sender};
use crate::domains::Pd;
use crate::fault::{Fault, errno_of};
use crate::srq::Srq;
use crate::states::Service;
use crate::watch::Watched;
use crate::windows::Bind;
use crate::work;

use self::early::{EarlySends, Request};
use self::ending::{Ending, Kept};
use self::inline::InlineRing;
use self::meeting::Meeting;
use self::retries::Retries;

/// The shortest limit of inline payload that a queue pair has.
const INLINE_MIN: u32 = 64;
/// The longest inline payload.
const INLINE_MAX: u32 = 512;
/// The number of RDMA Reads and atomics that may be outstanding in each direction; the device
/// reports it as `max_qp_rd_atom`.
pub(crate) const READS_MAX: u32 = 16;

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) number: u32,
    service: Service,
    hw: SoftQp,
    /// The end that sends, once the queue pair was connected to itself: a connection has two ends,
    /// and `hw` is the one that receives.
    own_sender: OnceLock<SoftQp>,
    /// True while the queue pair is connected to itself.
    is_own_peer: AtomicBool,
    adapter: Arc<Adapter>,
    pd: Arc<Pd>,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    srq: Option<Arc<Srq>>,
    cap: ibv_qp_cap,
    signals_all: bool,
    /// The structure that the program uses, once it exists.
    object: AtomicPtr<ibv_qp>,
    state: AtomicU32,
    /// True once the connection is established or has ended: the RNIC takes requests.
    is_joined: AtomicBool,
    /// True if the queue pair is that of an identifier, whose states the library changes.
    is_prepared: AtomicBool,
    /// True from the transition to SQD until the event that no request is outstanding.
    is_draining: AtomicBool,
    /// The attributes that the program has set. Held during a transition.
    attr: Mutex<ibv_qp_attr>,
    meeting: Mutex<Meeting<SoftRequest>>,
    early: EarlySends,
    ending: Ending,
    retries: Retries,
    me: Weak<Self>,
    /// Created by the first inline Send.
    inline: Mutex<Option<InlineRing>>,
    observer: Mutex<Option<Arc<dyn Observer>>>,
}

rnic::opaque_debug!(Qp { number, state });

/// The receiver of the events of a connection by address.
pub(crate) trait Observer: Send + Sync {
    fn on_connection(&self, event: &ConnectionEvent);
}

/// The objects that a queue pair uses.
pub(crate) struct Parts {
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) pd: Arc<Pd>,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) srq: Option<Arc<Srq>>,
}

impl Qp {
    pub(crate) fn create(parts: Parts, init: &ibv_qp_init_attr) -> Result<Arc<Self>, Fault> {
        let cap = granted(&init.cap)?;
        let Parts {
            adapter,
            pd,
            send_cq,
            recv_cq,
            srq,
        } = parts;
        let service = match init.qp_type {
            IBV_QPT_UC => Service::Unreliable,
            _ => Service::Connected,
        };
        let number = adapter.take_number()?;
        let attr = attributes(&cap, service);
        let created = adapter.rnic.create_qp(
            &pd.hw,
            Some(&send_cq.hw),
            Some(&recv_cq.hw),
            srq.as_ref().map(|srq| &srq.hw),
            &attr,
            token_of(number),
        );
        let hw = created.map_err(|error| {
            adapter.return_number(number);
            errno_of(&error)
        })?;
        Ok(Arc::new_cyclic(|me| Self {
            number,
            service,
            hw,
            own_sender: OnceLock::new(),
            is_own_peer: AtomicBool::new(false),
            adapter,
            pd,
            send_cq,
            recv_cq,
            srq,
            cap,
            signals_all: init.sq_sig_all != 0,
            object: AtomicPtr::default(),
            state: AtomicU32::new(IBV_QPS_RESET),
            is_joined: AtomicBool::new(false),
            is_prepared: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            attr: Mutex::default(),
            meeting: Mutex::default(),
            early: EarlySends::default(),
            ending: Ending::default(),
            retries: Retries::default(),
            me: me.clone(),
            inline: Mutex::default(),
            observer: Mutex::default(),
        }))
    }

    /// The end of the connection that sends.
    fn sender(&self) -> &SoftQp {
        let own = self.own_sender.get();
        own.filter(|_| self.is_own_peer.load(Ordering::Acquire))
            .unwrap_or(&self.hw)
    }

    /// Both ends of the connection of a queue pair to itself; otherwise the one that there is.
    fn ends(&self) -> impl Iterator<Item = &SoftQp> {
        let own = self.own_sender.get();
        std::iter::once(&self.hw).chain(own)
    }

    /// Creates the end that sends to this queue pair itself.
    fn become_own_peer(&self) -> Result<(), Fault> {
        if self.own_sender.get().is_none() {
            let created = self.adapter.rnic.create_qp(
                &self.pd.hw,
                Some(&self.send_cq.hw),
                Some(&self.recv_cq.hw),
                None,
                &attributes(&self.cap, self.service),
                token_of_sender(self.number),
            );
            // The caller holds the lock of the attributes, so that no other thread has set it.
            let _ = self
                .own_sender
                .set(created.map_err(|error| errno_of(&error))?);
        }
        self.is_own_peer.store(true, Ordering::Release);
        Ok(())
    }

    /// Called with the structure that the program uses. Events find the queue pair from now on.
    pub(crate) fn publish(self: Arc<Self>, object: *mut ibv_qp) {
        self.object.store(object, Ordering::Release);
        let adapter = self.adapter.clone();
        adapter.add_qp(self);
    }

    /// Returns the attributes, and whether all requests are signalled.
    pub(crate) fn query(&self) -> (ibv_qp_attr, bool) {
        let mut found = *lock(&self.attr);
        found.qp_state = self.state();
        found.cur_qp_state = found.qp_state;
        found.cap = self.cap;
        let stops = found.qp_state == IBV_QPS_SQD && self.outstanding() > 0;
        found.sq_draining = stops.into();
        (found, self.signals_all)
    }

    fn state(&self) -> ibv_qp_state {
        self.state.load(Ordering::Acquire)
    }

    /// Checks that requests may be posted: RTS carries them, SQD keeps them, ERR flushes them.
    fn check_sends(&self) -> Result<(), Fault> {
        match self.state() {
            IBV_QPS_RTS | IBV_QPS_SQD | IBV_QPS_ERR => Ok(()),
            _ => Err(Errno::INVAL),
        }
    }

    /// Posts a request to bind a window.
    pub(crate) fn post_bind(
        &self,
        mut bind: Bind,
        wr_id: u64,
        send_flags: ibv_send_flags,
    ) -> Result<(), Fault> {
        self.check_sends()?;
        bind.wr_id = wr_id;
        bind.completion = self.signals_all || send_flags & IBV_SEND_SIGNALED != 0;
        bind.fence = send_flags & IBV_SEND_FENCE != 0;
        self.submit(Request::Bind(&Arc::new(bind)))
    }

    /// Posts a request.
    pub(crate) fn post_send(&self, wr: &ibv_send_wr) -> Result<(), Fault> {
        if wr.opcode == IBV_WR_BIND_MW {
            // SAFETY: the operation says that the program has written this member, whose objects
            // are alive.
            let bind = unsafe {
                let wanted = &wr.__bindgen_anon_2.bind_mw;
                Bind::new(
                    wanted.mw,
                    IBV_MW_TYPE_2,
                    &wanted.bind_info,
                    Some(wanted.rkey),
                )
            };
            return self.post_bind(bind?, wr.wr_id, wr.send_flags);
        }
        self.check_sends()?;
        let sgl = work::send_segments(wr)?;
        let total = sgl
            .iter()
            .try_fold(0_u32, |sum, sge| sum.checked_add(sge.len));
        let total = total.ok_or(Errno::INVAL)?;
        if sgl.len() > self.cap.max_send_sge as usize {
            return Err(Errno::INVAL);
        }
        let has = |flag| wr.send_flags & flag != 0;
        let op = work::operation(wr, total)?;
        let is_answered = matches!(
            op,
            SendOp::Read(_) | SendOp::FetchAdd(..) | SendOp::CompareSwap { .. }
        );
        if is_answered && self.service == Service::Unreliable {
            return Err(Errno::INVAL);
        }
        let request = SendWr {
            wr_id: wr.wr_id,
            op,
            sgl,
            completion: self.signals_all || has(IBV_SEND_SIGNALED),
            signalled: true,
            fence: has(IBV_SEND_FENCE),
            inline: has(IBV_SEND_INLINE),
        };
        match request.inline {
            true => self.post_inline(&request),
            false => self.submit(Request::Send(&request)),
        }
    }

    /// Posts a send whose payload is copied first. The lock makes the order of the copies that of
    /// the posts; no upcall takes it.
    fn post_inline(&self, wr: &SendWr<'_>) -> Result<(), Fault> {
        let mut ring = lock(&self.inline);
        let unfinished = self.outstanding() as usize + self.early.len();
        if unfinished >= self.cap.max_send_wr as usize {
            return Err(Errno::NOMEM);
        }
        let ring = match &mut *ring {
            Some(ring) => ring,
            empty => {
                let (count, len) = (self.cap.max_send_wr, self.cap.max_inline_data);
                let made = InlineRing::new(&self.pd, count, len);
                empty.insert(made.map_err(|error| errno_of(&error))?)
            }
        };
        // SAFETY: the program passes readable memory. The number of unfinished sends was checked,
        // and those with inline payload are posted under the lock of the ring.
        let segment = unsafe { ring.copy(wr.sgl) }.ok_or(Errno::INVAL)?;
        let segment: &[Sge] = &[segment];
        let sgl = if segment[0].len > 0 { segment } else { &[] };
        self.submit(Request::Send(&SendWr { sgl, ..*wr }))
    }

    fn submit(&self, request: Request<'_>) -> Result<(), Fault> {
        let post = |request: Request<'_>| self.pass(request);
        let posted = self.early.post(request, self.cap.max_send_wr, post);
        posted.map_err(|error| errno_of(&error))
    }

    /// Passes a request to the RNIC.
    fn pass(&self, request: Request<'_>) -> Result<(), RnicError> {
        let rnic = &self.adapter.rnic;
        match request {
            Request::Send(wr) => rnic.post_send(self.sender(), wr),
            Request::Bind(bind) => bind.post(rnic, self.sender()),
        }
    }

    /// Posts a receive, in every state except RESET.
    pub(crate) fn post_recv(&self, wr: &ibv_recv_wr) -> Result<(), Fault> {
        if self.state() == IBV_QPS_RESET || self.srq.is_some() {
            return Err(Errno::INVAL);
        }
        work::with_receive(wr, |wr: &RecvWr<'_>| {
            self.adapter.rnic.post_recv(&self.hw, wr)
        })
    }

    /// Lets the RNIC have the sends that waited: the connection is established or has ended.
    fn open_sends(&self) {
        let post = |request: Request<'_>| self.pass(request);
        self.early.open(post, |wr_id| {
            let refused = ibv_wc {
                wr_id,
                status: IBV_WC_LOC_QP_OP_ERR,
                qp_num: self.number,
                ..ibv_wc::default()
            };
            self.send_cq.add([refused], true);
        });
    }

    /// Stops the send queue, in the transition to SQD. `notifies` requests an event for the time
    /// when no request is outstanding.
    fn stop_sends(&self, notifies: bool) {
        self.early.hold();
        self.is_draining.store(notifies, Ordering::Release);
        self.note_drained();
    }

    /// The number of requests that the RNIC has not completed.
    fn outstanding(&self) -> u32 {
        self.adapter.rnic.pending(self.sender()).1
    }

    /// Reports that the send queue is drained, if it is and the program waits for that.
    fn note_drained(&self) {
        if self.is_draining.load(Ordering::Acquire)
            && self.outstanding() == 0
            && self.is_draining.swap(false, Ordering::AcqRel)
        {
            let events = &self.adapter.events;
            events.report_qp(token_of(self.number), IBV_EVENT_SQ_DRAINED);
        }
    }

    /// Enters the error state, unless the queue pair is in it. Returns false if it is. `status` is
    /// that of the first request that was held, if there is one.
    fn enter_error(&self, mut status: ibv_wc_status) -> bool {
        self.ending.on_end(|held| {
            self.state.store(IBV_QPS_ERR, Ordering::Release);
            let sends = held.sends.iter().map(|completion| {
                self.adapter.rnic.on_taken(self.sender(), completion);
                let mut converted = work::completion(completion, self.number);
                converted.status = std::mem::replace(&mut status, IBV_WC_WR_FLUSH_ERR);
                converted
            });
            self.send_cq.add(sends, true);
            self.recv_cq.add(held.receives, true);
        })
    }

    /// Holds a flushed request that a device would repeat. Returns false if the request fails now.
    fn is_repeated(&self, completion: &Completion) -> bool {
        if !self.retries.are_made() {
            return false;
        }
        match self.ending.on_flushed_send(*completion) {
            Kept::No => return false,
            Kept::Later => {}
            Kept::First => {
                let watched: Weak<dyn Watched> = self.me.clone();
                let started = self
                    .retries
                    .start(&self.adapter.watcher, self.number, watched);
                if let Err(fault) = started {
                    tracing::warn!(qp = self.number, %fault, "requests fail without retries");
                    self.enter_error(IBV_WC_RETRY_EXC_ERR);
                }
            }
        }
        true
    }

    /// Removes the completions that the program has not polled.
    fn forget_completions(&self) {
        self.send_cq.forget(self.number);
        self.recv_cq.forget(self.number);
    }
}

impl Owner for Qp {
    fn number(&self) -> u32 {
        self.number
    }

    fn convert(&self, completion: &Completion) -> Option<ibv_wc> {
        let is_receive = completion.opcode.is_receive();
        let is_flushed = completion.status == WcStatus::Flushed;
        if is_flushed && !is_receive && self.is_repeated(completion) {
            return None;
        }
        let end = if is_receive { &self.hw } else { self.sender() };
        self.adapter.rnic.on_taken(end, completion);
        self.note_drained();
        let mut converted = work::completion(completion, self.number);
        if completion.status == WcStatus::Success {
            return Some(converted);
        }
        if is_flushed && is_receive {
            return self.ending.on_flushed_receive(converted);
        }
        if self.enter_error(IBV_WC_WR_FLUSH_ERR) && is_flushed {
            converted.status = IBV_WC_RETRY_EXC_ERR;
        }
        if !is_receive && self.ending.has_held_sends() {
            self.send_cq.add([converted], true);
            return None;
        }
        Some(converted)
    }
}

impl Watched for Qp {
    /// Called when the time for retries has passed.
    fn on_readable(&self) {
        if self.ending.holds_sends() {
            self.send_cq.gather();
            self.enter_error(IBV_WC_RETRY_EXC_ERR);
            self.note_drained();
        }
    }
}

impl QueuePair for Qp {
    fn on_connection(&self, token: QpToken, event: &ConnectionEvent) {
        // The end that receives takes no sends.
        if self.is_own_peer.load(Ordering::Acquire) && token == token_of(self.number) {
            return;
        }
        // Established, or ended: in either case the RNIC takes the sends, and carries or flushes
        // them.
        self.is_joined.store(true, Ordering::Release);
        if self.state() != IBV_QPS_SQD {
            self.open_sends();
        }
        let observer = lock(&self.observer).clone();
        if let Some(observer) = observer {
            observer.on_connection(event);
        }
    }

    fn on_request(&self, from: Name, request: SoftRequest) {
        let action = lock(&self.meeting).on_request(from, request);
        if let Err(fault) = self.follow(action, from) {
            tracing::warn!(qp = self.number, ?from, %fault, "a peer could not be accepted");
        }
    }

    fn on_violation(&self) {
        self.enter_error(IBV_WC_WR_FLUSH_ERR);
    }

    fn object(&self) -> *mut ibv_qp {
        self.object.load(Ordering::Acquire)
    }
}

/// Returns the attributes of an end of a connection.
fn attributes(cap: &ibv_qp_cap, service: Service) -> QpAttr {
    QpAttr {
        recv_wr_max: cap.max_recv_wr,
        send_wr_max: cap.max_send_wr,
        recv_sge_max: cap.max_recv_sge,
        send_sge_max: cap.max_send_sge,
        ird: READS_MAX,
        ord: READS_MAX,
        read_depth_is_consumers: false,
        acknowledged: service == Service::Connected,
    }
}

/// Returns the capacities of a queue pair for which a program asks for `asked`.
fn granted(asked: &ibv_qp_cap) -> Result<ibv_qp_cap, Fault> {
    if asked.max_inline_data > INLINE_MAX {
        return Err(Errno::INVAL);
    }
    Ok(ibv_qp_cap {
        max_send_wr: asked.max_send_wr.max(1),
        max_recv_wr: asked.max_recv_wr,
        max_send_sge: asked.max_send_sge.max(1),
        max_recv_sge: asked.max_recv_sge,
        // Devices grant some bytes to a program that asks for none, and some programs rely on that.
        max_inline_data: asked.max_inline_data.max(INLINE_MIN),
    })
}
