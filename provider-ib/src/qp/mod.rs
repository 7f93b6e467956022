//! Queue pairs.
//!
//! | File | Contents |
//! |---|---|
//! | `lifecycle` | the states of a queue pair's connection |
//! | `post` | posting of requests and receives |
//! | `window` | memory windows, which are bound on a queue pair |
//! | `hw` | the device's queue pair |

mod hw;
mod lifecycle;
mod post;
mod window;

use std::collections::HashMap;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use host::locks::lock;
use hw::Hw;
use rnic::{AsyncEvent, QpAttr, QpToken, Resource, RnicError};
use verbs_dl::types::*;

use crate::cq::Cq;
use crate::engine::Task;
use crate::memory::Pd;
use crate::quirks::Transport;
use crate::shared::Shared;
use crate::srq::Srq;
use crate::work::Work;
pub(crate) use lifecycle::Lifecycle;
pub(crate) use window::Mw;

/// The objects from which a queue pair is created.
#[derive(Debug)]
pub(crate) struct QpParts {
    pub(crate) pd: Arc<Pd>,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) srq: Option<Arc<Srq>>,
}

/// The time within which the device must complete all posted work, before the queue pair is reset.
const DRAIN: Duration = Duration::from_millis(500);

/// [`DRAIN`] for iWARP. iWARP devices have completed everything when they enter the error state,
/// but siw keeps receives if an RDMA Read ends the connection.
const DRAIN_IWARP: Duration = Duration::from_millis(50);

/// Returns the time to wait for the device to flush posted work. `entered` is the result of the
/// call that put the queue pair into the error state.
///
/// A removed device completes nothing: the kernel has destroyed its queue pairs and returns `EIO`.
/// A device that is being removed waits for all its connections to end, one after the other.
fn patience(transport: Transport, entered: &io::Result<()>, is_device_removed: bool) -> Duration {
    let code = entered.as_ref().err().and_then(io::Error::raw_os_error);
    match (transport, code) {
        _ if is_device_removed => Duration::ZERO,
        (_, Some(libc::EIO | libc::ENODEV)) => Duration::ZERO,
        (Transport::Iwarp, _) => DRAIN_IWARP,
        (Transport::InfiniBand, _) => DRAIN,
    }
}

/// A queue pair.
///
/// Lock order: `hw`, `send`, `recv`, then the locks of the completion queues.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) shared: Arc<Shared>,
    pub(crate) token: QpToken,
    pub(crate) attr: QpAttr,
    qps: Arc<Qps>,
    parts: QpParts,
    work: Arc<Work>,
    /// Index of this queue pair in each of the two completion queues.
    send_place: u32,
    recv_place: u32,
    /// The longest payload that a request carries inline, in bytes.
    inline_max: u32,
    /// The device completes at least one in this many requests, even if the consumer wants no
    /// completion.
    silent_max: u32,
    /// The device's queue pair. A reset replaces it.
    hw: Mutex<Hw>,
    send: Mutex<Side>,
    recv: Mutex<Side>,
    /// The [`Lifecycle`].
    stage: AtomicU8,
    /// True once the event "last receive of the shared receive queue" was reported.
    is_last_receive_reported: AtomicBool,
    /// Windows that were bound or unbound on this queue pair.
    windows: Mutex<Vec<Weak<Mw>>>,
}

/// The state of one direction of a queue pair: sends or receives.
#[derive(Debug)]
struct Side {
    /// The pointer that `Qp::hw` owns; null once nothing will be posted any more.
    hw: *mut ibv_qp,
    /// Number of requests since the last one that the device is certain to complete.
    silent: u32,
}

// SAFETY: verbs objects may be used by any thread (ibv_create_qp(3)).
unsafe impl Send for Side {}

impl Side {
    fn new(hw: *mut ibv_qp) -> Mutex<Self> {
        Mutex::new(Self { hw, silent: 0 })
    }
}

