//! The contender DAT: one DAT endpoint at each side, called through the raw function table.
//!
//! `patterns.rs` both sides of a sample; `targets.rs` targets that do not poll the connection's
//! EVD; `after_polls.rs` a target that stops polling; `posts.rs` posts and completions; `crowd.rs`
//! many connections in addition to the measured one.

mod after_polls;
mod crowd;
mod patterns;
mod posts;
mod targets;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dat_api::abi::{DatEpHandle, DatEvdHandle};
use dat_api::{
    Ep, EpAttr, EpEvds, Evd, EvdFlags, Event, Ia, Library, Privileges, Pz, Region, RemoteRegion,
};
use tool_args::bench::case::SIZE_MAX;

use self::crowd::Crowd;
use crate::raw::STALL;

/// Receives that are always posted at each side.
const POOL: u32 = 4096;
/// Messages that a sender may send before it needs more credit from the receiving program.
const CREDIT: u64 = POOL as u64 / 2;
/// Received messages after which the receiver gives the sender new credit.
const CREDIT_STEP: u64 = CREDIT / 2;
/// Requests that may be queued; more than any depth.
const REQUESTS: u32 = 1024;
/// Length of a message that gives credit, and of the message that acknowledges the end of a sample.
const CREDIT_LEN: u32 = 4;
const ACK_LEN: u32 = 8;
/// Cookies.
const RECV: u64 = 1;
const REQUEST: u64 = 2;
/// Offset in the region of the data that a side sends, and of the data that it receives and that
/// the peer writes.
const SOURCE: usize = 0;
const SINK: usize = SIZE_MAX;
/// Offset in the region of a byte that neither messages nor other writes touch.
const FLAG: usize = 2 * SIZE_MAX;
/// Bytes of the region.
const REGION_LEN: usize = FLAG + 64;

/// A side of the DAT connection.
pub(crate) struct DatLink {
    library: &'static Library,
    ep: Ep,
    evd: Evd,
    ep_raw: DatEpHandle,
    evd_raw: DatEvdHandle,
    /// An EVD that no endpoint feeds, so it is always empty.
    other_evd: Evd,
    region: Region,
    remote: RemoteRegion,
    /// Requests that are posted and whose completions have not been polled.
    outstanding: usize,
    /// True if bulk work sleeps in `dat_evd_wait` instead of polling.
    sleep_on_bulk: bool,
    crowd: Crowd,
}

/// The objects that exist before the connection.
struct Parts {
    ia: Ia,
    pz: Pz,
    ep: Ep,
    evd: Evd,
    other_evd: Evd,
    region: Region,
}

impl Parts {
    fn open(ia: &str) -> Result<Self> {
        let ia = Ia::open(ia)?;
        let pz = Pz::create(&ia)?;
        let evd = Evd::create(&ia, POOL + REQUESTS + 16, EvdFlags::DTO)?;
        let other_evd = Evd::create(&ia, 8, EvdFlags::DTO)?;
        let connections = Evd::create(&ia, 8, EvdFlags::CONNECTION)?;
        let reads = ia.attr()?.max_rdma_read_per_ep_out.clamp(1, 64);
        let attr = EpAttr {
            max_recv_dtos: i32::try_from(POOL)?,
            max_request_dtos: i32::try_from(REQUESTS)?,
            max_rdma_read_in: reads,
            max_rdma_read_out: reads,
            ..EpAttr::default()
        };
        let evds = EpEvds {
            recv: &evd,
            request: &evd,
            connect: &connections,
        };
        let ep = Ep::create(&pz, evds, Some(&attr))?;
        let region = Region::create(&pz, REGION_LEN, Privileges::ALL)?;
        for _ in 0..POOL {
            ep.post_recv(&[region.segment(SINK, SIZE_MAX)?], RECV)?;
        }
        Ok(Self {
            ia,
            pz,
            ep,
            evd,
            other_evd,
            region,
        })
    }

    fn link(self, private_data: &[u8], crowd: Crowd, sleep_on_bulk: bool) -> Result<DatLink> {
        let remote = private_data
            .first_chunk::<{ RemoteRegion::ENCODED_LEN }>()
            .context("the peer sent no description of its memory")?;
        Ok(DatLink {
            library: Library::get()?,
            ep_raw: self.ep.as_raw(),
            evd_raw: self.evd.as_raw(),
            ep: self.ep,
            evd: self.evd,
            other_evd: self.other_evd,
            remote: RemoteRegion::from_bytes(remote),
            region: self.region,
            outstanding: 0,
            sleep_on_bulk,
            crowd,
        })
    }
}

impl DatLink {
    /// Waits for one peer. `announce` receives the address to connect to.
    pub(crate) fn listen(
        ia: &str,
        sleep_on_bulk: bool,
        announce: impl FnOnce(SocketAddr, u64) -> Result<()>,
    ) -> Result<Self> {
        let parts = Parts::open(ia)?;
        let crowd = Crowd::passive(&parts.ia, &parts.pz)?;
        let (psp, requests) = crowd.service().context("nothing to connect to")?;
        announce(
            parts
                .ia
                .attr()?
                .address
                .context("the adapter has no address")?,
            psp.conn_qual(),
        )?;
        let Some(Event::ConnectionRequest(request)) = requests.wait(Some(STALL))? else {
            bail!("no peer connected");
        };
        let private_data = request.private_data().to_vec();
        let ep = request.accept(Some(&parts.ep), &parts.region.remote().to_bytes())?;
        ep.wait_established(Some(STALL))?;
        parts.link(&private_data, crowd, sleep_on_bulk)
    }

    /// Connects to the peer that announced itself.
    pub(crate) fn connect(
        ia: &str,
        sleep_on_bulk: bool,
        address: SocketAddr,
        conn_qual: u64,
    ) -> Result<Self> {
        let parts = Parts::open(ia)?;
        let ours = parts.region.remote().to_bytes();
        let private_data = parts.ep.connect(address, conn_qual, Some(STALL), &ours)?;
        let crowd = Crowd::active(&parts.ia, &parts.pz, address, conn_qual)?;
        parts.link(&private_data, crowd, sleep_on_bulk)
    }
}

impl Drop for DatLink {
    fn drop(&mut self) {
        // Disconnects gracefully, so that the peer does not report a broken connection.
        if self.ep.disconnect(dat_api::Close::Graceful).is_ok() {
            let _ = self.ep.wait_disconnected(Some(Duration::from_secs(2)));
        }
        while let Ok(Some(_)) = self.evd.dequeue() {}
    }
}
