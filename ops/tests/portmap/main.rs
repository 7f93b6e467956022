//! Questions and answers between processes and networks.

mod attacks;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use host::locks::IgnorePoison as _;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::bind;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use ops::portmap::{Answer, Asking, Message, Offering, PORT, PortMapper, Role};
use stack_tests::{NetSpace, available, awaited, not_run, until};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The time limit of a question, long enough for a loaded machine. Most answers are received at
/// once.
const WITHIN: Duration = Duration::from_secs(60);

/// A network for one test, and the lock that lets one test run at a time.
type Own = (NetSpace, MutexGuard<'static, ()>);

/// Makes a network for one test; `None` if none can be made. One test runs at a time, because the
/// child of a fork holds copies of the descriptors of other tests, which would wait for its end.
fn own_network() -> Result<Option<Own>> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().ignore_poison();
    match NetSpace::enter()? {
        NetSpace::Host(_) => {
            not_run("no network namespaces; run as root or allow user namespaces");
            Ok(None)
        }
        own @ NetSpace::Own => Ok(Some((own, turn))),
    }
}

fn listener() -> Result<TcpListener> {
    Ok(TcpListener::bind((LOCALHOST, 0))?)
}

fn mapper() -> PortMapper {
    let mut mapper = PortMapper::new();
    mapper.set_addresses(vec![(LOCALHOST, 1)]);
    mapper
}

/// A mapper that offers the service of a listener, and both addresses.
fn offered(port: u16) -> Result<(TcpListener, SocketAddr, PortMapper)> {
    let (tcp, mut mapper) = (listener()?, mapper());
    let service = tcp.local_addr()?;
    mapper.offer(offering(service, port));
    Ok((tcp, service, mapper))
}

fn offering(service: SocketAddr, port: u16) -> Offering {
    Offering::new(service, mapped(port))
}

fn mapped(port: u16) -> SocketAddr {
    SocketAddr::new(LOCALHOST, port)
}

/// Asks while these mappers make progress.
fn ask(service: SocketAddr, mappers: &mut [&mut PortMapper]) -> Result<Answer> {
    let mut asking = Asking::begin(service, WITHIN)?;
    loop {
        for mapper in &mut *mappers {
            mapper.drive();
        }
        if let Some(answer) = asking.step() {
            return Ok(answer);
        }
        thread::yield_now();
    }
}

/// Makes progress until the mapper has this role.
fn until_role(mapper: &mut PortMapper, role: Role) -> Result<()> {
    let end = Instant::now() + WITHIN;
    while mapper.role() != role {
        ensure!(Instant::now() < end, "still {:?}", mapper.role());
        mapper.wait(Duration::from_millis(5));
    }
    Ok(())
}

/// Asks repeatedly until the answer is the expected one.
fn until_answered(service: SocketAddr, expected: Answer) -> Result<()> {
    let ask = || Asking::begin(service, Duration::from_millis(200));
    until!(ask()?.wait() == expected, "not {expected:?}");
    Ok(())
}

#[test]
fn a_service_that_is_offered_is_found_and_another_is_refused() -> Result<()> {
    let _net = available!(own_network()?);
    let (_tcp, service, mut mapper) = offered(41000)?;
    ensure!(mapper.role() == Role::Server);
    ensure!(ask(service, &mut [&mut mapper])? == Answer::Mapped(mapped(41000)));
    ensure!(ask(mapped(2000), &mut [&mut mapper])? == Answer::Refused);
    mapper.withdraw(service, mapped(41000));
    // The server keeps its descriptors, because another service is often offered soon after.
    let numbers =
        |mapper: &PortMapper| -> Vec<_> { mapper.descriptors().map(|fd| fd.as_raw_fd()).collect() };
    let before = numbers(&mapper);
    ensure!(ask(service, &mut [&mut mapper])? == Answer::Refused);
    mapper.offer(offering(service, 41001));
    ensure!(numbers(&mapper) == before);
    ensure!(ask(service, &mut [&mut mapper])? == Answer::Mapped(mapped(41001)));
    mapper.withdraw(service, mapped(41001));
    until_role(&mut mapper, Role::Idle)?;
    ensure!(mapper.descriptors().count() == 0);
    ensure!(ask(service, &mut [])? == Answer::Absent);
    Ok(())
}

