//! The carrier of the payload of connections between processes of this host.
//!
//! The adapter is connected to itself. A connection of two processes moves to shared memory by the
//! same steps. So a reason that keeps this connection on TCP applies to all, except for reasons
//! that depend on two processes: different users, containers, network namespaces.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dat_api::abi::{
    DAT_RS_COUNTER_NAMES, DCNT_RS_DIRECT_WRITES, DCNT_RS_MOVED_RECV, DCNT_RS_MOVED_SENT,
    DCNT_RS_REFERENCE_SENT, DCNT_RS_TCP_OTHER_IMPLEMENTATION, DCNT_RS_TCP_SENT,
};
use dat_api::{
    Close, CompletionFlags, Ep, EpAttr, EpEvds, Evd, EvdFlags, Event, Ia, Privileges, Psp, Pz,
    Region,
};
use serde_json::{Map, Value, json};

/// The time that one call may take.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(5));
/// The time that a connection may take to move from TCP. A reason against the move is known sooner.
const MOVE_TIME: Duration = Duration::from_secs(1);
/// The messages after which a reason against shared memory is final; more than an end waits for.
const MESSAGES_MIN: u32 = 64;
/// Payload in bytes of a short message, and of one that is read by reference where this is allowed.
const SHORT: usize = 64;
const LONG: usize = 256 * 1024;
/// Cookies of the two kinds of work.
const SENT: u64 = 1;
const RECEIVED: u64 = 2;

/// The counters of a connection of `ia` with itself, and their meaning; or the reason why the
/// connection failed.
pub(crate) fn report(ia: &Ia) -> Value {
    match measure(ia) {
        Ok(counters) => json!({
            "peers_on_this_host": meaning(&counters),
            "counters": named(&counters),
        }),
        Err(error) => json!({ "peers_on_this_host": format!("unknown: {error:#}") }),
    }
}

/// Two connected endpoints of one adapter.
struct Pair {
    ends: [Ep; 2],
    transfers: Evd,
    memory: Region,
}

fn measure(ia: &Ia) -> Result<Vec<u64>> {
    ia.traffic(true).context("the provider does not count it")?;
    let pair = Pair::connect(ia)?;
    let deadline = Instant::now() + MOVE_TIME;
    let mut messages = 0;
    while !has_moved(&ia.traffic(false)?) && Instant::now() < deadline {
        pair.exchange(SHORT)?;
        messages += 1;
        if messages >= MESSAGES_MIN && stays_on_tcp(&ia.traffic(false)?) {
            break;
        }
    }
    // The loop may end before a short message was sent over the final carrier.
    pair.exchange(SHORT)?;
    pair.exchange(LONG)?;
    pair.write()?;
    let counters = ia.traffic(false)?;
    pair.ends[0].disconnect(Close::Graceful)?;
    for end in &pair.ends {
        end.wait_disconnected(PATIENCE)?;
    }
    Ok(counters)
}

impl Pair {
    fn connect(ia: &Ia) -> Result<Self> {
        let pz = Pz::create(ia)?;
        let transfers = Evd::create(ia, 16, EvdFlags::DTO)?;
        let requests = Evd::create(ia, 4, EvdFlags::CONNECTION_REQUEST)?;
        let end = || -> Result<Ep> {
            let evds = EpEvds {
                recv: &transfers,
                request: &transfers,
                connect: &Evd::create(ia, 4, EvdFlags::CONNECTION)?,
            };
            Ok(Ep::create(&pz, evds, Some(&EpAttr::default()))?)
        };
        let ends = [end()?, end()?];
        let service = Psp::create_any(ia, &requests)?;
        let address = ia.attr()?.address.context("the adapter has no address")?;
        ends[0].start_connect(address, service.conn_qual(), PATIENCE, b"")?;
        let Some(Event::ConnectionRequest(request)) = requests.wait(PATIENCE)? else {
            bail!("no connection request arrives");
        };
        request.accept(Some(&ends[1]), b"")?;
        for end in &ends {
            end.wait_established(PATIENCE)?;
        }
        Ok(Self {
            memory: Region::create(&pz, LONG, Privileges::ALL)?,
            ends,
            transfers,
        })
    }

    /// Writes a short payload onto itself, through the connection.
    fn write(&self) -> Result<()> {
        let segment = self.memory.segment(0, SHORT)?;
        let [first, _] = &self.ends;
        first.post_rdma_write(
            &[segment],
            self.memory.remote(),
            SENT,
            CompletionFlags::DEFAULT,
        )?;
        let done = self.transfers.wait_completion(first.id(), SENT, PATIENCE)?;
        ensure!(done.status.is_success(), "a Write failed: {}", done.status);
        Ok(())
    }

