//! A service with one port and one accept queue over all stacks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use ops::{Accepted, Reason, Socket, StackRequest, StreamSockets, Terms};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, ipproto, sockopt};

use crate::lab::{DEADLINE, End, LOCALHOST, Lab, MOMENT, carrier, exchange};
use crate::unix_protocol::UnixProtocol;

fn unix() -> [UnixProtocol; 1] {
    [UnixProtocol::default()]
}

#[test]
fn a_service_at_no_address_accepts_offloaded_and_plain_peers_at_once() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    for (family, any, peers) in [
        (AddressFamily::INET, v4, &[LOCALHOST][..]),
        (
            AddressFamily::INET6,
            v6,
            &[LOCALHOST, IpAddr::V6(Ipv6Addr::LOCALHOST)],
        ),
    ] {
        let mut service = Socket::new(Arc::clone(&lab.switch), family, StackRequest::ByRule)?;
        service.bind((any, 0).into())?;
        service.listen(16)?;
        for peer in peers {
            let to = SocketAddr::new(*peer, service.local()?.port());
            let family = if to.is_ipv4() {
                AddressFamily::INET
            } else {
                AddressFamily::INET6
            };
            let socket = Socket::new(Arc::clone(&lab.switch), family, StackRequest::ByRule)?;
            let (mut client, server) =
                crate::lab::end_of(socket, to)?.accepted_by(&mut service, to)?;
            ensure!(carrier(&server) == "unix" && client.outcome() == "unix");
            exchange(&mut client, &server)?;
            let plain = End::Native(TcpStream::connect(to)?, None);
            let (mut client, server) = plain.accepted_by(&mut service, to)?;
            ensure!(carrier(&server) == "tcp");
            exchange(&mut client, &server)?;
        }
    }
    Ok(())
}

#[test]
fn connections_of_all_stacks_are_accepted_from_one_queue_in_turn() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let mut service = lab.service()?;
    let to = service.local()?;
    let _plain: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(to))
        .collect::<Result<_, _>>()?;
    let mut begun: Vec<End> = (0..3).map(|_| lab.connect(to)).collect::<Result<_>>()?;
    let mut carriers = Vec::new();
    while carriers.len() < 6 {
        begun = begun
            .into_iter()
            .map(|end| end.step(to))
            .collect::<Result<_>>()?;
        if let Some(accepted) = service.accept()? {
            carriers.push(carrier(&accepted).to_owned());
        }
    }
    let tcp = carriers.iter().filter(|carrier| *carrier == "tcp").count();
    ensure!(tcp == 3, "{carriers:?}");
    // Neither stack has to wait until the queue of the other is empty.
    let last_tcp = carriers.iter().rposition(|carrier| carrier == "tcp");
    let first_other = carriers.iter().position(|carrier| carrier != "tcp");
    ensure!(first_other < last_tcp, "{carriers:?}");
    Ok(())
}

#[test]
fn a_connection_of_any_stack_ends_a_wait() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let mut service = lab.service()?;
    let to = service.local()?;
    let woken_within = |service: &Socket, limit: Duration| -> Result<bool> {
        let listening = service.listening().expect("it listens");
        let all = listening.descriptors().chain([service.native().as_fd()]);
        let mut polled: Vec<_> = all
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        Ok(rustix::event::poll(&mut polled, Some(&Timespec::try_from(limit)?))? > 0)
    };
    ensure!(!woken_within(&service, MOMENT)?);
    let begun = lab.connect(to)?;
    ensure!(woken_within(&service, DEADLINE)?);
    let (_client, _server) = begun.accepted_by(&mut service, to)?;
    ensure!(!woken_within(&service, MOMENT)?);
    let _plain = TcpStream::connect(to)?;
    ensure!(woken_within(&service, DEADLINE)?);
    Ok(())
}

#[test]
fn an_accepted_tcp_connection_is_a_plain_kernel_socket() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let mut service = lab.service()?;
    let to = service.local()?;
    let plain = End::Native(TcpStream::connect(to)?, None);
    let (_client, server) = plain.accepted_by(&mut service, to)?;
    let Accepted::Native(socket) = server else {
        anyhow::bail!("not native")
    };
    ensure!(sockopt::socket_protocol(&socket)? == Some(ipproto::TCP));
    ensure!(SocketAddr::try_from(rustix::net::getsockname(&socket)?)? == to);
    Ok(())
}

#[test]
fn a_chosen_port_is_free_on_every_stack() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    for _ in 0..20 {
        let service = lab.service()?;
        let local = service.local()?;
        ensure!(local.port() != 0);
        let bound = UnixProtocol::default().bind(local.into(), Terms::default());
        ensure!(bound.map(drop) == Err(Errno::ADDRINUSE));
        ensure!(TcpListener::bind(local).is_err());
        ensure!(
            service
                .listening()
                .is_some_and(|all| all.protocols().eq(["unix"]))
        );
    }
    Ok(())
}

#[test]
fn a_port_that_the_kernel_refuses_is_bound_nowhere() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let plain = TcpListener::bind((LOCALHOST, 0))?;
    let taken = plain.local_addr()?;
    let mut socket = lab.socket()?;
    ensure!(socket.bind(taken) == Err(Errno::ADDRINUSE));
    ensure!(
        UnixProtocol::default()
            .bind(taken.into(), Terms::default())
            .is_ok()
    );
    Ok(())
}

#[test]
fn a_chosen_port_that_is_in_use_in_a_protocol_is_served_without_the_protocol() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let free = TcpListener::bind((LOCALHOST, 0))?.local_addr()?;
    let _taken = UnixProtocol::default().bind(free.into(), Terms::default())?;
    let mut socket = lab.socket()?;
    socket.bind(free)?;
    socket.listen(1)?;
    ensure!(socket.reason() == Some(&Reason::PortTaken));
    ensure!(
        socket
            .listening()
            .is_some_and(|all| all.protocols().count() == 0)
    );
    let plain = End::Native(TcpStream::connect(free)?, None);
    let (mut client, server) = plain.accepted_by(&mut socket, free)?;
    exchange(&mut client, &server)
}

#[test]
fn a_listener_without_an_address_gets_one_on_every_stack() -> Result<()> {
    let Some(lab) = Lab::new("", &unix())? else {
        return Ok(());
    };
    let mut service = lab.socket()?;
    service.listen(1)?;
    let to = SocketAddr::new(LOCALHOST, service.local()?.port());
    let (client, _server) = lab.connect(to)?.accepted_by(&mut service, to)?;
    ensure!(client.outcome() == "unix");
    // Listening again changes the backlog and nothing else.
    service.listen(2)?;
    let (client, _server) = lab.connect(to)?.accepted_by(&mut service, to)?;
    ensure!(client.outcome() == "unix");
    Ok(())
}

#[test]
fn a_rule_keeps_a_service_on_tcp() -> Result<()> {
    let Some(lab) = Lab::new("use tcp server probe *:*\n", &unix())? else {
        return Ok(());
    };
    let service = lab.service()?;
    ensure!(
        service
            .listening()
            .is_some_and(|all| all.protocols().count() == 0)
    );
    ensure!(service.reason() == Some(&Reason::Rule { line: 1 }));
    Ok(())
}
