//! The stand-in compared with a TCP connection in the same state: the same readiness by `poll` and
//! by level-triggered `epoll`, and an edge wherever TCP has one.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use host::stand_in::{Flags, LibraryEnd, Signals};
use rustix::event::{PollFd, PollFlags, epoll, poll};

/// The time that loopback may take to reach a state.
const SETTLE: Duration = Duration::from_secs(60);

fn everything() -> PollFlags {
    PollFlags::IN | PollFlags::OUT | PollFlags::PRI | PollFlags::RDHUP
}

fn readiness(socket: impl AsFd) -> PollFlags {
    let mut set = [PollFd::new(&socket, everything())];
    poll(&mut set, Some(&rustix::event::Timespec::default())).unwrap();
    set[0].revents()
}

fn settles(name: &str, socket: impl AsFd, to: PollFlags) {
    let start = Instant::now();
    while readiness(&socket) != to {
        assert!(
            start.elapsed() < SETTLE,
            "{name}: {:?} instead of {to:?}",
            readiness(&socket)
        );
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A socket of each kind, and the peer's side of each.
struct Both {
    tcp: TcpStream,
    tcp_peer: Option<TcpStream>,
    program: OwnedFd,
    library: Option<LibraryEnd>,
    signals: Signals,
}

impl Both {
    fn established() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // The buffers have a fixed size, because those that the kernel tunes grow during the test.
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 1 << 16).unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&tcp, 1 << 16).unwrap();
        tcp.set_nonblocking(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        let (program, library) = host::stand_in::established(Flags::default()).unwrap();
        let mut both = Self {
            tcp,
            tcp_peer: Some(peer),
            program,
            library: Some(library),
            signals: Signals::new(),
        };
        both.agree(PollFlags::OUT);
        both
    }

    fn agree(&mut self, on: PollFlags) {
        if !on.contains(PollFlags::OUT) {
            // Acknowledgements of the peer's kernel make room again.
            let start = Instant::now();
            while readiness(&self.tcp) != on && start.elapsed() < SETTLE {
                self.program_fills_window();
            }
        }
        settles("TCP", &self.tcp, on);
        settles("stand-in", &self.program, on);
    }

    fn library(&self) -> &LibraryEnd {
        self.library.as_ref().unwrap()
    }

    fn peer(&mut self) -> &mut TcpStream {
        self.tcp_peer.as_mut().unwrap()
    }

    fn peer_writes(&mut self) {
        let before = rustix::io::ioctl_fionread(&self.tcp).unwrap();
        self.peer().write_all(b"x").unwrap();
        let start = Instant::now();
        while rustix::io::ioctl_fionread(&self.tcp).unwrap() == before {
            assert!(start.elapsed() < SETTLE, "TCP did not deliver");
        }
        self.library().announce(&self.signals).unwrap();
    }

    fn program_reads_all(&mut self) {
        let mut bytes = [0; 4096];
        while matches!(self.tcp.read(&mut bytes), Ok(count) if count > 0) {}
        host::stand_in::consume(&self.program, &self.signals, true).unwrap();
    }

    fn program_fills_window(&mut self) {
        let mut full_checks = 0;
        while full_checks < 10 {
            if readiness(&self.tcp).contains(PollFlags::OUT) {
                let _ = self.tcp.write(&[0; 1 << 16]);
                full_checks = 0;
            } else {
                full_checks += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        host::stand_in::close_window(&self.program, &self.signals).unwrap();
    }

    fn peer_drains(&mut self) {
        let start = Instant::now();
        let mut bytes = vec![0; 1 << 16];
        while !readiness(&self.tcp).contains(PollFlags::OUT) {
            let _ = self.peer().read(&mut bytes);
            assert!(start.elapsed() < SETTLE, "TCP did not drain");
        }
        while matches!(self.peer().read(&mut bytes), Ok(count) if count > 0) {}
        self.library().open_window(&self.signals).unwrap();
    }
}

#[test]
fn a_fresh_socket() {
    let tcp = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    let program = host::stand_in::fresh(Flags::default()).unwrap();
    assert_eq!(readiness(&tcp), PollFlags::OUT | PollFlags::HUP);
    assert_eq!(readiness(&program), PollFlags::OUT | PollFlags::HUP);
}

#[test]
fn connecting_shows_nothing_and_established_shows_out() {
    let program = host::stand_in::fresh(Flags::default()).unwrap();
    let signals = Signals::new();
    let library = host::stand_in::begin_connect(&program, &signals).unwrap();
    assert_eq!(readiness(&program), PollFlags::empty());
    library.open_window(&signals).unwrap();
    assert_eq!(readiness(&program), PollFlags::OUT);
}

#[test]
fn a_registration_made_before_connect_lives_on() {
    let program = host::stand_in::fresh(Flags::default()).unwrap();
    let set = Set::edge_triggered(&program);
    assert_eq!(set.edge(), epoll::EventFlags::OUT | epoll::EventFlags::HUP);
    let signals = Signals::new();
    let library = host::stand_in::begin_connect(&program, &signals).unwrap();
    set.edge();
    library.open_window(&signals).unwrap();
    assert_eq!(set.edge(), epoll::EventFlags::OUT);
}

#[test]
fn the_peer_shuts_down_and_then_the_program() {
    let mut both = Both::established();
    both.peer().shutdown(Shutdown::Write).unwrap();
    both.library().half_close().unwrap();
    both.agree(PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP);
    both.tcp.shutdown(Shutdown::Write).unwrap();
    both.library().end().unwrap();
    both.agree(PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP | PollFlags::HUP);
}

#[test]
fn a_reset_shows_everything_and_names_its_error_once() {
    let mut both = Both::established();
    rustix::net::sockopt::set_socket_linger(both.peer(), Some(Duration::ZERO)).unwrap();
    both.tcp_peer = None;
    both.library.take().unwrap().reset();
    let all = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    both.agree(all);
    for socket in [both.tcp.as_fd(), both.program.as_fd()] {
        let error = rustix::net::sockopt::socket_error(socket).unwrap();
        assert_eq!(error, Err(rustix::io::Errno::CONNRESET));
        assert_eq!(rustix::net::sockopt::socket_error(socket).unwrap(), Ok(()));
    }
}

#[test]
fn an_urgent_byte_shows_pri() {
    let both = Both::established();
    both.library().announce_urgent().unwrap();
    rustix::net::send(
        both.tcp_peer.as_ref().unwrap(),
        b"!",
        rustix::net::SendFlags::OOB,
    )
    .unwrap();
    settles("TCP", &both.tcp, PollFlags::OUT | PollFlags::PRI);
    // The documented difference: an urgent byte shows IN as well.
    settles(
        "stand-in",
        &both.program,
        PollFlags::IN | PollFlags::OUT | PollFlags::PRI,
    );
}

#[test]
fn the_library_is_notified_of_the_last_close() {
    let (program, library) = host::stand_in::established(Flags::default()).unwrap();
    let second = program.try_clone().unwrap();
    drop(program);
    assert!(!readiness(&library).contains(PollFlags::HUP));
    drop(second);
    assert!(readiness(&library).contains(PollFlags::HUP));
}

#[test]
fn after_the_end_an_orderly_close_is_no_reset() {
    let (program, library) = host::stand_in::established(Flags::default()).unwrap();
    library.end().unwrap();
    library.discard_unread();
    drop(library);
    let mut byte = [0];
    let read = rustix::net::recv(&program, &mut byte[..], rustix::net::RecvFlags::empty());
    assert_eq!(read.map(|(_, count)| count), Ok(0));
}

#[test]
fn flags_are_those_of_the_program() {
    for (nonblocking, close_on_exec) in [(false, false), (false, true), (true, false), (true, true)]
    {
        let flags = Flags {
            nonblocking,
            close_on_exec,
        };
        let (paired, _library) = host::stand_in::established(flags).unwrap();
        for socket in [host::stand_in::fresh(flags).unwrap(), paired] {
            let status = rustix::fs::fcntl_getfl(&socket).unwrap();
            assert_eq!(status.contains(rustix::fs::OFlags::NONBLOCK), nonblocking);
            let descriptor = rustix::io::fcntl_getfd(&socket).unwrap();
            let closes = descriptor.contains(rustix::io::FdFlags::CLOEXEC);
            assert_eq!(closes, close_on_exec);
        }
    }
}

#[test]
fn announcements_without_a_reader_are_bounded_and_taken_back_whole() {
    let (program, library) = host::stand_in::established(Flags::default()).unwrap();
    let signals = Signals::new();
    for _ in 0..10_000 {
        library.announce(&signals).unwrap();
    }
    host::stand_in::consume(&program, &signals, false).unwrap();
    assert_eq!(readiness(&program), PollFlags::IN | PollFlags::OUT);
    host::stand_in::consume(&program, &signals, true).unwrap();
    assert_eq!(readiness(&program), PollFlags::OUT);
    library.announce(&signals).unwrap();
    assert_eq!(readiness(&program), PollFlags::IN | PollFlags::OUT);
}

/// An `epoll` set with one edge-triggered socket.
struct Set(OwnedFd);

impl Set {
    fn edge_triggered(socket: impl AsFd) -> Self {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let interest = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(socket.as_fd().as_raw_fd() as u64);
        epoll::add(&set, socket, data, interest).unwrap();
        Self(set)
    }

    /// Returns the events of an edge since the last call; empty without one.
    fn edge(&self) -> epoll::EventFlags {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        let now = rustix::event::Timespec::default();
        let count = epoll::wait(&self.0, &mut events[..], Some(&now)).unwrap();
        if count == 0 {
            return epoll::EventFlags::empty();
        }
        events[0].flags
    }
}

/// Random walks over the events of an established connection. After each step both sockets show the
/// same level, and both have an edge if an event happened.
#[test]
fn random_walks_look_like_tcp() {
    for seed in 1..=12_u64 {
        walk(seed);
    }
}

fn walk(seed: u64) {
    let mut both = Both::established();
    let sets = [
        Set::edge_triggered(&both.tcp),
        Set::edge_triggered(&both.program),
    ];
    sets.iter().for_each(|set| assert!(!set.edge().is_empty()));
    let (mut something, mut full, mut ended) = (false, false, false);
    let mut state = seed;
    for step in 0..60 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut edge = epoll::EventFlags::empty();
        match (state >> 33) % 6 {
            0 | 1 if !ended => {
                both.peer_writes();
                something = true;
                edge = epoll::EventFlags::IN;
            }
            2 => {
                both.program_reads_all();
                something = false;
            }
            3 if !full => {
                both.program_fills_window();
                full = true;
            }
            4 if full => {
                both.peer_drains();
                full = false;
                edge = epoll::EventFlags::OUT;
            }
            5 if step > 40 && !ended => {
                both.peer().shutdown(Shutdown::Write).unwrap();
                both.library().half_close().unwrap();
                ended = true;
                edge = epoll::EventFlags::RDHUP;
            }
            _ => {}
        }
        let mut level = PollFlags::empty();
        level.set(PollFlags::IN, something || ended);
        level.set(PollFlags::RDHUP, ended);
        level.set(PollFlags::OUT, !full);
        both.agree(level);
        for (name, set) in ["TCP", "stand-in"].iter().zip(&sets) {
            let reported = set.edge();
            assert!(
                reported.contains(edge),
                "seed {seed}, step {step}: {name} reports {reported:?} of {edge:?}"
            );
        }
    }
}
