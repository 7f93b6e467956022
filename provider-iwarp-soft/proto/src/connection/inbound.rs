//! Makes placements from segments: every check of DDP and RDMAP, before any byte is placed.
//!
//! The order of checks: length, DDP version, RDMAP version, opcode (assigned, and legal in this
//! header and queue), then queue, MSN, MO and buffer, or STag, stream, right, wrap and bounds.

use crate::{
    Access, Delivery, Immediate, Inbound, MemoryTable, MpaError, Msn, PeerTerminate, Placement,
    ProtocolError, ReceiveBuffer, ReceiveQueue, RemoteOperation, SEGMENT_MAX, Stag, TaggedError,
    Target, TerminateCode, UntaggedError,
    wire::{
        carrier,
        ddp::{self, TAGGED_LEN, Tagged, UNTAGGED_LEN, Untagged, qn},
        mpa::RtrKind,
        rdmap::{
            ATOMIC_REQUEST_LEN, ATOMIC_RESPONSE_LEN, AtomicRequest, AtomicResponse, Control,
            IMMEDIATE_LEN, Opcode, READ_REQUEST_LEN, ReadRequest,
        },
        terminate::{self, Context},
    },
};

use super::{
    Connection, Role, Sequences,
    requests::{Outstanding, Pending},
};

const BAD_LENGTH: TerminateCode = TerminateCode::Mpa(MpaError::Length);
const UNEXPECTED_OPCODE: TerminateCode =
    TerminateCode::RemoteOperation(RemoteOperation::UnexpectedOpcode);
const NO_RECEIVE: TerminateCode = TerminateCode::Untagged(UntaggedError::NoBuffer);
const CATASTROPHIC: TerminateCode =
    TerminateCode::RemoteOperation(RemoteOperation::CatastrophicStream);

/// The receiving half of a connection.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The MSN of the next message of each queue.
    msn: Sequences,
    /// The Send of which some segments were received.
    message: Option<Message>,
    /// The RDMA Write to which Immediate Data may belong.
    written: Written,
    /// True after a valid FPDU was received.
    received_fpdu: bool,
}

/// A Send of which some segments are missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    buffer: ReceiveBuffer,
    opcode: Opcode,
    received: u32,
}

impl Message {
    /// The target of the next `segment` bytes.
    pub(super) const fn target<P>(&self, segment: u32) -> Target<P> {
        if segment == 0 {
            return Target::None;
        }
        Target::Untagged {
            receive: self.buffer.token,
            offset: self.received,
        }
    }
}

/// The payload of an untagged segment: its bytes, or no bytes if only its length is known.
#[derive(Clone, Copy, Debug)]
struct Payload<'a> {
    bytes: &'a [u8],
    len: u32,
}

/// The length of the latest RDMA Write, as far as it was received.
#[derive(Clone, Copy, Debug)]
struct Written {
    len: u32,
    is_complete: bool,
}

impl Written {
    /// No Write, or none to which Immediate Data could still belong.
    const NONE: Self = Self {
        len: 0,
        is_complete: true,
    };

    /// The length saturates, because a peer may make a Write longer than the field can hold.
    fn on_segment(&mut self, len: u32, last: bool) {
        let before = if self.is_complete { 0 } else { self.len };
        *self = Self {
            len: before.saturating_add(len),
            is_complete: last,
        };
    }
}

impl Receiver {
    pub(super) const fn new() -> Self {
        Self {
            msn: Sequences::FIRST,
            message: None,
            written: Written::NONE,
            received_fpdu: false,
        }
    }

    /// The MSN that the peer's next read or atomic must have.
    pub(super) const fn next_request(&self) -> Msn {
        self.msn.request
    }

    /// The MSN that the peer's next Send must have, or the rest of the Send that was received in
    /// part.
    pub(super) const fn next_send(&self) -> Msn {
        self.msn.send
    }

    /// The MSN that the peer's next carrier message must have.
    pub(super) const fn next_carrier(&self) -> Msn {
        self.msn.carrier
    }

