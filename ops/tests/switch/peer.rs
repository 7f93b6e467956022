//! Questions to the peer's port mapper, and answers.

use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use ops::portmap::{Offering, PORT};
use ops::{DecisionTrace, Outcome, Plan, Reserve};
use rustix::io::Errno;
use stack_tests::{NetSpace, available, not_run};

use crate::lab::{DEADLINE, End, LOCALHOST, Lab, NO_PROGRAM, carrier, exchange, without_labs};
use crate::unix_protocol::UnixProtocol;

/// Returns a protocol that is tried only if the peer offers the service over it.
fn asking() -> UnixProtocol {
    let mut protocol = UnixProtocol::default();
    protocol.capabilities.asks_peer = true;
    protocol
}

#[test]
fn a_peer_that_offers_the_service_is_connected_to_by_the_protocol() -> Result<()> {
    let lab = available!(Lab::new("", &[asking()])?);
    let _mapper = lab.mapper();
    let service = lab.service()?;
    let to = service.address()?;
    for _ in 0..2 {
        let (mut client, server) = lab.connect(to)?.accepted_by(&service)?;
        ensure!(client.outcome() == "unix", "{}", client.outcome());
        exchange(&mut client, &server)?;
    }
    Ok(())
}

#[test]
fn a_service_of_this_process_is_found_while_nothing_answers() -> Result<()> {
    for rules in ["", "use offload connect * *:*\n"] {
        let lab = available!(Lab::new(rules, &[asking()])?);
        let (_service, mut client, server) = lab.connected()?;
        ensure!(client.outcome() == "unix", "{}", client.outcome());
        exchange(&mut client, &server)?;
    }
    Ok(())
}

#[test]
fn without_tcp_a_service_is_found_after_a_time_in_which_nothing_answers() -> Result<()> {
    let lab = available!(Lab::new("", &[asking()])?);
    let asks = Lab::here("use offload connect * *:*\n", &[asking()])?;
    let service = lab.service()?;
    let to = service.address()?;
    for _ in 0..2 {
        // The first question gets the answer that no port mapper is here.
        let end = asks.connect(to)?;
        ensure!(matches!(end, End::Begun(..)), "{}", end.outcome());
        let end = end.step(to)?;
        ensure!(matches!(end, End::Begun(..)), "{}", end.outcome());
        let _mapper = lab.mapper();
        let (mut client, server) = end.accepted_by(&service)?;
        ensure!(client.outcome() == "unix", "{}", client.outcome());
        exchange(&mut client, &server)?;
    }
    Ok(())
}

#[test]
fn without_tcp_a_denial_is_not_cached() -> Result<()> {
    let rules = "use offload connect * *:1\nuse both connect * *:*\n";
    let lab = available!(Lab::new(rules, &[asking()])?);
    let _learned = lab.service_without_mapper()?;
    let _plain = std::net::TcpListener::bind((LOCALHOST, 1))?;
    let end = lab.connect((LOCALHOST, 1).into())?;
    ensure!(matches!(end, End::Begun(..)), "{}", end.outcome());
    Ok(())
}

#[test]
fn without_tcp_a_port_of_this_host_without_a_listener_is_refused_at_once() -> Result<()> {
    let lab = available!(Lab::new("use offload connect * *:*\n", &[asking()])?);
    let refused = lab.connect((LOCALHOST, 1).into()).err();
    let refused = refused.and_then(|error| error.downcast::<Errno>().ok());
    ensure!(refused == Some(Errno::CONNREFUSED), "{refused:?}");
    Ok(())
}

#[test]
fn a_service_that_ended_is_offered_no_longer() -> Result<()> {
    let lab = available!(Lab::new("", &[asking()])?);
    let _mapper = lab.mapper();
    // This service keeps the mapper answering.
    let _other = lab.service()?;
    let service = lab.service()?;
    let to = service.address()?;
    drop(service);
    let plain = std::net::TcpListener::bind(to)?;
    let end = lab.connect(to)?.decided(to)?;
    let expected = "tcp: the peer does not offer this service over RDMA";
    ensure!(end.outcome() == expected, "{}", end.outcome());
    plain.accept()?;
    Ok(())
}

#[test]
fn a_service_of_this_host_that_starts_again_is_found_after_a_refusal() -> Result<()> {
    let lab = available!(Lab::new("", &[asking()])?);
    let _mapper = lab.mapper();
    let asks = Lab::here("", &[asking()])?;
    // The service ends between the answer of its port mapper and the connection.
    let plain = std::net::TcpListener::bind((LOCALHOST, 0))?;
    let (to, gone) = (plain.local_addr()?, (LOCALHOST, 1).into());
    lab.switch.offer(Offering::new(to, gone));
    let end = asks.connect(to)?.decided(to)?;
    ensure!(
        end.outcome() == "tcp: the peer refused",
        "{}",
        end.outcome()
    );
    lab.switch.withdraw(to, gone);
    drop(plain);
    let service = lab.service_at(to)?;
    let (mut client, server) = asks.connect(to)?.accepted_by(&service)?;
    ensure!(client.outcome() == "unix", "{}", client.outcome());
    exchange(&mut client, &server)
}

