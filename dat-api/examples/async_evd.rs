//! Endpoints in tasks of tokio, which wait for DAT events as they wait for sockets and timers.
//!
//! One thread runs the server's tasks, the clients and a timer.
//!
//! ```text
//! async_evd [adapter]
//! ```

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dat_api::{
    AsyncEp, AsyncEvd, CompletionFlags, EvdFlags, Event, Ia, Privileges, Psp, Pz, Region,
};
use tokio::task::JoinSet;

const CLIENTS: usize = 3;
const ROUNDS: u64 = 20;
const LEN: usize = 64;
const RECEIVED: u64 = 1;
const SENT: u64 = 2;

/// An endpoint with a buffer for each direction.
struct End {
    ep: AsyncEp,
    inbox: Region,
    outbox: Region,
}

impl End {
    fn new(ia: &Ia) -> Result<Self> {
        let pz = Pz::create(ia)?;
        let end = Self {
            ep: AsyncEp::create(&pz, 64, None)?,
            inbox: Region::create(&pz, LEN, Privileges::LOCAL)?,
            outbox: Region::create(&pz, LEN, Privileges::LOCAL)?,
        };
        end.post()?;
        Ok(end)
    }

    fn post(&self) -> Result<()> {
        let memory = [self.inbox.segment(0, LEN)?];
        Ok(self.ep.ep().post_recv(&memory, RECEIVED)?)
    }

    /// Sends a number. The completion is awaited together with that of the next message.
    fn send(&self, number: u64) -> Result<()> {
        self.outbox.write(0, &number.to_be_bytes())?;
        let what = [self.outbox.segment(0, 8)?];
        Ok(self
            .ep
            .ep()
            .post_send(&what, SENT, CompletionFlags::DEFAULT)?)
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
        let requests = AsyncEvd::create(&ia, 8, EvdFlags::CONNECTION_REQUEST)?;
        let service = Psp::create_any(&ia, requests.evd())?;
        let qualifier = service.conn_qual();
        for number in 0..CLIENTS {
            tasks.spawn(run_client(qualifier, number as u64 * 1000));
        }
        for _ in 0..CLIENTS {
            let Event::ConnectionRequest(request) = requests.next().await? else {
                bail!("no request");
            };
            let end = End::new(&ia)?;
            request.accept(Some(end.ep.ep()), b"")?;
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
    end.ep.established().await?;
    for _ in 0..ROUNDS {
        end.ep.completion(RECEIVED).await?;
        let number = end.number()?;
        end.post()?;
        end.send(number + 1)?;
        end.ep.completion(SENT).await?;
    }
    end.ep.disconnected().await?;
    Ok(())
}

async fn run_client(service: u64, first: u64) -> Result<()> {
    let ia = Ia::open(&adapter())?;
    let end = End::new(&ia)?;
    let address = ia.attr()?.address.context("the adapter has no address")?;
    let soon = Some(Duration::from_secs(60));
    end.ep.connect(address, service, soon).await?;
    for number in first..first + ROUNDS {
        end.send(number)?;
        end.ep.completion(RECEIVED).await?;
        end.ep.completion(SENT).await?;
        ensure!(end.number()? == number + 1, "the answer is the next number");
        end.post()?;
    }
    end.ep.disconnect().await?;
    Ok(())
}