#[test]
fn a_host_without_port_mapper_costs_nothing_and_a_silent_one_the_bound() -> Result<()> {
    let _net = available!(own_network()?);
    let begin = Instant::now();
    ensure!(Asking::begin(mapped(80), WITHIN)?.wait() == Answer::Absent);
    ensure!(begin.elapsed() < WITHIN / 2);
    let _silent = UdpSocket::bind((LOCALHOST, PORT))?;
    let (begin, bound) = (Instant::now(), Duration::from_millis(50));
    ensure!(Asking::begin(mapped(80), bound)?.wait() == Answer::Silent);
    ensure!(begin.elapsed() >= bound);
    Ok(())
}

#[test]
fn a_peer_without_this_project_receives_no_byte_at_its_service() -> Result<()> {
    let _net = available!(own_network()?);
    let service = listener()?;
    service.set_nonblocking(true)?;
    let address = service.local_addr()?;
    let same_number = UdpSocket::bind(address)?;
    same_number.set_nonblocking(true)?;
    let _silent = UdpSocket::bind((LOCALHOST, PORT))?;
    let answer = Asking::begin(address, Duration::from_millis(50))?.wait();
    ensure!(answer == Answer::Silent);
    let nothing = std::io::ErrorKind::WouldBlock;
    ensure!(service.accept().is_err_and(|error| error.kind() == nothing));
    ensure!(
        same_number
            .recv(&mut [0; 9])
            .is_err_and(|error| error.kind() == nothing)
    );
    Ok(())
}

#[test]
fn the_first_process_answers_for_all() -> Result<()> {
    let _net = available!(own_network()?);
    let (_tcp_a, service_a, mut a) = offered(41000)?;
    let (_tcp_b, service_b, mut b) = offered(42000)?;
    ensure!((a.role(), b.role()) == (Role::Server, Role::Client));
    ensure!(ask(service_b, &mut [&mut a])? == Answer::Mapped(mapped(42000)));
    // A later offering of a client is answered too, and a withdrawn one is not.
    let later = listener()?;
    b.offer(offering(later.local_addr()?, 43000));
    ensure!(ask(later.local_addr()?, &mut [&mut a])? == Answer::Mapped(mapped(43000)));
    b.withdraw(later.local_addr()?, mapped(43000));
    ensure!(ask(later.local_addr()?, &mut [&mut a])? == Answer::Refused);
    // A server without services stays for its clients, and stops after the last of them.
    a.withdraw(service_a, mapped(41000));
    ensure!(a.role() == Role::Server);
    ensure!(ask(service_b, &mut [&mut a])? == Answer::Mapped(mapped(42000)));
    b.withdraw(service_b, mapped(42000));
    ensure!(b.role() == Role::Idle);
    until_role(&mut a, Role::Idle)
}

/// Makes progress until the mapper has bound the port.
fn until_bound(mapper: &mut PortMapper) -> Result<()> {
    let end = Instant::now() + WITHIN;
    while mapper.descriptors().count() < 2 {
        ensure!(Instant::now() < end, "not bound");
        mapper.wait(WITHIN);
    }
    Ok(())
}

#[test]
fn a_survivor_takes_over_from_a_server_that_leaves() -> Result<()> {
    let _net = available!(own_network()?);
    let listeners = [listener()?, listener()?, listener()?];
    let mut mappers = [mapper(), mapper(), mapper()];
    for (n, (mapper, tcp)) in (0..).zip(mappers.iter_mut().zip(&listeners)) {
        mapper.offer(offering(tcp.local_addr()?, 41000 + n));
    }
    let [a, mut b, mut c] = mappers;
    drop(a);
    until_role(&mut b, Role::Server)?;
    c.drive();
    until_role(&mut c, Role::Client)?;
    for (tcp, answer) in [
        (&listeners[0], Answer::Refused),
        (&listeners[1], Answer::Mapped(mapped(41001))),
        (&listeners[2], Answer::Mapped(mapped(41002))),
    ] {
        let found = ask(tcp.local_addr()?, &mut [&mut b, &mut c])?;
        ensure!(found == answer, "{found:?}");
    }
    Ok(())
}

