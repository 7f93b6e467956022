//! A key-value store: clients read values from the server's memory by RDMA Read, so that a look-up
//! does not involve the server's program. Changes are messages to the server.
//!
//! The table is an array of entries of one size. A key is stored in the first free entry at or
//! after the index that its hash gives. An entry has a checksum, by which a client detects that it
//! has read an entry while the server was writing it; it then reads again.
//!
//! ```text
//! kv_store [adapter]
//! ```

use std::hash::{DefaultHasher, Hasher};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dat_api::{
    Close, CompletionFlags, Ep, Event, Node, Privileges, Psp, Region, RemoteRegion, Segment,
};

const CLIENTS: usize = 2;
const ENTRIES: usize = 256;
/// The longest key and value in bytes.
const KEY_MAX: usize = 32;
const VALUE_MAX: usize = 200;
/// An entry: checksum, lengths of key and value, key, value.
const LENGTHS: usize = 8;
const KEY: usize = LENGTHS + 4;
const VALUE: usize = KEY + KEY_MAX;
const ENTRY: usize = VALUE + VALUE_MAX;
/// The length of a message: a change, or the answer to one.
const MESSAGE: usize = 4 + KEY_MAX + VALUE_MAX;

/// Changes by each client, and reads of one key while another client changes it.
const CHANGES: usize = 100;
const READS: usize = 2000;
/// A key that one client changes continually.
const BUSY: &str = "busy";

/// The cookies of a client's transfers.
const RECEIVED: u64 = 1;
const SENT: u64 = 2;
const READ: u64 = 3;
/// Added to the cookies of the server's answers; its Receives have the client's number.
const ANSWER: u64 = 1000;

/// A timeout that is longer than any step takes.
const SOON: Option<Duration> = Some(Duration::from_secs(60));

/// Returns the adapter that the command line names, or that of the loopback interface.
fn adapter() -> String {
    std::env::args()
        .nth(1)
        .unwrap_or_else(|| "iwarp-lo".to_owned())
}

fn main() -> Result<()> {
    let node = Node::open(&adapter())?;
    let service = node.listen()?;
    let qualifier = service.conn_qual();
    let server = thread::spawn(move || serve(&node, service));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| thread::spawn(move || run_client(qualifier, number)))
        .collect();
    let mut gets = 0;
    for client in clients {
        gets += client.join().expect("a client panicked")?;
    }
    let puts = server.join().expect("the server panicked")?;
    println!("{puts} changes by messages, {gets} look-ups without the server's program");
    Ok(())
}

/// Keys and values in the form of an entry.
fn entry(key: &str, value: &[u8]) -> Result<Vec<u8>> {
    ensure!(
        !key.is_empty() && key.len() <= KEY_MAX,
        "the length of a key"
    );
    ensure!(value.len() <= VALUE_MAX, "the length of a value");
    let mut bytes = vec![0; ENTRY];
    bytes[LENGTHS..LENGTHS + 2].copy_from_slice(&u16::try_from(key.len())?.to_le_bytes());
    bytes[LENGTHS + 2..KEY].copy_from_slice(&u16::try_from(value.len())?.to_le_bytes());
    bytes[KEY..KEY + key.len()].copy_from_slice(key.as_bytes());
    bytes[VALUE..VALUE + value.len()].copy_from_slice(value);
    let sum = checksum(&bytes[LENGTHS..]);
    bytes[..LENGTHS].copy_from_slice(&sum.to_le_bytes());
    Ok(bytes)
}

/// The content of an entry that was read.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// No key.
    Free,
    /// A key and its value.
    Used(Vec<u8>, Vec<u8>),
    /// The server was writing.
    Torn,
}

fn decode(bytes: &[u8]) -> Found {
    if bytes.iter().all(|byte| *byte == 0) {
        return Found::Free;
    }
    let length = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (key, value) = (length(LENGTHS), length(LENGTHS + 2));
    let is_whole = bytes[..LENGTHS] == checksum(&bytes[LENGTHS..]).to_le_bytes();
    if !is_whole || key > KEY_MAX || value > VALUE_MAX {
        return Found::Torn;
    }
    Found::Used(
        bytes[KEY..KEY + key].to_vec(),
        bytes[VALUE..VALUE + value].to_vec(),
    )
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The entries in which a key may be, the likeliest first.
fn candidates(key: &str) -> impl Iterator<Item = usize> {
    let first = checksum(key.as_bytes()) as usize % ENTRIES;
    (0..ENTRIES).map(move |step| (first + step) % ENTRIES * ENTRY)
}

/// Serves the clients until all have left. Returns the number of changes.
fn serve(node: &Node, service: Psp) -> Result<usize> {
    // The server writes its own memory as well.
    let privileges = Privileges::LOCAL | Privileges::REMOTE_READ;
    let table = Region::create(&node.pz, ENTRIES * ENTRY, privileges)?;
    let mut eps = Vec::new();
    let inbox = Region::create(&node.pz, CLIENTS * MESSAGE, Privileges::LOCAL)?;
    let outbox = Region::from_bytes(&node.pz, &table.remote().to_bytes(), Privileges::LOCAL)?;
    for client in 0..CLIENTS {
        let ep = node.endpoint()?;
        ep.post_recv(&[message(&inbox, client)?], client as u64)?;
        node.accept(&ep)?;
        // The client learns where the table is.
        node.send(&ep, outbox.segment(0, outbox.len())?, ANSWER)?;
        eps.push(ep);
    }
    drop(service);
    let (mut changes, mut present) = (0, CLIENTS);
    while present > 0 {
        let event = node
            .transfers
            .wait(SOON)?
            .context("no client sends a message")?;
        let Event::Dto(done) = event else {
            bail!("unexpected: {event:?}");
        };
        ensure!(done.status.is_success(), "a transfer: {}", done.status);
        if done.cookie >= ANSWER {
            continue;
        }
        let client = done.cookie as usize;
        let bytes = inbox.to_vec(client * MESSAGE, done.transferred as usize)?;
        let Some((key, value)) = change(&bytes)? else {
            present -= 1;
            continue;
        };
        put(&table, key, value)?;
        changes += 1;
        eps[client].post_recv(&[message(&inbox, client)?], done.cookie)?;
        let answer = [outbox.segment(0, 1)?];
        eps[client].post_send(&answer, ANSWER, CompletionFlags::DEFAULT)?;
    }
    for ep in &eps {
        ep.wait_disconnected(SOON)?;
    }
    Ok(changes)
}

fn message(inbox: &Region, client: usize) -> Result<Segment<'_>> {
    Ok(inbox.segment(client * MESSAGE, MESSAGE)?)
}

