//! Wire format of the messages of a rendezvous.
//!
//! The two ends exchange these messages on a kernel TCP connection to the rendezvous port of the
//! service, which the iWARP port mapper names. The connecting end sends its adapters, the best
//! first, and its Hello; the accepting end chooses an adapter. All fields are big-endian.
//!
//! ```text
//! both    0  "SDPr"   4  version 1   5  kind   6  length of the message, 16 bits
//! offer   8  number of adapters, 32 bits   12  adapters, 4 bytes each: kind, 24 bits of zero
//!            after them  Hello (SDP, 92 bytes)
//! answer  8  choice   9  adapter of the offer   10  reason   11  address family, 4 or 6
//!        12  zero, 32 bits   16  address, IPv4 in its last four bytes
//!        32  connection qualifier, 64 bits   40  token
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use sdp_over_dat::Token;

const MAGIC: &[u8; 4] = b"SDPr";
const VERSION: u8 = 1;
const HEADER_LEN: usize = 8;
const OFFER: u8 = 1;
const ANSWER: u8 = 2;

/// The maximum number of adapters in an offer.
const ADAPTERS_MAX: usize = 64;
const ADAPTER_LEN: usize = 4;
const HELLO_LEN: usize = 92;
const ANSWER_LEN: usize = 56;
const LEN_MAX: usize = HEADER_LEN + 4 + ADAPTERS_MAX * ADAPTER_LEN + HELLO_LEN;

/// The way in which an adapter makes connections. Only adapters of the same kind can be connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdapterKind {
    /// The TCP connection of the rendezvous becomes an RDMA connection (DAT 2.0 iWARP extensions).
    Socket = 1,
    /// The connection manager of InfiniBand and RoCE connects.
    InfiniBand = 2,
    /// The connection manager of iWARP devices connects.
    Iwarp = 3,
}

impl AdapterKind {
    /// Returns the kind of an RDMA device.
    pub(crate) const fn of_device(is_iwarp: bool) -> Self {
        if is_iwarp {
            Self::Iwarp
        } else {
            Self::InfiniBand
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        let all = [Self::Socket, Self::InfiniBand, Self::Iwarp];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The message of the connecting end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The adapters of the connecting end, the best first; `None` for an unknown kind.
    pub(crate) adapters: Vec<Option<AdapterKind>>,
    /// The Hello of the connecting end.
    pub(crate) hello: Vec<u8>,
}

/// The message of the accepting end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// No connection is possible.
    Nothing(NoChoice),
    /// This TCP connection becomes an RDMA connection.
    Convert,
    /// The connecting end must connect to this service point, with the token as private data.
    Device {
        /// The index of the chosen adapter in the offer.
        adapter: u8,
        /// The address of the accepting end's adapter. It has no port.
        at: IpAddr,
        conn_qual: u64,
        token: Token,
    },
}

/// The reason why the accepting end chooses no adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoChoice {
    /// The ends have no adapters of the same kind.
    NoAdapter = 1,
    /// The Hello has another version.
    Version = 2,
    /// The accepting end has failed.
    Failed = 3,
}

/// The reason why bytes are not a message of a rendezvous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Malformed {
    Version,
    Other,
}

impl From<Malformed> for Errno {
    fn from(why: Malformed) -> Self {
        match why {
            Malformed::Version => Self::PROTONOSUPPORT,
            Malformed::Other => Self::PROTO,
        }
    }
}

fn header(kind: u8, len: usize) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend([VERSION, kind]);
    bytes.extend((len as u16).to_be_bytes());
    bytes
}

impl Offer {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let count = self.adapters.len().min(ADAPTERS_MAX);
        let len = HEADER_LEN + 4 + count * ADAPTER_LEN + self.hello.len();
        let mut bytes = header(OFFER, len);
        bytes.extend((count as u32).to_be_bytes());
        for kind in &self.adapters[..count] {
            bytes.extend([kind.map_or(0, |kind| kind as u8), 0, 0, 0]);
        }
        bytes.extend(&self.hello);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let body = body_of(bytes, OFFER)?;
        let (count, rest) = body.split_first_chunk().ok_or(Malformed::Other)?;
        let count = u32::from_be_bytes(*count) as usize;
        if count > ADAPTERS_MAX || rest.len() != count * ADAPTER_LEN + HELLO_LEN {
            return Err(Malformed::Other);
        }
        let (adapters, hello) = rest.split_at(count * ADAPTER_LEN);
        let kinds = adapters.chunks_exact(ADAPTER_LEN);
        Ok(Self {
            adapters: kinds.map(|it| AdapterKind::from_byte(it[0])).collect(),
            hello: hello.to_vec(),
        })
    }
}

