//! Policy, route and the protocol that carries a connection.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use host::locks::IgnorePoison as _;
use ops::{
    Accepted, DecisionTrace, Half, Reason, Socket, SocketState, StackRequest, StreamSockets,
    Switch, Terms, WITHIN,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};
use stack_tests::{NetSpace, Veth, not_run};

use crate::lab::{DEADLINE, End, LOCALHOST, Lab, MOMENT, NO_CHILDREN, end_of, exchange, stream_of};
use crate::unix_protocol::UnixProtocol;

fn unix() -> [UnixProtocol; 1] {
    [UnixProtocol::default()]
}

#[test]
fn a_connection_between_two_switched_ends_is_offloaded() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let mut service = lab.service()?;
    let to = service.local()?;
    let (mut client, server) = lab.connect(to)?.accepted_by(&mut service, to)?;
    ensure!(client.outcome() == "unix");
    exchange(&mut client, &server)
}

#[test]
fn both_ends_have_the_same_addresses_as_over_tcp() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let mut service = lab.service()?;
    let to = service.local()?;
    let (client, server) = lab.connect(to)?.accepted_by(&mut service, to)?;
    let (End::Offloaded(client), ops::Accepted::Offloaded { stream, .. }) = (client, server) else {
        anyhow::bail!("not offloaded")
    };
    let local = client.local()?;
    ensure!(local.ip() == LOCALHOST && local.port() != 0);
    ensure!(stream_of(&client)?.peer() == to);
    ensure!((stream.local(), stream.peer()) == (to, local));
    // No other socket gets the port meanwhile.
    ensure!(TcpListener::bind(local).is_err());
    Ok(())
}

#[test]
fn a_rule_keeps_a_socket_on_tcp_and_the_switch_out_of_its_way() -> Result<()> {
    let Some(lab) = Lab::new("# first\nuse tcp connect probe *:*", &unix())? else {
        return Ok(());
    };
    let mut service = lab.service()?;
    let to = service.local()?;
    let mut socket = lab.socket()?;
    let cookie = sockopt::socket_cookie(socket.native())?;
    ensure!(socket.connect(to, DecisionTrace::default())? == SocketState::Native);
    let native = socket.into_native().map_err(|_| anyhow!("not native"))?;
    // The program gets the same socket, in the state in which it was made.
    ensure!(sockopt::socket_cookie(&native)? == cookie);
    ensure!(rustix::net::getpeername(&native).is_err());
    rustix::net::connect(&native, &to)?;
    let client = End::Native(TcpStream::from(native), None);
    let (mut client, server) = client.accepted_by(&mut service, to)?;
    exchange(&mut client, &server)?;
    let falls = lab.switch.fall_backs();
    ensure!(
        falls.keys().eq(["line 2 of the rule file says tcp"]),
        "{falls:?}"
    );
    Ok(())
}

#[test]
fn a_rule_that_says_tcp_decides_without_a_socket() -> Result<()> {
    let rules = "use both connect * *:80\nuse tcp listen * *:*\nuse tcp connect probe *:80-90";
    let Some(lab) = Lab::new(rules, &unix())? else {
        return Ok(());
    };
    let reason = |port| lab.switch.connects_by_tcp((LOCALHOST, port).into());
    ensure!(reason(80).is_none(), "an earlier rule matches");
    ensure!(reason(85) == Some(Reason::Rule { line: 3 }));
    ensure!(reason(91).is_none(), "no rule matches");
    let hits = |lab: &Lab| {
        let rules = lab.switch.rules().map(|all| all.rules().iter());
        rules
            .into_iter()
            .flatten()
            .map(|rule| rule.hits())
            .collect::<Vec<_>>()
    };
    ensure!(hits(&lab) == [0, 0, 1], "only such decisions are counted");
    // The device is known after the route was looked up.
    let Some(by_device) = Lab::new("use tcp connect * *:* interface=lo", &unix())? else {
        return Ok(());
    };
    ensure!(
        by_device
            .switch
            .connects_by_tcp((LOCALHOST, 80).into())
            .is_none()
    );
    Ok(())
}

#[test]
fn a_rule_file_that_cannot_be_used_leaves_everything_on_tcp() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let program = lab.switch.program().clone();
    let switch = Switch::new(program, None, Arc::clone(&lab.registry), None, WITHIN)?;
    let mut socket = Socket::new(switch, AddressFamily::INET, StackRequest::ByRule)?;
    ensure!(
        socket.connect((LOCALHOST, 9).into(), DecisionTrace::default())? == SocketState::Native
    );
    Ok(())
}

