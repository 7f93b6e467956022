//! The program's end of a pair: functions that make it, and functions that use it during a call of
//! the program.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, getsockname, listen, recv, send, socket_with,
};

use crate::stand_in::calibration::{NoStandIn, pair, send_buffer};
use crate::stand_in::library_end::LibraryEnd;
use crate::stand_in::signals::Signals;

/// The send buffer of a program's end that carries bytes, in bytes. The kernel limits it to its
/// maximum.
const CARRYING_BUFFER: usize = 1 << 20;

/// The flags with which the program made its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// `SOCK_NONBLOCK`.
    pub nonblocking: bool,
    /// `SOCK_CLOEXEC`.
    pub close_on_exec: bool,
}

impl Flags {
    fn of_socket(self) -> SocketFlags {
        let mut flags = SocketFlags::empty();
        flags.set(SocketFlags::NONBLOCK, self.nonblocking);
        flags.set(SocketFlags::CLOEXEC, self.close_on_exec);
        flags
    }
}

/// Makes a program's end that shows the readiness of a fresh TCP socket: `OUT HUP`.
pub fn fresh(flags: Flags) -> Result<OwnedFd, NoStandIn> {
    let size = send_buffer()?;
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        flags.of_socket(),
        None,
    )?;
    sockopt::set_socket_send_buffer_size(&socket, size)?;
    Ok(socket)
}

/// Connects a fresh program's end. It then shows the readiness of a connecting TCP socket: none.
///
/// The file description is unchanged, so registrations in `epoll` sets and duplicates stay valid.
pub fn begin_connect(program: impl AsFd, signals: &Signals) -> Result<LibraryEnd, NoStandIn> {
    let library = connect_to_library_end(program.as_fd())?;
    leave_unread_byte(&program)?;
    close_window(&program, signals)?;
    Ok(LibraryEnd::new(library))
}

/// Makes a pair that shows an established connection from the start: `OUT`. For accepted
/// connections.
pub fn established(flags: Flags) -> Result<(OwnedFd, LibraryEnd), NoStandIn> {
    let size = send_buffer()?;
    let (program, library) = pair()?;
    sockopt::set_socket_send_buffer_size(&program, size)?;
    leave_unread_byte(&program)?;
    if flags.nonblocking {
        fcntl_setfl(&program, OFlags::RDWR | OFlags::NONBLOCK)?;
    }
    if !flags.close_on_exec {
        rustix::io::fcntl_setfd(&program, rustix::io::FdFlags::empty())?;
    }
    Ok((program, LibraryEnd::new(library)))
}

/// Shows that there is no room to write: not `OUT`.
///
/// After this call the caller must check once more for room, and open the window again if there is
/// some, because room may have appeared before the window was closed.
pub fn close_window(program: impl AsFd, signals: &Signals) -> io::Result<()> {
    if !signals.close_window() {
        return Ok(());
    }
    match send(&program, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        // The library's end is closed: the program sees the hang-up.
        Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(Errno::AGAIN) => {
            // Bytes that were sent past the library fill the buffer, so there is no signal.
            signals.open_window();
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes announcements. With `all`, because the program has found nothing to read, removes all of
/// them. Otherwise there is more to read, and one of them stays.
///
/// After removing all of them the caller must check once more for received data, and announce again
/// if there is some.
pub fn consume(program: impl AsFd, signals: &Signals, all: bool) -> io::Result<()> {
    let mut bytes = [0; crate::stand_in::signals::ANNOUNCED_MAX as usize];
    let wanted = if all {
        bytes.len()
    } else {
        signals.announced().saturating_sub(1) as usize
    };
    let wanted = wanted.min(bytes.len());
    if wanted == 0 {
        return Ok(());
    }
    match recv(&program, &mut bytes[..wanted], RecvFlags::DONTWAIT) {
        Ok((_, count)) => {
            signals.subtract_announcements(u32::try_from(count).unwrap_or(u32::MAX));
            Ok(())
        }
        Err(Errno::AGAIN | Errno::CONNRESET) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes the signals from the program's end, and sets the send buffer of a pair that carries
/// bytes. The library's end sends nothing meanwhile.
pub fn surrender(program: impl AsFd) -> io::Result<()> {
    let mut bytes = [0; crate::stand_in::signals::ANNOUNCED_MAX as usize];
    let urgent = RecvFlags::DONTWAIT | RecvFlags::OOB;
    // Usually there is no urgent byte.
    let _ = recv(&program, &mut bytes[..1], urgent);
    // The loop has a bound, so that a process that was stopped here for long takes few bytes of the
    // connection.
    for _ in 0..bytes.len() {
        match recv(&program, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(_) => break,
            Ok(_) => {}
        }
    }
    Ok(sockopt::set_socket_send_buffer_size(
        &program,
        CARRYING_BUFFER,
    )?)
}

/// Sends the byte that is never read; see `calibration`.
fn leave_unread_byte(program: &impl AsFd) -> Result<(), NoStandIn> {
    send(program, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Connects `program` to a listener that exists during this call only, and returns the other end.
fn connect_to_library_end(program: impl AsFd) -> Result<OwnedFd, NoStandIn> {
    let kind = SocketType::STREAM;
    let listener = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    bind(&listener, &SocketAddrUnix::new_unnamed())?;
    listen(&listener, 4)?;
    // The kernel gives the program's end a name. It distinguishes this connection from that of
    // another process that has guessed the listener's name.
    bind(&program, &SocketAddrUnix::new_unnamed())?;
    let ours = getsockname(&program)?;
    connect_blocking(&program, &getsockname(&listener)?)?;
    loop {
        let end = accept_with(&listener, SocketFlags::CLOEXEC)?;
        if rustix::net::getpeername(&end)?.as_ref() == Some(&ours) {
            return Ok(end);
        }
    }
}

/// Connects a Unix socket. This succeeds at once unless the backlog is full, whatever `O_NONBLOCK`
/// says.
fn connect_blocking(program: &impl AsFd, to: &rustix::net::SocketAddrAny) -> Result<(), NoStandIn> {
    loop {
        match connect(program, to) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
