//! Attacks of local users on each other through the port mapper.

use std::io::{IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, accept,
    bind, connect, listen, recvmsg, socket,
};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Pid, Uid, fork, geteuid, setgid, setgroups, setuid};
use ops::portmap::{Answer, Asking, Offering, PortMapper, Role};
use stack_tests::{available, not_run, until};

use crate::{LOCALHOST, Own, WITHIN, mapped, mapper};

/// The ids of two users without files and processes.
const MALLORY: u32 = 64_001;
const PEGGY: u32 = 64_002;

/// Makes a network for one test; `None` if none can be made, or this process cannot change its
/// user.
fn own_network() -> Result<Option<Own>> {
    if !geteuid().is_root() {
        not_run("no other users; run as root");
        return Ok(None);
    }
    crate::own_network()
}

pub(super) fn server_name() -> Result<UnixAddr> {
    Ok(UnixAddr::new_abstract(b"dat-rs.port-mapper.2")?)
}

pub(super) fn packets() -> Result<OwnedFd> {
    let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(family, kind, flags, None)?)
}

/// Asks while the server makes progress.
fn ask(service: SocketAddr, server: &mut PortMapper) -> Result<Answer> {
    crate::ask(service, &mut [server])
}

fn until_answered(service: SocketAddr, server: &mut PortMapper, expected: Answer) -> Result<()> {
    until!(ask(service, server)? == expected, "not {expected:?}");
    Ok(())
}

/// Another user's process, which does one step for each byte that it receives.
struct Other {
    process: Pid,
    cue: UnixStream,
}

impl Other {
    /// Starts a process that runs `does` and ends; the argument of `does` waits between its steps.
    fn begin(user: u32, does: impl FnOnce(&mut dyn FnMut()) -> Result<()>) -> Result<Self> {
        let (cue, mut cued) = UnixStream::pair()?;
        // SAFETY: the child makes system calls and allocates. The allocator of glibc is consistent
        // in the child of a fork, and no other thread holds a lock of this test.
        let process = match unsafe { fork() }? {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                let mut wait = || {
                    let _ = cued.write_all(b".");
                    let _ = cued.read_exact(&mut [0]);
                };
                let done = become_user(user).and_then(|()| does(&mut wait));
                let code = i32::from(done.inspect_err(|error| eprintln!("{error:#}")).is_err());
                // SAFETY: the call takes a number and does not return.
                unsafe { libc::_exit(code) }
            }
        };
        Ok(Self { process, cue })
    }

    /// Waits until the process has finished its step.
    fn await_step(&mut self) -> Result<()> {
        self.cue
            .read_exact(&mut [0])
            .context("the process has ended")
    }

    /// Lets the process do its next step.
    fn next_step(&mut self) -> Result<()> {
        Ok(self.cue.write_all(b".")?)
    }

    fn end(mut self) -> Result<()> {
        self.next_step()?;
        ensure!(waitpid(self.process, None)? == WaitStatus::Exited(self.process, 0));
        Ok(())
    }
}

fn become_user(user: u32) -> Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    setgroups(&[])?;
    setgid(Gid::from_raw(user))?;
    Ok(setuid(Uid::from_raw(user))?)
}

/// A socket that has the name of the server and does nothing, a listener, and a client that offers
/// its service.
fn client_of_another_server() -> Result<(OwnedFd, TcpListener, PortMapper)> {
    let other = silent_server()?;
    let (tcp, _, client) = crate::offered(41000)?;
    ensure!(client.role() == Role::Client);
    Ok((other, tcp, client))
}

fn silent_server() -> Result<OwnedFd> {
    let server = packets()?;
    bind(server.as_raw_fd(), &server_name()?)?;
    listen(&server, Backlog::new(8)?)?;
    Ok(server)
}

