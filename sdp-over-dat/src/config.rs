//! Sizes and limits of a stack's sockets.

use std::{io, time::Duration};

use dat_api::ProviderAttr;
use sdp_proto::{self as proto, BUFFERS_MIN, reserve, wire::BSDH_LEN};

/// Sizes and limits of the sockets of a [`crate::Stack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The largest number of receive buffers of a socket. The protocol needs 3, and keeps two or
    /// three of them in reserve.
    pub receive_buffers: u16,
    /// The size of a receive buffer in bytes, headers included.
    pub buffer_size: u32,
    /// The size in bytes of the largest message that a socket sends, headers included. The size of
    /// the peer's receive buffers limits it too.
    pub send_size: u32,
    /// The largest number of bytes that may be written and not sent.
    pub send_ring: usize,
    /// The share of the receive buffers and of the send ring that a socket has at first.
    pub start: Start,
    /// The largest number of Sends in progress.
    pub sends_max: usize,
    /// The size in bytes of the memory for advertised bytes that no reader waits for. It is used in
    /// two halves.
    pub staging: usize,
    /// Blocking writes from this length on are sent straight from the caller's memory, without a
    /// copy at this end.
    pub registered_threshold: usize,
    /// Blocking writes from this length on are advertised, and the peer reads them.
    pub zcopy_threshold: usize,
    /// The number of advertisements, of both kinds together, that a socket accepts from its peer.
    /// With 1, a socket uses neither pipelined mode nor memory that its peer advertises.
    pub adverts_max: u8,
    /// Blocking writes from this length on change the direction to pipelined mode, in which the
    /// peer's readers may advertise their memory, and wait a moment for the next advertisement if
    /// there have been some. `usize::MAX`: only if the peer asks for the mode, and without a wait.
    pub pipelined_threshold: usize,
    /// A reader that waits with room for at least this many bytes advertises its memory, and the
    /// peer writes there. `usize::MAX`: no reader does.
    ///
    /// The lengths from which on a call uses its caller's memory also apply to
    /// [`crate::SdpStream::send_in_place`] and [`crate::SdpStream::receive_in_place`].
    pub sink_threshold: usize,
    /// Runs of at least this many bytes are written into memory that the peer has advertised.
    /// Shorter ones are sent in messages.
    pub write_min: u32,
    /// The timeout of an attempt to connect.
    pub connect_timeout: Duration,
    /// The time for which a peer may stay silent before its connection is aborted. It applies when
    /// a closed socket still has bytes for the peer, and when the peer holds memory of a call whose
    /// timeout has passed.
    pub close_timeout: Duration,
    /// The number of connection requests that may wait for an accept.
    pub backlog: u32,
}

/// The memory that a socket has at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// All memory that the configuration permits.
    Full,
    /// About 192 KiB. The memory grows as the socket is used. An adapter pins the memory of a
    /// socket, and many sockets never need all of it.
    Small,
}

/// Bytes of receive buffers in a small start.
const FIRST_RECEIVE: usize = 96 * 1024;

/// Bytes of send ring in a small start.
const FIRST_SEND: usize = 32 * 1024;

/// The fewest receive buffers in a small start. With fewer, only one data message could be in
/// flight.
const FIRST_BUFFERS_MIN: u16 = 5;

impl Default for Config {
    fn default() -> Self {
        Self {
            receive_buffers: 16,
            buffer_size: 64 * 1024 + 16,
            send_size: 64 * 1024 + 16,
            send_ring: 512 * 1024,
            start: Start::Full,
            sends_max: 32,
            staging: 512 * 1024,
            registered_threshold: usize::MAX,
            zcopy_threshold: 256 * 1024,
            adverts_max: 16,
            pipelined_threshold: usize::MAX,
            sink_threshold: usize::MAX,
            write_min: 16 * 1024,
            connect_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(60),
            backlog: 128,
        }
    }
}

/// The payload in bytes below which a bound makes receive buffers fewer and not smaller, because a
/// message costs about as much as the copy of this many bytes.
const BOUNDED_PAYLOAD_MIN: usize = 4 * 1024;

/// The named attribute of a provider that says what moves its data.
const DATA_PATH: &str = "DAT_RS_DATA_PATH";

impl Config {
    /// The configuration that suits a provider.
    ///
    /// An adapter reads memory by itself and has to pin it first, so sockets begin with little of
    /// it. Where the processor does the adapter's work, registration costs next to nothing. There
    /// an advertisement saves copies by the processor, and costs messages and registrations during
    /// which no byte moves. So writes below 128 KiB are copied. From there on readers advertise
    /// their memory, and writers from 512 KiB on as well. This end uses none of these mechanisms on
    /// adapters, where they have not been measured; it accepts advertisements of its peer.
    #[must_use]
    pub fn suited_to(provider: &ProviderAttr) -> Self {
        Self::suited_to_data_path(provider.specific(DATA_PATH))
    }

    fn suited_to_data_path(mover: Option<&str>) -> Self {
        match mover {
            Some("processor") => Self {
                registered_threshold: 128 * 1024,
                zcopy_threshold: 512 * 1024,
                pipelined_threshold: 128 * 1024,
                sink_threshold: 128 * 1024,
                ..Self::default()
            },
            _ => Self {
                buffer_size: 32 * 1024 + 16,
                send_size: 32 * 1024 + 16,
                start: Start::Small,
                zcopy_threshold: usize::MAX,
                ..Self::default()
            },
        }
    }

