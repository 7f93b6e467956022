//! A valid frame of every kind, the starting point of the attacks.

use stack_tests::frame_writer::{self, Atomic, Frame, Read};

use super::arena::pattern;
use super::attack::Verdict::{self, Continues};
use super::victim::{OPEN_AT, RECEIVE_AT, SINK_AT, Victim};

/// The payload of messages with a payload.
pub(crate) const PAYLOAD: &[u8] = b"some bytes, not many.";

/// The offset in the open part that Writes target and Reads read from.
pub(crate) const TARGET_AT: usize = OPEN_AT + 0x88;

/// The number that `Scene::Adding` adds, and the previous memory content that the attacker reports.
pub(crate) const ORIGINAL: u64 = 0x1122_3344_5566_7788;

/// The operation of the victim before the attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scene {
    /// The victim does nothing; its receives are posted.
    Idle,
    /// The victim reads as many bytes as [`PAYLOAD`] has.
    Reading,
    /// The victim has an atomic operation in flight.
    Adding,
    /// The victim has bound a window for the attacker.
    WindowBound,
}

/// A message of RDMAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    ReadRequest,
    ReadResponse,
    Send,
    SendInvalidate,
    SendSolicited,
    SendSolicitedInvalidate,
    Terminate,
    Immediate,
    ImmediateSolicited,
    AtomicRequest,
    AtomicResponse,
}

impl Kind {
    pub(crate) const ALL: [Self; 12] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
        Self::Immediate,
        Self::ImmediateSolicited,
        Self::AtomicRequest,
        Self::AtomicResponse,
    ];

    /// The scene to which the message belongs.
    pub(crate) const fn scene(self) -> Scene {
        match self {
            Self::ReadResponse => Scene::Reading,
            Self::AtomicResponse => Scene::Adding,
            Self::SendInvalidate | Self::SendSolicitedInvalidate => Scene::WindowBound,
            _ => Scene::Idle,
        }
    }

    /// The queue of an untagged message.
    pub(crate) const fn queue(self) -> Option<u32> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::ReadRequest | Self::AtomicRequest => Some(1),
            Self::Terminate => Some(2),
            Self::AtomicResponse => Some(3),
            _ => Some(0),
        }
    }

    pub(crate) const fn is_tagged(self) -> bool {
        self.queue().is_none()
    }
}

/// The effect of the valid message: the verdict on the stream, and the bytes that are placed.
pub(crate) fn harmless(kind: Kind) -> (Verdict, Vec<(usize, Vec<u8>)>) {
    match kind {
        Kind::Write => (Continues(1), vec![(TARGET_AT, PAYLOAD.to_vec())]),
        Kind::ReadResponse => (Continues(1), vec![(SINK_AT, PAYLOAD.to_vec())]),
        Kind::ReadRequest => (Continues(1), vec![]),
        Kind::AtomicRequest => {
            let old = u64::from_ne_bytes(std::array::from_fn(|at| pattern(TARGET_AT + at)));
            let new = old.wrapping_add(1).to_ne_bytes();
            (Continues(1), vec![(TARGET_AT, new.to_vec())])
        }
        Kind::AtomicResponse => (
            Continues(1),
            vec![(SINK_AT, ORIGINAL.to_ne_bytes().to_vec())],
        ),
        Kind::Terminate => (Verdict::Close, vec![]),
        Kind::Immediate | Kind::ImmediateSolicited => (Continues(2), vec![]),
        Kind::Send | Kind::SendInvalidate | Kind::SendSolicited | Kind::SendSolicitedInvalidate => {
            (Continues(2), vec![(RECEIVE_AT, PAYLOAD.to_vec())])
        }
    }
}

/// The attacker's knowledge: the victim's memory, and the victim's request.
#[derive(Debug)]
pub(crate) struct Target<'v> {
    pub(crate) victim: &'v Victim,
    /// The window of [`Scene::WindowBound`].
    pub(crate) window: u32,
    /// The request that the victim sent, from its RDMAP header on; empty if it sent none.
    pub(crate) request: Vec<u8>,
}

impl<'v> Target<'v> {
    /// A target whose victim has sent no request: zeros stand for the request's fields.
    pub(crate) fn blind(victim: &'v Victim) -> Self {
        Self {
            victim,
            window: 0,
            request: vec![0; 28],
        }
    }

    pub(crate) fn address(&self, at: usize) -> u64 {
        self.victim.arena.address(at)
    }

    fn request_u32(&self, at: usize) -> u32 {
        let bytes = self
            .request
            .get(at..at + 4)
            .expect("a request without this field");
        u32::from_be_bytes(bytes.try_into().expect("four bytes"))
    }

    /// The STag of the sink of the victim's read.
    pub(crate) fn sink_stag(&self) -> u32 {
        self.request_u32(0)
    }

    /// The identifier of the victim's atomic.
    pub(crate) fn atomic_id(&self) -> u32 {
        self.request_u32(4)
    }

    /// A Read Request that the victim serves.
    pub(crate) fn read(&self) -> Read {
        Read {
            sink_stag: 0x0bad_cafe,
            sink_to: 0x1000,
            len: 16,
            source_stag: self.victim.parts.open.stag,
            source_to: self.address(TARGET_AT),
        }
    }

    /// A FetchAdd that the victim serves.
    pub(crate) fn atomic(&self) -> Atomic {
        Atomic {
            operation: 0,
            id: 77,
            stag: self.victim.parts.open.stag,
            to: self.address(TARGET_AT),
            data: 1,
        }
    }

    /// A valid frame of this kind, the first of its queue.
    pub(crate) fn frame(&self, kind: Kind) -> Frame {
        self.numbered(kind, 1)
    }

    /// A valid frame with this number in its queue; tagged frames have no number.
    pub(crate) fn numbered(&self, kind: Kind, msn: u32) -> Frame {
        let open = self.victim.parts.open.stag;
        let invalidate =
            |opcode| frame_writer::send(opcode, msn, PAYLOAD).with("rsvd_ulp", self.window.into());
        match kind {
            Kind::Write => frame_writer::write(open, self.address(TARGET_AT), PAYLOAD),
            Kind::ReadRequest => frame_writer::read_request(msn, &self.read()),
            Kind::ReadResponse => {
                frame_writer::read_response(self.sink_stag(), self.address(SINK_AT), PAYLOAD)
            }
            Kind::Send => frame_writer::send(frame_writer::SEND, msn, PAYLOAD),
            Kind::SendInvalidate => invalidate(frame_writer::SEND_INVALIDATE),
            Kind::SendSolicited => frame_writer::send(frame_writer::SEND_SOLICITED, msn, PAYLOAD),
            Kind::SendSolicitedInvalidate => invalidate(frame_writer::SEND_SOLICITED_INVALIDATE),
            Kind::Terminate => frame_writer::terminate(0, 0, 0).with("msn", msn.into()),
            Kind::Immediate => frame_writer::immediate(8, msn, 0x0102_0304_0506_0708),
            Kind::ImmediateSolicited => frame_writer::immediate(9, msn, 0x0102_0304_0506_0708),
            Kind::AtomicRequest => frame_writer::atomic_request(msn, &self.atomic()),
            Kind::AtomicResponse => frame_writer::atomic_response(msn, self.atomic_id(), ORIGINAL),
        }
    }
}
