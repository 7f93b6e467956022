//! An RNIC in memory, for tests: queue pairs of one process exchange data by copying.
//!
//! The fake follows the whole contract of [`Rnic`], so that a test result holds for real RNICs too.
//! Connection events are delivered on a separate thread, or with `held` when the test asks for
//! them. The completions of a connection are in their CQs before the disconnect event is delivered.
//! An event may have the token of a destroyed object. A work request is executed on the thread that
//! posts it.
//!
//! | File | Contents |
//! |---|---|
//! | `config` | the keys that `ia_params` may contain |
//! | `engine` | the thread that delivers events, and its timers |
//! | `held_upcalls` | events that are held back until the test delivers them |
//! | `network` | the RNICs by address, and the memory regions of all RNICs |
//! | `cq` | completion queues |
//! | `qp` | queue pairs: states, receives, flushing |
//! | `work` | execution of work requests |
//! | `cm` | listening, connecting, accepting, sockets |

mod cm;
mod config;
mod cq;
mod engine;
mod held_upcalls;
mod network;
mod qp;
mod work;

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use host::locks::lock;

pub use self::cm::{FakeArmed, FakeListener, FakeRequest};
pub use self::cq::FakeCq;
pub use self::network::{FakeMr, FakeMw};
pub use self::qp::{FakeQp, FakeSrq};

use self::config::Config;
use self::engine::Engine;
use self::network::Network;
use crate::rnic::*;

/// The in-memory RNIC.
///
/// `ia_params` is a list of `key=value`: `net` (only RNICs of one network reach each other), `ip`,
/// `srq`, `mw`, `cqe_max`, `qp_max`, `mr_len` (longer memory is not registered), `fail` (opening
/// fails), `held` (there is no thread: events wait until [`deliver_held`]).
#[derive(Debug)]
pub struct FakeRnic {
    node: Arc<Node>,
}

/// The state that all objects of one RNIC share.
pub(in crate::fake_rnic) struct Node {
    attr: RnicAttr,
    network: Arc<Network>,
    engine: Engine,
    upcall: Arc<dyn Upcall<FakeRnic>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("address", &self.attr.address)
            .finish_non_exhaustive()
    }
}

/// Protection domain: a number.
#[derive(Debug)]
pub struct FakePd {
    id: u64,
}

impl FakeRnic {
    /// Delivers an asynchronous event, as a device would.
    pub fn raise(&self, event: AsyncEvent) {
        let upcall = self.node.upcall.clone();
        self.node.engine.run(move || upcall.async_event(event));
    }

    /// Waits until all pending events have been delivered.
    pub fn settle(&self) {
        self.node.engine.settle();
    }

    /// Reports the socket of an armed service as lost.
    pub fn lose_socket(&self, token: ListenToken) {
        self.node.lose_armed(token);
    }
}

impl Rnic for FakeRnic {
    type Pd = FakePd;
    type Cq = FakeCq;
    type Srq = FakeSrq;
    type Qp = FakeQp;
    type Mr = FakeMr;
    type Mw = FakeMw;
    type Listener = FakeListener;
    type ArmedSocket = FakeArmed;
    type ConnReq = FakeRequest;

    fn open(config: &RnicConfig, upcall: Arc<dyn Upcall<Self>>) -> Result<Self, RnicError> {
        let config = Config::parse(config)?;
        let network = Network::named(&config.net);
        let node = Node {
            attr: config.attr(),
            engine: if config.held {
                Engine::held(network.held.clone())
            } else {
                Engine::start()?
            },
            network,
            upcall,
        };
        Ok(Self {
            node: Arc::new(node),
        })
    }

    fn attr(&self) -> &RnicAttr {
        &self.node.attr
    }

    fn shutdown(&self) {
        self.node.engine.stop();
    }

    fn create_pd(&self) -> Result<FakePd, RnicError> {
        Ok(FakePd {
            id: self.node.network.next_id(),
        })
    }

    fn create_cq(&self, depth: u32, token: CqToken) -> Result<FakeCq, RnicError> {
        Ok(FakeCq::new(depth, token, self.node.upcall.clone()))
    }

    fn resize_cq(&self, cq: &FakeCq, depth: u32) -> Result<(), RnicError> {
        cq.resize(depth);
        Ok(())
    }

    fn poll_cq(&self, cq: &FakeCq, out: &mut [Completion]) -> usize {
        cq.poll(out)
    }

    fn arm_cq(&self, cq: &FakeCq, solicited_only: bool) -> bool {
        cq.arm(solicited_only)
    }

    /// Relies on the upcall of an armed CQ, so a layer above that forgets to arm fails its tests.
    fn wait(&self, cqs: &[&FakeCq], waker: &Arc<Waker>, timeout: Option<Duration>) -> bool {
        cqs.iter().all(|cq| cq.is_empty()) && waker.sleep(timeout) == Slept::Interrupted
    }