#[test]
fn a_survivor_takes_over_from_a_process_that_was_killed() -> Result<()> {
    let _net = available!(own_network()?);
    let (tcp_a, tcp_b) = (listener()?, listener()?);
    let (service_a, service_b) = (tcp_a.local_addr()?, tcp_b.local_addr()?);
    // SAFETY: the child makes system calls and allocates. The allocator of glibc is consistent in
    // the child of a fork, and no other thread holds a lock of this test.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            let mut mapper = mapper();
            mapper.offer(offering(service_a, 41000));
            loop {
                mapper.wait(WITHIN);
            }
        }
    };
    until_answered(service_a, Answer::Mapped(mapped(41000)))?;
    let mut survivor = mapper();
    survivor.offer(offering(service_b, 42000));
    until_role(&mut survivor, Role::Client)?;
    until_answered(service_b, Answer::Mapped(mapped(42000)))?;
    kill(child, Signal::SIGKILL)?;
    waitpid(child, None)?;
    until_role(&mut survivor, Role::Server)?;
    ensure!(ask(service_b, &mut [&mut survivor])? == Answer::Mapped(mapped(42000)));
    ensure!(ask(service_a, &mut [&mut survivor])? == Answer::Refused);
    Ok(())
}

/// A datagram of the peer may be received after the records of the clients were read, and before
/// the datagrams are answered.
#[test]
fn a_service_that_was_offered_before_the_question_is_found() -> Result<()> {
    let _net = available!(own_network()?);
    let (_tcp_a, _, mut server) = offered(41000)?;
    let is_over = AtomicBool::new(false);
    let tcp_b = listener()?;
    let service = tcp_b.local_addr()?;
    thread::scope(|scope| {
        let serves = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                server.drive();
            }
        });
        let mut client = mapper();
        let found: Result<Vec<Answer>> = (0..2000)
            .map(|_| {
                client.offer(offering(service, 42000));
                let answer = Asking::begin(service, WITHIN)?.wait();
                client.withdraw(service, mapped(42000));
                Ok(answer)
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        ensure!(serves.join().is_ok());
        let expected = Answer::Mapped(mapped(42000));
        let found = found?;
        let wrong = found.iter().find(|answer| **answer != expected);
        ensure!(wrong.is_none(), "{wrong:?}");
        Ok(())
    })
}

#[test]
fn a_persistent_question_outlives_a_gap_between_two_servers() -> Result<()> {
    let _net = available!(own_network()?);
    let (tcp_a, tcp_b) = (listener()?, listener()?);
    let service = tcp_b.local_addr()?;
    let mut asking = Asking::begin_persistent(service, WITHIN)?;
    ensure!(asking.step().is_none(), "nothing answers yet");
    // The first server does not know the service yet.
    let (mut a, mut b) = (mapper(), mapper());
    a.offer(offering(tcp_a.local_addr()?, 41000));
    let refused = Asking::begin(service, WITHIN)?;
    a.drive();
    ensure!(refused.wait() == Answer::Refused);
    let end = Instant::now() + WITHIN / 2;
    while asking.deadline() > Instant::now() {
        thread::yield_now();
    }
    ensure!(asking.step().is_none());
    a.drive();
    ensure!(asking.step().is_none() && Instant::now() < end);
    b.offer(offering(service, 42000));
    let answer = loop {
        a.drive();
        if let Some(answer) = asking.step() {
            break answer;
        }
        thread::yield_now();
    };
    ensure!(answer == Answer::Mapped(mapped(42000)), "{answer:?}");
    Ok(())
}

#[test]
fn an_address_that_is_free_a_moment_later_is_bound_soon() -> Result<()> {
    let _net = available!(own_network()?);
    let other = UdpSocket::bind((LOCALHOST, PORT))?;
    let (_tcp, _, mut mapper) = offered(41000)?;
    ensure!(mapper.descriptors().count() == 1, "only the name is bound");
    let due = mapper.due();
    ensure!(
        due.is_some_and(|due| due < Duration::from_millis(100)),
        "{due:?}"
    );
    drop(other);
    until_bound(&mut mapper)
}

