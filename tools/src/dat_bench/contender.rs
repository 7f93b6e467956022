//! A side of the contender's connections: DAT or SDP, measured against raw TCP.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use tool_args::bench::case::{Case, Stack};

use crate::dat::DatLink;
use crate::laps::Laps;
use crate::raw::RawLink;
use crate::sdp::SdpLink;

/// A side of the contender's connections.
pub(crate) enum Contender {
    Dat(Box<DatLink>),
    Sdp(Box<SdpLink>),
}

impl Contender {
    /// Waits for one peer. `announce` receives the address to connect to.
    pub(crate) fn listen(
        stack: Stack,
        ia: &str,
        sleep_on_bulk: bool,
        announce: impl FnOnce(SocketAddr, u64) -> Result<()>,
    ) -> Result<Self> {
        match stack {
            Stack::Dat => DatLink::listen(ia, sleep_on_bulk, announce).map(Self::from),
            Stack::Sdp => SdpLink::listen(ia, announce).map(|link| Self::Sdp(link.into())),
            _ => bail!("{stack} is not a contender"),
        }
        .with_context(|| format!("listening on {ia}"))
    }

    /// Connects to the peer that announced itself.
    pub(crate) fn connect(
        stack: Stack,
        ia: &str,
        sleep_on_bulk: bool,
        address: SocketAddr,
        conn_qual: u64,
    ) -> Result<Self> {
        match stack {
            Stack::Dat => DatLink::connect(ia, sleep_on_bulk, address, conn_qual).map(Self::from),
            Stack::Sdp => SdpLink::connect(ia, address).map(|link| Self::Sdp(link.into())),
            _ => bail!("{stack} is not a contender"),
        }
        .with_context(|| format!("connecting over {ia}"))
    }

    /// The active side of one sample.
    pub(crate) fn drive(&mut self, case: Case, count: u64, laps: &mut Laps) -> Result<()> {
        match self {
            Self::Dat(link) => link.drive(case, count, laps),
            Self::Sdp(link) => link.drive(case, count, laps),
        }
    }

    /// The passive side of one sample.
    pub(crate) fn serve(&mut self, case: Case, count: u64) -> Result<()> {
        match self {
            Self::Dat(link) => link.serve(case, count),
            Self::Sdp(link) => link.serve(case, count),
        }
    }

    /// The active side of writes to a program that polls its memory; returns the sum of the times
    /// from a post until that program saw the write, in seconds.
    pub(crate) fn seen_ping(&mut self, raw: &mut RawLink, case: Case, count: u64) -> Result<f64> {
        match self {
            Self::Dat(link) => link.seen_ping(raw, case, count),
            Self::Sdp(_) => bail!("{case} cannot be measured on an SDP stream"),
        }
    }

    /// The passive side of `seen_ping`: polls the memory, does not call DAT, and answers over
    /// `raw`.
    pub(crate) fn watch(&mut self, raw: &mut RawLink, case: Case, count: u64) -> Result<()> {
        match self {
            Self::Dat(link) => link.watch(raw, case, count),
            Self::Sdp(_) => bail!("{case} cannot be measured on an SDP stream"),
        }
    }

    /// The active side of operations on a target that has stopped polling; returns the time of
    /// each, in seconds.
    pub(crate) fn after_polls(&mut self, case: Case, count: u64) -> Result<Vec<f64>> {
        match self {
            Self::Dat(link) => link.after_polls(case, count),
            Self::Sdp(_) => bail!("{case} cannot be measured on an SDP stream"),
        }
    }

    /// The bytes that the contender has copied between its user's memory and its own; `None` if it
    /// does not count copies.
    pub(crate) fn copied(&self) -> Option<u64> {
        match self {
            Self::Dat(_) => None,
            Self::Sdp(link) => Some(link.copied()),
        }
    }
}

impl From<DatLink> for Contender {
    fn from(link: DatLink) -> Self {
        Self::Dat(Box::new(link))
    }
}
