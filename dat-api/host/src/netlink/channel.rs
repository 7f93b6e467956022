//! Requests to the kernel over netlink, and the answers.

use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::descriptors::{OwnDescriptor, raise};
use crate::netlink::error::Error;

/// The timeout of an answer. The kernel answers within the call that asks, and a kernel that does
/// not must not block the program.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The size of the receive buffer in bytes. One datagram fits; longer answers are split by the
/// kernel.
const BUFFER_LEN: usize = 64 << 10;

/// The maximum number of reads of a table that changes while it is read.
const READINGS_MAX: u32 = 8;

/// The length of a netlink message header in bytes.
const HEADER_LEN: usize = 16;

/// A socket for requests of one netlink protocol. One request is in progress at a time.
#[derive(Debug)]
pub struct Channel<M = RouteNetlinkMessage> {
    socket: OwnDescriptor,
    sequence: u32,
    buffer: Vec<u8>,
    speaks: PhantomData<M>,
}

impl Channel {
    /// Opens a channel to the tables of routes, devices and addresses.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn open() -> Result<Self, Error> {
        // Protocol 0 is NETLINK_ROUTE.
        Self::of(None)
    }
}

impl<M> Channel<M>
where
    M: NetlinkSerializable + NetlinkDeserializable + Clone + std::fmt::Debug,
    NetlinkPayload<M>: From<M>,
{
    /// Opens a channel of a netlink protocol, whose messages are `M`.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn of(protocol: Option<Protocol>) -> Result<Self, Error> {
        let socket = open_socket(protocol, 0)?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_WITHIN))
            .map_err(Error::Socket)?;
        Ok(Self {
            socket: socket.into(),
            sequence: 0,
            buffer: vec![0; BUFFER_LEN],
            speaks: PhantomData,
        })
    }

    /// Requests one object.
    ///
    /// # Errors
    /// [`Error::Refused`] by the kernel, [`Error::Socket`], or [`Error::Garbled`].
    pub fn get(&mut self, question: M) -> Result<M, Error> {
        self.send(question, NLM_F_REQUEST)?;
        let mut answers = Vec::new();
        self.receive(&mut answers, true)?;
        answers.pop().ok_or(Error::Garbled)
    }

    /// Reads a whole table. Repeats the read if the table changed meanwhile.
    ///
    /// # Errors
    /// Those of [`Self::get`], and [`Error::Unsteady`].
    pub fn dump(&mut self, question: &M) -> Result<Vec<M>, Error> {
        for _ in 0..READINGS_MAX {
            self.send(question.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            let mut answers = Vec::new();
            if self.receive(&mut answers, false)? {
                return Ok(answers);
            }
        }
        Err(Error::Unsteady)
    }

    fn send(&mut self, question: M, flags: u16) -> Result<(), Error> {
        // A late answer to an earlier request is queued before the next answer, so each request has
        // a number.
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        let kernel = SocketAddrNetlink::new(0, 0);
        retry(|| rustix::net::sendto(&self.socket, &bytes, SendFlags::empty(), &kernel))
            .map(drop)
            .map_err(Error::Socket)
    }

    /// Receives answers until the last; `one` means that the first is the last. Returns false if
    /// the table changed meanwhile.
    fn receive(&mut self, answers: &mut Vec<M>, one: bool) -> Result<bool, Error> {
        let mut steady = true;
        loop {
            let flags = RecvFlags::TRUNC;
            let (len, whole) = retry(|| rustix::net::recv(&self.socket, &mut self.buffer, flags))
                .map_err(Error::Socket)?;
            if whole > len {
                return Err(Error::Garbled);
            }
            for bytes in messages(&self.buffer[..len]) {
                let message =
                    NetlinkMessage::<M>::deserialize(bytes).map_err(|_| Error::Garbled)?;
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                steady &= message.header.flags & NLM_F_DUMP_INTR == 0;
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => {
                        answers.push(answer);
                        if one {
                            return Ok(steady);
                        }
                    }
                    NetlinkPayload::Error(error) => {
                        return match error.code {
                            None => Ok(steady),
                            Some(code) => {
                                Err(Error::Refused(Errno::from_raw_os_error(-code.get())))
                            }
                        };
                    }
                    // A refused dump ends with the same message as any other, but with a negative
                    // code.
                    NetlinkPayload::Done(done) if done.code < 0 => {
                        return Err(Error::Refused(Errno::from_raw_os_error(-done.code)));
                    }
                    NetlinkPayload::Done(_) => return Ok(steady),
                    _ => {}
                }
            }
        }
    }
}

/// Opens a socket in the calling thread's namespace that receives the multicast groups of this
/// mask.
///
/// # Errors
/// [`Error::Socket`].
pub fn open_socket(protocol: Option<Protocol>, groups: u32) -> Result<OwnedFd, Error> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol,
    )
    .map_err(Error::Socket)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups)).map_err(Error::Socket)?;
    raise(socket).map_err(Error::Socket)
}

/// Splits a datagram into its messages. Stops at an invalid length.
pub fn messages(mut datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let len = datagram.first_chunk::<4>()?;
        let len = usize::try_from(u32::from_ne_bytes(*len)).ok()?;
        if len < HEADER_LEN || len > datagram.len() {
            return None;
        }
        let (message, _) = datagram.split_at(len);
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Repeats a call that a signal interrupted.
///
/// # Errors
/// Those of the call, except `EINTR`.
pub fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: u32, padded: usize) -> Vec<u8> {
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.resize(padded, 0);
        bytes
    }

    #[test]
    fn a_datagram_is_cut_where_its_messages_end() {
        let datagram = [message(17, 20), message(16, 16)].concat();
        let lengths: Vec<usize> = messages(&datagram).map(<[u8]>::len).collect();
        assert_eq!(lengths, [17, 16]);
    }

    #[test]
    fn lengths_that_cannot_be_end_the_datagram() {
        for (len, padded) in [(0, 16), (15, 16), (17, 16), (u32::MAX, 16), (16, 3)] {
            assert_eq!(messages(&message(len, padded)).count(), 0, "{len}");
        }
        // The padding of the last message may be absent.
        assert_eq!(messages(&message(17, 17)).count(), 1);
    }
}
