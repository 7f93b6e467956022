//! Counts of payload by transport, and the reasons why connections stay on TCP.

use std::ops::AddAssign;

/// A number of DDP segments, including those without payload, and their payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// The number of segments.
    pub segments: u64,
    /// Payload in bytes.
    pub bytes: u64,
}

impl Amount {
    /// Adds one segment.
    #[inline]
    pub fn add_segment(&mut self, payload_len: usize) {
        self.segments += 1;
        self.bytes += payload_len as u64;
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.segments += other.segments;
        self.bytes += other.bytes;
    }
}

/// Both directions of one transport.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flow {
    /// Segments and bytes sent.
    pub sent: Amount,
    /// Segments and bytes received.
    pub received: Amount,
}

impl AddAssign for Flow {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
    }
}

/// The reason why a connection is on TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyTcp {
    /// The two ends have not agreed on carriers.
    OtherImplementation,
    /// The connection has carried too few messages for shared memory.
    LittleTraffic,
    /// `local=off` at this end.
    Off,
    /// `local=off` at the peer.
    PeerOff,
    /// The peer is not on this host.
    OtherHost,
    /// The peer must make the offer, and has not made it.
    NotOffered,
    /// The peer has not answered the offer.
    NotAnswered,
    /// The peer has refused the offer.
    Refused,
    /// This end lacks descriptors or memory.
    NoResources,
}

impl WhyTcp {
    /// All reasons, in the order of [`Traffic::on_tcp`].
    pub const ALL: [Self; 9] = [
        Self::OtherImplementation,
        Self::LittleTraffic,
        Self::Off,
        Self::PeerOff,
        Self::OtherHost,
        Self::NotOffered,
        Self::NotAnswered,
        Self::Refused,
        Self::NoResources,
    ];

    /// Returns the reason as text for the user.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::OtherImplementation => {
                "the peer runs another implementation, or one end has long_fpdus=off"
            }
            Self::LittleTraffic => "too little traffic so far",
            Self::Off => "local=off at this end",
            Self::PeerOff => "local=off at the peer",
            Self::OtherHost => "the peer is on another host or in another network namespace",
            Self::NotOffered => "the peer has not offered shared memory",
            Self::NotAnswered => "the peer has not answered the offer of shared memory",
            Self::Refused => "the peer has refused shared memory",
            Self::NoResources => "no descriptors or memory",
        }
    }
}

/// Payload of one connection, or of several, by transport.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Payload over TCP.
    pub tcp: Flow,
    /// Payload copied through shared memory.
    pub ring: Flow,
    /// Payload read from the memory of the sending process.
    pub reference: Flow,
    /// RDMA Writes (sent) and Reads (received) that this end has carried out in the memory of the
    /// peer's process.
    pub direct: Flow,
    /// Connections whose sending direction has moved from TCP to shared memory.
    pub moved_sending: u64,
    /// Connections whose receiving direction has moved from TCP to shared memory.
    pub moved_receiving: u64,
    /// Connections that are on TCP, or were on TCP when they ended, by reason ([`WhyTcp::ALL`]).
    pub on_tcp: [u64; WhyTcp::ALL.len()],
}

impl Traffic {
    /// Counts a connection that is on TCP.
    pub fn add_on_tcp(&mut self, why: WhyTcp) {
        self.on_tcp[why as usize] += 1;
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.tcp += other.tcp;
        self.ring += other.ring;
        self.reference += other.reference;
        self.direct += other.direct;
        self.moved_sending += other.moved_sending;
        self.moved_receiving += other.moved_receiving;
        for (count, more) in self.on_tcp.iter_mut().zip(other.on_tcp) {
            *count += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_at_their_place() {
        let mut traffic = Traffic::default();
        for (index, why) in WhyTcp::ALL.into_iter().enumerate() {
            traffic.add_on_tcp(why);
            assert_eq!(traffic.on_tcp[index], 1, "{why:?}");
        }
        let mut sum = traffic;
        sum += traffic;
        assert_eq!(sum.on_tcp, [2; WhyTcp::ALL.len()]);
    }
}
