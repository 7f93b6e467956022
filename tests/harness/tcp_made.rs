//! The connections that the kernel's TCP established, observed on the wire.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result};
use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IMM, BPF_IND, BPF_JA, BPF_JEQ, BPF_JMP, BPF_K,
    BPF_LD, BPF_LDX, BPF_MSH, BPF_RET, BPF_RSH, BPF_W, SKF_AD_OFF, SKF_AD_PKTTYPE, sock_filter,
    sock_fprog,
};

/// Counts the TCP connections that the service at one port has accepted, in the network of the
/// thread that made the counter.
///
/// A packet socket receives the packets of the network, and a filter in the kernel accepts only the
/// second segment of each handshake from that port. The kernel counts the accepted packets, so the
/// test need not read packets in time, and no packet is lost. The count does not depend on the
/// stack under test.
#[derive(Debug)]
pub struct TcpMade {
    socket: OwnedFd,
}

impl TcpMade {
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
        let mut filter = second_of_handshake(port);
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

    /// The number of connections since the last call.
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
        ok(done).context("counting connections")?;
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

/// Accepts received segments with SYN and ACK from `port`: over IPv4, and over IPv6 without
/// extension headers.
fn second_of_handshake(port: u16) -> [sock_filter; 19] {
    const TCP: u32 = libc::IPPROTO_TCP as u32;
    const SYN_ACK: u32 = 0x12;
    const FLAGS: u32 = 13;
    let byte = |place: u32| op(BPF_LD | BPF_B | BPF_ABS, place);
    [
        // On loopback each packet is seen twice, once in each direction.
        byte((SKF_AD_OFF + SKF_AD_PKTTYPE).cast_unsigned()),
        equals(u32::from(libc::PACKET_HOST), 0, 16),
        byte(0),
        op(BPF_ALU | BPF_RSH | BPF_K, 4),
        equals(6, 4, 0),
        equals(4, 0, 12),
        byte(9),
        op(BPF_LDX | BPF_B | BPF_MSH, 0),
        op(BPF_JMP | BPF_JA, 2),
        byte(6),
        op(BPF_LDX | BPF_W | BPF_IMM, 40),
        // The protocol is loaded, and X holds the offset of its header.
        equals(TCP, 0, 6),
        op(BPF_LD | BPF_H | BPF_IND, 0),
        equals(u32::from(port), 0, 4),
        op(BPF_LD | BPF_B | BPF_IND, FLAGS),
        op(BPF_ALU | BPF_AND | BPF_K, SYN_ACK),
        equals(SYN_ACK, 0, 1),
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
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::NetSpace;

    #[test]
    fn connections_of_both_families_to_the_port_are_counted() {
        // The new network belongs to a new thread, so that other tests keep their network.
        let counted = std::thread::spawn(|| -> Result<Option<[u32; 3]>> {
            if !matches!(NetSpace::enter()?, NetSpace::Own) {
                return Ok(None);
            }
            let listeners = [
                TcpListener::bind("127.0.0.1:7001")?,
                TcpListener::bind("[::1]:7001")?,
                TcpListener::bind("127.0.0.1:7002")?,
            ];
            let made = TcpMade::at(7001)?;
            let mut counts = [made.since_last_call()?, 0, 0];
            for listener in &listeners {
                let _client = TcpStream::connect(listener.local_addr()?)?;
            }
            assert!(TcpStream::connect("127.0.0.1:7003").is_err());
            counts[1] = made.since_last_call()?;
            counts[2] = made.since_last_call()?;
            Ok(Some(counts))
        });
        match counted.join().unwrap().unwrap() {
            Some(counts) => assert_eq!(counts, [0, 2, 0]),
            None => crate::not_run("network namespaces are not permitted"),
        }
    }
}
