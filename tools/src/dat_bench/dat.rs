//! The contender: one DAT endpoint at each side, driven through the raw function table.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dat_api::abi::{
    DAT_COMPLETION_DEFAULT_FLAG, DAT_DTO_COMPLETION_EVENT, DAT_DTO_SUCCESS, DAT_QUEUE_EMPTY,
    DAT_TIMEOUT_EXPIRED, DatCompletionFlags, DatContext, DatEpHandle, DatEvdHandle, DatEvent,
    DatLmrTriplet, DatRmrTriplet,
};
use dat_api::{
    Ep, EpAttr, EpEvds, Evd, EvdFlags, Event, Ia, Library, Privileges, Psp, Pz, Region,
    RemoteRegion,
};

use crate::case::{Case, SIZE_MAX, Work};
use crate::raw::STALL;

/// Receives that are always posted at each side.
const POOL: u32 = 4096;
/// Messages that a sender may be ahead of the receiving program without asking.
const CREDIT: u64 = POOL as u64 / 2;
/// Received messages after which the receiver lets the sender go on.
const CREDIT_STEP: u64 = CREDIT / 2;
/// Requests that may be queued: more than any depth.
const REQUESTS: u32 = 1024;
/// Length of a message that gives credit, and of one that acknowledges the end of a sample.
const CREDIT_LEN: u32 = 4;
const ACK_LEN: u32 = 8;
/// Cookies.
const RECV: u64 = 1;
const REQUEST: u64 = 2;
/// Where in the region a side sends from, and where it receives and is written to.
const SOURCE: usize = 0;
const SINK: usize = SIZE_MAX;
/// Empty polls between two looks at the clock.
const SPINS_PER_LOOK: u32 = 1 << 16;

/// One side of the DAT connection.
pub(crate) struct DatLink {
    library: &'static Library,
    ep: Ep,
    evd: Evd,
    ep_raw: DatEpHandle,
    evd_raw: DatEvdHandle,
    region: Region,
    remote: RemoteRegion,
    /// Requests posted whose completion has not been seen.
    outstanding: usize,
    /// Bulk work sleeps in `dat_evd_wait` instead of polling.
    sleep_on_bulk: bool,
}

/// A completion, as far as the loops care.
enum Got {
    /// A message of so many bytes.
    Message(u32),
    /// A request of ours.
    Request,
}

/// The sender's view of a stream of one sample.
struct Flow {
    /// Operations to post.
    left: u64,
    /// Operations that may be posted before the receiver lets us go on.
    credit: u64,
    /// The receiver has everything.
    acknowledged: bool,
}

/// The objects before the connection.
struct Parts {
    ia: Ia,
    ep: Ep,
    evd: Evd,
    region: Region,
}

impl Parts {
    fn open(ia: &str) -> Result<Self> {
        let ia = Ia::open(ia)?;
        let pz = Pz::create(&ia)?;
        let evd = Evd::create(&ia, POOL + REQUESTS + 16, EvdFlags::DTO)?;
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
        let region = Region::create(&pz, 2 * SIZE_MAX, Privileges::ALL)?;
        for _ in 0..POOL {
            ep.post_recv(&[region.segment(SINK, SIZE_MAX)?], RECV)?;
        }
        Ok(Self {
            ia,
            ep,
            evd,
            region,
        })
    }

    fn link(self, private_data: &[u8], sleep_on_bulk: bool) -> Result<DatLink> {
        let remote = private_data
            .first_chunk::<{ RemoteRegion::ENCODED_LEN }>()
            .context("the peer sent no description of its memory")?;
        Ok(DatLink {
            library: Library::get()?,
            ep_raw: self.ep.as_raw(),
            evd_raw: self.evd.as_raw(),
            ep: self.ep,
            evd: self.evd,
            remote: RemoteRegion::from_bytes(remote),
            region: self.region,
            outstanding: 0,
            sleep_on_bulk,
        })
    }
}