    /// Returns the configuration of a socket that holds at most `bytes` unread bytes of its peer
    /// (SO_RCVBUF), or as many as two messages of the least size.
    ///
    /// The receive buffers become smaller first, down to [`BOUNDED_PAYLOAD_MIN`], and then fewer.
    /// The set-up announces them to the peer, so a bound has no effect on an existing connection.
    #[must_use]
    pub fn with_receive_bound(self, bytes: usize) -> Self {
        let spare = reserve(self.receive_buffers);
        let most = self.receive_buffers.saturating_sub(spare).max(1);
        let payload_max = self.buffer_size as usize - BSDH_LEN;
        let staging = self.staging.min(bytes.max(2));
        if usize::from(most) * payload_max <= bytes {
            return Self { staging, ..self };
        }
        let fitting = u16::try_from(bytes / BOUNDED_PAYLOAD_MIN).unwrap_or(u16::MAX);
        let used = fitting.clamp(most.min(2), most);
        let least = proto::Config::BUFFER_SIZE_MIN as usize - BSDH_LEN;
        let payload = (bytes / usize::from(used)).clamp(least, payload_max);
        Self {
            receive_buffers: used + spare,
            buffer_size: (payload + BSDH_LEN) as u32,
            staging,
            ..self
        }
    }

    /// The number of receive buffers of a socket at first.
    pub(crate) fn first_receive_buffers(&self) -> u16 {
        match self.start {
            Start::Full => self.receive_buffers,
            Start::Small => {
                let fitting = FIRST_RECEIVE / self.buffer_size as usize;
                let fitting = u16::try_from(fitting).unwrap_or(u16::MAX);
                self.receive_buffers.min(fitting.max(FIRST_BUFFERS_MIN))
            }
        }
    }

    /// The size of the send ring of a socket at first, in bytes.
    pub(crate) fn first_send_ring(&self) -> usize {
        match self.start {
            Start::Full => self.send_ring,
            Start::Small => self.send_ring.min(FIRST_SEND),
        }
    }

    /// Refuses sizes with which no data could be transferred.
    pub(crate) fn check(&self) -> io::Result<()> {
        let rules = [
            (
                self.receive_buffers >= BUFFERS_MIN,
                "fewer than 3 receive buffers",
            ),
            (
                self.buffer_size >= proto::Config::BUFFER_SIZE_MIN,
                "receive buffers of less than 37 bytes",
            ),
            (
                self.send_size >= proto::Config::BUFFER_SIZE_MIN,
                "messages of less than 37 bytes",
            ),
            (self.send_ring > 0, "no room for bytes to be sent"),
            (self.sends_max > 0, "no Send may be in progress"),
            (self.adverts_max > 0, "no advertisement may be received"),
            (self.staging > 1, "a staging memory of less than two bytes"),
            (self.backlog > 0, "no connection request may wait"),
        ];
        match rules.into_iter().find(|(is_kept, _)| !is_kept) {
            Some((_, fault)) => Err(io::Error::new(io::ErrorKind::InvalidInput, fault)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest number of unread bytes that a socket holds with this configuration.
    fn held_max(config: &Config) -> usize {
        let used = config.receive_buffers - reserve(config.receive_buffers);
        usize::from(used) * (config.buffer_size as usize - BSDH_LEN)
    }

    #[test]
    fn a_bound_limits_the_unread_bytes_and_keeps_half_of_them() {
        let device = Config {
            buffer_size: 32 * 1024 + 16,
            start: Start::Small,
            ..Config::default()
        };
        let few = Config {
            receive_buffers: 4,
            buffer_size: 4096 + 16,
            ..Config::default()
        };
        let fewest = Config {
            receive_buffers: BUFFERS_MIN,
            ..Config::default()
        };
        for config in [Config::default(), device, few, fewest] {
            for bytes in (0..24).flat_map(|bits| [1_usize << bits, (1 << bits) + 17]) {
                let bounded = config.with_receive_bound(bytes);
                let held = held_max(&bounded);
                let least = bytes.min(held_max(&config));
                assert!(held <= bytes.max(2 * 21), "{bytes}: {bounded:?}");
                assert!(held * 2 >= least, "{bytes}: {bounded:?}");
                assert!(bounded.staging <= bytes.max(2), "{bytes}: {bounded:?}");
                assert!(bounded.receive_buffers <= config.receive_buffers);
                assert!(bounded.check().is_ok(), "{bytes}: {bounded:?}");
                assert_eq!(bounded.send_size, config.send_size);
            }
        }
    }

    #[test]
    fn memory_of_a_call_is_registered_only_where_the_processor_moves_the_bytes() {
        let thresholds = |mover| {
            let it = Config::suited_to_data_path(mover);
            let of_writers = it.registered_threshold.min(it.zcopy_threshold);
            of_writers
                .min(it.pipelined_threshold)
                .min(it.sink_threshold)
        };
        assert_eq!(thresholds(Some("processor")), 128 * 1024);
        assert_eq!(thresholds(Some("device")), usize::MAX);
        assert_eq!(thresholds(None), usize::MAX);
    }

    #[test]
    fn a_bound_above_the_sizes_changes_nothing() {
        let config = Config::default();
        assert_eq!(config.with_receive_bound(usize::MAX), config);
        assert_eq!(config.with_receive_bound(held_max(&config)), config);
    }
}
