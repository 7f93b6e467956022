//! Consumer notification object: one place to wait for several EVDs (DAT 2.0 section 6.3.3).
//!
//! A CNO owns the list of EVDs that triggered and were not yet reported, each at most once, oldest
//! first. Waiting for a trigger drives the CQs of the EVDs, so that code is in `delivery`, a layer
//! above this module. The consumer's agent (`agent`) runs on a thread of a `pool`, never on one
//! that makes progress for the RNIC. The descriptor of a CNO (`signal`), if requested, is readable
//! while the list is not empty.

mod agent;
mod pool;
mod signal;
mod state;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

use dat_abi::*;
use host::locks::IgnorePoison as _;

use self::agent::{Agent, AgentState};
use self::pool::Waiting;
pub(crate) use self::pool::{POOL, WAITING};
use self::signal::Signal;
use self::state::CnoState;
use crate::error::{DatError, DatResult};
use crate::handle::{Handle, Kind, Object, Pinned};
use crate::ia::{Child, Ia};
use crate::rnic::{Rnic, Waker};
use crate::users::{User, Users};

/// Consumer notification object.
pub struct Cno<R: Rnic> {
    pub(crate) waker: Arc<Waker>,
    inner: Mutex<Inner>,
    /// The condition on which waiters sleep while another waiter drives the RNIC. It has no other
    /// use, because `notify_one` could then wake the wrong thread.
    pub(crate) turn: Condvar,
    /// The condition on which threads wait until the running call of the agent returns.
    agent_returned: Condvar,
    users: Users,
    handle: Handle,
    ia: Arc<Ia<R>>,
}

opaque_debug!(Cno<R> { handle, users });

pub(crate) struct Inner {
    pub(crate) triggered: VecDeque<Handle>,
    /// Readable while the list is not empty; closed when the CNO is freed.
    signal: Option<Signal>,
    /// The EVDs that trigger the CNO. An EVD is removed before it is freed: the thread that ends it
    /// keeps it pinned until then.
    pub(crate) evds: Vec<Handle>,
    agent: AgentState,
    pub(crate) state: CnoState,
}

impl<R: Rnic> Object for Cno<R> {
    const KIND: Kind = Kind::Cno;
}

impl<R: Rnic> Cno<R> {
    /// Implements `dat_cno_create`.
    pub fn create(ia: &Arc<Ia<R>>, agent: DatOsWaitProxyAgent) -> DatResult<Handle> {
        Self::install(ia, Agent::from_dat(&agent), None)
    }

    /// Implements `dat_cno_fd_create`: the descriptor is readable while an EVD has triggered and
    /// was not reported. The CNO owns the descriptor and closes it.
    pub fn create_with_fd(ia: &Arc<Ia<R>>) -> DatResult<(Handle, DatFd)> {
        let signal = Signal::new().map_err(|_| NO_DESCRIPTOR)?;
        let fd = signal.fd();
        Ok((Self::install(ia, None, Some(signal))?, fd))
    }

    fn install(ia: &Arc<Ia<R>>, agent: Option<Agent>, signal: Option<Signal>) -> DatResult<Handle> {
        let reservation = ia.reserve()?;
        let waker = Waker::serving_others();
        waker.prepare().map_err(|_| NO_DESCRIPTOR)?;
        let cno = Arc::new(Self {
            waker: Arc::new(waker),
            inner: Mutex::new(Inner {
                triggered: VecDeque::new(),
                signal,
                evds: Vec::new(),
                agent: AgentState::new(agent),
                state: CnoState::Idle,
            }),
            turn: Condvar::new(),
            agent_returned: Condvar::new(),
            users: Users::new(),
            handle: reservation.handle(),
            ia: ia.clone(),
        });
        ia.install(reservation, cno)
    }