    /// Sends one message in each direction.
    fn exchange(&self, len: usize) -> Result<()> {
        let [first, second] = &self.ends;
        for (from, to) in [(first, second), (second, first)] {
            let part = || self.memory.segment(0, len);
            to.post_recv(&[part()?], RECEIVED)?;
            from.post_send(&[part()?], SENT, CompletionFlags::DEFAULT)?;
            for (end, cookie) in [(to, RECEIVED), (from, SENT)] {
                let done = self.transfers.wait_completion(end.id(), cookie, PATIENCE)?;
                ensure!(
                    done.status.is_success(),
                    "a transfer failed: {}",
                    done.status
                );
            }
        }
        Ok(())
    }
}

fn count(counters: &[u64], number: u32) -> u64 {
    let index = (number - DCNT_RS_TCP_SENT) as usize;
    counters.get(index).copied().unwrap_or(0)
}

/// Returns true if both ends have moved from TCP, in both directions.
fn has_moved(counters: &[u64]) -> bool {
    [DCNT_RS_MOVED_SENT, DCNT_RS_MOVED_RECV]
        .iter()
        .all(|number| count(counters, *number) == 2)
}

/// Returns true if both ends have a permanent reason to stay on TCP.
fn stays_on_tcp(counters: &[u64]) -> bool {
    let is_temporary =
        |name: &str| name.ends_with("LITTLE_TRAFFIC") || name.ends_with("NOT_ANSWERED");
    let permanent = reasons(counters).filter(|(name, _)| !is_temporary(name));
    let is_counted = count(counters, DCNT_RS_TCP_SENT) > 0;
    !is_counted || permanent.map(|(_, count)| count).sum::<u64>() == 2
}

/// The reasons why ends are on TCP, with the number of ends.
fn reasons(counters: &[u64]) -> impl Iterator<Item = (&'static str, u64)> {
    let first = (DCNT_RS_TCP_OTHER_IMPLEMENTATION - DCNT_RS_TCP_SENT) as usize;
    let end = (DCNT_RS_DIRECT_WRITES - DCNT_RS_TCP_SENT) as usize;
    let named = DAT_RS_COUNTER_NAMES.iter().zip(counters);
    let named = named.take(end).skip(first);
    named
        .map(|(name, count)| (*name, *count))
        .filter(|(_, count)| *count > 0)
}

fn meaning(counters: &[u64]) -> String {
    if count(counters, DCNT_RS_TCP_SENT) == 0 {
        return "as all peers: the device moves the payload".to_owned();
    }
    if !has_moved(counters) {
        let reasons: Vec<_> = reasons(counters).map(|(name, _)| in_words(name)).collect();
        return format!("over TCP: {}", reasons.join("; "));
    }
    if count(counters, DCNT_RS_REFERENCE_SENT) == 0 {
        return "through shared memory; long payloads, Writes and Reads too, because this process \
                may not read the memory of its peer"
            .to_owned();
    }
    let direct = match count(counters, DCNT_RS_DIRECT_WRITES) {
        0 => "Writes and Reads need the peer's processor",
        _ => "Writes and Reads do not need the peer's processor",
    };
    format!("through shared memory; long payloads are read from the sender's memory; {direct}")
}

/// The reason of a counter, in words.
fn in_words(name: &str) -> &str {
    match name.trim_start_matches("DCNT_RS_TCP_") {
        "OTHER_IMPLEMENTATION" => "the ends have not agreed on it (long_fpdus=off)",
        "LITTLE_TRAFFIC" => "too little traffic",
        "OFF" | "PEER_OFF" => "local=off",
        "OTHER_HOST" => "the peer cannot be reached by a local socket",
        "NOT_OFFERED" => "the peer has not offered shared memory",
        "NOT_ANSWERED" => "the peer has not answered the offer of shared memory",
        "REFUSED" => "the peer has refused shared memory",
        "NO_RESOURCES" => "no descriptors or memory",
        other => other,
    }
}

/// The counters that are not 0, by their names.
fn named(counters: &[u64]) -> Value {
    let all = DAT_RS_COUNTER_NAMES.iter().zip(counters);
    let counted = all.filter(|(_, count)| **count > 0);
    let map: Map<_, _> = counted
        .map(|(name, count)| ((*name).to_owned(), json!(count)))
        .collect();
    Value::Object(map)
}
