//! The RNIC of an open device, its events, and the numbers of its queue pairs.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use host::locks::{IgnorePoison as _, lock};
use provider_iwarp_soft::{SoftListener, SoftRequest, SoftRnic};
use rnic::{
    AsyncEvent, ConnectionEvent, CqToken, EventUpcall, ListenAddress, ListenToken, QpToken,
    RequestInfo, Rnic as _, RnicAttr, RnicConfig, SrqToken, Upcall,
};
use verbs_dl::types::*;

use crate::abi::{Gid, VerbsContext};
use crate::channel::Notified;
use crate::cq::{Owner, Owners, number_of};
use crate::events::EventQueue;
use crate::fault::{Fault, errno_of};
use crate::object::Object;
use crate::users::{Used, Users};
use crate::watch::Watcher;

/// The structure behind an `ibv_context` of this library.
pub(crate) type ContextObject = Object<VerbsContext, Arc<Adapter>>;

/// The number of queue pairs of one listener: the lower eight bits of a number.
const INDEX_BITS: u32 = 8;

/// The lower bits of the number of a datagram queue pair, which no connected one has.
pub(crate) const DATAGRAM_INDEX: u32 = (1 << INDEX_BITS) - 1;

/// The variable with settings of the software provider for all devices, as in dat.conf(5).
const SETTINGS: &str = "DAT_VERBS";

/// The token of the listeners for queue pairs that are named by their numbers.
const NUMBERS: ListenToken = ListenToken(0);

/// A queue pair, as the events of its adapter see it.
pub(crate) trait QueuePair: Owner {
    /// Called when its connection is established or has ended.
    fn on_connection(&self, token: QpToken, event: &ConnectionEvent);
    /// Called when a peer asks for a connection to it.
    fn on_request(&self, from: Name, request: SoftRequest);
    /// Called when its peer has sent a request that ends the connection.
    fn on_violation(&self);
    /// The structure that the program uses.
    fn object(&self) -> *mut ibv_qp;
}

/// A service that accepts connections by address.
pub(crate) trait Service: Send + Sync {
    /// Called when a peer asks for a connection. The drop of the request refuses it.
    fn on_request(&self, request: SoftRequest, info: &RequestInfo<'_>);
}

/// A queue pair of this host or another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) gid: Gid,
    pub(crate) number: u32,
}

impl Name {
    /// The port of the listener that accepts connections to the queue pair.
    pub(crate) fn port(self) -> u16 {
        ((self.number >> INDEX_BITS) & 0xffff) as u16
    }
}

/// The private data of a connection request: which queue pair asks which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) from: u32,
    pub(crate) to: u32,
}

impl Hello {
    const MAGIC: [u8; 4] = *b"dRv1";

    pub(crate) fn bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&Self::MAGIC);
        bytes[4..8].copy_from_slice(&self.from.to_be_bytes());
        bytes[8..].copy_from_slice(&self.to.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (magic, numbers) = bytes.split_first_chunk::<4>()?;
        let (from, to) = numbers.split_first_chunk::<4>()?;
        let is_ours = *magic == Self::MAGIC;
        let to = to.try_into().ok().filter(|_| is_ours)?;
        Some(Self {
            from: u32::from_be_bytes(*from),
            to: u32::from_be_bytes(to),
        })
    }
}

/// An event for `ibv_get_async_event(3)`.
#[derive(Clone, Copy)]
pub(crate) struct Reported(pub(crate) ibv_async_event);

// SAFETY: the library passes the pointer of an event to the program and does not follow it.
unsafe impl Send for Reported {}

rnic::opaque_debug!(Reported {});

impl Reported {
    /// True if the event names this object.
    fn names(&self, object: *mut libc::c_void) -> bool {
        // SAFETY: all objects are pointers, and an event of the port has the value 1 in place of
        // one, which no object has.
        std::ptr::addr_eq(unsafe { self.0.element.qp }, object)
    }
}

/// The objects of an open device by their tokens, and its events.
pub(crate) struct Events {
    qps: RwLock<HashMap<u32, Arc<dyn QueuePair>>>,
    cqs: RwLock<HashMap<u64, Arc<Notified>>>,
    srqs: RwLock<HashMap<u64, AtomicPtr<ibv_srq>>>,
    services: RwLock<HashMap<u64, Arc<dyn Service>>>,
    pub(crate) reported: EventQueue<Reported>,
}