    /// Records that a carrier message with this MSN was accepted.
    pub(super) const fn on_carrier(&mut self, msn: Msn) {
        self.msn.carrier = msn.next();
    }

    pub(super) const fn has_received(&self) -> bool {
        self.received_fpdu
    }

    pub(super) fn take_partial(&mut self) -> Option<u64> {
        self.message.take().map(|message| message.buffer.token)
    }
}

impl Connection {
    /// Checks a DDP segment from an FPDU, whose length and CRC the caller has checked. Only headers
    /// are read; the result names the payload by its range in `ulpdu`.
    ///
    /// On `Err` nothing of the segment may be placed and the stream has ended: continue with
    /// [`Self::terminate`].
    pub fn handle_ulpdu<M: MemoryTable, Q: ReceiveQueue>(
        &mut self,
        ulpdu: &[u8],
        memory: &M,
        receives: &mut Q,
    ) -> Result<Inbound<M::Place>, ProtocolError> {
        let fault = if ulpdu.len() > usize::from(u16::MAX) {
            BAD_LENGTH
        } else if self.has_rx_moved() {
            // After `Moved` the peer sends nothing over TCP.
            UNEXPECTED_OPCODE
        } else {
            return self.handle(ulpdu, 0, memory, receives);
        };
        self.refuse(fault, ulpdu, ulpdu.len())
    }

    /// Checks a DDP segment whose payload of `payload_len` bytes is not part of `header`, because a
    /// carrier other than MPA has delivered the segment, or because the payload was placed at the
    /// target that [`Self::predict_target`] returned. The 16 bits of MPA's length field set no
    /// limit here.
    ///
    /// For payload that is placed, `header` is exactly the DDP header. For a message without such
    /// payload (Read Request, Terminate, atomics, Immediate Data, carrier messages) `header` is the
    /// complete segment and `payload_len` is 0. Any other combination is refused as a wrong length,
    /// and so is a payload longer than [`SEGMENT_MAX`].
    ///
    /// [`Placement::payload`] counts from the first byte of `header`, as if the payload followed.
    /// On `Err` nothing of the segment may be placed, as for [`Self::handle_ulpdu`].
    pub fn handle_segment<M: MemoryTable, Q: ReceiveQueue>(
        &mut self,
        header: &[u8],
        payload_len: usize,
        memory: &M,
        receives: &mut Q,
    ) -> Result<Inbound<M::Place>, ProtocolError> {
        self.handle(header, payload_len, memory, receives)
    }

    fn handle<M: MemoryTable, Q: ReceiveQueue>(
        &mut self,
        header: &[u8],
        payload_len: usize,
        memory: &M,
        receives: &mut Q,
    ) -> Result<Inbound<M::Place>, ProtocolError> {
        if !self.state.accepts_input() {
            return Ok(Inbound::Dropped);
        }
        match self.judge(header, payload_len, memory, receives) {
            Ok(inbound) => {
                self.rx.received_fpdu = true;
                self.state.on_fpdu();
                Ok(inbound)
            }
            // The receive is the last thing that a segment needs before it has an effect.
            Err(NO_RECEIVE) if self.may_wait_for_receives() => Ok(Inbound::Unready),
            Err(code) => self.refuse(code, header, header.len().saturating_add(payload_len)),
        }
    }

    /// Refuses a segment of `len` bytes that is not legal.
    fn refuse<P>(
        &mut self,
        code: TerminateCode,
        header: &[u8],
        len: usize,
    ) -> Result<Inbound<P>, ProtocolError> {
        if self.state.accepts_input() {
            Err(self.fail(ProtocolError::in_segment(code, header, len)))
        } else {
            Ok(Inbound::Dropped)
        }
    }

