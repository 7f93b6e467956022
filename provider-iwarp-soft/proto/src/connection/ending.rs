//! The end of a stream: faults that the engine found, Terminate messages, the end of the transport.

use crate::{
    Ends, MpaError, Msn, ProtectionFault, ProtocolError, TerminateCode, TransmitFpdu,
    TransmitPayload,
    wire::{
        ddp::{Tagged, UNTAGGED_LEN, Untagged, qn},
        fpdu::LENGTH_LEN,
        rdmap::{Opcode, READ_REQUEST_LEN, ReadRequest},
        terminate::{self, LEN_MAX, Offender},
    },
};

use super::{Connection, requests::Pending};

impl Connection {
    /// Ends the stream for a fault that MPA found in it (CRC, length). Later segments are ignored.
    pub fn handle_llp_error(&mut self, error: MpaError) -> ProtocolError {
        self.fail(ProtocolError::without_segment(TerminateCode::Mpa(error)))
    }

    /// Ends the stream because a local buffer of a work request or of a receive cannot be accessed.
    pub fn fail_local(&mut self) -> ProtocolError {
        self.fail(ProtocolError::without_segment(
            TerminateCode::RdmapCatastrophic,
        ))
    }

    /// Ends the stream because the target memory of a segment of `len` bytes was deregistered
    /// between [`Self::handle_ulpdu`] or [`Self::predict_target`] and the copy. `ulpdu` has at
    /// least the header of the segment.
    pub fn refuse_placement(
        &mut self,
        ulpdu: &[u8],
        len: usize,
        fault: ProtectionFault,
    ) -> ProtocolError {
        let code = TerminateCode::tagged(fault);
        self.fail(ProtocolError::in_segment(code, ulpdu, len))
    }

    /// Ends the stream because the source memory of the FPDU just polled was deregistered. The
    /// caller must not transmit the FPDU: the Terminate message takes its place, and reports the
    /// progress of the read (RFC 5040 section 4.8).
    pub fn refuse_response(
        &mut self,
        fpdu: &TransmitFpdu,
        fault: ProtectionFault,
    ) -> ProtocolError {
        let code = TerminateCode::remote(fault);
        let error = match self.unfinished_read(fpdu) {
            Some(segment) => ProtocolError::in_segment(code, &segment, segment.len()),
            None => ProtocolError::without_segment(code),
        };
        self.fail(error)
    }

    /// Returns the Read Request that `fpdu`, just polled, answers, advanced to the first byte of
    /// `fpdu`.
    fn unfinished_read(
        &self,
        fpdu: &TransmitFpdu,
    ) -> Option<[u8; UNTAGGED_LEN + READ_REQUEST_LEN]> {
        let TransmitPayload::ReadResponse { stag, to, len } = fpdu.payload else {
            return None;
        };
        // The pending queue holds the newest requests of the peer, one MSN each. The read in
        // question is at its front, or was just removed with its last segment.
        let newer = self.pending.entries.len() as u32;
        let (left, back) = match (fpdu.ends, self.pending.entries.front()) {
            (None, Some(Pending::Read { request, done })) => (request.len - done + len, newer),
            _ => (len, newer + 1),
        };
        let sink = fpdu.segment_header().first_chunk().map(Tagged::parse)?;
        let request = ReadRequest {
            sink_stag: sink.stag,
            sink_to: sink.to,
            len: left,
            source_stag: stag,
            source_to: to,
        };
        let msn = Msn(self.rx.next_request().0.wrapping_sub(back));
        Some(quoted_read(&request, msn))
    }

    /// Records a fault that ends the stream. Every such fault is recorded here, but only the first
    /// one counts.
    pub(super) fn fail(&mut self, error: ProtocolError) -> ProtocolError {
        if self.state.accepts_input() {
            tracing::warn!(code = %error.code, "stream ends by fault");
        }
        self.state.on_violation();
        error
    }

    /// Makes the only Terminate message of this stream; `None` if the message was sent already, or
    /// may not be sent. Nothing may be transmitted after the message: shut the sending side of the
    /// transport down, then read and discard until the peer closes, so that a reset does not
    /// overtake the message.
    pub fn terminate(&mut self, error: &ProtocolError) -> Option<TransmitFpdu> {
        if error.code == TerminateCode::Mpa(MpaError::Closed) || !self.state.on_terminate() {
            return None;
        }
        Some(TransmitFpdu::terminate(error))
    }

    /// Records that the transport connection has ended, gracefully or not.
    pub fn on_llp_closed(&mut self) {
        self.state.on_closed();
    }

    /// Takes the receive of a message that was not received completely, after the stream has ended.
    /// The receive completes in error, before the flushed receives that no message has reached.
    pub fn take_partial_receive(&mut self) -> Option<u64> {
        if self.state.has_ended() {
            self.rx.take_partial()
        } else {
            None
        }
    }
}

impl TransmitFpdu {
    /// Makes a Terminate message outside of a [`Connection`], by which an initiator refuses an
    /// accepting Reply ([`crate::mpa::Refusal`]).
    #[must_use]
    pub fn terminate(error: &ProtocolError) -> Self {
        let mut message = [0; LEN_MAX];
        let len = terminate::emit(error.code, error.offender.as_ref(), &mut message);
        let header = Untagged {
            last: true,
            rdmap: Opcode::Terminate.control(),
            rsvd_ulp: 0,
            qn: qn::TERMINATE,
            msn: Msn::FIRST,
            mo: 0,
        };
        let at = LENGTH_LEN + UNTAGGED_LEN;
        let mut fpdu = Self::new(at + len, TransmitPayload::None, Some(Ends::Stream));
        header.emit(fpdu.part(LENGTH_LEN));
        *fpdu.part(at) = message;
        fpdu
    }
}

/// Makes the Read Request that its requester would send for the remaining bytes.
fn quoted_read(request: &ReadRequest, msn: Msn) -> [u8; UNTAGGED_LEN + READ_REQUEST_LEN] {
    let mut segment = [0; UNTAGGED_LEN + READ_REQUEST_LEN];
    let header = Untagged {
        last: true,
        rdmap: Opcode::ReadRequest.control(),
        rsvd_ulp: 0,
        qn: qn::REQUEST,
        msn,
        mo: 0,
    };
    if let Some((ddp, rest)) = segment.split_first_chunk_mut() {
        header.emit(ddp);
        if let Some(rdmap) = rest.first_chunk_mut() {
            request.emit(rdmap);
        }
    }
    segment
}

// The longest Terminate message fits after the DDP header of an FPDU.
const _: () = assert!(LENGTH_LEN + UNTAGGED_LEN + LEN_MAX == crate::HEADER_MAX);
const _: () = assert!(size_of::<Offender>() <= 64);