impl DatLink {
    /// Waits for one peer; `announce` is told where to connect to.
    pub(crate) fn listen(
        ia: &str,
        sleep_on_bulk: bool,
        announce: impl FnOnce(SocketAddr, u64) -> Result<()>,
    ) -> Result<Self> {
        let parts = Parts::open(ia)?;
        let requests = Evd::create(&parts.ia, 8, EvdFlags::CONNECTION_REQUEST)?;
        let psp = Psp::create_any(&parts.ia, &requests)?;
        announce(
            parts
                .ia
                .attr()?
                .address
                .context("the adapter has no address")?,
            psp.conn_qual(),
        )?;
        let Some(Event::ConnectionRequest(request)) = requests.wait(Some(STALL))? else {
            bail!("nobody connected");
        };
        let private_data = request.private_data().to_vec();
        let ep = request.accept(Some(&parts.ep), &parts.region.remote().to_bytes())?;
        ep.wait_established(Some(STALL))?;
        parts.link(&private_data, sleep_on_bulk)
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
        parts.link(&private_data, sleep_on_bulk)
    }

    /// The active side of one sample; returns when the peer has everything, or when it has arrived
    /// here. Not inlined, so that a profiler can be told to look at nothing else.
    #[inline(never)]
    pub(crate) fn drive(&mut self, case: Case, count: u64) -> Result<()> {
        match case.work {
            Work::SendPing | Work::BlockedPing => self.ping(case, count)?,
            Work::WritePing => self.write_ping(case.size, count)?,
            Work::StreamSend | Work::StreamWrite | Work::StreamRead => self.stream(case, count)?,
        }
        self.finish()
    }

    /// The passive side of one sample.
    #[inline(never)]
    pub(crate) fn serve(&mut self, case: Case, count: u64) -> Result<()> {
        match case.work {
            Work::SendPing | Work::BlockedPing => self.pong(case, count)?,
            Work::WritePing => self.write_pong(case.size, count)?,
            Work::StreamSend => self.sink(count)?,
            Work::StreamWrite => {
                self.await_message(self.sleep_on_bulk)?;
                self.send(ACK_LEN as usize)?;
            }
            // The peer says when it has read everything; meanwhile its reads are served here.
            Work::StreamRead => drop(self.await_message(self.sleep_on_bulk)?),
        }
        self.finish()
    }

    fn ping(&mut self, case: Case, count: u64) -> Result<()> {
        let sleep = case.work == Work::BlockedPing;
        for round in 0..count {
            self.send(case.size)?;
            if round > 0 {
                // The receive taken in the round before: posted off the critical path.
                self.repost()?;
            }
            while !matches!(self.next(sleep)?, Got::Message(_)) {}
        }
        self.repost()
    }

    fn pong(&mut self, case: Case, count: u64) -> Result<()> {
        let sleep = case.work == Work::BlockedPing;
        for _ in 0..count {
            // The answer goes out before the receive is posted again.
            while !matches!(self.next(sleep)?, Got::Message(_)) {}
            self.send(case.size)?;
            self.repost()?;
        }
        Ok(())
    }

    fn write_ping(&mut self, size: usize, count: u64) -> Result<()> {
        for round in 0..count {
            self.write_marked(size, round)?;
            self.await_mark(size, round)?;
        }
        self.settle_marks(size)
    }

    fn write_pong(&mut self, size: usize, count: u64) -> Result<()> {
        for round in 0..count {
            self.await_mark(size, round)?;
            self.write_marked(size, round)?;
        }
        self.settle_marks(size)
    }

    /// The last byte of round `round`; never zero, and different from its predecessor's.
    fn mark(round: u64) -> u8 {
        (round % 250) as u8 + 1
    }

    fn write_marked(&mut self, size: usize, round: u64) -> Result<()> {
        self.region.store(SOURCE + size - 1, Self::mark(round))?;
        self.write(size)
    }

    /// Watches the last byte, lending the thread to the provider meanwhile.
    fn await_mark(&mut self, size: usize, round: u64) -> Result<()> {
        let mut patience = Patience::default();
        loop {
            while self.poll()?.is_some() {}
            if self.region.load(SINK + size - 1)? == Self::mark(round) {
                return Ok(());
            }
            patience.spend()?;
        }
    }

    /// Forgets the last mark, so that the next sample cannot take it for its own first one.
    fn settle_marks(&mut self, size: usize) -> Result<()> {
        Ok(self.region.store(SINK + size - 1, 0)?)
    }