impl Qp {
    /// Creates a queue pair that accepts receives.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        qps: &Arc<Qps>,
        parts: QpParts,
        attr: QpAttr,
        token: QpToken,
    ) -> Result<Arc<Self>, RnicError> {
        let no_memory = RnicError::NoResources(Resource::Memory);
        let recvs = if parts.srq.is_some() {
            0
        } else {
            attr.recv_wr_max
        };
        let receives = parts.srq.as_ref().map(|srq| srq.receives().clone());
        let work = Work::new(token, attr.send_wr_max, recvs, receives);
        let work = Arc::new(work.ok_or(no_memory)?);
        let hw = Hw::create(shared, &parts, &attr, token)?;
        let num = hw.num();
        let send_place = parts.send_cq.attach(&work, num)?;
        let recv_place = if Arc::ptr_eq(&parts.send_cq, &parts.recv_cq) {
            send_place
        } else {
            let place = parts.recv_cq.attach(&work, num);
            place.inspect_err(|_| parts.send_cq.detach(send_place, num))?
        };
        let pointer = hw.as_ptr();
        let qp = Arc::new(Self {
            shared: shared.clone(),
            token,
            attr,
            qps: qps.clone(),
            parts,
            work,
            send_place,
            recv_place,
            inline_max: hw.inline_max(),
            silent_max: (attr.send_wr_max / 2).max(1),
            hw: Mutex::new(hw),
            send: Side::new(pointer),
            recv: Side::new(pointer),
            stage: AtomicU8::new(Lifecycle::Idle as u8),
            is_last_receive_reported: AtomicBool::new(false),
            windows: Mutex::default(),
        });
        qps.insert(token, &qp);
        Ok(qp)
    }

    pub(crate) fn lifecycle(&self) -> Lifecycle {
        Lifecycle::from_u8(self.stage.load(Ordering::Acquire))
    }

    /// The number that the connection manager and the peer use. A reset changes it.
    pub(crate) fn num(&self) -> u32 {
        lock(&self.hw).num()
    }

    /// True if the receives are taken from a shared receive queue.
    pub(crate) fn has_srq(&self) -> bool {
        self.parts.srq.is_some()
    }

    pub(crate) fn modify(&self, attr: &mut ibv_qp_attr, mask: u32) -> io::Result<()> {
        lock(&self.hw).modify(attr, mask)
    }

    /// True if a request failed or the device has put the queue pair into the error state: the
    /// connection broke and was not closed in an orderly way.
    pub(crate) fn is_in_error(&self) -> bool {
        self.work.has_failed() || lock(&self.hw).is_in_error()
    }

    /// True if a request failed since the queue pair was created or reset.
    pub(crate) fn has_failed_work(&self) -> bool {
        self.work.has_failed()
    }

    /// The number of receives that are not consumed, and of requests that have not completed.
    pub(crate) fn pending(&self) -> (u32, u32) {
        (self.work.recvs.len(), self.work.sends.len())
    }

    /// Changes the state from idle to connecting. Called first by `connect` and `accept`.
    pub(crate) fn begin_attempt(&self) -> Result<(), RnicError> {
        let busy = RnicError::InvalidState("the queue pair is not idle");
        self.advance(Lifecycle::on_attempt)
            .then_some(())
            .ok_or(busy)
    }

    /// Changes the state back to idle when the call that began the attempt fails.
    pub(crate) fn abandon_attempt(&self) {
        self.advance(Lifecycle::on_abandon);
    }

    /// Changes the state from connecting to connected, before `Established` is reported. Returns
    /// `false` if the attempt was ended meanwhile; the caller then reports nothing.
    pub(crate) fn establish(&self) -> bool {
        self.advance(Lifecycle::on_establish)
    }

    /// Ends the connection or the attempt: prevents further posts to the device, and makes the
    /// device flush posted work. Returns the time by which the device must have completed that
    /// work, or `None` if there is nothing to end or the end has begun already.
    ///
    /// The connection calls this and [`poll_flush`](Self::poll_flush) under its lock.
    pub(crate) fn begin_flush(&self) -> Option<Instant> {
        if !self.begin_end() {
            return None;
        }
        let entered = self.enter(IBV_QPS_ERR);
        if let Err(why) = &entered {
            tracing::debug!(qp = self.token.0, %why, "the error state was not entered");
        }
        let transport = self.shared.device.transport;
        let patience = patience(transport, &entered, self.is_device_removed());
        if transport != Transport::Iwarp && !patience.is_zero() {
            self.post_marker(&mut lock(&self.send));
        }
        Some(Instant::now() + patience)
    }

    /// Takes completions. Returns true if all posted work has completed; the end may then be
    /// reported. After the time `until`, the work that the device still keeps is flushed without
    /// the device.
    pub(crate) fn poll_flush(&self, until: Instant) -> bool {
        if self.lifecycle() != Lifecycle::Ending {
            return true;
        }
        self.pull_remaining();
        if self.work.sends.awaits_device() || self.work.recvs.awaits_device() {
            if Instant::now() < until && !self.is_device_removed() {
                return false;
            }
            tracing::debug!(
                qp = self.token.0,
                "the device keeps work of a connection that ended"
            );
            // In this state the device does not access the memory of its requests any more.
            let _ = self.enter(IBV_QPS_RESET);
        }
        for window in self.held_windows() {
            window.on_qp_end(self);
        }
        self.end();
        true
    }

    fn enter(&self, state: ibv_qp_state) -> io::Result<()> {
        self.modify(&mut ibv_qp_attr::in_state(state), IBV_QP_STATE)
    }

    fn is_device_removed(&self) -> bool {
        self.shared.is_device_removed.load(Ordering::Relaxed)
    }

    /// Flushes the requests that the device has not completed and those posted meanwhile. The
    /// posting locks are held, because a request that was recorded after this flush and before the
    /// next state would wait for ever.
    fn end(&self) {
        let _send = lock(&self.send);
        let _recv = lock(&self.recv);
        self.parts.recv_cq.flush_recvs(&self.work);
        self.parts.send_cq.flush_sends(&self.work);
        if self.has_srq() {
            self.report_last_receive();
        }
        self.advance(Lifecycle::on_drained);
    }

    /// Reports, once, that this queue pair holds no receive of the shared receive queue any more.
    /// The device may report this itself; rxe does not, and consumers wait for the event before
    /// they free the queue.
    pub(crate) fn report_last_receive(&self) {
        if !self.is_last_receive_reported.swap(true, Ordering::Relaxed) {
            let event = AsyncEvent::LastWqeReached(self.token);
            self.shared.engine.submit(Task::Report(event));
        }
    }

    /// Prevents further posts to the device. The posting locks are held, so a post that was in
    /// progress has reached the device.
    fn begin_end(&self) -> bool {
        let _send = lock(&self.send);
        let _recv = lock(&self.recv);
        self.advance(Lifecycle::on_end)
    }

    /// Moves the device's completions into the completion queues and returns the number of requests
    /// that the device still holds. A graceful end waits for 0.
    pub(crate) fn requests_left(&self) -> u32 {
        self.parts.send_cq.pull();
        if self.lifecycle() == Lifecycle::Connected {
            self.post_marker(&mut lock(&self.send));
        }
        self.work.sends.len()
    }

    /// Changes the state from disconnected to idle. Does nothing if the queue pair is idle.
    pub(crate) fn reset(&self) -> Result<(), RnicError> {
        let mut hw = lock(&self.hw);
        match self.lifecycle() {
            Lifecycle::Idle => return Ok(()),
            Lifecycle::Disconnected => {}
            _ => return Err(RnicError::InvalidState("the queue pair is in use")),
        }
        // The queue pair is replaced, not reset, for two reasons. With a new number the peer's
        // connection manager does not take the next connection for a stale copy of the last. And
        // iWARP devices cannot leave the error state at all.
        let new = Hw::create(&self.shared, &self.parts, &self.attr, self.token)?;
        self.release_windows();
        let (mut send, mut recv) = (lock(&self.send), lock(&self.recv));
        for side in [&mut *send, &mut *recv] {
            *side = Side {
                hw: new.as_ptr(),
                silent: 0,
            };
        }
        let mut old = std::mem::replace(&mut *hw, new);
        let (before, now) = (old.num(), hw.num());
        self.destroy(&mut old);
        self.work.begin_epoch();
        self.is_last_receive_reported
            .store(false, Ordering::Relaxed);
        self.parts.send_cq.rename(self.send_place, before, now);
        self.parts.recv_cq.rename(self.recv_place, before, now);
        self.advance(Lifecycle::on_reset);
        Ok(())
    }

    /// Destroys the device's queue pair. The caller guarantees that the queue pair is not used any
    /// more and that its connection has ended.
    pub(crate) fn retire(&self) {
        self.release_windows();
        let mut hw = lock(&self.hw);
        let num = hw.num();
        for side in [&self.send, &self.recv] {
            lock(side).hw = ptr::null_mut();
        }
        self.destroy(&mut hw);
        self.qps.remove(self.token, self);
        self.parts.send_cq.detach(self.send_place, num);
        if !Arc::ptr_eq(&self.parts.send_cq, &self.parts.recv_cq) {
            self.parts.recv_cq.detach(self.recv_place, num);
        }
    }

    /// Destroys the device's queue pair, and takes its completions while its number is still
    /// registered. A disconnect does not wait for receives of a shared queue, so some may remain.
    ///
    /// The completions are pulled before the queue pair is destroyed too, because the user-space
    /// drivers of some devices (mlx4, mlx5) remove them from the queue as they destroy it. The
    /// receives of a shared queue would then never be reported, and their slots never be free.
    fn destroy(&self, hw: &mut Hw) {
        self.pull_remaining();
        hw.destroy();
        self.pull_remaining();
    }

    fn pull_remaining(&self) {
        self.parts.send_cq.pull();
        self.parts.recv_cq.pull();
    }

    /// Registers a window that is bound or unbound on this queue pair, so that the window is
    /// notified of the queue pair's end.
    pub(crate) fn register_window(&self, mw: &Arc<Mw>) {
        let mut windows = lock(&self.windows);
        windows.retain(|held| held.strong_count() > 0 && !ptr::eq(held.as_ptr(), Arc::as_ptr(mw)));
        windows.push(Arc::downgrade(mw));
    }

    fn held_windows(&self) -> Vec<Arc<Mw>> {
        let windows = lock(&self.windows);
        windows.iter().filter_map(Weak::upgrade).collect()
    }

    fn release_windows(&self) {
        let windows = std::mem::take(&mut *lock(&self.windows));
        for window in windows.iter().filter_map(Weak::upgrade) {
            window.on_qp_destroyed(self.token);
        }
    }

    fn advance(&self, event: impl Fn(Lifecycle) -> Option<Lifecycle>) -> bool {
        let next = |word| event(Lifecycle::from_u8(word)).map(|next| next as u8);
        let (set, read) = (Ordering::AcqRel, Ordering::Acquire);
        self.stage.fetch_update(set, read, next).is_ok()
    }
}

