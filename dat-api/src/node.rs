//! An open adapter with the objects that most programs need, made in one expression.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dat_abi::DAT_VERSION_MAJOR;

use crate::connection::{
    CompletionFlags, ConnectError, ConnectFailure, Ep, EpAttr, EpEvds, Evd, EvdFlags, Event,
};
use crate::error::{Error, Result};
use crate::event::DtoCompletion;
use crate::handle::EpId;
use crate::ia::Ia;
use crate::pz::Pz;
use crate::registry::list_providers;
use crate::segment::Segment;
use crate::sp::Psp;
use crate::srq::Srq;

/// An adapter, a protection zone and a dispatcher for each kind of event. The endpoints of a node
/// share them.
///
/// ```no_run
/// let ep = dat_api::Node::open("iwarp-lo")?.endpoint()?;
/// # Ok::<(), dat_api::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Node {
    /// The adapter.
    pub ia: Ia,
    /// The protection zone of all endpoints and regions.
    pub pz: Pz,
    /// Completions of data transfers and binds.
    pub transfers: Evd,
    /// Connection events.
    pub connections: Evd,
    /// Connection requests.
    pub requests: Evd,
    /// The time that the calls of the node wait; `None` sets no limit.
    pub timeout: Option<Duration>,
    attr: Option<EpAttr>,
}

/// The sizes of a [`Node`].
#[derive(Debug, Clone)]
pub struct NodeBuilder {
    transfers: u32,
    connections: u32,
    timeout: Option<Duration>,
    attr: Option<EpAttr>,
}

impl Default for NodeBuilder {
    fn default() -> Self {
        Self {
            transfers: 64,
            connections: 8,
            timeout: Some(Duration::from_secs(60)),
            attr: None,
        }
    }
}

impl NodeBuilder {
    /// Sets the number of completions that may be queued; 64 by default.
    #[must_use]
    pub const fn transfers(mut self, count: u32) -> Self {
        self.transfers = count;
        self
    }

    /// Sets the number of connection events, and of connection requests, that may be queued; 8 by
    /// default.
    #[must_use]
    pub const fn connections(mut self, count: u32) -> Self {
        self.connections = count;
        self
    }

    /// Sets the time that the calls of the node wait; 60 seconds by default.
    #[must_use]
    pub const fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the attributes of the node's endpoints, instead of the provider's defaults.
    #[must_use]
    pub const fn endpoints(mut self, attr: EpAttr) -> Self {
        self.attr = Some(attr);
        self
    }

    /// Opens the adapter with this name.
    ///
    /// # Errors
    /// Those of [`Ia::open`], and `DAT_INSUFFICIENT_RESOURCES` for a queue that is too long.
    pub fn open(self, adapter: &str) -> Result<Node> {
        self.on(Ia::open(adapter)?)
    }

    /// Makes the node on an open adapter.
    pub fn on(self, ia: Ia) -> Result<Node> {
        Ok(Node {
            pz: Pz::create(&ia)?,
            transfers: Evd::create(&ia, self.transfers, EvdFlags::DTO | EvdFlags::BIND)?,
            connections: Evd::create(&ia, self.connections, EvdFlags::CONNECTION)?,
            requests: Evd::create(&ia, self.connections, EvdFlags::CONNECTION_REQUEST)?,
            timeout: self.timeout,
            ia,
            attr: self.attr,
        })
    }
}

impl Ia {
    /// Opens the first adapter of the registry that has this address.
    ///
    /// # Errors
    /// [`Error::NoAdapter`] if there is none. The errors of adapters that cannot be opened are
    /// logged.
    pub fn open_at(address: IpAddr) -> Result<Self> {
        let address = address.to_canonical();
        for provider in list_providers()? {
            if provider.version_major != DAT_VERSION_MAJOR {
                continue;
            }
            let opened = Self::open(&provider.ia_name);
            match opened.and_then(|ia| Ok((ia.attr()?.address, ia))) {
                Ok((Some(own), ia)) if own.ip().to_canonical() == address => return Ok(ia),
                Ok(_) => {}
                Err(error) => tracing::debug!(ia = %provider.ia_name, %error, "not opened"),
            }
        }
        Err(Error::NoAdapter { address })
    }
}

