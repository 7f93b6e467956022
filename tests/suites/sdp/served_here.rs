//! Sockets that are served by a thread of the program while it waits.

use std::{
    fs,
    io::{Read, Write},
    os::fd::BorrowedFd,
    sync::{Arc, Condvar, Mutex},
    thread::{self, ThreadId},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use libc::pollfd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
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
        let more = (0..70)
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

/// How often the stack's thread has gone to sleep. That of another stack may not be gone yet.
fn sleeps_of_the_stack() -> Result<u64> {
    let mut youngest = (0, 0);
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?;
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
        if field("Name:\t") == Some("sdp-stack") {
            let number: u64 = task.file_name().to_string_lossy().parse()?;
            let count = field("voluntary_ctxt_switches:\t").context("no count")?;
            youngest = youngest.max((number, count.parse()?));
        }
    }
    ensure!(youngest.0 > 0, "the stack has no thread");
    Ok(youngest.1)
}

const NO_FD: pollfd = pollfd {
    fd: -1,
    events: 0,
    revents: 0,
};

/// Sleeps as a program does that waits for nothing else, until `teller` has told.
fn sleep_until_told(stack: &Stack, teller: &Teller) -> Result<()> {
    let until = Instant::now() + DEADLINE;
    stack.serve_here();
    while teller.last().is_none() {
        ensure!(Instant::now() < until, "nobody tells");
        let mut fds = [NO_FD; 16];
        let Some(count) = stack.begin_sleep(&mut fds, DEADLINE) else {
            // The stack's thread has not left yet.
            stack.serve_here();
            continue;
        };
        if count > 0 {
            let second = Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            let mut set: Vec<_> = fds[..count].iter().map(polled).collect();
            poll(&mut set, Some(&second))?;
            stack.end_sleep();
        }
    }
    Ok(())
}

fn polled(of: &pollfd) -> PollFd<'_> {
    // SAFETY: the stack keeps it open until the sleep is over.
    let fd = unsafe { BorrowedFd::borrow_raw(of.fd) };
    PollFd::from_borrowed_fd(fd, PollFlags::from_bits_truncate(of.events.cast_unsigned()))
}

#[test]
fn who_sleeps_in_the_stacks_place_is_woken_and_nobody_else_is() -> Result<()> {
    const ROUNDS: u64 = 500;
    on_stack(Config::default(), |stack| {
        let (mut here, mut there, teller) = watched(stack)?;
        let mut round = || -> Result<()> {
            let writer = thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    thread::yield_now();
                    there.write_all(b"5")
                });
                sleep_until_told(stack, &teller)?;
                writer
                    .join()
                    .expect("no panic")
                    .map_err(anyhow::Error::from)
            });
            teller.take();
            here.read_exact(&mut [0])?;
            writer
        };
        for _ in 0..20 {
            round()?;
        }
        let (begun, before) = (Instant::now(), sleeps_of_the_stack()?);
        for _ in 0..ROUNDS {
            round()?;
        }
        let sleeps = sleeps_of_the_stack()? - before;
        // It looks once a tick whether somebody serves, and may be woken by what the writer does.
        let ticks = begun.elapsed().as_millis() as u64;
        ensure!(sleeps < ROUNDS / 2 + ticks, "{sleeps} sleeps in {ticks} ms");
        Ok(())
    })
}

#[test]
fn who_sleeps_in_the_stacks_place_is_woken_by_each_of_many_sockets() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let many = (0..30)
            .map(|_| watched(stack))
            .collect::<Result<Vec<_>>>()?;
        for round in 0..3_u8 {
            for (here, there, teller) in &many {
                teller.take();
                let (mut here, mut there) = (here, there);
                there.write_all(&[round])?;
                sleep_until_told(stack, teller)?;
                let mut byte = [u8::MAX];
                here.read_exact(&mut byte)?;
                ensure!(byte == [round]);
            }
        }
        Ok(())
    })
}

#[test]
fn who_does_not_come_back_from_his_sleep_is_missed_by_nobody() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let (mut here, mut there, teller) = watched(stack)?;
        let until = Instant::now() + DEADLINE;
        let mut fds = [NO_FD; 16];
        while !matches!(stack.begin_sleep(&mut fds, DEADLINE), Some(1..)) {
            ensure!(Instant::now() < until, "the stack's thread does not leave");
            stack.serve_here();
        }
        stack.leave_to_thread();
        for _ in 0..10 {
            there.write_all(b"6")?;
            ensure!(teller.wait().is_some(), "nobody serves");
            teller.take();
            here.read_exact(&mut [0])?;
        }
        // Late, but he does.
        stack.end_sleep();
        there.write_all(b"7")?;
        ensure!(teller.wait().is_some(), "nobody serves");
        Ok(())
    })
}
