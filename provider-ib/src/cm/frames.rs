//! The frames by which two ends agree on a device, over the socket of their consumers.
//!
//! The frames have the shape of MPA's start-up frames (RFC 5044 section 7.1), with their keys and
//! the flag R of a reject. The revision [`REVISION`] states that a device carries the connection:
//! an implementation of MPA refuses a revision that it does not know, before it takes a byte from
//! the stream. The private data of a Request, and of a Reply that accepts, begins with a
//! [`Contact`]; the private data of the consumer follows:
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ~                       Token (16 octets)                       ~
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ~   Address of the adapter (16 octets, IPv4 as IPv4-mapped)     ~
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |       Port of the device      |   Transport   |       0       |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! The port is 0 in a Request. The transport is 1 for InfiniBand and RoCE, and 2 for iWARP. A Reply
//! that rejects has no contact.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use iwarp_proto::wire::mpa::{
    FRAME_MAX, FrameKind, HEADER_LEN, Header, Key, PD_LENGTH_MAX, StartupFrame,
};

use crate::quirks::Transport;

/// The revision of these frames; MPA has the revisions 0 to 2.
const REVISION: u8 = 0xd1;
/// Bytes of a contact.
const CONTACT_LEN: usize = 36;
/// Bytes of the longest frame.
pub(super) const LEN_MAX: usize = FRAME_MAX;

/// 128 random bits, by which one end of a connection recognizes the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Token(pub(super) [u8; 16]);

rnic::opaque_debug!(Token {});

impl Token {
    /// Draws a token.
    pub(super) fn draw() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        // SAFETY: the call writes at most the given number of bytes, all of this frame.
        let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match usize::try_from(count) {
            // The kernel returns up to 256 bytes whole (getrandom(2)).
            Ok(count) if count == bytes.len() => Ok(Self(bytes)),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// True if the private data of the connection manager, which may be padded, is this token.
    pub(super) fn is_in(&self, private_data: &[u8]) -> bool {
        private_data.starts_with(&self.0)
    }
}

/// The adapter of one end, and the token that the other end presents to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contact {
    pub(super) token: Token,
    /// The address of the adapter, with the port on which the device listens.
    pub(super) address: SocketAddr,
    pub(super) transport: Transport,
}

impl Contact {
    /// True if the two adapters can be connected.
    pub(super) fn fits(&self, own: SocketAddr, transport: Transport) -> bool {
        self.transport == transport && self.address.is_ipv4() == own.is_ipv4()
    }

    /// The address to which this end connects. A link-local address is on the link of this end's
    /// adapter.
    pub(super) fn reached_from(&self, own: SocketAddr) -> SocketAddr {
        match (self.address, own) {
            (SocketAddr::V6(mut remote), SocketAddr::V6(own))
                if remote.ip().is_unicast_link_local() =>
            {
                remote.set_scope_id(own.scope_id());
                remote.into()
            }
            (remote, _) => remote,
        }
    }

    fn emit(&self) -> [u8; CONTACT_LEN] {
        let address = match self.address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut bytes = [0; CONTACT_LEN];
        bytes[..16].copy_from_slice(&self.token.0);
        bytes[16..32].copy_from_slice(&address.octets());
        bytes[32..34].copy_from_slice(&self.address.port().to_be_bytes());
        bytes[34] = match self.transport {
            Transport::InfiniBand => 1,
            Transport::Iwarp => 2,
        };
        bytes
    }

    fn parse(bytes: &[u8; CONTACT_LEN]) -> Option<Self> {
        let (token, rest) = bytes.split_first_chunk::<16>()?;
        let (address, rest) = rest.split_first_chunk::<16>()?;
        let transport = match rest[2] {
            1 => Transport::InfiniBand,
            2 => Transport::Iwarp,
            _ => return None,
        };
        let address = Ipv6Addr::from(*address).to_canonical();
        let port = u16::from_be_bytes([rest[0], rest[1]]);
        Some(Self {
            token: Token(*token),
            address: SocketAddr::new(address, port),
            transport,
        })
    }
}

