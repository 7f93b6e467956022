//! Sockets with a watch, which the stack's thread serves while no call does.

use std::{
    io::{Read, Write},
    sync::{Arc, Condvar, Mutex},
    thread,
};

use anyhow::{Result, ensure};
use sdp_over_dat::{Config, Options, Readiness, SdpStream, Stack, Watch};
use stack_tests::until;

use super::{DEADLINE, connected, on_stack, timed};

/// Records that bytes have been received.
#[derive(Default)]
struct Arrivals {
    has_any: Mutex<bool>,
    changed: Condvar,
}

impl Watch for Arrivals {
    fn show(&self, now: Readiness, arrived: bool) {
        if now.readable && arrived {
            *self.has_any.lock().expect("no panic") = true;
            self.changed.notify_all();
        }
    }
}

impl Arrivals {
    /// Waits for an arrival and clears it. Returns false if there is none.
    fn wait(&self) -> bool {
        let has_any = self.has_any.lock().expect("no panic");
        let waited = self
            .changed
            .wait_timeout_while(has_any, DEADLINE, |has_any| !*has_any);
        std::mem::take(&mut *waited.expect("no panic").0)
    }

    fn forget(&self) {
        *self.has_any.lock().expect("no panic") = false;
    }
}

/// A connection with a watch at one end.
fn watched(stack: &Stack) -> Result<(SdpStream, SdpStream, Arc<Arrivals>)> {
    let (mut here, there) = connected(stack)?;
    // A byte is read, so that no event of the set-up is reported afterwards.
    let mut peer = &there;
    peer.write_all(b"0")?;
    here.read_exact(&mut [0])?;
    here.set_options(Options {
        nonblocking: true,
        ..here.options()
    });
    let arrivals = Arc::new(Arrivals::default());
    here.watch(Arc::clone(&arrivals) as _);
    Ok((here, there, arrivals))
}

#[test]
fn every_watch_is_notified_while_its_user_makes_no_call() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let all = (0..70)
            .map(|_| watched(stack))
            .collect::<Result<Vec<_>>>()?;
        for round in 0..3_u8 {
            for (mut here, mut there, arrivals) in all.iter().map(|(a, b, c)| (a, b, c)) {
                arrivals.forget();
                there.write_all(&[round])?;
                ensure!(arrivals.wait(), "the stack's thread does not serve");
                let mut byte = [u8::MAX];
                here.read_exact(&mut byte)?;
                ensure!(byte == [round]);
            }
        }
        Ok(())
    })
}

/// A thread that blocks in a socket makes progress for the whole adapter. The stack's thread must
/// still be notified of sockets on which that thread has made progress.
#[test]
fn a_watch_is_notified_while_another_thread_sleeps_in_a_call() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let (mut here, mut there, arrivals) = watched(stack)?;
        let (mut blocked, mut peer) = connected(stack)?;
        timed(&blocked);
        thread::scope(|scope| {
            let reads = scope.spawn(move || blocked.read_exact(&mut [0]));
            for _ in 0..200 {
                arrivals.forget();
                there.write_all(b"1")?;
                ensure!(arrivals.wait(), "the stack's thread does not serve");
                here.read_exact(&mut [0])?;
            }
            peer.write_all(b"2")?;
            Ok(reads.join().expect("no panic")?)
        })
    })
}

/// Polls until a byte can be read. A peer on a busy machine may need more polls than one call
/// makes.
fn read_by_polling(mut here: &SdpStream) -> Result<u8> {
    until!(here.poll_readable(1000), "no byte is found by polling");
    let mut byte = [0];
    here.read_exact(&mut byte)?;
    Ok(byte[0])
}

#[test]
fn a_watch_is_notified_again_after_its_user_has_polled() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let (here, there, arrivals) = watched(stack)?;
        let mut peer = &there;
        ensure!(!here.poll_readable(1), "nothing was sent");
        for ends_polls in [true, false].repeat(10) {
            peer.write_all(b"1")?;
            ensure!(read_by_polling(&here)? == b'1');
            if ends_polls {
                here.end_polling();
            }
            arrivals.forget();
            peer.write_all(b"2")?;
            // Without the call, the stack's thread notices after two ticks that no thread polls.
            ensure!(arrivals.wait(), "the stack's thread does not serve");
            ensure!(read_by_polling(&here)? == b'2');
        }
        Ok(())
    })
}

#[test]
fn a_peer_s_end_is_found_by_polling_and_a_close_after_polls_is_served() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let (here, there, _) = watched(stack)?;
        ensure!(!here.poll_readable(1));
        drop(there);
        until!(here.poll_readable(1000), "the end is not found by polling");
        ensure!((&here).read(&mut [0])? == 0);
        let (here, mut there, _) = watched(stack)?;
        ensure!(!here.poll_readable(1));
        (&here).write_all(b"last")?;
        drop(here);
        let mut all = Vec::new();
        there.read_to_end(&mut all)?;
        ensure!(all == b"last");
        Ok(())
    })
}