    /// The handle of the CNO.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn ia(&self) -> &Arc<Ia<R>> {
        &self.ia
    }

    /// Prevents the CNO from being freed until the result is dropped.
    pub(crate) fn add_user(&self) -> DatResult<User> {
        self.users
            .take()
            .ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_CNO))
    }

    /// Adds an EVD that triggers the CNO from now on.
    pub(crate) fn add_evd(&self, evd: Handle) {
        let mut inner = self.lock();
        if !inner.evds.contains(&evd) {
            inner.evds.push(evd);
        }
        // The caller arms the CQ next, and the upcall of the CQ triggers the CNO. So a waiter need
        // not be woken here.
    }

    /// Removes an EVD, which no longer triggers the CNO, and discards its unreported trigger.
    pub(crate) fn remove_evd(&self, evd: Handle) {
        let mut inner = self.lock();
        inner.evds.retain(|listed| *listed != evd);
        inner.triggered.retain(|listed| *listed != evd);
        inner.update_signal();
    }

    /// True while a thread waits on the CNO.
    pub(crate) fn has_waiter(&self) -> bool {
        self.lock().state.has_waiter()
    }

    /// Called when an EVD received an event. Until the trigger is taken, further events of this EVD
    /// add no second trigger. They only make a call of the agent due, because the agent is called
    /// even if no thread takes triggers.
    pub(crate) fn trigger(self: &Arc<Self>, evd: Handle) {
        let mut inner = self.lock();
        if inner.state.is_dead() {
            return;
        }
        let is_first = !inner.triggered.contains(&evd);
        if is_first {
            inner.triggered.push_back(evd);
            if let Some(signal) = &inner.signal {
                signal.raise();
            }
        }
        let is_agent_due = inner.agent.on_trigger(evd);
        let (is_waited, has_followers) = (inner.state.has_waiter(), inner.state.has_followers());
        drop(inner);
        if is_first && is_waited {
            self.waker.wake();
        }
        // `notify_one` makes a system call even if no thread waits, so it is called only for
        // followers.
        if is_first && has_followers {
            self.turn.notify_one();
        }
        if is_agent_due {
            let cno = Arc::downgrade(self);
            pool::run(Box::new(move || Self::call_agent(&cno)));
        }
    }

    /// Makes the calls of the consumer's function that are due, on a thread of the pool. During a
    /// call the thread holds no lock and no reference to the CNO, because the function may free the
    /// CNO and close the IA, which waits until all references are dropped.
    fn call_agent(this: &Weak<Self>) {
        loop {
            let begun = this.upgrade().and_then(|cno| {
                let call = cno.lock().agent.on_begin_call()?;
                Some((cno.handle, call))
            });
            let Some((cno, (agent, evd))) = begun else {
                return;
            };
            pool::serve(cno, || agent.call(evd));
            if let Some(cno) = this.upgrade() {
                cno.lock().agent.on_end_call();
                cno.agent_returned.notify_all();
            }
        }
    }

    /// Implements `dat_cno_modify_agent`. After the return the former agent is not called any more,
    /// unless the former agent itself made this call. A CNO with a descriptor has no agent.
    pub fn modify_agent(&self, agent: DatOsWaitProxyAgent) -> DatResult {
        let mut inner = self.lock();
        if inner.signal.is_some() {
            return Err(DatError::of(DAT_INVALID_STATE));
        }
        inner.agent.on_modify(Agent::from_dat(&agent));
        drop(inner);
        self.await_agent();
        Ok(())
    }

    /// Takes the oldest trigger. Fails if the CNO has been freed.
    pub(crate) fn pop_trigger(&self, inner: &mut Inner) -> DatResult<Option<Handle>> {
        if inner.state.is_dead() {
            return Err(DatError::invalid_state(DAT_INVALID_STATE_CNO_DEAD));
        }
        let evd = inner.triggered.pop_front();
        inner.update_signal();
        Ok(evd)
    }

    /// Waits until a running call of the agent returns. Does nothing during that call itself, and
    /// during the call of an agent for which that one waits.
    fn await_agent(&self) {
        let Some(waiting) = Waiting::for_agent_of(self.handle) else {
            return;
        };
        let mut inner = self.lock();
        while inner.agent.is_running() && !waiting.would_last(self.handle) {
            inner = self.agent_returned.wait(inner).ignore_poison();
        }
    }

    /// Implements `dat_cno_query`.
    pub fn query(&self) -> DatCnoParam {
        let inner = self.lock();
        let (proxy_type, proxy) = match &inner.signal {
            Some(signal) => (DAT_PROXY_TYPE_FD, DatCnoProxy { fd: signal.fd() }),
            None => {
                let agent = inner.agent.as_dat();
                (DAT_PROXY_TYPE_AGENT, DatCnoProxy { agent })
            }
        };
        DatCnoParam {
            ia_handle: self.ia.consumer_handle(),
            proxy_type,
            proxy,
        }
    }

    /// Implements `dat_cno_free`.
    pub fn free(this: &Pinned<Self>) -> DatResult {
        if !this.users.close() {
            return Err(DatError::invalid_state(DAT_INVALID_STATE_CNO_IN_USE));
        }
        Self::abandon(this);
        Ok(())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().ignore_poison()
    }
}

impl Inner {
    /// Makes the descriptor unreadable if there is no trigger to report.
    fn update_signal(&self) {
        if let Some(signal) = self.signal.as_ref().filter(|_| self.triggered.is_empty()) {
            signal.lower();
        }
    }
}

impl<R: Rnic> Child for Cno<R> {
    fn on_retired(this: &Pinned<Self>) {
        this.users.close_anyway();
        let mut inner = this.lock();
        inner.state.on_free();
        inner.signal = None;
        inner.agent.on_modify(None);
        drop(inner);
        this.waker.wake();
        this.turn.notify_all();
        this.await_agent();
        this.ia.disown(Kind::Cno, this.handle);
    }
}

const NO_DESCRIPTOR: DatError = DatError::no_resources(DAT_RESOURCE_DEVICE);

#[cfg(test)]
mod tests;