impl Events {
    fn qp(&self, number: u32) -> Option<Arc<dyn QueuePair>> {
        self.qps.read().ignore_poison().get(&number).cloned()
    }

    fn cq(&self, token: CqToken) -> Option<Arc<Notified>> {
        self.cqs.read().ignore_poison().get(&token.0).cloned()
    }

    // Each of these holds the lock of its table while it adds the event. So no event of an object
    // is added after its removal from the table, which precedes the removal of its events.

    pub(crate) fn report_qp(&self, token: QpToken, event_type: ibv_event_type) {
        let qps = self.qps.read().ignore_poison();
        if let Some(qp) = qps.get(&number_of(token)) {
            let element = ibv_async_event__bindgen_ty_1 { qp: qp.object() };
            self.report(element, event_type);
        }
    }

    /// Reports that the send queue of a datagram queue pair is drained.
    pub(crate) fn report_drained(&self, qp: *mut ibv_qp) {
        let element = ibv_async_event__bindgen_ty_1 { qp };
        self.report(element, IBV_EVENT_SQ_DRAINED);
    }

    /// Called when the RNIC has ended a connection because of a request of the peer: the queue pair
    /// enters the error state (InfiniBand specification, section 9.9.3, class C).
    fn on_violation(&self, token: QpToken, event_type: ibv_event_type) {
        self.report_qp(token, event_type);
        if let Some(qp) = self.qp(number_of(token)) {
            qp.on_violation();
        }
    }

    fn report_cq(&self, token: CqToken) {
        let cqs = self.cqs.read().ignore_poison();
        if let Some(cq) = cqs.get(&token.0) {
            let cq = cq.object.load(Ordering::Acquire);
            self.report(ibv_async_event__bindgen_ty_1 { cq }, IBV_EVENT_CQ_ERR);
        }
    }

    fn report_srq(&self, token: SrqToken, event_type: ibv_event_type) {
        let srqs = self.srqs.read().ignore_poison();
        if let Some(srq) = srqs.get(&token.0) {
            let srq = srq.load(Ordering::Acquire);
            self.report(ibv_async_event__bindgen_ty_1 { srq }, event_type);
        }
    }

    fn report(&self, element: ibv_async_event__bindgen_ty_1, event_type: ibv_event_type) {
        let event = ibv_async_event {
            element,
            event_type,
        };
        self.reported.push(Reported(event));
    }
}

impl Owners for Events {
    fn owner(&self, token: QpToken) -> Option<Arc<dyn Owner>> {
        let qp = self.qp(number_of(token))?;
        Some(qp)
    }
}

impl EventUpcall for Events {
    fn cq_ready(&self, cq: CqToken) {
        if let Some(cq) = self.cq(cq) {
            cq.notify();
        }
    }

    fn connection(&self, token: QpToken, event: &ConnectionEvent) {
        if let Some(qp) = self.qp(number_of(token)) {
            qp.on_connection(token, event);
        }
    }

    fn socket_down(&self, _armed: ListenToken) {}

    fn async_event(&self, event: AsyncEvent) {
        match event {
            AsyncEvent::CqOverflow(cq) => self.report_cq(cq),
            AsyncEvent::LastWqeReached(qp) => {
                self.report_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
            }
            AsyncEvent::AccessViolation(qp) => self.on_violation(qp, IBV_EVENT_QP_ACCESS_ERR),
            AsyncEvent::InvalidRequest(qp) => self.on_violation(qp, IBV_EVENT_QP_REQ_ERR),
            AsyncEvent::SrqLimit(srq) => self.report_srq(srq, IBV_EVENT_SRQ_LIMIT_REACHED),
            AsyncEvent::SrqFailed(srq) => self.report_srq(srq, IBV_EVENT_SRQ_ERR),
            // Verbs have no limit for one queue pair's part of a shared receive queue.
            AsyncEvent::RecvWatermark(_) => {}
            AsyncEvent::DeviceFatal => {
                let element = ibv_async_event__bindgen_ty_1 { port_num: 1 };
                self.report(element, IBV_EVENT_DEVICE_FATAL);
            }
        }
    }
}

