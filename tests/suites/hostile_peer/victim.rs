//! The process under attack: a consumer with memory of every kind, a service point, and another
//! connection, which no attack may affect.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dat_api::abi::*;
use dat_api::{
    CompletionFlags, DtoStatus, Ep, EpAttr, EpEvds, Evd, EvdFlags, Event, Ia, Privileges, Psp, Pz,
    Region,
};
use stack_tests::raw::RawPeer;
use stack_tests::{frame_writer, load_staged, until};

use super::arena::{Arena, Part, library, raw_ok};

/// The time limit of every event.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The number of receives that every endpoint under attack has posted, and their length.
pub(crate) const RECEIVES: usize = 4;
pub(crate) const RECEIVE_LEN: usize = 64;

/// The memory that the peer may use.
pub(crate) const OPEN_AT: usize = 0x408;
pub(crate) const OPEN_LEN: usize = 0x400;

/// The offset of the receives.
pub(crate) const RECEIVE_AT: usize = 0x1800;

/// The offset of the sinks of the victim's RDMA Reads and atomics.
pub(crate) const SINK_AT: usize = 0x1c40;

/// The number of reads that an endpoint under attack serves at once.
pub(crate) const IRD: i32 = 4;

/// An adapter with default settings.
pub(crate) const PLAIN_IA: &str = "plain";

/// An adapter that does not retry to connect.
pub(crate) const ONCE_IA: &str = "once";

/// An adapter with few slots for connections without a request, and a long timeout for them.
pub(crate) const CROWDED_IA: &str = "crowded";
pub(crate) const HALF_OPEN_MAX: usize = 8;

/// An adapter with a short timeout for connections without a request, which is longer than a busy
/// machine delays a request.
pub(crate) const IMPATIENT_IA: &str = "impatient";

const REMOTE_ATOMIC: DatMemPrivFlags = DAT_MEM_PRIV_EXTENSION_BASE;

/// Descriptors are counted for the whole process, so one test runs at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Makes this process use the staged libraries, once. `Err` is the reason why they are missing.
static LIBRARIES: LazyLock<Result<(), String>> = LazyLock::new(|| {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile_peer.conf");
    let crowded =
        format!("lo 0 half_open_max={HALF_OPEN_MAX} half_open_ms=20 mpa_timeout_ms=3600000");
    let adapters = [
        (PLAIN_IA, "lo 0"),
        (ONCE_IA, "lo 0 connect_retry_ms=0"),
        (CROWDED_IA, &*crowded),
        (IMPATIENT_IA, "lo 0 mpa_timeout_ms=2000"),
    ];
    // SAFETY: every test opens an adapter through `Victim::on` first, which waits for this. Until
    // then no thread of this process runs code that reads the environment.
    let loaded = unsafe { load_staged(dat_api::LIBRARY_ENV, &file, &adapters) };
    loaded.map_err(|e| format!("{e:#}"))
});

/// The consumer under attack.
#[derive(Debug)]
pub(crate) struct Victim {
    pub(crate) pz: Pz,
    pub(crate) transfers: Evd,
    pub(crate) connections: Evd,
    pub(crate) requests: Evd,
    pub(crate) psp: Psp,
    pub(crate) arena: Arena,
    pub(crate) parts: Parts,
    /// A memory window that a test may bind.
    pub(crate) window: DatRmrHandle,
    bystander: Bystander,
    descriptors: usize,
    _turn: MutexGuard<'static, ()>,
}

/// Registered memory of every kind.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The peer has every right.
    pub(crate) open: Part,
    /// The peer may only read.
    pub(crate) readable: Part,
    /// The peer may only write.
    pub(crate) writable: Part,
    /// The peer has no right: receives and sinks.
    pub(crate) private: Part,
    /// The peers of another protection zone have every right.
    pub(crate) foreign: Part,
    /// A region that was registered and then freed.
    pub(crate) gone: Part,
    /// The zone of `foreign`.
    _other_pz: Pz,
}

/// A connection that exchanges data while another connection is attacked.
#[derive(Debug)]
struct Bystander {
    active: Ep,
    passive: Ep,
    memory: Region,
    transfers: Evd,
    sent: Cell<u8>,
}

impl Victim {
    pub(crate) fn new() -> Result<Self> {
        Self::on(PLAIN_IA)
    }