#[test]
fn a_client_passes_no_descriptor_to_the_server() -> Result<()> {
    let _net = available!(own_network()?);
    let (thief, _server, _client) = client_of_another_server()?;
    let link = accept(thief.as_raw_fd())?;
    let mut bytes = [0; 99];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let mut space = nix::cmsg_space!([i32; 4]);
    let flags = MsgFlags::MSG_DONTWAIT;
    let received = recvmsg::<()>(link, &mut parts, Some(&mut space), flags)?;
    ensure!(received.bytes > 0);
    let descriptors = received
        .cmsgs()?
        .filter(|message| matches!(message, ControlMessageOwned::ScmRights(_)));
    ensure!(descriptors.count() == 0);
    Ok(())
}

#[test]
fn a_service_ends_with_its_process_though_the_server_reads_nothing() -> Result<()> {
    let _net = available!(own_network()?);
    let (_stopped, server, client) = client_of_another_server()?;
    let service = server.local_addr()?;
    drop((server, client));
    // The record is still queued in the link. No socket listens, and the next server can.
    ensure!(std::net::TcpStream::connect(service).is_err());
    TcpListener::bind(service)?;
    Ok(())
}

#[test]
fn the_service_of_another_user_is_found_as_long_as_that_user_listens() -> Result<()> {
    let _net = available!(own_network()?);
    let (_tcp, _, mut server) = crate::offered(41000)?;
    let service = mapped(2000);
    let mut peggy = Other::begin(PEGGY, |wait| {
        let own = TcpListener::bind(service)?;
        let mut client = mapper();
        client.offer(Offering::new(service, mapped(42000)));
        ensure!(client.role() == Role::Client);
        wait();
        // The offering is not withdrawn, though another user may listen there by now.
        drop(own);
        wait();
        Ok(())
    })?;
    peggy.await_step()?;
    ensure!(ask(service, &mut server)? == Answer::Mapped(mapped(42000)));
    peggy.next_step()?;
    peggy.await_step()?;
    let victim = TcpListener::bind(service)?;
    until_answered(service, &mut server, Answer::Refused)?;
    drop(victim);
    peggy.end()
}

#[test]
fn a_user_cannot_offer_the_service_of_another_user() -> Result<()> {
    let _net = available!(own_network()?);
    let victim = mapped(2000);
    let _listens = TcpListener::bind(victim)?;
    let (_tcp, own, mut server) = crate::offered(41000)?;
    let mut mallory = Other::begin(MALLORY, |wait| {
        let mut client = mapper();
        let uncovered = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), 2000))?;
        // At another user's address, at one that covers it, and at one where no socket listens.
        for service in [victim, ([0; 4], 2000).into(), mapped(3000)] {
            client.offer(Offering::new(service, mapped(42000)));
        }
        client.offer(Offering::new(own, mapped(42000)));
        ensure!(client.role() == Role::Client);
        wait();
        drop(uncovered);
        Ok(())
    })?;
    mallory.await_step()?;
    ensure!(ask(victim, &mut server)? == Answer::Refused);
    ensure!(ask(mapped(3000), &mut server)? == Answer::Refused);
    // A later offering does not hide another user's either.
    ensure!(ask(own, &mut server)? == Answer::Mapped(mapped(41000)));
    mallory.end()
}

/// Offerings of root are trusted without a check: a server may have dropped its privileges since.
#[test]
fn root_offers_anything() -> Result<()> {
    let _net = available!(own_network()?);
    let mut client = mapper();
    let mut peggy = Other::begin(PEGGY, |wait| {
        let (_tcp, _, mut server) = crate::offered(41000)?;
        ensure!(server.role() == Role::Server);
        wait();
        until_answered(mapped(2000), &mut server, Answer::Mapped(mapped(42000)))
    })?;
    peggy.await_step()?;
    client.offer(Offering::new(mapped(2000), mapped(42000)));
    ensure!(client.role() == Role::Client);
    peggy.end()
}

