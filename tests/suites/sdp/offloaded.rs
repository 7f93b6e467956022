//! Connections of the offload protocol switch, before they are accepted.

use std::{
    io::{IoSlice, IoSliceMut},
    net::{Ipv4Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow, ensure};
use ops::{Half, OffloadConnecting, OffloadListener, StreamSockets, Target, Terms};
use ops_sdp_protocol::SdpProtocol;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sdp_over_dat::Config;
use stack_tests::{awaited, let_others_run};

use super::on_stack;

/// The least time of a round of all threads.
const PAUSE: Duration = Duration::from_millis(5);

/// The event between the peer's first message and the accept.
enum Before {
    Nothing,
    End,
    Reset,
}

/// A peer that has sent its first message is accepted even if it has closed or aborted since, and
/// its bytes can be read.
#[test]
fn bytes_received_before_the_accept_are_not_lost() -> Result<()> {
    on_stack(Config::default(), |_| {
        let (ours, theirs) = (SdpProtocol::new(Ok), SdpProtocol::new(Ok));
        let service = SocketAddr::from((Ipv4Addr::LOCALHOST, 9999));
        let listener = ours.bind(service.into(), NAMED)?.listen(5)?;
        for before in [Before::Nothing, Before::End, Before::Reset] {
            let mut connecting = start_connect(&theirs, &*listener, service)?;
            let client = eventually(|| {
                accepts_nobody(&*listener)?;
                connecting.step().map_err(|failure| anyhow!("{failure:?}"))
            })?;
            ensure!(client.send(&[IoSlice::new(b"data")])? == 4);
            // An abort discards bytes that the provider's thread has not received.
            let_others_run(10, PAUSE);
            match before {
                Before::Nothing => (),
                Before::End => client.shutdown(Half::Write)?,
                Before::Reset => client.abort(),
            }
            // The provider's thread receives the end before the accept.
            let_others_run(10, PAUSE);
            let server = eventually(|| Ok(listener.accept()?))?;
            let mut bytes = [0; 9];
            let mut receive = || server.receive(&mut [IoSliceMut::new(&mut bytes)], false);
            ensure!(eventually(|| Ok(receive().ok()))? == 4);
            let then = match before {
                Before::Nothing => Err(Errno::AGAIN),
                Before::End => Ok(0),
                Before::Reset => Err(Errno::CONNRESET),
            };
            eventually(|| Ok((receive() == then).then_some(())))?;
            ensure!(bytes.starts_with(b"data"));
        }
        Ok(())
    })
}

/// A thread that waits for a peer's first message sleeps until the message is received.
#[test]
fn a_connection_in_progress_wakes_no_thread_without_an_event() -> Result<()> {
    on_stack(Config::default(), |_| {
        let (ours, theirs) = (SdpProtocol::new(Ok), SdpProtocol::new(Ok));
        let service = SocketAddr::from((Ipv4Addr::LOCALHOST, 9999));
        let listener = ours.bind(service.into(), NAMED)?.listen(5)?;
        let mut connecting = start_connect(&theirs, &*listener, service)?;
        // The offer was sent, and then the Hello, and the peer has not answered.
        for _ in 0..2 {
            step_until_blocked(&mut *connecting)?;
            await_answer(&*listener, &*connecting)?;
        }
        // The peer has answered, and sends nothing.
        eventually(|| {
            accepts_nobody(&*listener)?;
            Ok((!becomes_readable(listener.as_fd())?).then_some(()))
        })?;
        let client = connecting
            .step()
            .map_err(|failure| anyhow!("{failure:?}"))?;
        ensure!(client.is_some(), "readable without a connection");
        eventually(|| Ok(becomes_readable(listener.as_fd())?.then_some(())))?;
        eventually(|| Ok(listener.accept()?))?;
        Ok(())
    })
}

/// A peer that sends Hello and then nothing occupies the only slot of the backlog for a limited
/// time. After that the next peer is accepted without any further event.
#[test]
fn a_silent_peer_loses_its_slot_in_the_backlog() -> Result<()> {
    on_stack(Config::default(), |_| {
        let (ours, theirs) = (SdpProtocol::new(Ok), SdpProtocol::new(Ok));
        let service = SocketAddr::from((Ipv4Addr::LOCALHOST, 9999));
        let listener = ours.bind(service.into(), NAMED)?.listen(0)?;
        let mut silent = start_connect(&theirs, &*listener, service)?;
        for _ in 0..2 {
            step_until_blocked(&mut *silent)?;
            await_answer(&*listener, &*silent)?;
        }
        // The time limit of an attempt is shorter than that of the silent peer.
        thread::sleep(Duration::from_secs(3));
        let mut connecting = start_connect(&theirs, &*listener, service)?;
        // The set is edge-triggered, as in a server with many listeners.
        let poller = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&poller, &listener, EventData::new_u64(0), flags)?;
        let mut client = None;
        eventually(|| {
            if client.is_none() {
                client = connecting
                    .step()
                    .map_err(|failure| anyhow!("{failure:?}"))?;
            }
            if !becomes_readable(poller.as_fd())? {
                return Ok(None);
            }
            let mut events = Vec::with_capacity(1);
            epoll::wait(&poller, spare_capacity(&mut events), Some(&NOW))?;
            Ok(listener.accept()?)
        })?;
        ensure!(client.is_some(), "accepted before its first message");
        let step = silent.step();
        ensure!(step.is_err(), "{step:?} of a peer that lost its slot");
        Ok(())
    })
}

/// Terms of a rule that names the protocol.
const NAMED: Terms<'_> = Terms {
    settings: &[],
    is_named: true,
    receive_bound: None,
};

/// Takes steps until the peer must answer.
fn step_until_blocked(connecting: &mut dyn OffloadConnecting) -> Result<()> {
    eventually(|| {
        let step = connecting.step();
        let step = step.map_err(|failure| anyhow!("{failure:?}"))?;
        ensure!(step.is_none(), "connected before the service has answered");
        Ok((!becomes_readable(connecting.as_fd())?).then_some(()))
    })
}

fn accepts_nobody(listener: &dyn OffloadListener) -> Result<()> {
    ensure!(
        listener.accept()?.is_none(),
        "accepted before its first message"
    );
    Ok(())
}

/// Waits until the service has answered; it must not accept.
fn await_answer(listener: &dyn OffloadListener, connecting: &dyn OffloadConnecting) -> Result<()> {
    eventually(|| {
        accepts_nobody(listener)?;
        Ok(becomes_readable(connecting.as_fd())?.then_some(()))
    })
}

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Returns true if `waits` becomes readable within a moment.
pub(super) fn becomes_readable(waits: BorrowedFd<'_>) -> Result<bool> {
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    Ok(poll(
        &mut [PollFd::from_borrowed_fd(waits, PollFlags::IN)],
        Some(&moment),
    )? > 0)
}

fn start_connect(
    theirs: &SdpProtocol,
    listener: &dyn OffloadListener,
    service: SocketAddr,
) -> Result<Box<dyn OffloadConnecting>> {
    let connecting = theirs.connect(&Target {
        service,
        mapped: listener.mapped(),
        local: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        next_hop: None,
        ports: &[],
        terms: NAMED,
    });
    connecting.map_err(|failure| anyhow!("{failure:?}"))
}

/// Repeats `ask` until it returns a value.
fn eventually<T>(mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    Ok(awaited!(ask()?, "no connection was made"))
}
