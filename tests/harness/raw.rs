//! A peer without any DAT: MPA and DDP byte by byte over a plain TCP socket.
//!
//! The frames are fixed bytes with their CRC, so this peer shares no code with the stack under test
//! and cannot contain the same errors.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::{adapter_address, device};

/// The time after which a read fails because the peer is silent.
const READ_TIME: Duration = Duration::from_secs(60);

/// An MPA Request of revision 1: CRC, no markers, no private data (RFC 5044 section 7.1).
pub const REQUEST: [u8; 20] = *b"MPA ID Req Frame\x40\x01\x00\x00";

/// The Reply to it.
pub const REPLY: [u8; 20] = *b"MPA ID Rep Frame\x40\x01\x00\x00";

/// The Request without private data that the provider of the suite delivers: [`REQUEST`], or that
/// of a device (revision 0xd1, with a token, an address and the transport, which is 2 on siw).
pub fn request() -> Vec<u8> {
    let Some(device) = device() else {
        return REQUEST.to_vec();
    };
    let transport = if device.starts_with("siw") { 2 } else { 1 };
    let mut request = b"MPA ID Req Frame\x00\xd1\x00\x24a token of 128 b".to_vec();
    request.extend([0; 10]);
    request.extend([0xff, 0xff, 192, 0, 2, 1, 0, 0, transport, 0]);
    request
}

/// A Send of five bytes, `hello`, first of its queue, as an FPDU with a good CRC.
pub const SEND_HELLO: [u8; 32] = [
    0x00, 0x17, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, b'h', b'e', b'l', b'l',
    b'o', 0, 0, 0, 0xb9, 0x90, 0xb1, 0x0c,
];

/// An RDMA Write of five bytes, `oops!`, to an STag that is not registered, with a good CRC.
pub const WRITE_TO_NOWHERE: [u8; 28] = [
    0x00, 0x13, 0xc1, 0x40, 0xde, 0xad, 0xbe, 0, 0, 0, 0, 0, 0, 0, 0x30, 0, b'o', b'o', b'p', b's',
    b'!', 0, 0, 0, 0xff, 0xeb, 0x9f, 0xcc,
];

/// RDMAP opcode of a Terminate (RFC 5040 section 4.1).
const TERMINATE: u8 = 7;

/// A TCP connection whose reads end at a deadline.
#[derive(Debug)]
pub struct RawPeer {
    stream: TcpStream,
}

impl RawPeer {
    /// Connects to a port on the loopback interface.
    pub fn connect(port: u16) -> Result<Self> {
        Self::over(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?)
    }

    /// Waits for a connection.
    pub fn accept(listener: &TcpListener) -> Result<Self> {
        Self::over(listener.accept()?.0)
    }