#[test]
fn an_option_that_only_tcp_has_keeps_a_socket_there() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let to = lab.service()?.local()?;
    let mut socket = lab.socket()?;
    socket.require_tcp("TCP_FASTOPEN_CONNECT");
    ensure!(socket.connect(to, DecisionTrace::default())? == SocketState::Native);
    let reason = socket.reason().map(ToString::to_string);
    ensure!(reason.as_deref() == Some("socket option TCP_FASTOPEN_CONNECT needs TCP"));
    Ok(())
}

#[test]
fn without_a_route_the_error_is_that_of_tcp() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let to: SocketAddr = "198.51.100.1:80".parse()?;
    let mut socket = lab.socket()?;
    ensure!(socket.connect(to, DecisionTrace::default())? == SocketState::Native);
    let refused = rustix::net::connect(socket.native(), &to);
    ensure!(refused == Err(Errno::NETUNREACH), "{refused:?}");
    Ok(())
}

#[test]
fn a_protocol_that_finds_routes_itself_is_asked_without_a_route() -> Result<()> {
    let mut protocol = UnixProtocol::default();
    protocol.capabilities.self_routing = true;
    let Some(lab) = Lab::new("", &[protocol])? else {
        return Ok(());
    };
    // No route leads there, but the protocol has a service of this name.
    let to: SocketAddr = "198.51.100.1:80".parse()?;
    let service = UnixProtocol::default()
        .bind(to.into(), Terms::default())?
        .listen(1)?;
    let mut end = lab.connect(to)?;
    let server = loop {
        let accepted = service.accept()?;
        end = end.step(to)?;
        if let Some(stream) = accepted {
            break stream;
        }
    };
    let accepted = ops::Accepted::Offloaded {
        protocol: "unix".to_owned(),
        stream: server,
    };
    exchange(&mut end, &accepted)
}

#[test]
fn without_netlink_only_protocols_that_find_routes_themselves_are_used() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let rules = ops::rules::Rules::default();
    let program = lab.switch.program().clone();
    let switch = Switch::new(
        program,
        Some(rules),
        Arc::clone(&lab.registry),
        None,
        WITHIN,
    )?;
    let mut socket = Socket::new(switch, AddressFamily::INET, StackRequest::ByRule)?;
    ensure!(
        socket.connect((LOCALHOST, 9).into(), DecisionTrace::default())? == SocketState::Native
    );
    ensure!(socket.reason() == Some(&ops::Reason::NoNetlink));
    Ok(())
}

#[test]
fn a_protocol_without_loopback_leaves_this_host_to_tcp() -> Result<()> {
    let mut protocol = UnixProtocol::default();
    protocol.capabilities.loopback = false;
    let Some(lab) = Lab::new("", &[protocol])? else {
        return Ok(());
    };
    let to = lab.service()?.local()?;
    let mut socket = lab.socket()?;
    ensure!(socket.connect(to, DecisionTrace::default())? == SocketState::Native);
    ensure!(socket.reason() == Some(&ops::Reason::Local));
    Ok(())
}

#[test]
fn a_protocol_carries_only_the_families_that_it_can() -> Result<()> {
    let mut protocol = UnixProtocol::default();
    protocol.capabilities.ipv4 = false;
    let Some(lab) = Lab::new("", &[protocol])? else {
        return Ok(());
    };
    let mut socket = lab.socket()?;
    ensure!(
        socket.connect((LOCALHOST, 9).into(), DecisionTrace::default())? == SocketState::Native
    );
    ensure!(socket.reason() == Some(&ops::Reason::Family));
    Ok(())
}

#[test]
fn the_device_of_the_route_decides() -> Result<()> {
    let net = NetSpace::enter()?;
    let alone = NO_CHILDREN.write().ignore_poison();
    let Some(_veth) = Veth::create(&net)? else {
        not_run("no network namespaces; run as root or allow user namespaces");
        return Ok(());
    };
    drop(alone);
    let mut protocol = UnixProtocol::default();
    protocol.capabilities.needs_rdma = true;
    let rules = "use tcp connect * *:81 interface=near\nuse both connect * *:*";
    let lab = Lab::here(rules, &[protocol])?;
    let reason = |port| -> Result<String> {
        let mut socket = lab.socket()?;
        socket.connect((Veth::FAR_V4, port).into(), DecisionTrace::default())?;
        Ok(socket.reason().map(ToString::to_string).unwrap_or_default())
    };
    ensure!(reason(80)? == "device near has no RDMA");
    ensure!(reason(81)? == "line 1 of the rule file says tcp");
    let stack = lab.switch.stack().ok_or(anyhow!("no stack"))?;
    stack.mark_rdma(Veth::NEAR)?;
    // Now the protocol is tried, and finds no service.
    ensure!(reason(80)? == "the peer refused");
    Ok(())
}