    fn judge<M: MemoryTable, Q: ReceiveQueue>(
        &mut self,
        header: &[u8],
        payload_len: usize,
        memory: &M,
        receives: &mut Q,
    ) -> Result<Inbound<M::Place>, TerminateCode> {
        let control = ddp::Control(*header.first().ok_or(BAD_LENGTH)?);
        if payload_len > 0 && header.len() != control.header_len() {
            return Err(BAD_LENGTH);
        }
        // Bytes after the DDP header, in either buffer.
        let segment = |rest: &[u8]| {
            let len = rest.len().saturating_add(payload_len);
            let len = (len <= SEGMENT_MAX).then_some(len as u32);
            len.ok_or(BAD_LENGTH)
        };
        if control.is_tagged() {
            let (header, rest) = header.split_first_chunk().ok_or(BAD_LENGTH)?;
            if !control.is_version_known() {
                return Err(TerminateCode::Tagged(TaggedError::Version));
            }
            let header = Tagged::parse(header);
            let segment = segment(rest)?;
            match opcode_of(header.rdmap)? {
                Opcode::Write => self.handle_write(&header, segment, memory),
                Opcode::ReadResponse => self.handle_read_response(&header, segment, memory),
                _ => Err(UNEXPECTED_OPCODE),
            }
        } else {
            let (header, rest) = header.split_first_chunk().ok_or(BAD_LENGTH)?;
            if !control.is_version_known() {
                return Err(TerminateCode::Untagged(UntaggedError::Version));
            }
            let payload = Payload {
                bytes: rest,
                len: segment(rest)?,
            };
            self.handle_untagged(&Untagged::parse(header), payload, memory, receives)
        }
    }

    /// Returns true if the peer has transmitted a part of a message, but not its end.
    pub(super) fn has_partial_message(&self) -> bool {
        self.rx.message.is_some()
            || !self.rx.written.is_complete
            || self.outstanding.is_partly_answered()
    }

    fn handle_write<M: MemoryTable>(
        &mut self,
        header: &Tagged,
        segment: u32,
        memory: &M,
    ) -> Result<Inbound<M::Place>, TerminateCode> {
        if segment == 0 && header.last && self.is_ready_to_receive(RtrKind::Write) {
            return Ok(Inbound::ReadyToReceive);
        }
        if segment == 0 && header.last {
            self.on_empty_write(header.stag, header.to);
        }
        let target = resolve_write(header, segment, memory)?;
        self.rx.written.on_segment(segment, header.last);
        let delivered = header.last.then_some(Delivery::Write);
        Ok(place_tagged(target, segment, delivered))
    }

    /// Resolves the target of a response. RFC 5040 section 5.2.1: a response goes to the sink of
    /// the oldest read, byte after byte, and ends with its last byte.
    pub(super) fn resolve_read_response<M: MemoryTable>(
        &self,
        header: &Tagged,
        segment: u32,
        memory: &M,
    ) -> Result<Target<M::Place>, TerminateCode> {
        let Some(Outstanding::Read {
            sink_stag,
            sink_to,
            len,
            received,
            ..
        }) = self.outstanding.awaiting()
        else {
            return Err(UNEXPECTED_OPCODE);
        };
        let bounds = TerminateCode::Tagged(TaggedError::Bounds);
        let left = len - received;
        let target = if segment > 0 {
            if header.stag != *sink_stag {
                return Err(TerminateCode::Tagged(TaggedError::InvalidStag));
            }
            if header.to != sink_to.wrapping_add(u64::from(*received)) || segment > left {
                return Err(bounds);
            }
            resolve_tagged(Access::ReadSink, header, segment, memory)?
        } else {
            Target::None
        };
        if header.last && segment != left {
            return Err(bounds);
        }
        Ok(target)
    }