/// Takes a change apart: the length of the key, the key, the value. An empty message is a farewell.
fn change(bytes: &[u8]) -> Result<Option<(&str, &[u8])>> {
    let Some((len, rest)) = bytes.split_first() else {
        bail!("a message without content");
    };
    if *len == 0 {
        return Ok(None);
    }
    let parts = rest.split_at_checked(usize::from(*len));
    let (key, value) = parts.context("the key is longer than the message")?;
    Ok(Some((std::str::from_utf8(key)?, value)))
}

/// Writes an entry of the table.
fn put(table: &Region, key: &str, value: &[u8]) -> Result<()> {
    let new = entry(key, value)?;
    for at in candidates(key) {
        let is_place = match decode(&table.to_vec(at, ENTRY)?) {
            Found::Free => true,
            Found::Used(present, _) => present == key.as_bytes(),
            Found::Torn => bail!("only this thread writes the table"),
        };
        if is_place {
            return Ok(table.write(at, &new)?);
        }
    }
    bail!("the table is full")
}

/// A connection to the server.
struct Client {
    node: Node,
    ep: Ep,
    table: RemoteRegion,
    inbox: Region,
    outbox: Region,
    copy: Region,
    gets: usize,
}

impl Client {
    fn connect(service: u64) -> Result<Self> {
        let node = Node::open(&adapter())?;
        let ep = node.endpoint()?;
        let inbox = Region::create(&node.pz, RemoteRegion::ENCODED_LEN, Privileges::LOCAL)?;
        ep.post_recv(&[inbox.segment(0, inbox.len())?], RECEIVED)?;
        node.connect(&ep, node.address()?, service)?;
        node.done(ep.id(), RECEIVED)?;
        let mut table = [0; RemoteRegion::ENCODED_LEN];
        inbox.read(0, &mut table)?;
        Ok(Self {
            table: RemoteRegion::from_bytes(&table),
            outbox: Region::create(&node.pz, MESSAGE, Privileges::LOCAL)?,
            copy: Region::create(&node.pz, ENTRY, Privileges::LOCAL)?,
            gets: 0,
            node,
            ep,
            inbox,
        })
    }

    /// Asks the server to change a value, and waits until it has.
    fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        let inbox = [self.inbox.segment(0, self.inbox.len())?];
        self.ep.post_recv(&inbox, RECEIVED)?;
        self.send(&[&[u8::try_from(key.len())?], key.as_bytes(), value].concat())?;
        self.node.done(self.ep.id(), RECEIVED)?;
        Ok(())
    }

    /// Reads a value from the server's memory; `None` if it has no such key.
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        self.gets += 1;
        for at in candidates(key) {
            match self.read_entry(at)? {
                Found::Free => return Ok(None),
                Found::Used(present, value) if present == key.as_bytes() => return Ok(Some(value)),
                _ => (),
            }
        }
        Ok(None)
    }

    /// Reads an entry until it is whole.
    fn read_entry(&self, at: usize) -> Result<Found> {
        let remote = self.table.slice(u32::try_from(at)?, ENTRY as u32)?;
        loop {
            let here = [self.copy.segment(0, ENTRY)?];
            self.ep
                .post_rdma_read(&here, remote, READ, CompletionFlags::DEFAULT)?;
            self.node.done(self.ep.id(), READ)?;
            match decode(&self.copy.to_vec(0, ENTRY)?) {
                Found::Torn => (),
                found => return Ok(found),
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        self.outbox.write(0, bytes)?;
        let message = self.outbox.segment(0, bytes.len())?;
        Ok(self.node.send(&self.ep, message, SENT)?)
    }

    fn leave(self) -> Result<usize> {
        self.send(&[0])?;
        self.ep.disconnect(Close::Graceful)?;
        self.ep.wait_disconnected(SOON)?;
        Ok(self.gets)
    }
}

/// Runs one client. The first client changes a key continually, and the others read it.
fn run_client(service: u64, number: usize) -> Result<usize> {
    let mut client = Client::connect(service)?;
    ensure!(client.get("no such key")?.is_none());
    for change in 0..CHANGES {
        let key = format!("key {number} {}", change % 50);
        client.put(&key, format!("value {change}").as_bytes())?;
        let value = client.get(&key)?.context("the key was stored")?;
        ensure!(value == format!("value {change}").as_bytes());
    }
    for round in 0..READS {
        if number == 0 {
            client.put(BUSY, &[round as u8; VALUE_MAX])?;
        } else if let Some(value) = client.get(BUSY)? {
            ensure!(
                value.len() == VALUE_MAX && value.iter().all(|byte| *byte == value[0]),
                "a mixture of two values: {value:?}"
            );
        }
    }
    client.leave()
}