/// The queue pairs of an RNIC by token. The device's events carry the token.
pub(crate) type Qps = ByToken<Qp>;

/// Objects by the tokens of their owners. While an owner replaces its object, it has two objects
/// under one token. A look-up then returns the newer one.
#[derive(Debug)]
pub(crate) struct ByToken<T>(Mutex<HashMap<u64, Vec<Weak<T>>>>);

impl<T> Default for ByToken<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> ByToken<T> {
    fn insert(&self, token: QpToken, object: &Arc<T>) {
        let mut all = lock(&self.0);
        all.entry(token.0).or_default().push(Arc::downgrade(object));
    }

    /// Removes one object of the token.
    fn remove(&self, token: QpToken, object: *const T) {
        let mut all = lock(&self.0);
        let Some(own) = all.get_mut(&token.0) else {
            return;
        };
        own.retain(|other| !ptr::eq(other.as_ptr(), object));
        if own.is_empty() {
            all.remove(&token.0);
        }
    }

    /// The last object of this token, if it is alive.
    pub(crate) fn get(&self, token: QpToken) -> Option<Arc<T>> {
        lock(&self.0).get(&token.0)?.last()?.upgrade()
    }

    /// The number of objects.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An endpoint creates another queue pair for other attributes, and drops it if the device
    /// refuses one of them.
    #[test]
    fn a_queue_pair_that_replaces_none_leaves_the_other_one_known() {
        let (table, token) = (ByToken::default(), QpToken(1));
        let [first, second] = [Arc::new(1), Arc::new(2)];
        table.insert(token, &first);
        table.insert(token, &second);
        assert_eq!((table.get(token).as_deref(), table.len()), (Some(&2), 2));
        table.remove(token, Arc::as_ptr(&second));
        assert_eq!((table.get(token).as_deref(), table.len()), (Some(&1), 1));
        table.remove(token, Arc::as_ptr(&first));
        assert_eq!((table.get(token), table.len()), (None, 0));
    }

    #[test]
    fn no_thread_waits_for_a_removed_device() {
        let failed = |code| Err(io::Error::from_raw_os_error(code));
        let waits = |transport, entered: io::Result<()>| patience(transport, &entered, false);
        for (transport, longest) in [
            (Transport::InfiniBand, DRAIN),
            (Transport::Iwarp, DRAIN_IWARP),
        ] {
            assert_eq!(waits(transport, Ok(())), longest);
            // siw's queue pair may be in the error state already; the call then fails with this
            // error.
            assert_eq!(waits(transport, failed(libc::EINVAL)), longest);
            for errno in [libc::EIO, libc::ENODEV] {
                assert_eq!(waits(transport, failed(errno)), Duration::ZERO);
            }
            assert_eq!(patience(transport, &Ok(()), true), Duration::ZERO);
        }
    }
}