#[test]
fn a_client_whose_servers_end_in_a_row_takes_over_soon() -> Result<()> {
    let _net = available!(own_network()?);
    let (tcp_a, tcp_b) = (listener()?, listener()?);
    let mut client = mapper();
    for turn in 0..20 {
        let mut server = mapper();
        server.offer(offering(tcp_a.local_addr()?, 41000));
        if turn == 0 {
            client.offer(offering(tcp_b.local_addr()?, 42000));
        }
        until_role(&mut client, Role::Client)?;
        server.drive();
        // The name is bound by a socket that accepts no link, so that the client waits.
        drop(server);
        let bound = attacks::packets()?;
        bind(bound.as_raw_fd(), &attacks::server_name()?)?;
        client.drive();
        ensure!(client.role() == Role::Idle);
        let due = client.due().unwrap_or_default();
        ensure!(due < Duration::from_millis(100), "{due:?} in turn {turn}");
    }
    Ok(())
}

#[test]
fn of_one_service_the_newest_is_answered_and_when_it_goes_the_one_before() -> Result<()> {
    let _net = available!(own_network()?);
    let tcp = listener()?;
    let service = tcp.local_addr()?;
    let (mut a, mut b) = (mapper(), mapper());
    // Two listeners of one address in each of two processes, as with SO_REUSEPORT.
    for port in [41000, 41001] {
        a.offer(offering(service, port));
    }
    for port in [42000, 42001] {
        b.offer(offering(service, port));
    }
    ensure!(ask(service, &mut [&mut a])? == Answer::Mapped(mapped(42001)));
    b.withdraw(service, mapped(42000));
    a.withdraw(service, mapped(41001));
    ensure!(ask(service, &mut [&mut a])? == Answer::Mapped(mapped(42001)));
    b.withdraw(service, mapped(42001));
    ensure!(ask(service, &mut [&mut a])? == Answer::Mapped(mapped(41000)));
    // A second withdrawal of the same offering has no effect.
    a.withdraw(service, mapped(41001));
    ensure!(ask(service, &mut [&mut a])? == Answer::Mapped(mapped(41000)));
    a.withdraw(service, mapped(41000));
    ensure!(ask(service, &mut [&mut a])? == Answer::Refused);
    Ok(())
}

#[test]
fn malformed_datagrams_get_no_answer_and_have_no_effect() -> Result<()> {
    let _net = available!(own_network()?);
    let (_tcp, service, mut mapper) = offered(41000)?;
    let hostile = UdpSocket::bind((LOCALHOST, 0))?;
    hostile.connect((LOCALHOST, PORT))?;
    hostile.set_nonblocking(true)?;
    let good = Message::request(service, hostile.local_addr()?, 1)
        .expect("one family")
        .to_bytes();
    for len in [0, 1, 47, 49, 63, 65, 1400, 65_000] {
        let mut bytes = good.clone();
        bytes.resize(len, 0xFF);
        hostile.send(&bytes)?;
        mapper.drive();
    }
    for first in (0..=255_u8).filter(|first| !matches!(first, 0x04 | 0x06)) {
        let mut bytes = good.clone();
        bytes[0] = first;
        hostile.send(&bytes)?;
        mapper.drive();
    }
    ensure!(hostile.recv(&mut [0; 99]).is_err());
    ensure!(ask(service, &mut [&mut mapper])? == Answer::Mapped(mapped(41000)));
    Ok(())
}

#[test]
fn where_another_port_mapper_runs_it_answers_and_nothing_breaks() -> Result<()> {
    let _net = available!(own_network()?);
    let other = UdpSocket::bind((LOCALHOST, PORT))?;
    let (_tcp, service, mut mapper) = offered(41000)?;
    ensure!(mapper.role() == Role::Server);
    // The other mapper rejects, as a mapper without mappings does.
    let mut asking = Asking::begin(service, WITHIN)?;
    let mut bytes = [0; 99];
    let (len, from) = other.recv_from(&mut bytes)?;
    other.send_to(&Message::parse(&bytes[..len])?.reject().to_bytes(), from)?;
    ensure!(awaited!(asking.step(), "no answer") == Answer::Refused);
    // After its end, our mapper answers.
    drop(other);
    until_bound(&mut mapper)?;
    ensure!(ask(service, &mut [&mut mapper])? == Answer::Mapped(mapped(41000)));
    Ok(())
}
