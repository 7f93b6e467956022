//! The Rust API over the staged libraries: behaviour that unit tests can only simulate, and that
//! neither the examples show nor `dat-conformance` checks.

#[path = "ssp_behaviour/bench.rs"]
#[allow(dead_code, reason = "shared with a suite that needs more of it")]
mod bench;

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bench::{DEADLINE, Node, pair};
use dat_api::abi::{
    DAT_CONN_QUAL_IN_USE, DCNT_EP_POST_SEND, DCNT_EP_RECV, DCNT_EVD_DEQUEUE_FOUND,
    DCNT_IA_EP_CREATE, DCNT_RS_TCP_LITTLE_TRAFFIC, DCNT_RS_TCP_OFF, DCNT_RS_TCP_RECV_DATA,
    DCNT_RS_TCP_SENT, DCNT_RS_TCP_SENT_DATA,
};
use dat_api::{
    AsyncKind, CompletionFlags, ConnectionKind, Cr, Ep, EpState, Event, Library, Privileges, Psp,
    Region, Rsp, Srq, Ssp,
};
use stack_tests::{IA_NAME, StackEnv, carrier_params, until};

const WAIT: Option<Duration> = Some(DEADLINE);
const LEN: usize = 64;

/// Waits until no other test runs: handles of adapters are small integers, and a test checks that
/// its own handle is no longer valid.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn next_request(node: &Node) -> Result<Cr> {
    match node.requests.wait(WAIT)? {
        Some(Event::ConnectionRequest(request)) => Ok(request),
        other => bail!("no request but {other:?}"),
    }
}

fn address(node: &Node) -> Result<SocketAddr> {
    node.ia
        .attr()?
        .address
        .context("the adapter has no address")
}

/// Connects two endpoints of a node.
fn join(node: &Node, active: &Ep, passive: &Ep) -> Result<()> {
    let psp = Psp::create_any(&node.ia, &node.requests)?;
    active.start_connect(address(node)?, psp.conn_qual(), WAIT, b"")?;
    next_request(node)?.accept(Some(passive), b"")?;
    passive.wait_established(WAIT)?;
    active.wait_established(WAIT)?;
    Ok(())
}

fn joined(node: &Node) -> Result<(Ep, Ep)> {
    let (active, passive) = (node.ep()?, node.ep()?);
    join(node, &active, &passive)?;
    Ok((active, passive))
}

fn region(node: &Node) -> Result<Region> {
    Ok(Region::create(&node.pz, LEN, Privileges::ALL)?)
}

/// Posts a receive, sends one message into it, and waits for both completions.
fn one_message(node: &Node, active: &Ep, passive: &Ep, memory: &Region) -> Result<()> {
    passive.post_recv(&[memory.segment(0, LEN)?], 77)?;
    active.post_send(&[memory.segment(0, LEN)?], 78, CompletionFlags::DEFAULT)?;
    for (ep, cookie) in [(active, 78), (passive, 77)] {
        let done = node.transfers.wait_completion(ep.id(), cookie, WAIT)?;
        ensure!(done.status.is_success(), "{}", done.status);
    }
    Ok(())
}

/// Returns true if the adapter of this number is open.
fn is_open(ia: usize) -> Result<bool> {
    let ia = std::ptr::without_provenance_mut(ia);
    let none = std::ptr::null_mut();
    // SAFETY: the library accepts any word as a handle, and no output is requested.
    let code = unsafe { (Library::get()?.dat_ia_query)(ia, none, 0, none.cast(), 0, none.cast()) };
    Ok(code.is_success())
}

/// The service point whose request has not been read.
#[allow(dead_code, reason = "held to be dropped")]
enum Service {
    Socket(Ssp),
    Reserved(Rsp),
}

/// Creates a node whose dispatcher contains an unread request for its endpoint, and the requesting
/// node.
fn with_unread_request(over_socket: bool) -> Result<(Node, Ep, Service, Node, Ep)> {
    let (node, asker) = (Node::new()?, Node::new()?);
    let (ep, asking) = (node.ep()?, asker.ep()?);
    let service = if over_socket {
        let (active, passive) = pair()?;
        let ssp = Ssp::create(passive, &ep, &node.requests, b"")?;
        asking.start_connect_socket(active, WAIT, b"")?;
        Service::Socket(ssp)
    } else {
        let (rsp, qualifier) = reserve(&node, &ep)?;
        asking.start_connect(address(&node)?, qualifier, WAIT, b"")?;
        Service::Reserved(rsp)
    };
    until!(
        ep.state()? == EpState::PassiveConnectionPending,
        "no request is received"
    );
    Ok((node, ep, service, asker, asking))
}