    fn handle_read_response<M: MemoryTable>(
        &mut self,
        header: &Tagged,
        segment: u32,
        memory: &M,
    ) -> Result<Inbound<M::Place>, TerminateCode> {
        let target = self.resolve_read_response(header, segment, memory)?;
        let Some(Outstanding::Read { work, received, .. }) = self.outstanding.entries.front_mut()
        else {
            return Err(UNEXPECTED_OPCODE);
        };
        *received += segment;
        let work = *work;
        if !header.last {
            return Ok(place_tagged(target, segment, None));
        }
        self.outstanding.on_answer();
        if work.is_none() {
            self.agreement.on_answered(header.to);
            self.adopt_agreed_ulpdu();
            // The answer of the start-up has no payload that the engine could store.
            self.on_answer_stored();
        }
        let delivered = work.map(|(_, token)| Delivery::Read { token });
        Ok(place_tagged(target, segment, delivered))
    }

    fn handle_untagged<M: MemoryTable, Q: ReceiveQueue>(
        &mut self,
        header: &Untagged,
        Payload {
            bytes: payload,
            len,
        }: Payload<'_>,
        memory: &M,
        receives: &mut Q,
    ) -> Result<Inbound<M::Place>, TerminateCode> {
        if self.has_agreed_carriers() && carrier::is_carrier(header) {
            return self.handle_carrier(header, payload);
        }
        let opcode = opcode_of(header.rdmap)?;
        let home = opcode.queue().ok_or(UNEXPECTED_OPCODE)?;
        let is_permitted = match opcode.is_send_immediate() {
            true => self.agreed_ulpdu().is_some(),
            false => self.config.rfc7306 || opcode as u8 <= Opcode::Terminate as u8,
        };
        if !is_permitted {
            return Err(UNEXPECTED_OPCODE);
        }
        let last_queue = if self.config.rfc7306 {
            qn::ATOMIC_RESPONSE
        } else {
            qn::TERMINATE
        };
        if header.qn > last_queue {
            return Err(TerminateCode::Untagged(UntaggedError::InvalidQn));
        }
        if header.qn != home {
            return Err(UNEXPECTED_OPCODE);
        }
        match opcode {
            Opcode::ReadRequest => self.handle_read_request(header, payload, memory),
            Opcode::Terminate => Ok(self.handle_terminate(payload)),
            Opcode::ImmediateData | Opcode::ImmediateDataSolicited => {
                self.handle_immediate(header, opcode, payload, receives)
            }
            Opcode::AtomicRequest => self.handle_atomic_request(header, payload, memory),
            Opcode::AtomicResponse => self.handle_atomic_response(header, payload),
            _ => self.handle_send(header, opcode, len, memory, receives),
        }
    }

    fn handle_send<M: MemoryTable, Q: ReceiveQueue>(
        &mut self,
        header: &Untagged,
        opcode: Opcode,
        segment: u32,
        memory: &M,
        receives: &mut Q,
    ) -> Result<Inbound<M::Place>, TerminateCode> {
        check_msn(header, self.rx.msn.send)?;
        let is_empty = segment == 0 && header.last && opcode == Opcode::Send;
        if is_empty && self.rx.message.is_none() && self.is_ready_to_receive(RtrKind::Send) {
            check_mo(header, 0)?;
            self.rx.msn.send = header.msn.next();
            return Ok(Inbound::ReadyToReceive);
        }
        let message = self.message_of(header, opcode, segment, receives)?;
        let after = Message {
            received: message.received + segment,
            ..message
        };
        let delivered = if header.last {
            Some(self.complete_send(header, &after, memory)?)
        } else {
            self.rx.message = Some(after);
            None
        };
        Ok(Inbound::Place(Placement {
            target: message.target(segment),
            payload: UNTAGGED_LEN..UNTAGGED_LEN + segment as usize,
            delivered,
        }))
    }