impl Upcall<SoftRnic> for Events {
    /// Passes a request to its service, or to the queue pair that it names. The drop of any other
    /// request refuses it.
    fn connection_request(
        &self,
        listener: ListenToken,
        request: SoftRequest,
        info: &RequestInfo<'_>,
    ) {
        if listener != NUMBERS {
            let services = self.services.read().ignore_poison();
            let service = services.get(&listener.0).cloned();
            drop(services);
            if let Some(service) = service {
                service.on_request(request, info);
            }
            return;
        }
        let hello = Hello::parse(info.private_data);
        if let Some(hello) = hello
            && let Some(qp) = self.qp(hello.to)
        {
            let from = Name {
                gid: Gid::of(info.remote.ip().to_canonical()),
                number: hello.from,
            };
            qp.on_request(from, request);
        }
    }
}

/// The listener of a service, until its drop.
pub(crate) struct Listening {
    events: Arc<Events>,
    token: ListenToken,
    _listener: SoftListener,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut services = self.events.services.write().ignore_poison();
        services.remove(&self.token.0);
    }
}

/// A listener, and which of its numbers are in use.
#[derive(Debug)]
struct Numbers {
    port: u16,
    used: [bool; 1 << INDEX_BITS],
    /// The index after the last one that was given out. Numbers are reused as late as possible, so
    /// that a request for a former queue pair does not reach its successor.
    next: usize,
    _listener: SoftListener,
}

impl Numbers {
    fn take(&mut self) -> Option<u32> {
        let count = DATAGRAM_INDEX as usize;
        let free = |offset: usize| (self.next + offset) % count;
        let index = (0..count).map(free).find(|index| !self.used[*index])?;
        self.used[index] = true;
        self.next = index + 1;
        Some(u32::from(self.port) << INDEX_BITS | index as u32)
    }
}

/// An open device.
pub(crate) struct Adapter {
    pub(crate) rnic: Arc<SoftRnic>,
    pub(crate) events: Arc<Events>,
    /// The only entry of the device's table of GIDs.
    pub(crate) gid: Gid,
    /// The network device.
    pub(crate) interface: String,
    numbers: Mutex<Vec<Numbers>>,
    next_token: AtomicU64,
    /// Waits for the sockets of datagram queue pairs.
    pub(crate) watcher: Watcher,
    users: Users,
}

impl Used for Adapter {
    fn users(&self) -> &Users {
        &self.users
    }
}

rnic::opaque_debug!(Adapter { interface });

impl Adapter {
    pub(crate) fn open(interface: &str, address: IpAddr) -> Result<Self, Fault> {
        let events = Arc::new(Events {
            qps: RwLock::default(),
            cqs: RwLock::default(),
            srqs: RwLock::default(),
            services: RwLock::default(),
            reported: EventQueue::new()?,
        });
        let settings = host::environment::variable(SETTINGS).unwrap_or_default();
        let config = RnicConfig {
            ia_name: interface.to_owned(),
            ia_params: format!("{address} {}", settings.to_string_lossy()),
        };
        let rnic = SoftRnic::open(&config, events.clone()).map_err(|error| errno_of(&error))?;
        Ok(Self {
            rnic: Arc::new(rnic),
            events,
            gid: Gid::of(address),
            interface: interface.to_owned(),
            numbers: Mutex::default(),
            next_token: AtomicU64::new(1),
            watcher: Watcher::default(),
            users: Users::default(),
        })
    }

    pub(crate) fn rnic_attr(&self) -> &RnicAttr {
        self.rnic.attr()
    }

    /// Returns a token that no other completion queue or shared receive queue of the device has.
    pub(crate) fn new_token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    /// Listens at a port, or at one that the RNIC chooses for port 0. Returns the port.
    pub(crate) fn listen(
        &self,
        port: u16,
        service: Arc<dyn Service>,
    ) -> Result<(Listening, u16), Fault> {
        let token = ListenToken(self.new_token());
        let services = &self.events.services;
        services.write().ignore_poison().insert(token.0, service);
        let opened = self.rnic.listen(&ListenAddress { port }, token);
        let (_listener, port) = opened.map_err(|error| {
            services.write().ignore_poison().remove(&token.0);
            errno_of(&error)
        })?;
        let listening = Listening {
            events: self.events.clone(),
            token,
            _listener,
        };
        Ok((listening, port))
    }

