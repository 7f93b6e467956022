//! The names and messages of the protocol.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use ops::Local;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, recv, sendmsg,
};

/// The version of the protocol.
pub(super) const VERSION: u8 = 1;

/// The length of a HELLO in bytes: version, family, address, port.
pub(super) const HELLO_LEN: usize = 20;

/// The accepting end accepts the connection.
pub(super) const WELCOME: u8 = b'W';

/// The accepting end refuses the connection.
pub(super) const REFUSE: u8 = b'R';

/// The accepting end has another version.
pub(super) const OTHER_VERSION: u8 = b'V';

/// The connecting end commits itself to the connection.
pub(super) const COMMIT: u8 = b'C';

/// Returns the abstract name of a service: with its address, or with a star and its families.
pub(super) fn name(protocol: &str, local: Local) -> Result<SocketAddrUnix, Errno> {
    let port = local.address.port();
    let name = match local.address.ip().to_canonical() {
        ip if !ip.is_unspecified() => format!("ops-{protocol}/{ip}:{port}"),
        IpAddr::V4(_) => format!("ops-{protocol}/*4:{port}"),
        IpAddr::V6(_) if local.ipv6_only => format!("ops-{protocol}/*6:{port}"),
        IpAddr::V6(_) => format!("ops-{protocol}/*46:{port}"),
    };
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

/// Returns a message socket that does not block.
pub(super) fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Returns the HELLO of a connecting end at `local`.
pub(super) fn hello(local: SocketAddr) -> [u8; HELLO_LEN] {
    let mut bytes = [0; HELLO_LEN];
    bytes[0] = VERSION;
    match local.ip() {
        IpAddr::V4(ip) => {
            bytes[1] = 4;
            bytes[2..6].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[1] = 6;
            bytes[2..18].copy_from_slice(&ip.octets());
        }
    }
    bytes[18..].copy_from_slice(&local.port().to_be_bytes());
    bytes
}

/// Returns the address in a HELLO; `None` if the HELLO is not of this version.
pub(super) fn address_in(hello: &[u8; HELLO_LEN]) -> Option<SocketAddr> {
    let [version, family, ip @ .., high, low] = hello;
    let ip: [u8; 16] = *ip;
    let [a, b, c, d, ..] = ip;
    let ip: IpAddr = match (*version, family) {
        (VERSION, 4) => [a, b, c, d].into(),
        (VERSION, 6) => ip.into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes([*high, *low])))
}

/// The maximum number of stream bytes in one message.
pub(super) const DATA_MAX: usize = 16 * 1024;

/// The maximum length of a message in bytes.
pub(super) const MESSAGE_MAX: usize = DATA_MAX + 1;

const DATA: u8 = 2;
const URGENT: u8 = 3;
const END: u8 = 4;
const ABORT: u8 = 5;

/// A message of an established connection, as it was received.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// Bytes of the stream.
    Data(&'a [u8]),
    /// The urgent byte, at this place of the stream.
    Urgent(u8),
    /// The peer sends no more bytes.
    End,
    /// The peer aborts the connection.
    Abort,
}

impl<'a> Message<'a> {
    /// Parses a message; `None` if it is no message of this protocol.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        match bytes {
            [DATA, data @ ..] => Some(Self::Data(data)),
            [URGENT, byte] => Some(Self::Urgent(*byte)),
            [END] => Some(Self::End),
            [ABORT] => Some(Self::Abort),
            _ => None,
        }
    }
}

/// Receives a message, if there is one. Returns length 0 if the other end is closed and all its
/// messages were received.
pub(super) fn receive(from: impl AsFd, into: &mut [u8]) -> Result<usize, Errno> {
    let receive = |into: &mut [u8]| {
        let (_, len) = recv(&from, into, RecvFlags::DONTWAIT)?;
        Ok(len)
    };
    match receive(into)? {
        // The kernel checks for a message first and for the end afterwards. The other end may send
        // a message and close between the two checks. The second call finds that message, and no
        // other message can follow it.
        0 => receive(into),
        len => Ok(len),
    }
}

/// Sends as many bytes as fit into one message, and returns their number.
pub(super) fn send_data(to: impl AsFd, from: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let mut parts = vec![IoSlice::new(&[DATA])];
    let mut room = DATA_MAX;
    for part in from {
        let len = part.len().min(room);
        parts.push(IoSlice::new(&part[..len]));
        room -= len;
    }
    send(to, &parts)?;
    Ok(DATA_MAX - room)
}

/// A control message, which must not be lost if there is no room for it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Control {
    /// The urgent byte.
    Urgent(u8),
    /// This end sends no more bytes.
    End,
    /// This end aborts the connection.
    Abort,
}

/// Sends a control message.
pub(super) fn send_control(to: impl AsFd, control: Control) -> Result<(), Errno> {
    match control {
        Control::Urgent(byte) => send(to, &[IoSlice::new(&[URGENT, byte])]),
        Control::End => send(to, &[IoSlice::new(&[END])]),
        Control::Abort => send(to, &[IoSlice::new(&[ABORT])]),
    }
}

fn send(to: impl AsFd, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(to, parts, &mut SendAncillaryBuffer::default(), flags).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use rustix::net::socketpair;

    use super::*;

    #[test]
    fn the_end_is_received_after_the_last_message() {
        let (to, ends) = channel::<OwnedFd>();
        let sender = thread::spawn(move || {
            for end in ends {
                assert_eq!(send_data(&end, &[IoSlice::new(b"last")]), Ok(4));
            }
        });
        // A single `recv` call misses the message now and then.
        for round in 0..20_000 {
            let kind = SocketType::SEQPACKET;
            let (near, far) =
                socketpair(AddressFamily::UNIX, kind, SocketFlags::NONBLOCK, None).unwrap();
            to.send(far).unwrap();
            let mut message = [0; 9];
            let len = loop {
                match receive(&near, &mut message) {
                    Err(Errno::AGAIN) => {}
                    received => break received.unwrap(),
                }
            };
            assert_eq!(
                Message::parse(&message[..len]),
                Some(Message::Data(b"last")),
                "{round}"
            );
        }
        drop(to);
        sender.join().unwrap();
    }
}