impl Answer {
    pub(crate) fn emit(self) -> Vec<u8> {
        let mut bytes = header(ANSWER, ANSWER_LEN);
        bytes.resize(ANSWER_LEN, 0);
        match self {
            Self::Nothing(why) => bytes[10] = why as u8,
            Self::Convert => bytes[8] = 1,
            Self::Device {
                adapter,
                at,
                conn_qual,
                token,
            } => {
                bytes[8] = 2;
                bytes[9] = adapter;
                match at {
                    IpAddr::V4(v4) => {
                        bytes[11] = 4;
                        bytes[28..32].copy_from_slice(&v4.octets());
                    }
                    IpAddr::V6(v6) => {
                        bytes[11] = 6;
                        bytes[16..32].copy_from_slice(&v6.octets());
                    }
                }
                bytes[32..40].copy_from_slice(&conn_qual.to_be_bytes());
                bytes[40..].copy_from_slice(token.as_bytes());
            }
        }
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        body_of(bytes, ANSWER)?;
        let bytes: &[u8; ANSWER_LEN] = bytes.try_into().map_err(|_| Malformed::Other)?;
        match bytes[8] {
            0 => Ok(Self::Nothing(match bytes[10] {
                1 => NoChoice::NoAdapter,
                2 => NoChoice::Version,
                _ => NoChoice::Failed,
            })),
            1 => Ok(Self::Convert),
            2 => Ok(Self::Device {
                adapter: bytes[9],
                at: match bytes[11] {
                    4 => Ipv4Addr::from(array_at::<4>(bytes, 28)).into(),
                    6 => Ipv6Addr::from(array_at::<16>(bytes, 16)).into(),
                    _ => return Err(Malformed::Other),
                },
                conn_qual: u64::from_be_bytes(array_at(bytes, 32)),
                token: Token::from_bytes(array_at(bytes, 40)),
            }),
            _ => Err(Malformed::Other),
        }
    }

    /// Returns the answer that directs a peer to this service point.
    pub(crate) fn device(adapter: u8, (at, conn_qual): (SocketAddr, u64), token: Token) -> Self {
        Self::Device {
            adapter,
            at: at.ip().to_canonical(),
            conn_qual,
            token,
        }
    }
}

