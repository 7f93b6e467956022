//! Consumer notification object: one place to wait for several EVDs (DAT 2.0 section 6.3.3).
//!
//! Owns the list of EVDs that triggered and were not yet reported, each at most once, oldest first.
//! Waiting for a trigger drives the CQs of the EVDs, so it is in `delivery`, above them. The
//! consumer's agent runs in a thread of its own (`agent`), never in one that carries the RNIC's
//! work. A CNO made for a descriptor (`signal`) shows there that the list is not empty.

mod agent;
mod signal;
mod state;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use dat_abi::*;

use self::agent::{Agent, AgentState};
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

opaque_debug!(Cno { handle, users });

pub(crate) struct Inner {
    pub(crate) triggered: VecDeque<Handle>,
    /// Readable while the list is not empty; closed when the CNO is freed.
    signal: Option<Signal>,
    /// The EVDs that trigger it. An EVD leaves before it ends, or is ended by a thread that has it
    /// pinned until it has left.
    pub(crate) evds: Vec<Handle>,
    agent: AgentState,
    pub(crate) state: CnoState,
    /// A thread sleeps outside this layer ([`Cno::begin_sleep`]).
    pub(crate) sleeps_outside: bool,
}

impl<R: Rnic> Object for Cno<R> {
    const KIND: Kind = Kind::Cno;
}

impl<R: Rnic> Cno<R> {
    /// `dat_cno_create`.
    pub fn create(ia: &Arc<Ia<R>>, agent: DatOsWaitProxyAgent) -> DatResult<Handle> {
        Self::install(ia, Agent::from_dat(&agent), None)
    }

    /// `dat_cno_fd_create`: the descriptor is readable while something has triggered. It belongs to
    /// the CNO and ends with it.
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
                sleeps_outside: false,
            }),
            turn: Condvar::new(),
            agent_returned: Condvar::new(),
            users: Users::new(),
            handle: reservation.handle(),
            ia: ia.clone(),
        });
        ia.install(reservation, cno)
    }

    /// Its handle.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Its IA.
    pub(crate) fn ia(&self) -> &Arc<Ia<R>> {
        &self.ia
    }

    /// Keeps it from being freed.
    pub(crate) fn use_it(&self) -> DatResult<User> {
        self.users
            .take()
            .ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_CNO))
    }

    /// An EVD will trigger it.
    pub(crate) fn join(&self, evd: Handle) {
        let mut inner = self.lock();
        if !inner.evds.contains(&evd) {
            inner.evds.push(evd);
        }
        // A waiter need not be woken: the CQ is armed next, and its upcall triggers.
    }

    /// An EVD will not trigger it any more; what it triggered and nobody saw is forgotten.
    pub(crate) fn leave(&self, evd: Handle) {
        let mut inner = self.lock();
        inner.evds.retain(|known| *known != evd);
        inner.triggered.retain(|known| *known != evd);
        inner.show();
    }

    /// True while a thread waits on the CNO.
    pub(crate) fn has_waiter(&self) -> bool {
        self.lock().state.has_waiter()
    }

    /// An EVD got an event. Until this trigger is taken, further events of the same EVD add no
    /// other one; they only make the agent due, which is called whether or not anybody takes
    /// triggers.
    pub(crate) fn trigger(self: &Arc<Self>, evd: Handle) {
        let mut inner = self.lock();
        if inner.state.is_dead() {
            return;
        }
        let is_news = !inner.triggered.contains(&evd);
        if is_news {
            inner.triggered.push_back(evd);
            if let Some(signal) = &inner.signal {
                signal.raise();
            }
        }
        let agent_due = inner.agent.on_trigger(evd);
        let (waited, followed) = (inner.state.has_waiter(), inner.state.has_followers());
        drop(inner);
        if is_news && waited {
            self.waker.wake();
        }
        // A notification is a system call even when nobody waits.
        if is_news && followed {
            self.turn.notify_one();
        }
        if agent_due {
            let cno = Arc::downgrade(self);
            agent::run(Box::new(move || Self::call_agent(&cno)));
        }
    }

    /// In the agent thread: calls the consumer's function, with no lock and no share of the CNO
    /// held: the function may free the CNO and close the IA, which waits for shares to be given up.
    fn call_agent(this: &Weak<Self>) {
        let begun = this
            .upgrade()
            .and_then(|cno| cno.lock().agent.on_begin_call());
        if let Some((agent, evd)) = begun {
            agent.call(evd);
        }
        if let Some(cno) = this.upgrade() {
            cno.lock().agent.on_end_call();
            cno.agent_returned.notify_all();
        }
    }

    /// `dat_cno_modify_agent`. When it returns the former agent is not called any more, unless it
    /// is the former agent that calls this. A CNO made for a descriptor has no agent.
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

    /// Takes the oldest trigger. Refused when the CNO is freed.
    pub(crate) fn take_open(&self, inner: &mut Inner) -> DatResult<Option<Handle>> {
        if inner.state.is_dead() {
            return Err(DatError::invalid_state(DAT_INVALID_STATE_CNO_DEAD));
        }
        let evd = inner.triggered.pop_front();
        inner.show();
        Ok(evd)
    }

    /// Waits for a call of the agent to return, unless it is the agent that waits.
    fn await_agent(&self) {
        if agent::is_agent_thread() {
            return;
        }
        let mut inner = self.lock();
        while inner.agent.is_running() {
            inner = self
                .agent_returned
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// `dat_cno_query`.
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

    /// `dat_cno_free`.
    pub fn free(this: &Pinned<Self>) -> DatResult {
        if !this.users.close() {
            return Err(DatError::invalid_state(DAT_INVALID_STATE_CNO_IN_USE));
        }
        Self::abandon(this);
        Ok(())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Makes the descriptor silent when there is nothing to report.
    fn show(&self) {
        if let Some(signal) = self.signal.as_ref().filter(|_| self.triggered.is_empty()) {
            signal.lower();
        }
    }
}

impl<R: Rnic> Child for Cno<R> {
    fn abandon(this: &Pinned<Self>) {
        if !this.retire() {
            return;
        }
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