#[test]
fn other_users_do_not_use_up_the_server_s_descriptors() -> Result<()> {
    let _net = available!(own_network()?);
    let (_tcp, _, mut server) = crate::offered(41000)?;
    let before = server.descriptors().count();
    let most = usize::try_from(getrlimit(Resource::RLIMIT_NOFILE)?.0)?.min(2048) / 32;
    let mut mallory = Other::begin(MALLORY, |wait| {
        let mut links = Vec::new();
        for tried in 1..=300 {
            let link = packets()?;
            // Connections beyond the backlog are refused.
            if connect(link.as_raw_fd(), &server_name()?).is_ok() {
                links.push(link);
            }
            if tried % 100 == 0 {
                wait();
            }
        }
        Ok(())
    })?;
    let mut drive_after = |other: &mut Other| {
        other.await_step()?;
        (0..9).for_each(|_| server.drive());
        anyhow::Ok(())
    };
    for _ in 0..2 {
        drive_after(&mut mallory)?;
        mallory.next_step()?;
    }
    drive_after(&mut mallory)?;
    let held = server.descriptors().count() - before;
    ensure!(held <= most && held > 0, "{held} of {most}");
    // Records of other users are received nevertheless.
    let mut client = mapper();
    client.offer(Offering::new(mapped(2000), mapped(42000)));
    ensure!(client.role() == Role::Client);
    ensure!(ask(mapped(2000), &mut server)? == Answer::Mapped(mapped(42000)));
    mallory.end()
}

/// The pause after a refusal is longer than that after the end of a server: the next try would be
/// refused too.
#[test]
fn a_client_that_is_refused_waits_ever_longer() -> Result<()> {
    let _net = available!(crate::own_network()?);
    let server = silent_server()?;
    let mut client = mapper();
    client.offer(Offering::new(mapped(2000), mapped(42000)));
    let end = Instant::now() + WITHIN;
    while client
        .due()
        .is_none_or(|due| due < Duration::from_millis(200))
    {
        ensure!(Instant::now() < end, "due in {:?}", client.due());
        if client.role() == Role::Client {
            // SAFETY: `accept` has just returned the number, and nothing else owns it.
            let link = unsafe { OwnedFd::from_raw_fd(accept(server.as_raw_fd())?) };
            // The refusal of a server.
            nix::unistd::write(&link, &[0])?;
            drop(link);
        }
        client.wait(WITHIN);
    }
    Ok(())
}

#[test]
fn a_server_without_a_free_number_answers_and_does_not_spin() -> Result<()> {
    let _net = available!(own_network()?);
    let tcp = TcpListener::bind((LOCALHOST, 0))?;
    let service = tcp.local_addr()?;
    let mut client = mapper();
    let mut full = Other::begin(PEGGY, |wait| {
        let mut server = mapper();
        server.offer(Offering::new(mapped(2000), mapped(41000)));
        let mut asking = Asking::begin(mapped(2000), WITHIN)?;
        setrlimit(Resource::RLIMIT_NOFILE, 256, 256)?;
        let mut hoard = Vec::new();
        while let Ok(another) = tcp.as_fd().try_clone_to_owned() {
            hoard.push(another);
        }
        wait();
        let (begin, mut rounds) = (Instant::now(), 0);
        while begin.elapsed() < Duration::from_millis(500) {
            server.wait(WITHIN);
            rounds += 1;
        }
        ensure!(rounds < 50, "{rounds} rounds in half a second");
        let answer = loop {
            if let Some(answer) = asking.step() {
                break answer;
            }
            server.wait(Duration::from_millis(5));
        };
        ensure!(answer == Answer::Mapped(mapped(41000)), "{answer:?}");
        drop(hoard);
        until_answered(service, &mut server, Answer::Mapped(mapped(42000)))
    })?;
    full.await_step()?;
    client.offer(Offering::new(service, mapped(42000)));
    ensure!(client.role() == Role::Client);
    full.end()
}
