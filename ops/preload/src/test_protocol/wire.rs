//! The messages: one byte that says what, and its bytes.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

/// The most bytes of the stream in one message.
pub(super) const DATA_MAX: usize = 16 * 1024;
/// The longest message.
pub(super) const MESSAGE_MAX: usize = DATA_MAX + 1;

const HELLO: u8 = 1;
const DATA: u8 = 2;
const URGENT: u8 = 3;
const END: u8 = 4;
const ABORT: u8 = 5;

/// A message, as it was received.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// The first of the side that connects: its address.
    Hello(SocketAddr),
    /// Bytes of the stream.
    Data(&'a [u8]),
    /// The urgent byte, at this place of the stream.
    Urgent(u8),
    /// No more bytes will come.
    End,
    /// The connection is of no use any more.
    Abort,
}

impl<'a> Message<'a> {
    /// `None`: no message of ours.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        match bytes {
            [HELLO, address @ ..] => parse_address(address).map(Self::Hello),
            [DATA, data @ ..] => Some(Self::Data(data)),
            [URGENT, byte] => Some(Self::Urgent(*byte)),
            [END] => Some(Self::End),
            [ABORT] => Some(Self::Abort),
            _ => None,
        }
    }
}

fn parse_address(bytes: &[u8]) -> Option<SocketAddr> {
    let (ip, port) = bytes.split_at_checked(16)?;
    let ip: [u8; 16] = ip.try_into().ok()?;
    let port: [u8; 2] = port.try_into().ok()?;
    let ip = Ipv6Addr::from(ip).to_canonical();
    Some(SocketAddr::new(ip, u16::from_be_bytes(port)))
}

/// Sends the first message.
pub(super) fn send_hello(to: impl AsFd, local: SocketAddr) -> Result<(), Errno> {
    let ip = match local.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut message = vec![HELLO];
    message.extend(ip.octets());
    message.extend(local.port().to_be_bytes());
    send(to, &[IoSlice::new(&message)])
}

/// Sends as many bytes as one message takes, and says how many.
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

/// A message that must not get lost when there is no room for it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Control {
    /// The urgent byte.
    Urgent(u8),
    /// No more bytes will come.
    End,
    /// The connection is of no use any more.
    Abort,
}

/// Sends one of them.
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