    fn create_qp(
        &self,
        pd: &FakePd,
        send_cq: Option<&FakeCq>,
        recv_cq: Option<&FakeCq>,
        srq: Option<&FakeSrq>,
        attr: &QpAttr,
        token: QpToken,
    ) -> Result<FakeQp, RnicError> {
        let cq = |cq: Option<&FakeCq>| cq.map(FakeCq::share);
        Ok(FakeQp::new(
            self.node.clone(),
            pd.id,
            cq(send_cq),
            cq(recv_cq),
            srq,
            *attr,
            token,
        ))
    }

    fn reset_qp(&self, qp: &FakeQp) -> Result<(), RnicError> {
        qp.reset()
    }

    fn post_send(&self, qp: &FakeQp, wr: &SendWr<'_>) -> Result<(), RnicError> {
        qp.post_send(wr)
    }

    fn post_recv(&self, qp: &FakeQp, wr: &RecvWr<'_>) -> Result<(), RnicError> {
        qp.post_recv(wr)
    }

    fn on_taken(&self, qp: &FakeQp, completion: &Completion) {
        qp.on_taken(completion);
    }

    fn pending(&self, qp: &FakeQp) -> (u32, u32) {
        (qp.receives_posted(), 0)
    }

    fn register_mr(&self, pd: &FakePd, request: &RegisterMr) -> Result<FakeMr, RnicError> {
        self.node.network.register(pd.id, request)
    }

    fn mr_keys(&self, mr: &FakeMr) -> MrKeys {
        MrKeys {
            lkey: mr.key(),
            rkey: mr.key(),
        }
    }

    fn listen(
        &self,
        address: &ListenAddress,
        token: ListenToken,
    ) -> Result<(FakeListener, u16), RnicError> {
        self.node.listen(address.port, token)
    }

    fn connect(&self, qp: &FakeQp, params: &ConnectParams<'_>) -> Result<(), RnicError> {
        self.node.connect(qp, params)
    }

    fn connect_socket(
        &self,
        qp: &FakeQp,
        socket: RawFd,
        params: &ConnectParams<'_>,
    ) -> Result<(), SocketFault> {
        self.node.connect_socket(qp, socket, params)
    }

    fn arm_socket(
        &self,
        socket: RawFd,
        final_message: &[u8],
        token: ListenToken,
    ) -> Result<FakeArmed, SocketFault> {
        self.node.arm_socket(socket, final_message, token)
    }

    fn disarm_socket(&self, armed: FakeArmed) -> bool {
        armed.disarm()
    }

    fn accept(
        &self,
        request: FakeRequest,
        qp: &FakeQp,
        params: &AcceptParams<'_>,
    ) -> Result<(), RnicError> {
        request.accept(qp, params.private_data)
    }

    fn reject(&self, request: FakeRequest, private_data: &[u8]) -> Result<(), RnicError> {
        request.reject(private_data);
        Ok(())
    }

    fn disconnect(&self, qp: &FakeQp, _abrupt: bool) {
        // Work is done when it is posted, so a graceful disconnect has nothing to wait for.
        qp.disconnect();
    }

    fn create_mw(&self, pd: &FakePd) -> Result<FakeMw, RnicError> {
        Ok(FakeMw::new(self.node.network.clone(), pd.id))
    }

    fn bind_mw(&self, qp: &FakeQp, mw: &FakeMw, bind: &BindMw<'_, Self>) -> Result<u32, RnicError> {
        qp.bind(mw, bind)
    }

    fn create_srq(
        &self,
        pd: &FakePd,
        depth: u32,
        _max_sge: u32,
        _token: SrqToken,
    ) -> Result<FakeSrq, RnicError> {
        Ok(FakeSrq::new(pd.id, depth))
    }

    fn post_srq_recv(&self, srq: &FakeSrq, wr: &RecvWr<'_>) -> Result<(), RnicError> {
        srq.post(wr)
    }

    fn resize_srq(&self, srq: &FakeSrq, depth: u32) -> Result<(), RnicError> {
        srq.resize(depth);
        Ok(())
    }

    fn srq_available(&self, srq: &FakeSrq) -> Option<u32> {
        u32::try_from(srq.available()).ok()
    }
}

/// Delivers all held events of the RNICs of network `net` on the calling thread.
pub fn deliver_held(net: &str) {
    Network::named(net).held.deliver();
}

/// Expires all running timeouts, then calls [`deliver_held`].
pub fn expire_timeouts(net: &str) {
    let network = Network::named(net);
    network.held.expire();
    network.held.deliver();
}

/// Returns true if a network is empty: no service, no armed or waiting socket, no region, no window
/// and no undelivered event.
#[must_use]
pub fn is_network_empty(net: &str) -> bool {
    Network::named(net).is_empty()
}