fn array_at<const N: usize>(bytes: &[u8; ANSWER_LEN], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// Checks a header, and returns the length that it states for its message.
fn stated_len(header: &[u8]) -> Result<usize, Malformed> {
    if header[..4] != *MAGIC {
        return Err(Malformed::Other);
    }
    if header[4] != VERSION {
        return Err(Malformed::Version);
    }
    let len = usize::from(u16::from_be_bytes([header[6], header[7]]));
    if (HEADER_LEN..=LEN_MAX).contains(&len) {
        Ok(len)
    } else {
        Err(Malformed::Other)
    }
}

/// Returns the bytes after the header of a complete message of this kind.
fn body_of(bytes: &[u8], kind: u8) -> Result<&[u8], Malformed> {
    let header = bytes.get(..HEADER_LEN).ok_or(Malformed::Other)?;
    if stated_len(header)? != bytes.len() || header[5] != kind {
        return Err(Malformed::Other);
    }
    Ok(&bytes[HEADER_LEN..])
}

/// A message that is being received. No byte after the message is read, because it may belong to
/// the RDMA connection.
#[derive(Debug, Default)]
pub(crate) struct Incoming(Vec<u8>);

impl Incoming {
    /// Receives the bytes that the socket has queued. Returns the message once it is complete.
    ///
    /// # Errors
    /// `ECONNRESET` if the peer has closed, the error of [`Malformed`] for bytes that are no
    /// message, else the error of `recv`.
    pub(crate) fn receive(&mut self, from: BorrowedFd<'_>) -> Result<Option<&[u8]>, Errno> {
        loop {
            let wanted = match self.0.get(..HEADER_LEN) {
                Some(header) => stated_len(header)?,
                None => HEADER_LEN,
            };
            let have = self.0.len();
            if have == wanted && have > HEADER_LEN {
                return Ok(Some(&self.0));
            }
            if have == wanted {
                // The message consists of a header alone.
                return Err(Errno::PROTO);
            }
            let mut more = [0; LEN_MAX];
            let flags = rustix::net::RecvFlags::DONTWAIT;
            match rustix::net::recv(from.as_fd(), &mut more[..wanted - have], flags) {
                Ok((0, _)) => return Err(Errno::CONNRESET),
                Ok((count, _)) => self.0.extend(&more[..count]),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Sends a message on a new connection, whose buffer has room for it.
///
/// # Errors
/// The error of `send`; `EPIPE` if there was room for a part only.
pub(crate) fn send(to: BorrowedFd<'_>, message: &[u8]) -> Result<(), Errno> {
    let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
    match rustix::net::send(to, message, flags)? {
        sent if sent == message.len() => Ok(()),
        _ => Err(Errno::PIPE),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn offer() -> Offer {
        Offer {
            adapters: vec![Some(AdapterKind::InfiniBand), Some(AdapterKind::Socket)],
            hello: (0..92).collect(),
        }
    }

    fn answers() -> [Answer; 5] {
        let token = Token::from_bytes([7; Token::LEN]);
        let service_point = |at: &str| (at.parse().expect("an address"), 0x0123_4567_89ab_cdef);
        [
            Answer::Nothing(NoChoice::NoAdapter),
            Answer::Nothing(NoChoice::Version),
            Answer::Convert,
            Answer::device(3, service_point("192.0.2.1:0"), token),
            Answer::device(0, service_point("[2001:db8::1]:0"), token),
        ]
    }

    #[test]
    fn messages_are_parsed_as_they_were_emitted() {
        assert_eq!(Offer::parse(&offer().emit()), Ok(offer()));
        for answer in answers() {
            assert_eq!(Answer::parse(&answer.emit()), Ok(answer));
        }
    }

    #[test]
    fn an_adapter_of_an_unknown_kind_is_skipped() {
        let mut bytes = offer().emit();
        bytes[12] = 99;
        let parsed = Offer::parse(&bytes).expect("an offer");
        assert_eq!(parsed.adapters, [None, Some(AdapterKind::Socket)]);
    }

    #[test]
    fn a_message_of_the_other_kind_is_refused() {
        for answer in answers() {
            assert_eq!(Offer::parse(&answer.emit()), Err(Malformed::Other));
        }
        assert_eq!(Answer::parse(&offer().emit()), Err(Malformed::Other));
    }

    /// Checks that no input panics, and that messages that are cut off or too long are refused.
    #[test]
    fn mutated_messages_are_refused_or_parsed() {
        let messages = answers().map(Answer::emit).into_iter();
        for message in messages.chain([offer().emit()]) {
            for at in 0..message.len() {
                assert!(Offer::parse(&message[..at]).is_err());
                assert!(Answer::parse(&message[..at]).is_err());
                for value in [0, 1, 2, 3, 127, 255] {
                    let mut mutated = message.clone();
                    mutated[at] = value;
                    let _ = Offer::parse(&mutated);
                    let _ = Answer::parse(&mutated);
                }
            }
            let longer = [&message[..], &[0]].concat();
            assert!(Offer::parse(&longer).is_err() && Answer::parse(&longer).is_err());
        }
        let mut other = offer().emit();
        other[4] = 2;
        assert_eq!(Offer::parse(&other), Err(Malformed::Version));
    }

    #[test]
    fn a_message_is_received_in_pieces_and_no_byte_after_it() -> std::io::Result<()> {
        let (mut near, far) = UnixStream::pair()?;
        let bytes = offer().emit();
        let mut incoming = Incoming::default();
        for byte in &bytes[..bytes.len() - 1] {
            near.write_all(&[*byte])?;
            assert_eq!(incoming.receive(far.as_fd()), Ok(None));
        }
        near.write_all(&[bytes[bytes.len() - 1], b'x'])?;
        assert_eq!(incoming.receive(far.as_fd()), Ok(Some(&bytes[..])));
        let mut rest = [0; 2];
        let flags = rustix::net::RecvFlags::DONTWAIT;
        let (count, _) = rustix::net::recv(&far, &mut rest[..], flags)?;
        assert_eq!((count, rest[0]), (1, b'x'));
        Ok(())
    }

    #[test]
    fn a_peer_that_closes_or_sends_another_message_is_an_error() -> std::io::Result<()> {
        for (bytes, errno) in [
            (&b"SDP"[..], Errno::CONNRESET),
            (b"MPA ID Req Frame", Errno::PROTO),
            (b"SDPr\x02\x01\x00\x10", Errno::PROTONOSUPPORT),
            (b"SDPr\x01\x01\xff\xff", Errno::PROTO),
            (b"SDPr\x01\x01\x00\x08", Errno::PROTO),
        ] {
            let (mut near, far) = UnixStream::pair()?;
            near.write_all(bytes)?;
            drop(near);
            assert_eq!(Incoming::default().receive(far.as_fd()), Err(errno));
        }
        Ok(())
    }
}