    /// Reserves the number of a new queue pair. Opens a listener if all numbers are in use.
    pub(crate) fn take_number(&self) -> Result<u32, Fault> {
        let mut numbers = lock(&self.numbers);
        if let Some(number) = numbers.iter_mut().find_map(Numbers::take) {
            return Ok(number);
        }
        let address = ListenAddress { port: 0 };
        let opened = self.rnic.listen(&address, NUMBERS);
        let (_listener, port) = opened.map_err(|error| errno_of(&error))?;
        let mut opened = Numbers {
            port,
            used: [false; 1 << INDEX_BITS],
            next: 0,
            _listener,
        };
        let number = opened.take();
        numbers.push(opened);
        number.ok_or(Fault::NOMEM)
    }

    pub(crate) fn return_number(&self, number: u32) {
        let mut numbers = lock(&self.numbers);
        let port = number >> INDEX_BITS;
        if let Some(of_port) = numbers.iter_mut().find(|of| u32::from(of.port) == port) {
            of_port.used[number as usize % of_port.used.len()] = false;
        }
    }

    pub(crate) fn add_qp(&self, qp: Arc<dyn QueuePair>) {
        let number = qp.number();
        self.events.qps.write().ignore_poison().insert(number, qp);
    }

    /// Returns the structure of the connected queue pair with this number.
    pub(crate) fn object_of(&self, number: u32) -> Option<*mut ibv_qp> {
        self.events.qp(number).map(|qp| qp.object())
    }

    pub(crate) fn remove_qp(&self, number: u32, object: *mut ibv_qp) {
        let removed = self.events.qps.write().ignore_poison().remove(&number);
        // Dropped without the lock, because the drop of a queue pair calls the RNIC.
        drop(removed);
        self.forget(object.cast());
    }

    pub(crate) fn add_cq(&self, token: CqToken, cq: Arc<Notified>) {
        self.events.cqs.write().ignore_poison().insert(token.0, cq);
    }

    pub(crate) fn remove_cq(&self, token: CqToken, object: *mut ibv_cq) {
        self.events.cqs.write().ignore_poison().remove(&token.0);
        self.forget(object.cast());
    }

    pub(crate) fn add_srq(&self, token: SrqToken, object: *mut ibv_srq) {
        let mut srqs = self.events.srqs.write().ignore_poison();
        srqs.insert(token.0, AtomicPtr::new(object));
    }

    pub(crate) fn remove_srq(&self, token: SrqToken, object: *mut ibv_srq) {
        self.events.srqs.write().ignore_poison().remove(&token.0);
        self.forget(object.cast());
    }

    /// Removes the events of an object that is destroyed.
    pub(crate) fn forget(&self, object: *mut libc::c_void) {
        self.events.reported.remove(|event| event.names(object));
    }
}

/// Returns the adapter of a context.
///
/// # Safety
/// `context` is a live context of this library.
pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> &'a Arc<Adapter> {
    // SAFETY: the context is a member of a live structure (caller).
    unsafe {
        let whole = context.byte_sub(std::mem::offset_of!(VerbsContext, context));
        ContextObject::own(whole.cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_names_both_queue_pairs() {
        let hello = Hello {
            from: 0x12_3456,
            to: 7,
        };
        assert_eq!(Hello::parse(&hello.bytes()), Some(hello));
        assert_eq!(Hello::parse(&hello.bytes()[..11]), None);
        let mut foreign = hello.bytes();
        foreign[0] ^= 1;
        assert_eq!(Hello::parse(&foreign), None);
    }

    #[test]
    fn a_number_names_the_port_of_its_listener() {
        let gid = Gid::of("192.0.2.1".parse().unwrap());
        let name = Name {
            gid,
            number: 0xab_cd_12,
        };
        assert_eq!(name.port(), 0xabcd);
        assert_eq!(gid.address(), "192.0.2.1".parse::<IpAddr>().unwrap());
    }
}