    /// Returns the message that a segment with the right MSN continues or begins, if the segment
    /// fits.
    pub(super) fn message_of<Q: ReceiveQueue>(
        &mut self,
        header: &Untagged,
        opcode: Opcode,
        segment: u32,
        receives: &mut Q,
    ) -> Result<Message, TerminateCode> {
        let message = match self.rx.message {
            Some(message) => message,
            None => {
                check_mo(header, 0)?;
                Message {
                    buffer: take_receive(receives)?,
                    opcode,
                    received: 0,
                }
            }
        };
        // Taken now, so that the receive is not lost when the message is refused below.
        self.rx.message = Some(message);
        if opcode != message.opcode {
            return Err(UNEXPECTED_OPCODE);
        }
        check_mo(header, message.received)?;
        if segment > message.buffer.len - message.received {
            return Err(TerminateCode::Untagged(UntaggedError::TooLong));
        }
        Ok(message)
    }

    /// Completes a Send, whose last segment was received, and determines the STag that it
    /// invalidates.
    #[inline]
    fn complete_send<M: MemoryTable>(
        &mut self,
        header: &Untagged,
        message: &Message,
        memory: &M,
    ) -> Result<Delivery, TerminateCode> {
        let named = Stag(header.rsvd_ulp);
        let is_named = named != Stag::NONE || self.config.peer.names_what_it_invalidates();
        let invalidate = (message.opcode.is_invalidate() && is_named).then_some(named);
        if let Some(stag) = invalidate {
            memory
                .check_invalidate(stag)
                .map_err(TerminateCode::invalidate)?;
        }
        self.rx.message = None;
        self.rx.written = Written::NONE;
        self.rx.msn.send = header.msn.next();
        Ok(Delivery::Receive {
            token: message.buffer.token,
            len: message.received,
            solicited: message.opcode.is_solicited(),
            invalidate,
            immediate: match message.opcode.is_send_immediate() {
                true => Some(Immediate::OfSend(header.rsvd_ulp)),
                false => None,
            },
        })
    }

    /// RFC 7306 section 6: exactly eight bytes that consume a receive. Behind an RDMA Write they
    /// are the second half of a Write with immediate data, whose receive has the Write's length.
    fn handle_immediate<P, Q: ReceiveQueue>(
        &mut self,
        header: &Untagged,
        opcode: Opcode,
        payload: &[u8],
        receives: &mut Q,
    ) -> Result<Inbound<P>, TerminateCode> {
        let data = exact::<IMMEDIATE_LEN>(header, payload)?;
        check_msn(header, self.rx.msn.send)?;
        if self.rx.message.is_some() {
            return Err(UNEXPECTED_OPCODE);
        }
        check_mo(header, 0)?;
        let token = take_receive(receives)?.token;
        self.rx.msn.send = header.msn.next();
        let delivered = Some(Delivery::Receive {
            token,
            len: std::mem::replace(&mut self.rx.written, Written::NONE).len,
            solicited: opcode.is_solicited(),
            invalidate: None,
            immediate: Some(Immediate::OfWrite(*data)),
        });
        Ok(Inbound::Place(Placement {
            target: Target::None,
            payload: UNTAGGED_LEN..UNTAGGED_LEN,
            delivered,
        }))
    }