    pub(crate) fn on(name: &str) -> Result<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        LIBRARIES.as_ref().map_err(|e| anyhow::anyhow!("{e}"))?;
        let ia = Ia::open(name)?;
        let pz = Pz::create(&ia)?;
        let transfers = Evd::create(&ia, 64, EvdFlags::DTO | EvdFlags::BIND)?;
        let connections = Evd::create(&ia, 16, EvdFlags::CONNECTION)?;
        let requests = Evd::create(&ia, 16, EvdFlags::CONNECTION_REQUEST)?;
        let psp = Psp::create_any(&ia, &requests)?;
        let arena = Arena::new()?;
        let parts = Parts::new(&arena, &pz)?;
        let window = create_window(&pz)?;
        let bystander = Bystander::new(&ia, &psp, &requests)?;
        let mut victim = Self {
            pz,
            transfers,
            connections,
            requests,
            psp,
            arena,
            parts,
            window,
            bystander,
            descriptors: 0,
            _turn: turn,
        };
        // The first connection may allocate resources that later connections share.
        drop(victim.stream()?);
        victim.bystander.exchange_until_moved()?;
        victim.settle()?;
        // An event dispatcher creates its descriptor when a thread first sleeps in the dispatcher.
        for evd in [&victim.transfers, &victim.connections, &victim.requests] {
            ensure!(
                evd.wait(Some(Duration::from_millis(1)))?.is_none(),
                "an early event"
            );
        }
        victim.descriptors = descriptors()?;
        Ok(victim)
    }

    pub(crate) fn evds(&self) -> EpEvds<'_> {
        EpEvds {
            recv: &self.transfers,
            request: &self.transfers,
            connect: &self.connections,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        u16::try_from(self.psp.conn_qual()).expect("the provider chose a TCP port")
    }

    /// An endpoint with its receives posted.
    pub(crate) fn ep(&self) -> Result<Ep> {
        let attr = EpAttr {
            max_rdma_read_in: IRD,
            max_rdma_read_out: IRD,
            ..EpAttr::default()
        };
        let ep = Ep::create(&self.pz, self.evds(), Some(&attr))?;
        for index in 0..RECEIVES {
            self.post_recv(&ep, RECEIVE_AT + index * RECEIVE_LEN, index as u64)?;
        }
        Ok(ep)
    }

    /// Posts a receive into the private memory.
    pub(crate) fn post_recv(&self, ep: &Ep, at: usize, cookie: u64) -> Result<()> {
        let mut triplet = self.triplet(at, RECEIVE_LEN);
        // SAFETY: endpoint and memory are alive, and the triplet is readable for the call.
        let code = unsafe {
            (library().dat_ep_post_recv)(
                ep.as_raw(),
                1,
                &mut triplet,
                DatContext::from_u64(cookie),
                0,
            )
        };
        raw_ok("dat_ep_post_recv", code)
    }

    /// A piece of the private memory, for posts.
    pub(crate) fn triplet(&self, at: usize, len: usize) -> DatLmrTriplet {
        let mut triplet = DatLmrTriplet::zeroed();
        triplet.virtual_address = self.arena.address(at);
        triplet.segment_length = len as DatSegLength;
        triplet.lmr_context = self.parts.private.lmr_context;
        triplet
    }

    /// Accepts the next request on `ep`.
    pub(crate) fn accept(&self, ep: &Ep) -> Result<()> {
        match self.requests.wait(Some(DEADLINE))? {
            Some(Event::ConnectionRequest(request)) => request.accept(Some(ep), b"")?,
            other => anyhow::bail!("no connection request but {other:?}"),
        };
        ep.wait_established(Some(DEADLINE))?;
        Ok(())
    }

    /// A connection whose other end is raw bytes.
    pub(crate) fn stream(&self) -> Result<Stream> {
        self.stream_to(self.ep()?)
    }

    /// Makes such a connection to an existing endpoint.
    pub(crate) fn stream_to(&self, ep: Ep) -> Result<Stream> {
        let mut peer = RawPeer::connect(self.port())?;
        peer.send(&frame_writer::request(b"").bytes())?;
        self.accept(&ep)?;
        let reply = peer.read(20)?;
        ensure!(reply == stack_tests::raw::REPLY, "{reply:02x?}");
        Ok(Stream { ep, peer })
    }

    /// Sends one message over the connection that is not attacked.
    pub(crate) fn bystander_is_fine(&self) -> Result<()> {
        self.bystander
            .exchange()
            .context("the connection next to the attacked connection")
    }

    /// The next completion of work that was posted to an endpoint under attack.
    pub(crate) fn completion(&self) -> Result<Completed> {
        match self.transfers.wait(Some(DEADLINE))? {
            Some(Event::Dto(dto)) => Ok(Completed {
                cookie: dto.cookie,
                status: Some(dto.status),
                len: dto.transferred as usize,
            }),
            // Atomics and immediate data are completed by events of the extension.
            Some(Event::Other { .. } | Event::Bind(_)) => Ok(Completed {
                cookie: u64::MAX,
                status: None,
                len: 0,
            }),
            Some(other) => anyhow::bail!("an unexpected event: {other:?}"),
            None => anyhow::bail!("no completion"),
        }
    }

    /// Discards the events that remain in the queues.
    pub(crate) fn settle(&self) -> Result<()> {
        for evd in [&self.transfers, &self.connections, &self.requests] {
            while evd.dequeue()?.is_some() {}
        }
        Ok(())
    }

    /// Fails if the process holds more descriptors than at the start.
    pub(crate) fn no_descriptor_is_left(&self) -> Result<()> {
        let before = self.descriptors;
        until!(
            descriptors()? <= before,
            "{} instead of {before}",
            descriptors()?
        );
        Ok(())
    }
}

