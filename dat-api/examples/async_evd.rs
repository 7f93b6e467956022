//! Event dispatchers in an asynchronous runtime: tasks wait for DAT events as they wait for sockets
//! and timers. The library needs no runtime; the descriptor of a notification object is enough.
//!
//! One thread runs the server's tasks, the clients and a timer.
//!
//! ```text
//! async_evd [adapter]
//! ```

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dat_api::{
    Close, Cno, CompletionFlags, ConnectionKind, Ep, EpEvds, Evd, EvdFlags, Event, Ia, Privileges,
    Psp, Pz, Region,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinSet;

const CLIENTS: usize = 3;
const ROUNDS: u64 = 20;
const LEN: usize = 64;
const RECEIVED: u64 = 1;
const SENT: u64 = 2;

/// A dispatcher whose events a task can await.
struct AsyncEvd {
    evd: Evd,
    trigger: AsyncFd<Trigger>,
}

/// A notification object as the runtime sees it.
struct Trigger(Cno);

impl AsRawFd for Trigger {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd().map_or(-1, |fd| fd.as_raw_fd())
    }
}

impl AsyncEvd {
    fn create(ia: &Ia, flags: EvdFlags) -> Result<Self> {
        let cno = Cno::create_with_fd(ia)?;
        let evd = Evd::create_with_cno(ia, 64, flags, &cno)?;
        // SAFETY: the notification object has one descriptor, which it owns until it is dropped.
        let trigger = unsafe { AsyncFd::register_with_interest(Trigger(cno), Interest::READABLE) };
        let trigger = trigger.map_err(io::Error::from)?;
        Ok(Self { evd, trigger })
    }

    /// Returns the next event. The task sleeps only after it has found the dispatcher empty,
    /// because a trigger is not a count of events.
    async fn next(&self) -> Result<Event> {
        loop {
            if let Some(event) = self.evd.dequeue()? {
                return Ok(event);
            }
            let mut ready = self.trigger.readable().await?;
            while ready.get_inner().0.take_trigger()?.is_some() {}
            ready.clear_ready();
        }
    }
}

/// An endpoint with dispatchers of its own.
struct End {
    ep: Ep,
    transfers: AsyncEvd,
    connections: AsyncEvd,
    inbox: Region,
    outbox: Region,
}

impl End {
    fn new(ia: &Ia) -> Result<Self> {
        let pz = Pz::create(ia)?;
        let transfers = AsyncEvd::create(ia, EvdFlags::DTO)?;
        let connections = AsyncEvd::create(ia, EvdFlags::CONNECTION)?;
        let evds = EpEvds {
            recv: &transfers.evd,
            request: &transfers.evd,
            connect: &connections.evd,
        };
        let end = Self {
            ep: Ep::create(&pz, evds, None)?,
            inbox: Region::create(&pz, LEN, Privileges::LOCAL)?,
            outbox: Region::create(&pz, LEN, Privileges::LOCAL)?,
            transfers,
            connections,
        };
        end.post()?;
        Ok(end)
    }

    fn post(&self) -> Result<()> {
        Ok(self
            .ep
            .post_recv(&[self.inbox.segment(0, LEN)?], RECEIVED)?)
    }

    async fn becomes(&self, wanted: ConnectionKind) -> Result<()> {
        match self.connections.next().await? {
            Event::Connection(event) if event.kind == wanted => Ok(()),
            other => bail!("unexpected: {other:?}"),
        }
    }

    /// Sends a number. The completion is awaited together with that of the next message.
    fn send(&self, number: u64) -> Result<()> {
        self.outbox.write(0, &number.to_be_bytes())?;
        let what = [self.outbox.segment(0, 8)?];
        Ok(self.ep.post_send(&what, SENT, CompletionFlags::DEFAULT)?)
    }

    /// Waits for the completions of work with these cookies, in any order.
    async fn done(&self, cookies: &[u64]) -> Result<()> {
        let mut missing = cookies.to_vec();
        while !missing.is_empty() {
            let Event::Dto(done) = self.transfers.next().await? else {
                bail!("no completion");
            };
            ensure!(done.status.is_success(), "{}", done.status);
            missing.retain(|cookie| *cookie != done.cookie);
        }
        Ok(())
    }

    fn number(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.inbox.read(0, &mut bytes)?;
        Ok(u64::from_be_bytes(bytes))
    }
}

/// Returns the adapter that the command line names, or that of the loopback interface.
fn adapter() -> String {
    std::env::args()
        .nth(1)
        .unwrap_or_else(|| "iwarp-lo".to_owned())
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ticks = runtime.block_on(async {
        let mut tasks = JoinSet::new();
        let ia = Ia::open(&adapter())?;
        let requests = AsyncEvd::create(&ia, EvdFlags::CONNECTION_REQUEST)?;
        let service = Psp::create_any(&ia, &requests.evd)?;
        let qualifier = service.conn_qual();
        for number in 0..CLIENTS {
            tasks.spawn(run_client(qualifier, number as u64 * 1000));
        }
        for _ in 0..CLIENTS {
            let Event::ConnectionRequest(request) = requests.next().await? else {
                bail!("no request");
            };
            let end = End::new(&ia)?;
            request.accept(Some(&end.ep), b"")?;
            tasks.spawn(serve(end));
        }
        // A timer of the same runtime runs while the tasks wait for events.
        let ticker = tokio::spawn(async {
            let mut ticks = 0;
            while ticks < 5 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                ticks += 1;
            }
            ticks
        });
        while let Some(task) = tasks.join_next().await {
            task??;
        }
        Ok(ticker.await?)
    })?;
    println!("{CLIENTS} clients had {ROUNDS} answers each, and a timer ticked {ticks} times");
    Ok(())
}

async fn serve(end: End) -> Result<()> {
    end.becomes(ConnectionKind::Established).await?;
    for _ in 0..ROUNDS {
        end.done(&[RECEIVED]).await?;
        let number = end.number()?;
        end.post()?;
        end.send(number + 1)?;
        end.done(&[SENT]).await?;
    }
    end.becomes(ConnectionKind::Disconnected).await
}

async fn run_client(service: u64, first: u64) -> Result<()> {
    let ia = Ia::open(&adapter())?;
    let end = End::new(&ia)?;
    let address = ia.attr()?.address.context("the adapter has no address")?;
    end.ep
        .start_connect(address, service, Some(Duration::from_secs(60)), b"")?;
    end.becomes(ConnectionKind::Established).await?;
    for number in first..first + ROUNDS {
        end.send(number)?;
        end.done(&[SENT, RECEIVED]).await?;
        ensure!(end.number()? == number + 1, "the answer is the next number");
        end.post()?;
    }
    end.ep.disconnect(Close::Graceful)?;
    end.becomes(ConnectionKind::Disconnected).await
}
