//! A relay between the two ends of a connection, which forwards all bytes at another pace or in
//! other pieces.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// The way in which a relay forwards bytes.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// One byte per read and per write.
    ByteByByte,
    /// In pieces of changing sizes, none of which is the size of a frame.
    Chopped,
    /// A pause of this length after this many bytes, then full speed, with a small receive buffer.
    /// Each direction pauses separately.
    PauseAfter(usize, Duration),
    /// Pieces of this many bytes with this pause after each, with a small receive buffer.
    Slow(usize, Duration),
}

/// Accepts one connection on `port` and relays it to port `to`, on threads that end with the
/// connection.
pub fn relay(port: u16, to: u16, pace: Pace) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).context("a relay's port")?;
    if matches!(pace, Pace::PauseAfter(..) | Pace::Slow(..)) {
        // Accepted connections inherit the small buffer, so that the peer's socket fills during a
        // pause.
        nix::sys::socket::setsockopt(&listener, nix::sys::socket::sockopt::RcvBuf, &4096)
            .context("a small buffer")?;
    }
    // A network namespace belongs to a thread, and a new thread inherits it.
    thread::spawn(move || {
        let _ = run(&listener, to, pace);
    });
    Ok(())
}

fn run(listener: &TcpListener, to: u16, pace: Pace) -> Result<()> {
    let (near, _) = listener.accept()?;
    let far = TcpStream::connect((Ipv4Addr::LOCALHOST, to))?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let back = (far.try_clone()?, near.try_clone()?);
    let other = thread::spawn(move || pump(back.0, &back.1, pace));
    pump(near, &far, pace)?;
    let _ = other.join();
    Ok(())
}

/// Forwards bytes until the end of the stream, which is forwarded too.
fn pump(mut from: TcpStream, mut to: &TcpStream, pace: Pace) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut passed = 0;
    let mut pieces = (1..=1499).cycle().step_by(97);
    loop {
        let want = match pace {
            Pace::ByteByByte => 1,
            Pace::Chopped => pieces.next().unwrap_or(1),
            Pace::PauseAfter(bytes, _) if passed < bytes => (bytes - passed).min(buffer.len()),
            Pace::PauseAfter(..) => buffer.len(),
            Pace::Slow(bytes, _) => bytes,
        };
        let got = from.read(&mut buffer[..want]).unwrap_or(0);
        if got == 0 {
            break;
        }
        to.write_all(&buffer[..got])?;
        passed += got;
        match pace {
            Pace::PauseAfter(bytes, pause) if passed - got < bytes && passed >= bytes => {
                thread::sleep(pause);
            }
            Pace::Slow(_, pause) => thread::sleep(pause),
            _ => {}
        }
    }
    to.shutdown(Shutdown::Write)
        .context("forwarding the end of the stream")
}