impl Parts {
    fn new(arena: &Arena, pz: &Pz) -> Result<Self> {
        let all = DAT_MEM_PRIV_ALL_FLAG | REMOTE_ATOMIC;
        let local = DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG;
        let other_pz = Pz::create(pz.ia())?;
        let parts = Self {
            open: arena.register(pz, OPEN_AT, OPEN_LEN, all)?,
            readable: arena.register(pz, 0x1000, 0x200, DAT_MEM_PRIV_REMOTE_READ_FLAG)?,
            writable: arena.register(pz, 0x1400, 0x200, local | DAT_MEM_PRIV_REMOTE_WRITE_FLAG)?,
            private: arena.register(pz, RECEIVE_AT, 0x800, local)?,
            foreign: arena.register(&other_pz, 0x2400, 0x200, all)?,
            gone: arena.register(pz, 0x2800, 0x200, all)?,
            _other_pz: other_pz,
        };
        // SAFETY: the handle is live, and this program does not use it any more.
        let code = unsafe { (library().dat_lmr_free)(parts.gone.lmr) };
        raw_ok("dat_lmr_free", code)?;
        Ok(parts)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let parts = &self.parts;
        // SAFETY: the window was created in `Victim::on` and is freed nowhere else.
        let _ = unsafe { (library().dat_rmr_free)(self.window) };
        for part in [
            parts.open,
            parts.readable,
            parts.writable,
            parts.private,
            parts.foreign,
        ] {
            // SAFETY: the region was registered in `Parts::new` and is freed nowhere else; the
            // mapping stays.
            let _ = unsafe { (library().dat_lmr_free)(part.lmr) };
        }
    }
}

impl Bystander {
    const LEN: usize = 200;

    fn new(ia: &Ia, psp: &Psp, requests: &Evd) -> Result<Self> {
        let pz = Pz::create(ia)?;
        let transfers = Evd::create(ia, 64, EvdFlags::DTO)?;
        let connections = Evd::create(ia, 16, EvdFlags::CONNECTION)?;
        let evds = EpEvds {
            recv: &transfers,
            request: &transfers,
            connect: &connections,
        };
        let active = Ep::create(&pz, evds, None)?;
        let passive = Ep::create(&pz, evds, None)?;
        let memory = Region::create(&pz, 2 * Self::LEN, Privileges::LOCAL)?;
        let address = ia.attr()?.address.context("the adapter has no address")?;
        active.start_connect(address, psp.conn_qual(), Some(DEADLINE), b"")?;
        match requests.wait(Some(DEADLINE))? {
            Some(Event::ConnectionRequest(request)) => request.accept(Some(&passive), b"")?,
            other => anyhow::bail!("no connection request but {other:?}"),
        };
        active.wait_established(Some(DEADLINE))?;
        passive.wait_established(Some(DEADLINE))?;
        Ok(Self {
            active,
            passive,
            memory,
            transfers,
            sent: Cell::new(0),
        })
    }

    /// Exchanges messages until the connection uses shared memory, which needs more descriptors.
    fn exchange_until_moved(&self) -> Result<()> {
        let has_moved = || -> Result<bool> {
            self.exchange()?;
            let traffic = self.active.traffic(false)?;
            Ok([DCNT_RS_MOVED_SENT, DCNT_RS_MOVED_RECV]
                .iter()
                .all(|counter| traffic[(counter - DCNT_RS_TCP_SENT) as usize] > 0))
        };
        until!(has_moved()?, "the connection stays on TCP");
        Ok(())
    }

    fn exchange(&self) -> Result<()> {
        let count = self.sent.get().wrapping_add(1);
        self.sent.set(count);
        let message: Vec<u8> = (0..Self::LEN).map(|at| at as u8 ^ count).collect();
        let sink = self.memory.segment(Self::LEN, Self::LEN)?;
        self.passive.post_recv(&[sink], 1)?;
        self.memory.write(0, &message)?;
        let source = self.memory.segment(0, Self::LEN)?;
        self.active
            .post_send(&[source], 2, CompletionFlags::default())?;
        for (ep, cookie) in [(&self.active, 2), (&self.passive, 1)] {
            let dto = self
                .transfers
                .wait_completion(ep.id(), cookie, Some(DEADLINE))?;
            ensure!(dto.status.is_success(), "{:?}", dto.status);
        }
        let received = self.memory.to_vec(Self::LEN, Self::LEN)?;
        ensure!(received == message, "wrong bytes");
        Ok(())
    }
}

/// The completion of posted work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completed {
    pub(crate) cookie: u64,
    /// The status; `None` if an event of an extension reports the completion.
    pub(crate) status: Option<DtoStatus>,
    pub(crate) len: usize,
}

/// The victim's end of a connection under attack, and the attacker.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) ep: Ep,
    pub(crate) peer: RawPeer,
}

fn create_window(pz: &Pz) -> Result<DatRmrHandle> {
    let mut window = DAT_HANDLE_NULL;
    // SAFETY: the zone is alive and the out-pointer writable.
    let code = unsafe { (library().dat_rmr_create)(pz.as_raw(), &mut window) };
    raw_ok("dat_rmr_create", code)?;
    Ok(window)
}

fn descriptors() -> Result<usize> {
    Ok(fs::read_dir("/proc/self/fd")?.count())
}
