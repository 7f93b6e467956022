//! The TCP carrier: MPA over a stream socket (RFC 5044).
//!
//! | File | Contents |
//! |---|---|
//! | [`tx`] | frames segments, sends bytes through the socket |
//! | [`rx`] | receives bytes from the socket, handles frames, places payload |
//! | [`marked`] | MPA markers between the bytes of either direction |
//! | [`crc`] | CRC32C |

pub(crate) mod crc;
mod marked;
mod rx;
mod tx;

use std::os::fd::AsFd;
use std::sync::Arc;

use iwarp_proto::mpa::Negotiated;
use iwarp_proto::wire::fpdu;
use iwarp_proto::{Connection, TransmitFpdu};
use rnic::Amount;

use super::{Carrier, Distance, End, Flow, Payloads, Reception, TxFault};
use crate::config::Config;
use crate::engine::io::{self, Sent};
use crate::memory::Bytes;
use crate::progress::conn_socket::ConnSocket;
use crate::work::Report;

use rx::Rx;
use tx::{Sources, Tx};

/// The number of sent bytes between two queries of the size of TCP's segments. The number doubles
/// from `REFRESH_MIN`, a few windows, to `REFRESH_MAX`.
const REFRESH_MIN: u64 = 128 * 1024;
const REFRESH_MAX: u64 = 256 << 20;

/// MPA over one socket.
#[derive(Debug)]
pub(crate) struct TcpCarrier {
    socket: Arc<ConnSocket>,
    tx: Tx,
    rx: Rx,
    /// True while staging buffers are kept between two calls, because the connection is polled.
    keeps_staging: bool,
    /// The longest ULPDU toward a peer that runs another implementation, for segments of any
    /// size.
    ulpdu_max: usize,
    /// True if FPDUs are sent with markers.
    markers_tx: bool,
    /// The number of sent bytes at which the size of TCP's segments is queried next.
    refresh_at: u64,
}

impl TcpCarrier {
    pub(crate) fn new(socket: Arc<ConnSocket>, negotiated: &Negotiated, settings: &Config) -> Self {
        Self {
            socket,
            tx: Tx::new(negotiated, settings.own_ulpdu_max(negotiated)),
            rx: Rx::new(negotiated),
            keeps_staging: false,
            ulpdu_max: settings.ulpdu_max(),
            markers_tx: negotiated.markers_tx,
            refresh_at: REFRESH_MIN,
        }
    }

    /// Sets whether empty staging buffers are kept for the next call.
    pub(crate) fn keep_staging(&mut self, keeps: bool) {
        self.keeps_staging = keeps;
        if !keeps {
            self.tx.release_if_empty();
            self.rx.release_if_empty();
        }
    }

    /// Adapts to the size of TCP's segments, which grows in the first moments of a connection and
    /// may change with its path. Ends that have agreed on longer FPDUs do not need the size.
    fn refresh_mulpdu(&mut self, proto: &mut Connection) {
        if self.tx.sent() < self.refresh_at || proto.agreed_ulpdu().is_some() {
            return;
        }
        let step = self.refresh_at.clamp(REFRESH_MIN, REFRESH_MAX);
        self.refresh_at = self.tx.sent() + step;
        let emss = io::segment_size(self.socket.as_fd());
        let mulpdu = fpdu::mulpdu(emss, self.markers_tx).min(self.ulpdu_max);
        proto.set_mulpdu(mulpdu);
    }

    /// The segments that were sent.
    pub(crate) fn sent(&self) -> Amount {
        self.tx.segments()
    }

    /// The number of received segments.
    pub(crate) fn received(&self) -> u64 {
        self.rx.frames()
    }

    /// Bytes that the peer's TCP has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        io::unacknowledged(self.socket.as_fd())
    }

    /// Returns the bytes of a single FPDU. Only valid while nothing else is framed.
    pub(crate) fn lone_frame(
        &mut self,
        fpdu: &TransmitFpdu,
        payloads: &Payloads<'_>,
    ) -> Option<Vec<u8>> {
        let memory = payloads.table.access();
        let sources = Sources::new(self.socket.as_fd(), &memory, payloads);
        self.tx.frame_last(fpdu, &sources);
        self.tx.take_all(&sources)
    }

    /// Ends the stream: sends the rest of a partly sent FPDU, then the FPDUs `last`.
    /// Returns the bytes that the socket has not accepted.
    pub(crate) fn last_bytes(
        &mut self,
        last: &[TransmitFpdu],
        payloads: &Payloads<'_>,
    ) -> Option<Vec<u8>> {
        let memory = payloads.table.access();
        let sources = Sources::new(self.socket.as_fd(), &memory, payloads);
        let mut bytes = self.tx.take_rest_of_fpdu(&sources)?;
        for fpdu in last {
            self.tx.frame_last(fpdu, &sources);
            bytes.extend(self.tx.take_all(&sources)?);
        }
        let sent = match bytes.is_empty() {
            true => 0,
            false => match io::send(self.socket.as_fd(), &bytes) {
                Sent::Bytes(count) => count,
                Sent::WouldBlock => 0,
                Sent::Failed(_) => return None,
            },
        };
        bytes.drain(..sent);
        Some(bytes)
    }

    /// Returns the receiving buffer to the pool, because the connection is over.
    pub(crate) fn close(&mut self) {
        self.rx.close();
    }
}

impl Carrier for TcpCarrier {
    fn has_room(&mut self, payload_len: usize) -> bool {
        self.tx.has_room(payload_len)
    }

    fn submit(&mut self, segment: &TransmitFpdu, payload: &[Bytes<'_>], report: Report) {
        self.tx.frame_at_once(segment, payload, report);
    }

    fn transmit(
        &mut self,
        proto: &mut Connection,
        payloads: &Payloads<'_>,
    ) -> Result<Flow, TxFault> {
        self.refresh_mulpdu(proto);
        let flow = if self.tx.is_all_staged() && !proto.has_transmit() {
            self.tx.flush(proto, self.socket.as_fd())
        } else {
            let memory = payloads.table.access();
            let sources = Sources::new(self.socket.as_fd(), &memory, payloads);
            self.tx.run(proto, &sources)
        };
        if !self.keeps_staging {
            self.tx.release_if_empty();
            self.rx.release_if_empty();
        }
        flow
    }

    fn receive(&mut self, reception: &mut Reception<'_>) -> Result<bool, End> {
        self.rx
            .run(self.socket.as_fd(), self.keeps_staging, reception)
    }

    fn finished(&mut self) -> &mut Vec<Report> {
        self.tx.finished()
    }

    fn has_unfinished(&self) -> bool {
        self.tx.has_unfinished()
    }

    fn take_unfinished(&mut self) -> Vec<Report> {
        self.tx.take_unfinished().collect()
    }

    fn is_pending(&self) -> bool {
        self.tx.is_pending()
    }

    fn distance(&self) -> Distance {
        Distance {
            sent: self.tx.sent(),
            received: self.rx.frames(),
        }
    }
}
