//! Common code of the short examples: an adapter with queues, and a connection between two threads.
//!
//! Both ends of each example are in one program, so that one command shows the whole conversation;
//! the code does not depend on that.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dat_api::{
    CompletionFlags, DtoCompletion, Ep, EpAttr, EpEvds, EpId, Evd, EvdFlags, Ia, Psp, Pz, Segment,
    Srq,
};

/// A timeout that is longer than any step of the examples takes.
pub(crate) const SOON: Option<Duration> = Some(Duration::from_secs(60));

/// Returns the adapter that the command line names, or that of the loopback interface.
pub(crate) fn adapter() -> String {
    std::env::args()
        .nth(1)
        .unwrap_or_else(|| "iwarp-lo".to_owned())
}

/// One side: an open adapter, a protection zone and a dispatcher for each kind of event.
pub(crate) struct Node {
    pub(crate) ia: Ia,
    pub(crate) pz: Pz,
    pub(crate) transfers: Evd,
    pub(crate) connections: Evd,
    pub(crate) requests: Evd,
}

#[allow(dead_code, reason = "no example needs everything")]
impl Node {
    /// Opens the adapter that the command line names.
    pub(crate) fn open() -> Result<Self> {
        Self::open_named(&adapter())
    }

    /// Opens the adapter with this name.
    pub(crate) fn open_named(adapter: &str) -> Result<Self> {
        let ia = Ia::open(adapter)?;
        Ok(Self {
            pz: Pz::create(&ia)?,
            transfers: Evd::create(&ia, 64, EvdFlags::DTO | EvdFlags::BIND)?,
            connections: Evd::create(&ia, 8, EvdFlags::CONNECTION)?,
            requests: Evd::create(&ia, 8, EvdFlags::CONNECTION_REQUEST)?,
            ia,
        })
    }

    /// Creates an endpoint that is not connected.
    pub(crate) fn endpoint(&self) -> Result<Ep> {
        Ok(Ep::create(&self.pz, self.evds(), Some(&EpAttr::default()))?)
    }

    /// Creates an endpoint that takes its receives from a shared queue.
    pub(crate) fn sharing_endpoint(&self, srq: &Srq) -> Result<Ep> {
        let attr = EpAttr::default();
        Ok(Ep::create_with_srq(
            &self.pz,
            self.evds(),
            srq,
            Some(&attr),
        )?)
    }

    fn evds(&self) -> EpEvds<'_> {
        EpEvds {
            recv: &self.transfers,
            request: &self.transfers,
            connect: &self.connections,
        }
    }

    /// Offers a service; peers connect to its qualifier.
    pub(crate) fn listen(&self) -> Result<Psp> {
        Ok(Psp::create_any(&self.ia, &self.requests)?)
    }

    /// Accepts the next peer on `ep`.
    pub(crate) fn accept(&self, ep: &Ep) -> Result<()> {
        let event = self.requests.wait(SOON)?.context("no peer connects")?;
        let dat_api::Event::ConnectionRequest(request) = event else {
            anyhow::bail!("unexpected: {event:?}");
        };
        request.accept(Some(ep), b"")?;
        ep.wait_established(SOON)?;
        Ok(())
    }

    /// Connects `ep` to a service of the same adapter.
    pub(crate) fn connect(&self, ep: &Ep, service: u64) -> Result<()> {
        let address = self
            .ia
            .attr()?
            .address
            .context("the adapter has no address")?;
        ep.connect(address, service, SOON, b"")?;
        Ok(())
    }

    /// Waits for the completion of the work that was posted with `cookie`, which must be a success.
    pub(crate) fn done(&self, ep: EpId, cookie: u64) -> Result<DtoCompletion> {
        let done = self.transfers.wait_completion(ep, cookie, SOON)?;
        ensure!(done.status.is_success(), "work {cookie}: {}", done.status);
        Ok(done)
    }

    /// Sends and waits until the memory may be used again.
    pub(crate) fn send(&self, ep: &Ep, what: Segment<'_>, cookie: u64) -> Result<()> {
        ep.post_send(&[what], cookie, CompletionFlags::DEFAULT)?;
        self.done(ep.id(), cookie)?;
        Ok(())
    }
}
