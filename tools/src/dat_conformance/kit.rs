//! The objects that a case starts from.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use dat_api::{Ep, EpAttr, EpEvds, Evd, EvdFlags, Ia, Privileges, Pz, Region};

use crate::case::Start;
use crate::side::Side;

/// The number of events that an EVD of a kit can hold.
pub(crate) const QLEN: u32 = 128;

/// An adapter, a zone, and an EVD for each stream of events.
#[derive(Debug, Clone)]
pub(crate) struct Kit {
    pub(crate) ia: Ia,
    pub(crate) pz: Pz,
    pub(crate) recv: Evd,
    pub(crate) request: Evd,
    pub(crate) connect: Evd,
    pub(crate) requests: Evd,
}

impl Kit {
    pub(crate) fn open(side: &Side<'_>) -> Result<Self> {
        Self::on(side.open()?)
    }

    pub(crate) fn on(ia: Ia) -> Result<Self> {
        let evd = |flags| Evd::create(&ia, QLEN, flags);
        Ok(Self {
            pz: Pz::create(&ia)?,
            recv: evd(EvdFlags::DTO)?,
            request: evd(EvdFlags::DTO | EvdFlags::BIND)?,
            connect: evd(EvdFlags::CONNECTION)?,
            requests: evd(EvdFlags::CONNECTION_REQUEST)?,
            ia,
        })
    }

    pub(crate) fn evds(&self) -> EpEvds<'_> {
        EpEvds {
            recv: &self.recv,
            request: &self.request,
            connect: &self.connect,
        }
    }

    /// An endpoint with the attributes that most cases use.
    pub(crate) fn ep(&self) -> Result<Ep> {
        self.ep_with(&attr())
    }

    pub(crate) fn ep_with(&self, attr: &EpAttr) -> Result<Ep> {
        Ok(Ep::create(&self.pz, self.evds(), Some(attr))?)
    }

    /// Memory to which this end and the peer have every right.
    pub(crate) fn region(&self, len: usize) -> Result<Region> {
        self.region_with(len, Privileges::ALL)
    }

    pub(crate) fn region_with(&self, len: usize, privileges: Privileges) -> Result<Region> {
        Ok(Region::create(&self.pz, len, privileges)?)
    }

    /// The adapter's address.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        let address = self.ia.attr()?.address;
        address.context("the adapter reports no address")
    }
}

impl Start for Kit {
    fn start(side: &mut Side<'_>) -> Result<Self> {
        Self::open(side)
    }
}

impl Start for Ia {
    fn start(side: &mut Side<'_>) -> Result<Self> {
        Ok(side.open()?)
    }
}

/// The endpoint attributes that most cases use.
pub(crate) fn attr() -> EpAttr {
    EpAttr {
        max_recv_dtos: 32,
        max_request_dtos: 32,
        max_recv_iov: 4,
        max_request_iov: 4,
        max_rdma_write_iov: 4,
        ..EpAttr::default()
    }
}