/// Creates a reserved service point on an unused qualifier.
fn reserve(node: &Node, ep: &Ep) -> Result<(Rsp, u64)> {
    for qualifier in 20_000..30_000 {
        match Rsp::create(ep, qualifier, &node.requests) {
            Ok(rsp) => return Ok((rsp, qualifier)),
            Err(error) if error.is(DAT_CONN_QUAL_IN_USE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bail!("no qualifier is free")
}

/// OFA's library may be the one that the loader finds.
#[test]
fn a_program_of_the_stage_finds_the_library_next_to_it() -> Result<()> {
    let env = StackEnv::new()?;
    let library = env.stage.lib().join(dat_api::LIBRARY_NAME).canonicalize()?;
    let datinfo = env.program(env.stage.bin("datinfo").canonicalize()?);
    datinfo
        .env_remove("LD_LIBRARY_PATH")
        .env_remove(dat_api::LIBRARY_ENV)
        .arg("-v")
        .run(DEADLINE)?
        .prints(&format!(
            "registry library  {}",
            library.with_file_name(dat_api::LIBRARY_NAME).display()
        ))?
        .prints(IA_NAME)?;
    Ok(())
}

#[test]
fn a_program_that_finds_no_adapter_is_told_how_to_name_one() -> Result<()> {
    let env = StackEnv::new()?;
    let example = env.program(env.stage.example("send-recv"));
    let finished = example.env("DAT_OVERRIDE", "/no/such/file").spawn()?;
    let finished = finished.finish(DEADLINE)?;
    ensure!(!finished.status.success());
    finished
        .prints("DAT_PROVIDER_NOT_FOUND")?
        .prints("no usable dat.conf line has this IA name")?;
    Ok(())
}

/// Both ends of a connection convert it at the same time, each with a node of its own.
#[test]
fn both_ends_convert_a_connection_by_one_call() -> Result<()> {
    let _turn = turn();
    let _loaded = Node::new()?;
    let (one, other) = pair()?;
    let convert = move |socket| -> Result<dat_api::RdmaStream> {
        let node = dat_api::Node::open(IA_NAME)?;
        Ok(dat_api::convert_on(&node, socket)?)
    };
    let there = std::thread::spawn(move || convert(other));
    let here = convert(one)?;
    let there = there.join().map_err(|_| anyhow::anyhow!("a panic"))??;
    for round in 0..3 * dat_api::WINDOW {
        let message = vec![round as u8; round * 100];
        here.send(&message)?;
        ensure!(there.receive(WAIT)? == Some(message.clone()), "{round}");
        there.send(&message)?;
        ensure!(here.receive(WAIT)? == Some(message), "{round}");
    }
    ensure!(here.send(&[0; dat_api::MESSAGE_MAX + 1]).is_err());
    here.close()?;
    ensure!(there.receive(WAIT)?.is_none());
    Ok(())
}

/// The other end has no adapter: both get their sockets back, at the same place of the stream.
#[test]
fn a_connection_that_is_not_converted_stays_a_tcp_connection() -> Result<()> {
    use std::io::{Read as _, Write as _};
    let _turn = turn();
    let _loaded = Node::new()?;
    let (one, mut other) = pair()?;
    let there = std::thread::spawn(move || -> Result<()> {
        let mut hello = [0; 16];
        other.read_exact(&mut hello)?;
        // The hello of an end that cannot do RDMA.
        hello[7] = 0;
        other.write_all(&hello)?;
        other.write_all(b"still TCP")?;
        Ok(())
    });
    let node = dat_api::Node::open(IA_NAME)?;
    let failed = dat_api::convert_on(&node, one).err().context("converted")?;
    let text = failed.to_string();
    ensure!(text.contains("the other end cannot do RDMA"), "{text}");
    let mut text = [0; 9];
    failed.socket.context("no socket")?.read_exact(&mut text)?;
    ensure!(&text == b"still TCP");
    there.join().map_err(|_| anyhow::anyhow!("a panic"))?
}

#[test]
fn an_unread_request_does_not_keep_the_adapter_open() -> Result<()> {
    let _turn = turn();
    for over_socket in [true, false] {
        for service_first in [true, false] {
            let (node, ep, service, asker, asking) = with_unread_request(over_socket)?;
            let ia = node.ia.as_raw().addr();
            ensure!(is_open(ia)?);
            if service_first {
                drop(service);
                drop((ep, node));
            } else {
                drop((node, ep));
                drop(service);
            }
            ensure!(!is_open(ia)?, "socket {over_socket}, first {service_first}");
            let ending = asker.connections.wait(WAIT)?;
            let Some(Event::Connection(event)) = ending else {
                bail!("{ending:?}");
            };
            ensure!(event.kind == ConnectionKind::PeerRejected, "{}", event.kind);
            ensure!(asking.take_socket().is_some() == over_socket);
        }
    }
    Ok(())
}

#[test]
fn status_and_receives_report_posted_transfers() -> Result<()> {
    let _turn = turn();
    let node = Node::new()?;
    let (active, passive) = joined(&node)?;
    let memory = region(&node)?;
    ensure!(passive.status()?.recv_idle && passive.receives_held()?.0 == 0);
    passive.post_recv(&[memory.segment(0, LEN)?], 1)?;
    ensure!(!passive.status()?.recv_idle && passive.receives_held()?.0 == 1);
    active.post_send(&[memory.segment(0, LEN)?], 2, CompletionFlags::SUPPRESS)?;
    node.transfers.wait_completion(passive.id(), 1, WAIT)?;
    let status = passive.status()?;
    ensure!(status.state == EpState::Connected && status.recv_idle && status.request_idle);
    Ok(())
}

#[test]
fn events_are_counted() -> Result<()> {
    let _turn = turn();
    let node = Node::new()?;
    let (active, passive) = joined(&node)?;
    one_message(&node, &active, &passive, &region(&node)?)?;
    ensure!(node.ia.counters(false)?[DCNT_IA_EP_CREATE as usize] == 2);
    ensure!(active.counters(true)?[DCNT_EP_POST_SEND as usize] == 1);
    ensure!(active.counters(false)?[DCNT_EP_POST_SEND as usize] == 0);
    ensure!(passive.counters(false)?[DCNT_EP_RECV as usize] == 1);
    while node.transfers.dequeue()?.is_some() {}
    ensure!(node.transfers.counters(false)?[DCNT_EVD_DEQUEUE_FOUND as usize] == 0);
    Ok(())
}

#[test]
fn the_carrier_of_payload_is_counted() -> Result<()> {
    let _turn = turn();
    let node = Node::new()?;
    let (active, passive) = joined(&node)?;
    let at = |number: u32| (number - DCNT_RS_TCP_SENT) as usize;
    one_message(&node, &active, &passive, &region(&node)?)?;
    ensure!(active.traffic(false)?[at(DCNT_RS_TCP_SENT_DATA)] == LEN as u64);
    ensure!(passive.traffic(true)?[at(DCNT_RS_TCP_RECV_DATA)] == LEN as u64);
    ensure!(passive.traffic(false)?[at(DCNT_RS_TCP_RECV_DATA)] == 0);
    let both = node.ia.traffic(false)?;
    let why = match carrier_params() {
        "" => DCNT_RS_TCP_LITTLE_TRAFFIC,
        _ => DCNT_RS_TCP_OFF,
    };
    ensure!(both[at(why)] == 2, "{both:?}");
    drop((active, passive));
    // The adapter still counts the traffic of endpoints that were freed.
    let after = node.ia.traffic(false)?;
    ensure!(after[at(DCNT_RS_TCP_RECV_DATA)] == LEN as u64, "{after:?}");
    Ok(())
}

#[test]
fn a_shared_queue_reports_its_state_and_its_low_watermark() -> Result<()> {
    let _turn = turn();
    let node = Node::new()?;
    let srq = Srq::create(&node.pz, 8, 1)?;
    let (active, passive) = (
        node.ep()?,
        Ep::create_with_srq(&node.pz, node.evds(), &srq, None)?,
    );
    join(&node, &active, &passive)?;
    let memory = region(&node)?;
    for cookie in 0..4 {
        srq.post_recv(&[memory.segment(0, LEN)?], cookie)?;
    }
    srq.resize(9)?;
    srq.set_low_watermark(4)?;
    passive.set_watermarks(None, Some(4))?;
    active.post_send(&[memory.segment(0, LEN)?], 9, CompletionFlags::SUPPRESS)?;
    node.transfers.wait_completion(passive.id(), 0, WAIT)?;
    let info = srq.query()?;
    ensure!(
        (info.max_recv_dtos, info.available) == (9, Some(3)),
        "{info:?}"
    );
    ensure!(
        (info.low_watermark, info.outstanding) == (4, Some(0)),
        "{info:?}"
    );
    match node.ia.async_evd().wait(WAIT)? {
        Some(Event::Async(error)) => {
            ensure!(error.kind == AsyncKind::EpBroken && error.object == srq.id());
        }
        other => bail!("{other:?}"),
    }
    Ok(())
}
