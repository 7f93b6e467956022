//! The library's end of a pair that carries bytes.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::descriptors::OwnDescriptor;
use crate::stand_in::library_end::LibraryEnd;
use crate::stand_in::signals::Signals;

/// The result of receiving from the program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// This many bytes were received.
    Bytes(usize),
    /// The program's end has sent nothing more yet.
    Nothing,
    /// The program's end is closed or shut down and will send nothing more.
    Ended,
}

/// The library's end of a pair whose bytes are those of the connection.
///
/// The last byte that the program's end has sent stays in the pair after the caller has received
/// it, because the program sees a close over an unread byte as a reset.
#[derive(Debug)]
pub struct Carrier {
    socket: OwnDescriptor,
    /// True if the caller has received the first byte in the pair already.
    is_first_received: bool,
}

impl Carrier {
    /// Removes the signals of the program's end from the pair, except for the last one, which stays
    /// so that closing the pair is a reset. From now on everything that the program's end sends is
    /// bytes of the connection.
    ///
    /// # Errors
    /// The error of a system call on the pair.
    pub fn of(end: LibraryEnd) -> Result<Self, Errno> {
        let carrier = Self {
            socket: end.into(),
            is_first_received: true,
        };
        while carrier.discard(carrier.unread()?.saturating_sub(1))? {}
        Ok(carrier)
    }

    /// Removes the signals as [`of`](Self::of) does, and keeps the bytes behind them, which were
    /// sent past the library. No thread sends signals meanwhile.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn with_bytes(end: LibraryEnd, signals: &Signals) -> Result<Self, Errno> {
        let carrier = Self {
            socket: end.into(),
            is_first_received: true,
        };
        carrier.discard(signals.at_library_end() - 1)?;
        Ok(carrier)
    }

    /// Removes bytes from the pair, at most `count` and a buffer's length. Returns false if there
    /// was none to remove.
    fn discard(&self, count: usize) -> Result<bool, Errno> {
        let mut bytes = [0; 64];
        let room = count.min(bytes.len());
        if room == 0 {
            return Ok(false);
        }
        let (_, count) = recv(&self.socket, &mut bytes[..room], RecvFlags::DONTWAIT)?;
        Ok(count > 0)
    }

    /// Converts back to an end whose library controls readiness, if no process uses the bytes.
    #[must_use]
    pub fn steer(self) -> LibraryEnd {
        LibraryEnd::new(self.socket)
    }

    fn unread(&self) -> Result<usize, Errno> {
        Ok(usize::try_from(ioctl_fionread(&self.socket)?).unwrap_or(usize::MAX))
    }

    /// Receives bytes that the program's end has sent; `into` has room for two at least. `hung_up`
    /// is true if the caller has seen `RDHUP`.
    ///
    /// # Errors
    /// `ECONNRESET` if the program's end was closed with bytes unread.
    pub fn receive(&mut self, into: &mut [u8], hung_up: bool) -> Result<Taken, Errno> {
        let held = usize::from(self.is_first_received);
        let there = self.unread()?;
        if there <= held {
            return Ok(if hung_up {
                Taken::Ended
            } else {
                Taken::Nothing
            });
        }
        // All bytes but the last are removed from the pair. The last is copied and stays in the
        // pair. `into` must have room for it. If the first byte was received by an earlier call, it
        // is dropped from `into` and makes this room.
        let take = (there - 1).min(into.len() - 1 + held);
        let mut count = 0;
        if take > 0 {
            (_, count) = recv(&self.socket, &mut into[..take], RecvFlags::DONTWAIT)?;
            let given = held.min(count);
            into.copy_within(given..count, 0);
            count -= given;
        }
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        match recv(&self.socket, &mut into[count..=count], flags) {
            Ok((_, peeked)) => {
                self.is_first_received = peeked > 0;
                Ok(Taken::Bytes(count + peeked))
            }
            // The last byte is an urgent byte, which `receive_urgent` takes.
            Err(Errno::AGAIN) => {
                self.is_first_received = false;
                Ok(Taken::Bytes(count))
            }
            Err(error) => Err(error),
        }
    }

    /// Receives the urgent byte that the program's end has sent, if there is one.
    pub fn receive_urgent(&self) -> Option<u8> {
        let mut byte = [0];
        let flags = RecvFlags::DONTWAIT | RecvFlags::OOB;
        let (_, count) = recv(&self.socket, &mut byte[..], flags).ok()?;
        (count == 1).then_some(byte[0])
    }

    /// Sends bytes to the program's end.
    ///
    /// # Errors
    /// `EAGAIN` if the program has not read enough, `EPIPE` if its end reads no more.
    pub fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        send(&self.socket, bytes, flags)
    }

    /// Sends an urgent byte to the program's end.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_urgent(&self, byte: u8) -> Result<(), Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | SendFlags::OOB;
        send(&self.socket, &[byte], flags).map(|_| ())
    }

    /// Handles the end of the peer's data: the program's end reads all bytes, then the end of file.
    pub fn end_of_peer(&self) {
        // This fails only if the program's end is closed, and then no process reads.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// Handles the end of the program's data: a later send on its end fails with `EPIPE`.
    pub fn end_of_program(&self) {
        let _ = shutdown(&self.socket, Shutdown::Read);
    }

    /// Closes the pair after both sides have ended: the program's end reads the rest, then the end
    /// of file.
    pub fn finish(self) {
        let mut bytes = [0; 64];
        // Closing over an unread byte would be a reset.
        loop {
            match recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((_, count)) if count > 0 => {}
                _ => return,
            }
        }
    }

    /// Closes the pair after a failure: the program's end reads the rest, then gets `ECONNRESET`.
    pub fn reset(self) {
        drop(self.socket);
    }
}