    fn handle_read_request<M: MemoryTable>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
        memory: &M,
    ) -> Result<Inbound<M::Place>, TerminateCode> {
        let mut request = ReadRequest::parse(exact::<READ_REQUEST_LEN>(header, payload)?);
        check_msn(header, self.rx.msn.request)?;
        check_mo(header, 0)?;
        // RFC 5040 section 5.2: source STag and TO of an empty read are not validated.
        if request.len > 0 {
            memory
                .resolve(
                    Access::RemoteRead,
                    request.source_stag,
                    request.source_to,
                    request.len,
                )
                .map_err(TerminateCode::remote)?;
        }
        let is_rtr = request.len == 0 && self.is_ready_to_receive(RtrKind::Read);
        self.check_ird(is_rtr)?;
        self.rx.msn.request = header.msn.next();
        if is_rtr {
            request.sink_to = self.agreement.on_asked(request.sink_to);
            self.adopt_agreed_ulpdu();
        }
        self.pending
            .entries
            .push_back(Pending::Read { request, done: 0 });
        Ok(if is_rtr {
            Inbound::ReadyToReceive
        } else {
            Inbound::ReadRequest
        })
    }

    fn handle_atomic_request<M: MemoryTable>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
        memory: &M,
    ) -> Result<Inbound<M::Place>, TerminateCode> {
        let bytes = exact::<ATOMIC_REQUEST_LEN>(header, payload)?;
        check_msn(header, self.rx.msn.request)?;
        check_mo(header, 0)?;
        let request = AtomicRequest::parse(bytes).ok_or(UNEXPECTED_OPCODE)?;
        // RFC 7306 section 5.1: a misaligned target is answered with this code.
        if !request.to.is_multiple_of(8) {
            return Err(CATASTROPHIC);
        }
        let place = memory
            .resolve(Access::RemoteAtomic, request.stag, request.to, 8)
            .map_err(TerminateCode::remote)?;
        self.check_ird(false)?;
        self.rx.msn.request = header.msn.next();
        let request_id = request.request_id;
        self.pending.entries.push_back(Pending::Atomic {
            request_id,
            original: None,
        });
        Ok(Inbound::Atomic { request, place })
    }

    /// Reports that the engine has executed the atomic operation of the last [`Inbound::Atomic`];
    /// `original` is the value of the memory before. Returns false if no operation waits for that.
    pub fn answer_atomic(&mut self, original: u64) -> bool {
        self.pending.answer_atomic(original)
    }

    /// Reports that the engine has stored the answer to the oldest read or atomic: the payload of
    /// [`Delivery::Read`], or the value of [`Inbound::AtomicResponse`]. The work request completes
    /// now and not before, so that a success says that the data is in memory. Until this call,
    /// every further answer is refused.
    pub fn on_answer_stored(&mut self) {
        match self.outstanding.take_answered() {
            Some(Outstanding::Read {
                work: Some((sequence, _)),
                ..
            })
            | Some(Outstanding::Atomic { sequence, .. }) => self.send_queue.on_answered(sequence),
            Some(Outstanding::Read { work: None, .. }) | None => {}
        }
    }

    fn handle_atomic_response<P>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
    ) -> Result<Inbound<P>, TerminateCode> {
        let response = AtomicResponse::parse(exact::<ATOMIC_RESPONSE_LEN>(header, payload)?);
        check_msn(header, self.rx.msn.atomic_response)?;
        check_mo(header, 0)?;
        let Some(&Outstanding::Atomic {
            token, request_id, ..
        }) = self.outstanding.awaiting()
        else {
            return Err(UNEXPECTED_OPCODE);
        };
        if request_id != response.request_id {
            return Err(CATASTROPHIC);
        }
        self.outstanding.on_answer();
        self.rx.msn.atomic_response = header.msn.next();
        Ok(Inbound::AtomicResponse {
            token,
            original: response.original,
        })
    }

    /// Neither MSN nor MO is checked: the last message of a peer is accepted if possible.
    fn handle_terminate<P>(&mut self, payload: &[u8]) -> Inbound<P> {
        let context = Context {
            is_first_fpdu: !self.rx.received_fpdu,
            sent_fpdu: self.tx.sent_fpdu,
        };
        self.state.on_terminate_received();
        let terminate = terminate::parse(payload, context).map(|received| PeerTerminate {
            code: received.code,
            about: received.opcode,
            request: self.request_of(received.request),
        });
        tracing::debug!(?terminate, "peer ends the stream");
        Inbound::Terminated(terminate)
    }

    /// Returns the token of the read or atomic with the quoted MSN, if it waits for an answer;
    /// otherwise that of the oldest that waits.
    fn request_of(&self, quoted: Option<Msn>) -> Option<u64> {
        let waiting = &self.outstanding.entries;
        let oldest = self.tx.next_request().0.wrapping_sub(waiting.len() as u32);
        let index = quoted.map_or(0, |msn| msn.0.wrapping_sub(oldest) as usize);
        match *waiting.get(index).or(waiting.front())? {
            Outstanding::Read { work, .. } => work.map(|(_, token)| token),
            Outstanding::Atomic { token, .. } => Some(token),
        }
    }

    /// True if an empty message of this kind is the first FPDU of a peer-to-peer initiator rather
    /// than a message of its consumer. Write and Read are recognised by their length alone. A Send
    /// is recognised only if the Reply asked for it, because it could also be selected for a posted
    /// receive.
    fn is_ready_to_receive(&self, kind: RtrKind) -> bool {
        self.config.role == Role::Responder
            && !self.rx.received_fpdu
            && match (kind, self.config.rtr) {
                (_, None) => false,
                (RtrKind::Send, agreed) => agreed == Some(RtrKind::Send),
                (RtrKind::Write | RtrKind::Read, Some(_)) => true,
            }
    }

    fn check_ird(&self, is_rtr: bool) -> Result<(), TerminateCode> {
        let announced = usize::from(self.config.ird);
        // A known peer rounds our announced value up to a power of two.
        let bound = if announced == 0 {
            0
        } else {
            announced.next_power_of_two()
        };
        if self.pending.entries.len() < bound.max(usize::from(is_rtr)) {
            Ok(())
        } else {
            Err(CATASTROPHIC)
        }
    }
}