    fn stream(&mut self, case: Case, count: u64) -> Result<()> {
        let sleep = self.sleep_on_bulk && !case.is_message_rate();
        let mut flow = Flow {
            left: count,
            credit: if case.work == Work::StreamSend {
                CREDIT
            } else {
                u64::MAX
            },
            acknowledged: false,
        };
        while flow.left > 0 || self.outstanding > 0 {
            while flow.left > 0 && flow.credit > 0 && self.outstanding < case.depth {
                match case.work {
                    Work::StreamSend => self.send(case.size)?,
                    Work::StreamWrite => self.write(case.size)?,
                    _ => self.read(case.size)?,
                }
                flow.left -= 1;
                flow.credit -= 1;
            }
            // Everything that has completed is taken before the queue is filled again.
            let mut got = Some(self.next(sleep)?);
            while let Some(one) = got {
                self.on_stream_event(&mut flow, one)?;
                got = self.poll()?;
            }
        }
        if case.work != Work::StreamSend {
            self.send(ACK_LEN as usize)?;
        }
        while !flow.acknowledged && case.work != Work::StreamRead {
            let got = self.next(sleep)?;
            self.on_stream_event(&mut flow, got)?;
        }
        Ok(())
    }

    fn on_stream_event(&mut self, flow: &mut Flow, got: Got) -> Result<()> {
        match got {
            Got::Request => return Ok(()),
            Got::Message(CREDIT_LEN) => flow.credit = flow.credit.saturating_add(CREDIT_STEP),
            Got::Message(ACK_LEN) => flow.acknowledged = true,
            Got::Message(len) => bail!("a message of {len} bytes to the sender of a stream"),
        }
        self.repost()
    }

    /// Takes `count` messages, lets the sender go on from time to time, and acknowledges the last.
    fn sink(&mut self, count: u64) -> Result<()> {
        let sleep = self.sleep_on_bulk;
        for received in 1..=count {
            self.await_message(sleep)?;
            if received.is_multiple_of(CREDIT_STEP) && received < count {
                self.send(CREDIT_LEN as usize)?;
            }
        }
        self.send(ACK_LEN as usize)
    }

    /// Takes one message and posts its receive again; returns its length.
    fn await_message(&mut self, sleep: bool) -> Result<u32> {
        loop {
            if let Got::Message(len) = self.next(sleep)? {
                self.repost()?;
                return Ok(len);
            }
        }
    }

    /// Waits until every request of this sample has completed.
    fn finish(&mut self) -> Result<()> {
        while self.outstanding > 0 {
            if let Got::Message(len) = self.next(false)? {
                bail!("a message of {len} bytes outside a sample");
            }
        }
        Ok(())
    }

    fn next(&mut self, sleep: bool) -> Result<Got> {
        let mut patience = Patience::default();
        loop {
            if let Some(got) = self.poll()? {
                return Ok(got);
            }
            if sleep {
                return self.wait();
            }
            patience.spend()?;
        }
    }

    #[inline]
    fn poll(&mut self) -> Result<Option<Got>> {
        let mut event = DatEvent::zeroed();
        // SAFETY: the dispatcher lives in `self` and the event is writable.
        let code = unsafe { (self.library.dat_evd_dequeue)(self.evd_raw, &mut event) };
        if code.is_success() {
            return self.classify(&event).map(Some);
        }
        ensure!(code.is(DAT_QUEUE_EMPTY), "dat_evd_dequeue: {code:?}");
        Ok(None)
    }

    fn wait(&mut self) -> Result<Got> {
        let mut event = DatEvent::zeroed();
        let mut nmore = 0;
        let timeout_us = u32::try_from(STALL.as_micros())?;
        // SAFETY: as in `poll`; the count is writable.
        let code = unsafe {
            (self.library.dat_evd_wait)(self.evd_raw, timeout_us, 1, &mut event, &mut nmore)
        };
        ensure!(
            !code.is(DAT_TIMEOUT_EXPIRED),
            "nothing happened for {STALL:?}"
        );
        ensure!(code.is_success(), "dat_evd_wait: {code:?}");
        self.classify(&event)
    }