impl AsFd for Carrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::stand_in::program_end::{Flags, established, surrender};

    fn pair() -> (OwnedFd, Carrier) {
        let (program, end) = established(Flags::default()).unwrap();
        let carrier = Carrier::of(end).unwrap();
        surrender(&program).unwrap();
        (program, carrier)
    }

    fn give(to: &OwnedFd, bytes: &[u8]) {
        assert_eq!(send(to, bytes, SendFlags::NOSIGNAL), Ok(bytes.len()));
    }

    fn read(from: &OwnedFd) -> Result<Vec<u8>, Errno> {
        let mut bytes = [0; 100];
        let (_, count) = recv(from, &mut bytes[..], RecvFlags::DONTWAIT)?;
        Ok(bytes[..count].to_vec())
    }

    #[test]
    fn signals_do_not_mix_with_the_bytes() {
        let signals = crate::stand_in::Signals::new();
        let (program, end) = established(Flags::default()).unwrap();
        crate::stand_in::close_window(&program, &signals).unwrap();
        end.announce(&signals).unwrap();
        end.announce(&signals).unwrap();
        let mut carrier = Carrier::of(end).unwrap();
        surrender(&program).unwrap();
        assert_eq!(read(&program), Err(Errno::AGAIN));
        assert_eq!(carrier.receive(&mut [0; 9], false), Ok(Taken::Nothing));
    }

    #[test]
    fn bytes_are_received_once_in_pieces_of_any_size() {
        let (program, mut carrier) = pair();
        let data: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let mut got = Vec::new();
        let mut room = vec![0; 700];
        for (number, piece) in data.chunks(37).enumerate() {
            give(&program, piece);
            if number % 3 == 0 {
                let len = 2 + number % 600;
                while let Taken::Bytes(count) = carrier.receive(&mut room[..len], false).unwrap() {
                    got.extend_from_slice(&room[..count]);
                }
            }
        }
        while let Taken::Bytes(count) = carrier.receive(&mut room, false).unwrap() {
            got.extend_from_slice(&room[..count]);
        }
        assert!(got == data);
    }

    #[test]
    fn the_end_of_the_program_follows_its_bytes() {
        let (program, mut carrier) = pair();
        give(&program, b"last");
        drop(program);
        let mut room = [0; 9];
        assert_eq!(carrier.receive(&mut room, true), Ok(Taken::Bytes(4)));
        assert_eq!(&room[..4], b"last");
        assert_eq!(carrier.receive(&mut room, true), Ok(Taken::Ended));
    }

    #[test]
    fn a_reset_and_an_end_are_distinguished() {
        for sent in [&b""[..], b"x", b"longer"] {
            let (program, mut carrier) = pair();
            if !sent.is_empty() {
                give(&program, sent);
                assert_eq!(
                    carrier.receive(&mut [0; 9], false),
                    Ok(Taken::Bytes(sent.len()))
                );
            }
            assert_eq!(carrier.send(b"rest"), Ok(4));
            carrier.reset();
            assert_eq!(read(&program), Ok(b"rest".to_vec()));
            assert_eq!(read(&program), Err(Errno::CONNRESET));

            let (program, carrier) = pair();
            assert_eq!(carrier.send(b"rest"), Ok(4));
            carrier.finish();
            assert_eq!(read(&program), Ok(b"rest".to_vec()));
            assert_eq!(read(&program), Ok(Vec::new()));
        }
    }

    #[test]
    fn a_close_over_unread_bytes_is_a_reset_here() {
        let (program, mut carrier) = pair();
        assert_eq!(carrier.send(b"unread"), Ok(6));
        drop(program);
        let reported = rustix::net::sockopt::socket_error(&carrier).unwrap();
        assert_eq!(reported, Err(Errno::CONNRESET));
        assert_eq!(carrier.receive(&mut [0; 9], true), Ok(Taken::Ended));
    }

    #[test]
    fn urgent_bytes_go_both_ways() {
        let (program, mut carrier) = pair();
        give(&program, b"before");
        send(&program, b"!", SendFlags::OOB).unwrap();
        assert_eq!(carrier.receive_urgent(), Some(b'!'));
        give(&program, b"behind");
        let mut got = Vec::new();
        let mut room = [0; 9];
        while let Taken::Bytes(count) = carrier.receive(&mut room, false).unwrap() {
            got.extend_from_slice(&room[..count]);
        }
        assert_eq!(got, b"beforebehind");
        carrier.send_urgent(b'?').unwrap();
        let mut byte = [0];
        recv(&program, &mut byte[..], RecvFlags::OOB).unwrap();
        assert_eq!(byte, *b"?");
    }

    #[test]
    fn an_urgent_byte_may_be_followed_by_more_than_a_buffer() {
        let (program, mut carrier) = pair();
        let mut room = [0; 9];
        send(&program, b"!", SendFlags::OOB).unwrap();
        assert_eq!(carrier.receive(&mut room, false), Ok(Taken::Bytes(0)));
        assert_eq!(carrier.receive_urgent(), Some(b'!'));
        let behind: Vec<u8> = (0..30).collect();
        give(&program, &behind);
        let mut got = Vec::new();
        while let Taken::Bytes(count) = carrier.receive(&mut room, false).unwrap() {
            got.extend_from_slice(&room[..count]);
        }
        assert_eq!(got, behind);
    }

    #[test]
    fn a_program_that_waits_for_room_finds_some() {
        let (program, mut carrier) = pair();
        let chunk = vec![7; 1 << 16];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut sent = 0;
        while let Ok(count) = send(&program, &chunk, flags) {
            sent += count;
        }
        let mut room = vec![0; 1 << 16];
        let mut got = 0;
        while let Taken::Bytes(count) = carrier.receive(&mut room, false).unwrap() {
            got += count;
        }
        assert_eq!(got, sent);
        let mut set = [rustix::event::PollFd::new(
            &program,
            rustix::event::PollFlags::OUT,
        )];
        let now = rustix::event::Timespec::default();
        assert_eq!(rustix::event::poll(&mut set, Some(&now)), Ok(1));
    }
}