#[test]
fn one_poll_waits_for_sockets_of_every_stack() -> Result<()> {
    let Some(lab) = Lab::new("use tcp connect * *:1000\n", &unix())? else {
        return Ok(());
    };
    let mut plain = lab.socket()?;
    plain.bind((LOCALHOST, 1000).into())?;
    plain.listen(1)?;
    let mut offloaded = lab.service()?;
    let (to_plain, to) = (plain.local()?, offloaded.local()?);
    let (mut a, server_a) = lab.connect(to_plain)?.accepted_by(&mut plain, to_plain)?;
    let (mut b, server_b) = lab.connect(to)?.accepted_by(&mut offloaded, to)?;
    ensure!(
        (a.outcome(), b.outcome())
            == (
                "tcp: line 1 of the rule file says tcp".into(),
                "unix".into()
            )
    );
    let ready = || -> Result<[bool; 2]> {
        let mut polled = [&server_a, &server_b].map(|end| {
            let fd = match end {
                Accepted::Native(socket) => Some(socket.as_fd()),
                Accepted::Offloaded { stream, .. } => stream.descriptor(),
            };
            PollFd::from_borrowed_fd(fd.expect("both have one"), PollFlags::IN)
        });
        rustix::event::poll(&mut polled, Some(&Timespec::try_from(MOMENT)?))?;
        Ok(polled.map(|one| one.revents().contains(PollFlags::IN)))
    };
    // The kernel of a busy machine delivers late.
    let become_ready = |expected| -> Result<()> {
        let end = Instant::now() + DEADLINE;
        while ready()? != expected {
            ensure!(Instant::now() < end, "not {expected:?}");
        }
        Ok(())
    };
    ensure!(ready()? == [false, false]);
    b.send(b"x")?;
    become_ready([false, true])?;
    a.send(b"x")?;
    become_ready([true, true])
}

#[test]
fn a_second_connect_is_answered_as_by_tcp() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let mut service = lab.service()?;
    let to = service.local()?;
    let mut socket = lab.socket()?;
    ensure!(matches!(
        socket.connect(to, DecisionTrace::default())?,
        SocketState::Connecting { .. }
    ));
    ensure!(socket.connect(to, DecisionTrace::default()) == Err(Errno::ALREADY));
    let (end, _server) = End::Begun(socket).accepted_by(&mut service, to)?;
    let End::Offloaded(mut socket) = end else {
        anyhow::bail!("not offloaded")
    };
    ensure!(socket.connect(to, DecisionTrace::default()) == Err(Errno::ISCONN));
    ensure!(service.connect(to, DecisionTrace::default()) == Err(Errno::ISCONN));
    ensure!(socket.bind(to) == Err(Errno::INVAL) && socket.listen(1) == Err(Errno::INVAL));
    Ok(())
}

#[test]
fn failures_of_an_established_connection_are_reported_to_the_program() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let mut service = lab.service()?;
    let to = service.local()?;
    let (client, server) = lab.connect(to)?.accepted_by(&mut service, to)?;
    let End::Offloaded(mut socket) = client else {
        anyhow::bail!("not offloaded")
    };
    drop(server);
    drop(service);
    let stream = stream_of(&socket)?;
    ensure!(stream.readiness().is_hung_up());
    // As over TCP, the first send succeeds, and the next one fails.
    let bytes = [std::io::IoSlice::new(b"x")];
    ensure!(stream.send(&bytes) == Ok(1) && stream.send(&bytes) == Err(Errno::PIPE));
    ensure!(stream.shutdown(Half::Both).is_ok());
    // The failed connection does not become a TCP connection unnoticed.
    ensure!(
        socket.drive()? == SocketState::Offloaded && socket.finish()? == SocketState::Offloaded
    );
    ensure!(socket.into_native().is_err());
    Ok(())
}

#[test]
fn a_program_may_ask_for_every_stack_against_the_rules_or_for_one_alone() -> Result<()> {
    let rules = "use tcp connect * *:*\nuse both listen * *:*";
    let Some(lab) = Lab::new(rules, &unix())? else {
        return Ok(());
    };
    let mut service = lab.service()?;
    let to = service.local()?;
    for request in [StackRequest::Every, StackRequest::Only("unix".to_owned())] {
        let (client, _server) =
            end_of(lab.socket_with_request(request)?, to)?.accepted_by(&mut service, to)?;
        ensure!(client.outcome() == "unix");
    }
    let mut alone = lab.socket_with_request(StackRequest::Only("unix".to_owned()))?;
    let nobody: SocketAddr = (LOCALHOST, 9).into();
    ensure!(alone.connect(nobody, DecisionTrace::default()) == Err(Errno::CONNREFUSED));
    // As with TCP the socket may connect again.
    ensure!(alone.state() == SocketState::Bound || alone.state() == SocketState::Fresh);
    ensure!(alone.connect(nobody, DecisionTrace::default()) == Err(Errno::CONNREFUSED));
    Ok(())
}