/// The content of the bytes at the front of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Front<T> {
    /// The bytes may be the beginning of the frame.
    Incomplete,
    /// The bytes are not such a frame, and stay in the stream.
    Other,
    /// A complete frame.
    Frame {
        value: T,
        /// The place of the consumer's private data.
        private_data: Range<usize>,
        /// The length of the frame.
        len: usize,
    },
}

/// The answer in a Reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Accepted(Contact),
    Rejected,
}

/// Builds a Request; `None` if the private data is too long.
pub(super) fn request(contact: &Contact, private_data: &[u8]) -> Option<StartupFrame> {
    build(FrameKind::Request, Some(contact), private_data)
}

/// Builds a Reply that accepts; `None` if the private data is too long.
pub(super) fn accepting(contact: &Contact, private_data: &[u8]) -> Option<StartupFrame> {
    build(FrameKind::Reply, Some(contact), private_data)
}

/// Builds a Reply that rejects; `None` if the private data is too long.
pub(super) fn rejecting(private_data: &[u8]) -> Option<StartupFrame> {
    build(FrameKind::Reply, None, private_data)
}

fn build(kind: FrameKind, contact: Option<&Contact>, private_data: &[u8]) -> Option<StartupFrame> {
    let header = Header {
        markers: false,
        crc: false,
        reject: kind == FrameKind::Reply && contact.is_none(),
        enhanced: false,
        rev: REVISION,
        pd_length: 0,
    };
    let mut data = contact.map_or(Vec::new(), |contact| contact.emit().to_vec());
    data.extend_from_slice(private_data);
    StartupFrame::build(kind, header, None, &data)
}

/// Parses the front of a stream on which a Request is expected.
pub(super) fn parse_request(front: &[u8]) -> Front<Contact> {
    parse(front, FrameKind::Request, |_, contact| contact)
}

/// Parses the front of a stream on which a Reply is expected.
pub(super) fn parse_reply(front: &[u8]) -> Front<Answer> {
    parse(front, FrameKind::Reply, |is_reject, contact| {
        if is_reject {
            Some(Answer::Rejected)
        } else {
            // A device listens at a port.
            let contact = contact.filter(|contact| contact.address.port() != 0);
            contact.map(Answer::Accepted)
        }
    })
}