    /// Makes both ends of a TCP connection over the adapter's address.
    pub fn pair() -> Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind((adapter_address(), 0))?;
        let active = TcpStream::connect(listener.local_addr()?)?;
        Ok((active, listener.accept()?.0))
    }

    /// Uses an existing stream.
    pub fn over(stream: TcpStream) -> Result<Self> {
        stream.set_read_timeout(Some(READ_TIME))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Sends bytes unchanged.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("sending raw bytes")
    }

    /// Reads exactly `len` bytes.
    pub fn read(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream
            .read_exact(&mut bytes)
            .with_context(|| format!("reading {len} bytes"))?;
        Ok(bytes)
    }

    /// Sends the Request and reads the Reply and its private data, which is returned.
    pub fn start_as_initiator(&mut self) -> Result<Vec<u8>> {
        self.send(&REQUEST)?;
        let reply = self.read(REPLY.len())?;
        ensure!(reply[..16] == REPLY[..16], "not a Reply: {reply:02x?}");
        ensure!(reply[16] & 0x20 == 0, "the Reply rejects: {reply:02x?}");
        let private_data_len = u16::from_be_bytes([reply[18], reply[19]]);
        self.read(private_data_len.into())
    }

    /// Reads one FPDU and returns its DDP segment; `None` when the stream ends before it.
    pub fn read_segment(&mut self) -> Result<Option<Vec<u8>>> {
        let mut head = [0; 2];
        match self.stream.read(&mut head[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => self.stream.read_exact(&mut head[1..])?,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(None),
            Err(e) => bail!("waiting for a frame: {e}"),
        }
        let ulpdu_len = usize::from(u16::from_be_bytes(head));
        // Two bytes of length, padding to four, four bytes of CRC (RFC 5044 section 4).
        let rest = (2 + ulpdu_len).next_multiple_of(4) + 4 - 2;
        let mut segment = self.read(rest)?;
        segment.truncate(ulpdu_len);
        Ok(Some(segment))
    }

    /// Waits for a connection with a Request of revision 1, and answers the Request. An earlier
    /// enhanced Request is answered by a reset, as by peers without RFC 6581.
    pub fn start_as_responder(listener: &TcpListener) -> Result<Self> {
        let mut first = Self::accept(listener)?;
        first.read(REQUEST.len())?;
        first.reset()?;
        let mut raw = Self::accept(listener)?;
        let head = raw.read(REQUEST.len())?;
        ensure!(head[..16] == REQUEST[..16], "not a Request: {head:02x?}");
        raw.read(u16::from_be_bytes([head[18], head[19]]).into())?;
        raw.send(&REPLY)?;
        Ok(raw)
    }

    /// Makes the kernel discard every received packet before TCP. Nothing is acknowledged any more,
    /// as if the machine had lost its power.
    pub fn vanish(&self) -> Result<()> {
        // BPF_RET | BPF_K: keep no byte.
        let mut drop_all = nix::libc::sock_filter {
            code: 0x06,
            jt: 0,
            jf: 0,
            k: 0,
        };
        let program = nix::libc::sock_fprog {
            len: 1,
            filter: &raw mut drop_all,
        };
        // SAFETY: the option reads one sock_fprog and the one instruction that it points to; both
        // are in this frame, and the length is passed.
        let done = unsafe {
            nix::libc::setsockopt(
                self.stream.as_raw_fd(),
                nix::libc::SOL_SOCKET,
                nix::libc::SO_ATTACH_FILTER,
                (&raw const program).cast(),
                size_of_val(&program) as nix::libc::socklen_t,
            )
        };
        ensure!(done == 0, "filter: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// Reads FPDUs until a Terminate is received, and returns its payload from the control word on.
    ///
    /// # Errors
    /// When the connection ends or is silent without a Terminate.
    pub fn read_terminate(&mut self) -> Result<Vec<u8>> {
        while let Some(segment) = self.read_segment()? {
            ensure!(
                segment.len() >= 18,
                "an FPDU without headers: {segment:02x?}"
            );
            if segment[1] & 0x0f == TERMINATE {
                return Ok(segment[18..].to_vec());
            }
        }
        bail!("the stream ended without a Terminate")
    }

    /// Reads Sends until `count` messages are complete, each with the bytes of `message`.
    ///
    /// # Errors
    /// When the connection ends first, or another message is received.
    pub fn read_sends(&mut self, count: usize, message: &[u8]) -> Result<()> {
        const SEND: u8 = 3;
        for number in 0..count {
            let mut left = message;
            while !left.is_empty() {
                let segment = self.read_segment()?.context("the stream ends")?;
                ensure!(segment.len() > 18 && segment[1] & 0x0f == SEND, "no Send");
                let payload = &segment[18..];
                ensure!(left.starts_with(payload), "other bytes in message {number}");
                left = &left[payload.len()..];
            }
        }
        Ok(())
    }

    /// Reads until the peer has closed or reset the connection, and returns the remaining bytes.
    pub fn read_to_end(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(e) if e.kind() == ErrorKind::ConnectionReset => Ok(bytes),
            Err(e) => bail!("the peer does not close: {e}; so far {bytes:02x?}"),
        }
    }

    /// Shuts down this end's direction of the stream.
    pub fn finish_sending(&self) -> Result<()> {
        self.stream
            .shutdown(Shutdown::Write)
            .context("shutting down")
    }

    /// Drops the connection with a TCP reset.
    pub fn reset(self) -> Result<()> {
        let linger = nix::libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        nix::sys::socket::setsockopt(&self.stream, nix::sys::socket::sockopt::Linger, &linger)
            .context("asking for a reset")
    }
}
