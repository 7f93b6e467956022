//! Two connected ends, the starting point of most cases.

use anyhow::{Context, Result};
use dat_api::abi::DAT_COMPLETION_SOLICITED_WAIT_FLAG;
use dat_api::{CompletionFlags, ConnectionKind, Cr, Ep, EpAttr, Psp, Region, RemoteRegion};

use crate::case::Start;
use crate::expect;
use crate::kit::{self, Kit};
use crate::side::Side;

/// The cookie of the first message, which shows each end that the other end is connected.
const HELLO: u64 = 0x68656c6c6f;

/// This end of a connection, and the objects from which it was made.
#[derive(Debug)]
pub(crate) struct Link {
    // The endpoint is freed before the objects from which it was made.
    pub(crate) ep: Ep,
    pub(crate) kit: Kit,
}

impl Link {
    /// Connects the two ends.
    ///
    /// The connecting end sends the first message when the accepting end is established, as iWARP
    /// without peer-to-peer mode requires. `connect/first-at-once` checks earlier messages.
    pub(crate) fn make_with(side: &mut Side<'_>, attr: &EpAttr) -> Result<Self> {
        let kit = Kit::open(side)?;
        let ep = kit.ep_with(attr)?;
        let link = Self { ep, kit };
        let hello = link.kit.region(1)?;
        link.connect(side, &hello, attr)
            .context("making the connection for the case")?;
        Ok(link)
    }

    fn connect(&self, side: &mut Side<'_>, hello: &Region, attr: &EpAttr) -> Result<()> {
        let Self { ep, kit } = self;
        // If only solicited events wake the receiver, this message is solicited.
        let flags = match attr.recv_completion_flags {
            DAT_COMPLETION_SOLICITED_WAIT_FLAG => CompletionFlags::SOLICITED_WAIT,
            _ => CompletionFlags::DEFAULT,
        };
        if side.is_client {
            self.connect_again(side)?;
            side.receive("established")?;
            ep.post_send(&[hello.segment(0, 1)?], HELLO, flags)?;
            expect::done(&kit.request, HELLO, side)?;
        } else {
            ep.post_recv(&[hello.segment(0, 1)?], HELLO)?;
            let (_psp, request) = listen(side, kit)?;
            request.accept(Some(ep), &[])?;
            ep.wait_established(Some(side.patience()))?;
            side.send("established", &[])?;
            expect::done(&kit.recv, HELLO, side)?;
        }
        Ok(())
    }

    /// Connects the endpoint to the service that the other end offers.
    pub(crate) fn connect_again(&self, side: &mut Side<'_>) -> Result<()> {
        let (address, conn_qual) = side.receive_address()?;
        let patience = Some(side.patience());
        self.ep.connect(address, conn_qual, patience, &[])?;
        Ok(())
    }

    /// Offers a service and accepts the other end's request on the endpoint.
    pub(crate) fn accept_again(&self, side: &mut Side<'_>) -> Result<()> {
        let Self { ep, kit } = self;
        let (_psp, request) = listen(side, kit)?;
        request.accept(Some(ep), &[])?;
        expect::connection_event(ep, &kit.connect, &[ConnectionKind::Established], side).map(drop)
    }

    /// Posts part of a region as a receive.
    pub(crate) fn recv(&self, region: &Region, at: usize, len: usize, cookie: u64) -> Result<()> {
        Ok(self.ep.post_recv(&[region.segment(at, len)?], cookie)?)
    }

    /// Writes part of a region to the memory that the peer offered.
    pub(crate) fn write(
        &self,
        from: &Region,
        at: usize,
        to: RemoteRegion,
        cookie: u64,
    ) -> Result<()> {
        let segment = [from.segment(at, to.len as usize)?];
        let flags = CompletionFlags::DEFAULT;
        Ok(self.ep.post_rdma_write(&segment, to, cookie, flags)?)
    }

    /// Reads from the memory that the peer offered into a region.
    pub(crate) fn read(
        &self,
        into: &Region,
        at: usize,
        from: RemoteRegion,
        cookie: u64,
    ) -> Result<()> {
        let segment = [into.segment(at, from.len as usize)?];
        let flags = CompletionFlags::DEFAULT;
        Ok(self.ep.post_rdma_read(&segment, from, cookie, flags)?)
    }

    pub(crate) fn send(&self, region: &Region, at: usize, len: usize, cookie: u64) -> Result<()> {
        let segment = [region.segment(at, len)?];
        let flags = CompletionFlags::DEFAULT;
        Ok(self.ep.post_send(&segment, cookie, flags)?)
    }

    /// Sends a whole region with work 1 and these flags.
    pub(crate) fn send_flagged(&self, region: &Region, flags: CompletionFlags) -> Result<()> {
        let segment = [region.segment(0, region.len())?];
        Ok(self.ep.post_send(&segment, 1, flags)?)
    }
}

impl Start for Link {
    fn start(side: &mut Side<'_>) -> Result<Self> {
        Self::make_with(side, &kit::attr())
    }
}

/// Offers a service, sends its address to the other end, and waits for that end's request.
pub(crate) fn listen(side: &mut Side<'_>, kit: &Kit) -> Result<(Psp, Cr)> {
    let psp = offer(side, kit)?;
    let request = expect::request(&kit.requests, side)?;
    Ok((psp, request))
}

/// Offers a service and sends its address to the other end.
pub(crate) fn offer(side: &mut Side<'_>, kit: &Kit) -> Result<Psp> {
    let psp = Psp::create_any(&kit.ia, &kit.requests)?;
    side.send_address(kit.address()?, psp.conn_qual())?;
    Ok(psp)
}