fn parse<T>(
    front: &[u8],
    kind: FrameKind,
    value: impl FnOnce(bool, Option<Contact>) -> Option<T>,
) -> Front<T> {
    match Key::detect(front) {
        Key::Undecided => return Front::Incomplete,
        Key::Complete(found) if found == kind => {}
        Key::Complete(_) | Key::Neither => return Front::Other,
    }
    let Some((header, rest)) = front.split_first_chunk::<HEADER_LEN>() else {
        return Front::Incomplete;
    };
    let header = Header::parse(header);
    let pd_length = usize::from(header.pd_length);
    if header.rev != REVISION || pd_length > PD_LENGTH_MAX {
        return Front::Other;
    }
    let Some(data) = rest.get(..pd_length) else {
        return Front::Incomplete;
    };
    let is_reject = kind == FrameKind::Reply && header.reject;
    let contact = data.first_chunk().filter(|_| !is_reject);
    let skipped = if is_reject { 0 } else { CONTACT_LEN };
    match value(is_reject, contact.and_then(Contact::parse)) {
        Some(value) => Front::Frame {
            value,
            private_data: HEADER_LEN + skipped..HEADER_LEN + pd_length,
            len: HEADER_LEN + pd_length,
        },
        None => Front::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contact(address: &str) -> Contact {
        Contact {
            token: Token(*b"0123456789abcdef"),
            address: address.parse().unwrap(),
            transport: Transport::InfiniBand,
        }
    }

    #[test]
    fn a_request_has_these_bytes() {
        let frame = request(&contact("192.0.2.1:0"), b"hello").unwrap();
        let mut expected = b"MPA ID Req Frame\x00\xd1\x00\x290123456789abcdef".to_vec();
        expected.extend([0; 10]);
        expected.extend(b"\xff\xff\xc0\x00\x02\x01\x00\x00\x01\x00hello");
        assert_eq!(frame.as_bytes(), expected);
    }

    #[test]
    fn frames_are_parsed_as_built_and_incomplete_before() {
        let v6 = contact("[2001:db8::1]:7471");
        let frame = accepting(&v6, b"yes").unwrap();
        let bytes = frame.as_bytes();
        for len in 0..bytes.len() {
            assert_eq!(parse_reply(&bytes[..len]), Front::Incomplete, "{len}");
        }
        let private_data = 56..59;
        let len = 59;
        let value = Answer::Accepted(v6);
        assert_eq!(
            parse_reply(bytes),
            Front::Frame {
                value,
                private_data,
                len
            }
        );
        let frame = rejecting(b"no").unwrap();
        assert_eq!(
            parse_reply(frame.as_bytes()),
            Front::Frame {
                value: Answer::Rejected,
                private_data: 20..22,
                len: 22
            }
        );
    }

    #[test]
    fn other_frames_are_recognized_as_such() {
        let own = request(&contact("192.0.2.1:0"), b"").unwrap();
        assert_eq!(
            parse_reply(own.as_bytes()),
            Front::Other,
            "of the wrong side"
        );
        for other in [
            &b"GET / HTTP/1.0\r\n"[..],
            b"MPA ID Req Frame\x40\x01\x00\x00",
            b"MPA ID Req Frame\x00\xd1\x02\x01",
            b"MPA ID Req Frame\x00\xd1\x00\x00",
        ] {
            assert_eq!(
                parse_request(other),
                Front::Other,
                "{}",
                other.escape_ascii()
            );
        }
        let mut unknown = own.as_bytes().to_vec();
        unknown[20 + 34] = 3;
        assert_eq!(
            parse_request(&unknown),
            Front::Other,
            "an unknown transport"
        );
        // The device of an accepting peer listens at a port.
        let reply = accepting(&contact("192.0.2.1:0"), b"").unwrap();
        assert_eq!(parse_reply(reply.as_bytes()), Front::Other);
    }

    #[test]
    fn a_plain_responder_of_mpa_refuses_a_request_and_takes_nothing() {
        let frame = request(&contact("192.0.2.1:0"), b"").unwrap();
        let responder = iwarp_proto::mpa::Responder::default();
        assert!(matches!(
            responder.handle_input(frame.as_bytes()),
            iwarp_proto::mpa::Progress::Malformed(_)
        ));
    }

    #[test]
    fn a_link_local_address_is_on_the_adapters_link() {
        let own = "[fe80::2%7]:0".parse().unwrap();
        let remote = contact("[fe80::1]:9").reached_from(own);
        assert_eq!(remote, "[fe80::1%7]:9".parse().unwrap());
        let global = contact("[2001:db8::1]:9");
        assert_eq!(global.reached_from(own), global.address);
    }

    #[test]
    fn adapters_of_one_transport_and_address_family_fit() {
        let (v4, v6) = ("192.0.2.9:0".parse().unwrap(), "[::1]:0".parse().unwrap());
        let peer = contact("192.0.2.1:0");
        assert!(peer.fits(v4, Transport::InfiniBand));
        assert!(!peer.fits(v4, Transport::Iwarp) && !peer.fits(v6, Transport::InfiniBand));
    }

    #[test]
    fn tokens_differ_and_are_found_in_padded_private_data() {
        let (one, other) = (Token::draw().unwrap(), Token::draw().unwrap());
        let padded = [&one.0[..], &[0; 40]].concat();
        assert!(one.is_in(&padded) && !other.is_in(&padded));
        assert!(!one.is_in(&one.0[..15]));
    }
}
