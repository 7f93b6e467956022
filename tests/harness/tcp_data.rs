//! The data that the kernel's TCP carried, observed on the wire.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result};
use libc::{
    BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IMM, BPF_IND, BPF_JA, BPF_JEQ, BPF_JGT,
    BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_LEN, BPF_MISC, BPF_MSH, BPF_RET, BPF_RSH, BPF_TAX, BPF_W,
    BPF_X, SKF_AD_OFF, SKF_AD_PKTTYPE, sock_filter, sock_fprog,
};

/// Counts the TCP segments with data to and from the service at one port, in the network of the
/// thread that made the counter.
///
/// Connections without data do not count: `opsrun` offers a client that a busy program has not
/// accepted over TCP as well, and gives the program the client's own socket if that program accepts
/// by its calls.
///
/// A packet socket receives the packets of the network, and a filter in the kernel accepts only
/// these segments. The kernel counts the accepted packets, so the test need not read packets in
/// time, and no packet is lost. The count does not depend on the stack under test.
#[derive(Debug)]
pub struct TcpData {
    socket: OwnedFd,
}

impl TcpData {
    /// Begins to count.
    ///
    /// # Errors
    /// Without the right to capture packets. A thread in a network of its own has this right.
    pub fn at(port: u16) -> Result<Self> {
        let every = i32::from((libc::ETH_P_ALL as u16).to_be());
        // SAFETY: the call takes three integers; the result is checked.
        let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error()).context("opening a packet socket");
        }
        // SAFETY: the kernel has just returned the descriptor, and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let mut filter = segments_with_data(port);
        let program = sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: the filter lives until the kernel has copied it.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const program).cast(),
                mem::size_of::<sock_fprog>() as u32,
            )
        };
        ok(done).context("attaching a filter")?;
        // Packets are received only from here on, so all have passed the filter.
        // SAFETY: an all-zero address is a valid value of this C structure.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = every as u16;
        // SAFETY: the address is in this frame, and its size is passed.
        let done = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                mem::size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        ok(done).context("binding a packet socket")?;
        Ok(Self { socket })
    }

    /// The number of segments since the last call.
    pub fn since_last_call(&self) -> Result<u32> {
        // SAFETY: all-zero counters are a valid value of this C structure.
        let mut counted: libc::tpacket_stats = unsafe { mem::zeroed() };
        let mut len = mem::size_of::<libc::tpacket_stats>() as u32;
        // SAFETY: the structure is in this frame, and its size is passed.
        let done = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut counted).cast(),
                &raw mut len,
            )
        };
        ok(done).context("counting segments")?;
        Ok(counted.tp_packets)
    }
}

fn ok(done: i32) -> io::Result<()> {
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Accepts received segments with data from or to `port`: over IPv4, and over IPv6 without
/// extension headers.
fn segments_with_data(port: u16) -> [sock_filter; 25] {
    const TCP: u32 = libc::IPPROTO_TCP as u32;
    const DATA_OFFSET: u32 = 12;
    let byte = |place: u32| op(BPF_LD | BPF_B | BPF_ABS, place);
    [
        // On loopback each packet is seen twice, once in each direction.
        byte((SKF_AD_OFF + SKF_AD_PKTTYPE).cast_unsigned()),
        equals(u32::from(libc::PACKET_HOST), 0, 22),
        byte(0),
        op(BPF_ALU | BPF_RSH | BPF_K, 4),
        equals(6, 4, 0),
        equals(4, 0, 18),
        byte(9),
        op(BPF_LDX | BPF_B | BPF_MSH, 0),
        op(BPF_JMP | BPF_JA, 2),
        byte(6),
        op(BPF_LDX | BPF_W | BPF_IMM, 40),
        // The protocol is loaded, and X holds the offset of its header.
        equals(TCP, 0, 12),
        op(BPF_LD | BPF_H | BPF_IND, 0),
        equals(u32::from(port), 2, 0),
        op(BPF_LD | BPF_H | BPF_IND, 2),
        equals(u32::from(port), 0, 8),
        // The upper half of the byte counts words of 4 bytes.
        op(BPF_LD | BPF_B | BPF_IND, DATA_OFFSET),
        op(BPF_ALU | BPF_AND | BPF_K, 0xf0),
        op(BPF_ALU | BPF_RSH | BPF_K, 2),
        op(BPF_ALU | BPF_ADD | BPF_X, 0),
        op(BPF_MISC | BPF_TAX, 0),
        op(BPF_LD | BPF_W | BPF_LEN, 0),
        sock_filter {
            jf: 1,
            ..op(BPF_JMP | BPF_JGT | BPF_X, 0)
        },
        op(BPF_RET | BPF_K, 1),
        op(BPF_RET | BPF_K, 0),
    ]
}

fn op(code: u32, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

/// Skips `yes` instructions when the accumulator is `value`, otherwise `no`.
fn equals(value: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter {
        jt: yes,
        jf: no,
        ..op(BPF_JMP | BPF_JEQ | BPF_K, value)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::NetSpace;

    #[test]
    fn segments_with_data_of_both_families_and_directions_are_counted() {
        // The new network belongs to a new thread, so that other tests keep their network.
        let counted = std::thread::spawn(|| -> Result<Option<Vec<u32>>> {
            if !matches!(NetSpace::enter()?, NetSpace::Own) {
                return Ok(None);
            }
            let data = TcpData::at(7001)?;
            let mut counts = vec![data.since_last_call()?];
            for address in ["127.0.0.1:7001", "[::1]:7001", "127.0.0.1:7002"] {
                let listener = TcpListener::bind(address)?;
                let mut client = TcpStream::connect(address)?;
                let (mut server, _) = listener.accept()?;
                counts.push(data.since_last_call()?);
                client.write_all(b"1")?;
                server.read_exact(&mut [0])?;
                counts.push(data.since_last_call()?);
                server.write_all(b"23")?;
                client.read_exact(&mut [0; 2])?;
                drop((client, server));
                counts.push(data.since_last_call()?);
            }
            Ok(Some(counts))
        });
        match counted.join().unwrap().unwrap() {
            Some(counts) => assert_eq!(counts, [0, 0, 1, 1, 0, 1, 1, 0, 0, 0]),
            None => crate::not_run("network namespaces are not permitted"),
        }
    }
}