impl Node {
    /// Opens the adapter with this name, with default sizes.
    pub fn open(adapter: &str) -> Result<Self> {
        NodeBuilder::default().open(adapter)
    }

    /// Returns a builder with the default sizes.
    #[must_use]
    pub fn builder() -> NodeBuilder {
        NodeBuilder::default()
    }

    /// Creates an endpoint that is not connected.
    pub fn endpoint(&self) -> Result<Ep> {
        Ep::create(&self.pz, self.evds(), self.attr.as_ref())
    }

    /// Creates an endpoint that takes its receives from a shared queue.
    pub fn endpoint_with_srq(&self, srq: &Srq) -> Result<Ep> {
        Ep::create_with_srq(&self.pz, self.evds(), srq, self.attr.as_ref())
    }

    /// The dispatchers of an endpoint.
    #[must_use]
    pub const fn evds(&self) -> EpEvds<'_> {
        EpEvds {
            recv: &self.transfers,
            request: &self.transfers,
            connect: &self.connections,
        }
    }

    /// The address of the adapter.
    ///
    /// # Errors
    /// [`Error::Unrepresentable`] if the provider reports none.
    pub fn address(&self) -> Result<SocketAddr> {
        let what = "an adapter without an address";
        self.ia
            .attr()?
            .address
            .ok_or(Error::Unrepresentable { what })
    }

    /// Offers a service on a qualifier that the provider chooses.
    pub fn listen(&self) -> Result<Psp> {
        Psp::create_any(&self.ia, &self.requests)
    }

    /// Accepts the next connection request for `ep`, and waits until it is connected.
    ///
    /// # Errors
    /// [`Error::TimedOut`] and [`Error::Refused`].
    pub fn accept(&self, ep: &Ep) -> Result<()> {
        let request = loop {
            match self.requests.wait(self.timeout)? {
                Some(Event::ConnectionRequest(request)) => break request,
                Some(other) => tracing::debug!(?other, "no connection request"),
                None => return Err(Error::TimedOut),
            }
        };
        request.accept(Some(ep), b"").map_err(|error| error.error)?;
        self.established(ep.wait_established(self.timeout))
    }

    /// Connects `ep` to the service `conn_qual` at `remote`, and waits until it is connected.
    ///
    /// # Errors
    /// [`Error::Refused`], and the errors of [`Ep::start_connect`].
    pub fn connect(&self, ep: &Ep, remote: SocketAddr, conn_qual: u64) -> Result<()> {
        self.established(ep.connect(remote, conn_qual, self.timeout, b""))
    }

    fn established(&self, outcome: Result<Vec<u8>, ConnectError>) -> Result<()> {
        match outcome.map_err(|error| error.reason) {
            Ok(_) => Ok(()),
            Err(ConnectFailure::Call(error)) => Err(error),
            Err(ConnectFailure::Ended(kind)) => Err(Error::Refused(kind)),
        }
    }

    /// Waits for the completion of the work that was posted to the endpoint with `cookie`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and [`Error::Failed`] if the work did not succeed.
    pub fn done(&self, ep: EpId, cookie: u64) -> Result<DtoCompletion> {
        let done = self.transfers.wait_completion(ep, cookie, self.timeout)?;
        match done.status.is_success() {
            true => Ok(done),
            false => Err(Error::Failed(done.status)),
        }
    }

    /// Sends a message, and waits until its memory may be used again.
    pub fn send(&self, ep: &Ep, message: Segment<'_>, cookie: u64) -> Result<()> {
        ep.post_send(&[message], cookie, CompletionFlags::DEFAULT)?;
        self.done(ep.id(), cookie).map(drop)
    }
}
