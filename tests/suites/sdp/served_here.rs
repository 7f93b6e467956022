//! Sockets that are served by a thread of the program while it waits.

use std::{
    io::{Read, Write},
    sync::{Arc, Condvar, Mutex},
    thread::{self, ThreadId},
    time::Instant,
};

use anyhow::{Result, ensure};
use sdp_over_dat::{Config, Options, Readiness, SdpStream, Stack, Watch};

use super::{DEADLINE, connected, on_stack};

/// Who was the last to tell that bytes have come.
#[derive(Default)]
struct Teller {
    last: Mutex<Option<ThreadId>>,
    told: Condvar,
}

impl Watch for Teller {
    fn show(&self, now: Readiness, arrived: bool) {
        if now.readable && arrived {
            *self.last.lock().expect("no panic") = Some(thread::current().id());
            self.told.notify_all();
        }
    }
}

impl Teller {
    fn last(&self) -> Option<ThreadId> {
        *self.last.lock().expect("no panic")
    }

    fn take(&self) -> Option<ThreadId> {
        self.last.lock().expect("no panic").take()
    }

    /// Waits for somebody who tells.
    fn wait(&self) -> Option<ThreadId> {
        let last = self.last.lock().expect("no panic");
        let waited = self
            .told
            .wait_timeout_while(last, DEADLINE, |last| last.is_none());
        *waited.expect("no panic").0
    }
}

/// A connection, of which one end is watched.
fn watched(stack: &Stack) -> Result<(SdpStream, SdpStream, Arc<Teller>)> {
    let (mut here, there) = connected(stack)?;
    // A byte is read, so that nothing of the setup is told afterwards.
    let mut peer = &there;
    peer.write_all(b"0")?;
    here.read_exact(&mut [0])?;
    here.set_options(Options {
        nonblocking: true,
        ..here.options()
    });
    let teller = Arc::new(Teller::default());
    here.watch(Arc::clone(&teller) as _);
    Ok((here, there, teller))
}

#[test]
fn who_serves_is_told_by_himself_and_by_the_stack_when_he_has_left() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let (mut here, mut there, teller) = watched(stack)?;
        let me = thread::current().id();
        let until = Instant::now() + DEADLINE;
        // The stack's thread steps aside when it has heard of it, and comes back where this one is
        // kept from looking for a while, as it may be on a busy machine.
        let mut in_a_row = 0;
        while in_a_row < 10 {
            ensure!(Instant::now() < until, "the stack's thread does not leave");
            there.write_all(b"1")?;
            while teller.last().is_none() {
                ensure!(stack.serve_here().is_some(), "there is one socket");
            }
            in_a_row = if teller.take() == Some(me) {
                in_a_row + 1
            } else {
                0
            };
            here.read_exact(&mut [0])?;
        }
        stack.leave_to_thread();
        there.write_all(b"2")?;
        let told = teller.wait();
        ensure!(told.is_some_and(|it| it != me), "told by {told:?}");
        here.read_exact(&mut [0])?;
        teller.take();
        // Who serves no more need not say so.
        stack.serve_here();
        there.write_all(b"3")?;
        ensure!(teller.wait().is_some(), "nobody serves");
        Ok(())
    })
}

#[test]
fn more_sockets_than_one_thread_looks_at_stay_with_the_stack() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let few = watched(stack)?;
        ensure!(stack.serve_here().is_some(), "few");
        let more = (0..20)
            .map(|_| watched(stack))
            .collect::<Result<Vec<_>>>()?;
        ensure!(stack.serve_here().is_none(), "many");
        for (here, there, teller) in more.iter().chain([&few]) {
            teller.take();
            let (mut here, mut there) = (here, there);
            there.write_all(b"4")?;
            ensure!(teller.wait().is_some(), "nobody serves");
            here.read_exact(&mut [0])?;
        }
        Ok(())
    })
}