#[test]
fn a_host_that_drops_datagrams_is_waited_for_once() -> Result<()> {
    let lab = available!(Lab::new(
        "use both connect * *:* within=40ms\n",
        &[asking()]
    )?);
    let swallows = UdpSocket::bind((LOCALHOST, PORT))?;
    swallows.set_nonblocking(true)?;
    let plain = std::net::TcpListener::bind((LOCALHOST, 0))?;
    let to = plain.local_addr()?;
    let begin = Instant::now();
    let end = lab.connect(to)?.decided(to)?;
    ensure!(end.outcome() == "tcp: UDP port 3935 of the peer does not answer");
    ensure!(begin.elapsed() >= Duration::from_millis(20) && begin.elapsed() < DEADLINE);
    let received = || swallows.recv(&mut [0; 99]).ok();
    let asked = || std::iter::from_fn(received).count();
    ensure!(asked() > 0);
    // The answer is cached now: nothing is sent, and the connection does not wait.
    let again = lab.connect(to)?;
    ensure!(matches!(again, End::Native(..)) && asked() == 0);
    Ok(())
}

#[test]
fn a_peers_answer_is_dropped_when_the_network_changes() -> Result<()> {
    let lab = available!(Lab::new("", &[asking()])?);
    let (_plain, to) = lab.service_without_mapper()?;
    let silent = UdpSocket::bind((LOCALHOST, PORT))?;
    ensure!(lab.connect(to)?.decided(to)?.outcome() == NO_PROGRAM);
    lab.registry.notify();
    let begun = lab.connect(to)?;
    ensure!(matches!(begun, End::Begun(..)), "{}", begun.outcome());
    drop(silent);
    Ok(())
}

/// A shell that was started before this process opened descriptors that the shell would inherit.
struct Shell {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn start() -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let _alone = without_labs();
        let mut process = shell.spawn()?;
        let output = process.stdout.take().map(BufReader::new);
        let output = output.ok_or(anyhow!("no pipe"))?;
        Ok(Self { process, output })
    }

    /// Runs a command and waits for its end.
    fn run(&mut self, command: &str) -> Result<()> {
        let stdin = self.process.stdin.as_mut().ok_or(anyhow!("no pipe"))?;
        writeln!(stdin, "({command}) && echo done || echo failed")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(line == "done\n", "{command}: {line}");
        Ok(())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

#[test]
fn what_a_peer_said_holds_while_the_way_to_it_stays_the_same() -> Result<()> {
    if matches!(NetSpace::enter()?, NetSpace::Host(_)) {
        not_run("no network namespaces; run as root or allow user namespaces");
        return Ok(());
    }
    let mut shell = Shell::start()?;
    let lab = Lab::here("", &[asking()])?;
    let (_plain, to) = lab.service_without_mapper()?;
    // A connection that asks again waits for this silent socket.
    let _silent = UdpSocket::bind((LOCALHOST, PORT))?;
    for elsewhere in [
        "ip link add one type veth peer name other",
        "ip address add 203.0.113.1/24 dev one",
        "ip link set one up; ip link set other up",
        "ip route add 198.51.100.0/24 dev one",
        "ip link delete one",
        "ip address add 203.0.113.1/32 dev lo",
    ] {
        shell.run(elsewhere)?;
        let again = lab.connect(to)?;
        ensure!(matches!(again, End::Native(..)), "{elsewhere}");
    }
    shell.run("ip link set lo down; ip link set lo up")?;
    let begun = lab.connect(to)?;
    ensure!(matches!(begun, End::Begun(..)), "{}", begun.outcome());
    Ok(())
}

#[test]
fn a_connection_that_stays_on_tcp_has_reserved_no_port() -> Result<()> {
    let lab = available!(Lab::new("", &[asking()])?);
    let plain = std::net::TcpListener::bind((LOCALHOST, 0))?;
    let to = plain.local_addr()?;
    // The peer is asked first, then the cache.
    for _ in 0..2 {
        let Plan::Offload(offer) = lab.plan(to) else {
            anyhow::bail!("not offloaded")
        };
        let reserve = Reserve::new(|| panic!("a port is reserved"));
        let trace = DecisionTrace::default();
        let outcome = lab.switch.connect(to, reserve, offer, trace).wait();
        ensure!(matches!(outcome, Outcome::Native(_)), "{outcome:?}");
    }
    Ok(())
}

#[test]
fn a_protocol_that_need_not_ask_is_tried_where_the_peer_does_not_answer() -> Result<()> {
    let asks = UnixProtocol {
        name: "asks",
        ..asking()
    };
    let protocols = [asks, UnixProtocol::default()];
    let offers = available!(Lab::new("", &protocols)?);
    let service = offers.service()?;
    let to = service.address()?;
    // This socket has the port mapper's port and does not answer.
    let _silent = UdpSocket::bind((LOCALHOST, PORT))?;
    let mut outcome = String::new();
    // Half of the bound passes before the other protocol is tried. On a busy machine all of it may
    // pass.
    for within in ["4s", "60s"] {
        let rules = format!("use both connect * *:* within={within}\n");
        let lab = Lab::here(&rules, &protocols)?;
        let (client, server) = lab.connect(to)?.accepted_by(&service)?;
        outcome = client.outcome();
        if outcome == "unix" && carrier(&server) == "unix" {
            return Ok(());
        }
    }
    anyhow::bail!("{outcome}")
}

#[test]
fn a_place_at_the_port_mapper_is_held_while_somebody_answers_and_no_longer() -> Result<()> {
    let lab = available!(Lab::new("", &[asking()])?);
    let is_held = || UdpSocket::bind((LOCALHOST, PORT)).is_err();
    let first = lab.service()?;
    ensure!(!is_held(), "peers would wait for nobody");
    // Without a thread, the service that was to answer is dropped at once.
    drop(lab.switch.port_mapper_service());
    let second = lab.service()?;
    ensure!(!is_held());
    {
        let _mapper = lab.mapper();
        ensure!(lab.switch.port_mapper_service().is_none(), "one is enough");
        let _third = lab.service()?;
        ensure!(is_held());
    }
    ensure!(!is_held());
    drop((first, second));
    Ok(())
}