/// Resolves the target of the payload of an RDMA Write segment.
pub(super) fn resolve_write<M: MemoryTable>(
    header: &Tagged,
    segment: u32,
    memory: &M,
) -> Result<Target<M::Place>, TerminateCode> {
    if segment == 0 {
        return Ok(Target::None);
    }
    resolve_tagged(Access::RemoteWrite, header, segment, memory)
}

/// Resolves the target of the payload of a tagged segment that is not empty.
fn resolve_tagged<M: MemoryTable>(
    access: Access,
    header: &Tagged,
    segment: u32,
    memory: &M,
) -> Result<Target<M::Place>, TerminateCode> {
    let place = memory
        .resolve(access, header.stag, header.to, segment)
        .map_err(TerminateCode::tagged)?;
    Ok(Target::Tagged {
        access,
        stag: header.stag,
        to: header.to,
        place,
    })
}

pub(super) fn opcode_of(rdmap: u8) -> Result<Opcode, TerminateCode> {
    let control = Control(rdmap);
    if !control.is_version_known() {
        return Err(TerminateCode::RemoteOperation(RemoteOperation::Version));
    }
    control.opcode().ok_or(UNEXPECTED_OPCODE)
}

/// Returns the only segment of a message whose length is fixed. A shorter segment is invalid; a
/// longer one does not fit the buffer that RDMAP keeps for such messages.
fn exact<'a, const N: usize>(
    header: &Untagged,
    payload: &'a [u8],
) -> Result<&'a [u8; N], TerminateCode> {
    if payload.len() > N || !header.last {
        return Err(TerminateCode::Untagged(UntaggedError::TooLong));
    }
    payload.first_chunk().ok_or(BAD_LENGTH)
}

pub(super) fn check_msn(header: &Untagged, expected: Msn) -> Result<(), TerminateCode> {
    if header.msn == expected {
        Ok(())
    } else {
        Err(TerminateCode::Untagged(UntaggedError::MsnRange))
    }
}

pub(super) fn check_mo(header: &Untagged, expected: u32) -> Result<(), TerminateCode> {
    if header.mo == expected {
        Ok(())
    } else {
        Err(TerminateCode::Untagged(UntaggedError::InvalidMo))
    }
}

fn take_receive<Q: ReceiveQueue>(receives: &mut Q) -> Result<ReceiveBuffer, TerminateCode> {
    receives.next().ok_or(NO_RECEIVE)
}

fn place_tagged<P>(target: Target<P>, segment: u32, delivered: Option<Delivery>) -> Inbound<P> {
    Inbound::Place(Placement {
        target,
        payload: TAGGED_LEN..TAGGED_LEN + segment as usize,
        delivered,
    })
}
