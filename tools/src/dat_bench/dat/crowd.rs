//! Many connections in addition to the measured one: established and closed in batches, or kept
//! idle.

use std::collections::HashMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use dat_api::{
    Close, ConnectionKind, Ep, EpEvds, EpId, Evd, EvdFlags, Event, Ia, Privileges, Psp, Pz, Region,
};
use tool_args::bench::case::{Case, Work};

use crate::raw::STALL;

/// The connection events that may be unread.
const CONNECTION_EVENTS: u32 = 4096;
/// The flushed receives that may be unread.
const FLUSHED: u32 = 4096;
/// Bytes of the one receive of an idle endpoint.
const RECEIVE: usize = 64;

/// The objects that the endpoints of a crowd share.
pub(super) struct Crowd {
    pz: Pz,
    completions: Evd,
    /// Connection requests and connection events.
    connection_evd: Evd,
    region: Region,
    side: Side,
    eps: HashMap<EpId, Ep>,
}

/// The role in connecting.
enum Side {
    Passive(Psp),
    Active(SocketAddr, u64),
}

/// The action that follows when a connection is established.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The connection stays established.
    Kept,
    /// This side disconnects it.
    Ended,
    /// The peer disconnects it.
    EndedByPeer,
}

impl Crowd {
    /// The side that accepts connections.
    pub(super) fn passive(ia: &Ia, pz: &Pz) -> Result<Self> {
        let flags = EvdFlags::CONNECTION_REQUEST | EvdFlags::CONNECTION;
        let connection_evd = Evd::create(ia, CONNECTION_EVENTS, flags)?;
        let psp = Psp::create_any(ia, &connection_evd)?;
        Self::new(ia, pz, connection_evd, Side::Passive(psp))
    }

    /// The side that connects.
    pub(super) fn active(ia: &Ia, pz: &Pz, to: SocketAddr, conn_qual: u64) -> Result<Self> {
        let connection_evd = Evd::create(ia, CONNECTION_EVENTS, EvdFlags::CONNECTION)?;
        Self::new(ia, pz, connection_evd, Side::Active(to, conn_qual))
    }

    fn new(ia: &Ia, pz: &Pz, connection_evd: Evd, side: Side) -> Result<Self> {
        Ok(Self {
            pz: pz.clone(),
            completions: Evd::create(ia, FLUSHED, EvdFlags::DTO)?,
            connection_evd,
            region: Region::create(pz, RECEIVE, Privileges::ALL)?,
            side,
            eps: HashMap::new(),
        })
    }

    /// The service point and the EVD of its requests; only the passive side has them.
    pub(super) fn service(&self) -> Option<(&Psp, &Evd)> {
        match &self.side {
            Side::Passive(psp) => Some((psp, &self.connection_evd)),
            Side::Active(..) => None,
        }
    }

    /// Connects, or accepts connections, until `count` connections have reached their [`Fate`].
    pub(super) fn gather(&mut self, case: Case, count: u64) -> Result<()> {
        let fate = match (&self.side, case.work) {
            (_, Work::IdleEndpoints) => Fate::Kept,
            (Side::Active(..), _) => Fate::Ended,
            (Side::Passive(_), _) => Fate::EndedByPeer,
        };
        let (mut begun, mut over) = (0, 0);
        while over < count {
            while let Side::Active(to, conn_qual) = self.side
                && begun < count
                && begun - over < case.depth as u64
            {
                let ep = self.endpoint()?;
                ep.start_connect(to, conn_qual, Some(STALL), &[])?;
                self.eps.insert(ep.id(), ep);
                begun += 1;
            }
            let mut next = self.connection_evd.wait(Some(STALL))?;
            while let Some(event) = next {
                over += self.on_connection_event(event, fate)?;
                next = self.connection_evd.dequeue()?;
            }
        }
        Ok(())
    }

    /// The number of connections that reached their fate with this event: zero or one.
    fn on_connection_event(&mut self, event: Event, fate: Fate) -> Result<u64> {
        let event = match event {
            Event::ConnectionRequest(request) => {
                let ep = self.endpoint()?;
                request.accept(Some(&ep), &[])?;
                self.eps.insert(ep.id(), ep);
                return Ok(0);
            }
            Event::Connection(event) => event,
            other => bail!("{other:?} among the connection events"),
        };
        match (event.kind, fate) {
            (ConnectionKind::Established, Fate::Kept) => Ok(1),
            (ConnectionKind::Established, Fate::EndedByPeer) => Ok(0),
            (ConnectionKind::Established, Fate::Ended) => {
                let ep = self
                    .eps
                    .get(&event.ep)
                    .context("an event of an unknown endpoint")?;
                ep.disconnect(Close::Graceful)?;
                Ok(0)
            }
            (ConnectionKind::Disconnected, Fate::Ended | Fate::EndedByPeer) => {
                self.eps.remove(&event.ep);
                while self.completions.dequeue()?.is_some() {}
                Ok(1)
            }
            (kind, _) => bail!("a connection of the row failed: {kind}"),
        }
    }

    /// Makes an endpoint with a receive posted.
    fn endpoint(&self) -> Result<Ep> {
        let evds = EpEvds {
            recv: &self.completions,
            request: &self.completions,
            connect: &self.connection_evd,
        };
        let ep = Ep::create(&self.pz, evds, None)?;
        ep.post_recv(&[self.region.segment(0, RECEIVE)?], 0)?;
        Ok(ep)
    }
}