    #[inline]
    fn classify(&mut self, event: &DatEvent) -> Result<Got> {
        ensure!(
            event.event_number == DAT_DTO_COMPLETION_EVENT,
            "event {:#x}",
            event.event_number
        );
        // SAFETY: the number says that this member of the union is filled.
        let done = unsafe { &event.event_data.dto_completion_event_data };
        ensure!(
            done.status == DAT_DTO_SUCCESS,
            "completion status {}",
            done.status
        );
        if done.user_cookie.to_u64() == RECV {
            return Ok(Got::Message(done.transfered_length));
        }
        self.outstanding -= 1;
        Ok(Got::Request)
    }

    #[inline]
    fn local(&self, offset: usize, len: usize) -> Result<DatLmrTriplet> {
        Ok(self.region.segment(offset, len)?.to_raw())
    }

    #[inline]
    fn repost(&mut self) -> Result<()> {
        let mut iov = self.local(SINK, SIZE_MAX)?;
        let cookie = DatContext::from_u64(RECV);
        // SAFETY: the endpoint lives in `self` and holds the region since `Parts::open` posted it;
        // the list is readable. So in the posts below.
        let code =
            unsafe { (self.library.dat_ep_post_recv)(self.ep_raw, 1, &mut iov, cookie, FLAGS) };
        ensure!(code.is_success(), "dat_ep_post_recv: {code:?}");
        Ok(())
    }

    #[inline]
    fn send(&mut self, len: usize) -> Result<()> {
        let mut iov = self.local(SOURCE, len)?;
        let cookie = DatContext::from_u64(REQUEST);
        // SAFETY: as in `repost`.
        let code =
            unsafe { (self.library.dat_ep_post_send)(self.ep_raw, 1, &mut iov, cookie, FLAGS) };
        ensure!(code.is_success(), "dat_ep_post_send: {code:?}");
        self.outstanding += 1;
        Ok(())
    }

    fn write(&mut self, len: usize) -> Result<()> {
        let mut iov = self.local(SOURCE, len)?;
        let cookie = DatContext::from_u64(REQUEST);
        let there = self.there(SINK, len)?;
        // SAFETY: as in `repost`; the remote triplet is readable.
        let code = unsafe {
            (self.library.dat_ep_post_rdma_write)(self.ep_raw, 1, &mut iov, cookie, &there, FLAGS)
        };
        ensure!(code.is_success(), "dat_ep_post_rdma_write: {code:?}");
        self.outstanding += 1;
        Ok(())
    }

    fn read(&mut self, len: usize) -> Result<()> {
        let mut iov = self.local(SINK, len)?;
        let cookie = DatContext::from_u64(REQUEST);
        let there = self.there(SOURCE, len)?;
        // SAFETY: as in `write`.
        let code = unsafe {
            (self.library.dat_ep_post_rdma_read)(self.ep_raw, 1, &mut iov, cookie, &there, FLAGS)
        };
        ensure!(code.is_success(), "dat_ep_post_rdma_read: {code:?}");
        self.outstanding += 1;
        Ok(())
    }

    fn there(&self, offset: usize, len: usize) -> Result<DatRmrTriplet> {
        Ok(self
            .remote
            .slice(u32::try_from(offset)?, u32::try_from(len)?)?
            .to_raw())
    }
}

const FLAGS: DatCompletionFlags = DAT_COMPLETION_DEFAULT_FLAG;

impl Drop for DatLink {
    fn drop(&mut self) {
        // An orderly end, so that the peer does not report a broken connection.
        if self.ep.disconnect(dat_api::Close::Graceful).is_ok() {
            let _ = self.ep.wait_disconnected(Some(Duration::from_secs(2)));
        }
        while let Ok(Some(_)) = self.evd.dequeue() {}
    }
}

/// Empty polls until a sample counts as stalled; looks at the clock now and then.
#[derive(Default)]
struct Patience {
    spins: u32,
    since: Option<Instant>,
}

impl Patience {
    #[inline]
    fn spend(&mut self) -> Result<()> {
        self.spins = self.spins.wrapping_add(1);
        if self.spins.is_multiple_of(SPINS_PER_LOOK)
            && self.since.get_or_insert_with(Instant::now).elapsed() > STALL
        {
            bail!("nothing completed for {STALL:?}");
        }
        Ok(())
    }
}
