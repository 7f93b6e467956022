//! A peer that follows the protocol and violates it where the input says so.
//!
//! Each step begins with one byte: the kind of segment (low four bits), whether the segment is the
//! last one of its message (bit 4), whether one bit of the segment is flipped (bit 5), whether the
//! CRC is wrong (bit 6), and whether the segment is cut short (bit 7). The input of the segment
//! follows. Then two bytes select the bit to flip, and one number is the length after the cut.
//!
//! A step of kind 15 has no segment: a length and bytes follow, which are sent without a frame.

use std::collections::VecDeque;

use iwarp_proto::{
    Msn, Stag, WorkKind,
    testing::engine::frame,
    wire::{
        ddp::{TAGGED_LEN, Tagged, UNTAGGED_LEN, Untagged, qn},
        rdmap::{
            ATOMIC_REQUEST_LEN, ATOMIC_RESPONSE_LEN, AtomicOp, AtomicRequest, AtomicResponse,
            Opcode, READ_REQUEST_LEN, ReadRequest,
        },
    },
};

use crate::input::Input;

use super::{BASE, FOREIGN, OPEN, READ_ONLY, REGION_LEN, STREAM_MAX, Setup, TOP, WRITE_ONLY};

/// The numbers that a peer uses next if it follows the protocol.
#[derive(Debug)]
pub(super) struct Script {
    send_msn: Msn,
    request_msn: Msn,
    response_msn: Msn,
    /// Bytes of the Send in progress.
    mo: u32,
    /// Our reads that the peer has not answered: the offset of the next byte, and the number of
    /// bytes that remain.
    reads: VecDeque<(u64, u32)>,
    request_id: u32,
}

impl Script {
    pub(super) fn new(setup: &Setup) -> Self {
        let reads = setup.work.iter().filter_map(|&(kind, len, _)| match kind {
            WorkKind::Read { sink_to, .. } => Some((sink_to, len)),
            _ => None,
        });
        Self {
            send_msn: Msn::FIRST,
            request_msn: Msn::FIRST,
            response_msn: Msn::FIRST,
            mo: 0,
            reads: reads.collect(),
            request_id: 0,
        }
    }

    /// The stream that the rest of the input describes.
    pub(super) fn stream(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let mut stream = Vec::new();
        while !input.is_empty() && stream.len() < STREAM_MAX {
            let step = input.byte();
            if step & 0x0F == 0x0F {
                let len = input.below(64);
                stream.extend_from_slice(input.bytes(len));
                continue;
            }
            let mut ulpdu = self.segment(step & 0x0F, step & 0x10 != 0, input);
            if step & 0x20 != 0 && !ulpdu.is_empty() {
                let bit = usize::from(input.short()) % (8 * ulpdu.len());
                ulpdu[bit / 8] ^= 1 << (bit % 8);
            }
            if step & 0x80 != 0 {
                ulpdu.truncate(input.below(ulpdu.len() + 1));
            }
            let mut fpdu = frame(&ulpdu);
            if step & 0x40 != 0 {
                let last = fpdu.len() - 1;
                fpdu[last] ^= 1;
            }
            stream.extend(fpdu);
        }
        stream
    }

    fn segment(&mut self, choice: u8, last: bool, input: &mut Input<'_>) -> Vec<u8> {
        match choice {
            0..=3 => self.send(choice, last, input),
            4 | 5 => write(last, input),
            6 | 7 => self.read_request(input),
            8 | 9 => self.read_response(last, input),
            10 => {
                let payload = input.bytes(8).to_vec();
                let msn = self.send_msn;
                self.send_msn = msn.next();
                untagged(Opcode::ImmediateData, true, 0, msn, 0, &payload)
            }
            11 => self.atomic_request(input),
            12 => self.atomic_response(input),
            13 => {
                let len = input.below(53);
                let payload = input.bytes(len);
                untagged(Opcode::Terminate, true, 0, Msn::FIRST, 0, payload)
            }
            _ => {
                let len = input.below(256);
                input.bytes(len).to_vec()
            }
        }
    }

    fn send(&mut self, choice: u8, last: bool, input: &mut Input<'_>) -> Vec<u8> {
        let opcode = Opcode::send(choice & 1 != 0, choice & 2 != 0);
        let invalidate = if choice & 2 == 0 { 0 } else { stag(input) };
        let payload = vec![0xA5; input.below(256)];
        let (msn, mo) = (self.send_msn, self.mo);
        self.mo = mo + payload.len() as u32;
        if last {
            self.send_msn = msn.next();
            self.mo = 0;
        }
        untagged(opcode, last, invalidate, msn, mo, &payload)
    }

    fn read_request(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let request = ReadRequest {
            sink_stag: Stag(7),
            sink_to: u64::MAX - 64,
            len: length(input),
            source_stag: Stag(stag(input)),
            source_to: offset(input),
        };
        let mut payload = [0; READ_REQUEST_LEN];
        request.emit(&mut payload);
        untagged(
            Opcode::ReadRequest,
            true,
            0,
            self.next_request(),
            0,
            &payload,
        )
    }

    fn read_response(&mut self, last: bool, input: &mut Input<'_>) -> Vec<u8> {
        let wanted = u32::from(input.byte());
        let (to, left) = self.reads.front().copied().unwrap_or((BASE, 8));
        let len = if last { left } else { wanted.min(left) };
        if let Some(front) = self.reads.front_mut() {
            *front = (to + u64::from(len), left - len);
        }
        if last {
            self.reads.pop_front();
        }
        let header = Tagged {
            last,
            rdmap: Opcode::ReadResponse.control(),
            stag: Stag(OPEN),
            to,
        };
        tagged(&header, &vec![0xC3; len as usize])
    }

    fn atomic_request(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let value = input.long();
        let op = match input.below(3) {
            0 => AtomicOp::FetchAdd {
                add: value,
                mask: 1 << 31,
            },
            1 => AtomicOp::CmpSwap {
                swap: value,
                swap_mask: u64::MAX,
                compare: 0,
                compare_mask: 0,
            },
            _ => AtomicOp::CmpSwap {
                swap: value,
                swap_mask: u64::MAX,
                compare: 0x0001_0203_0405_0607,
                compare_mask: u64::MAX,
            },
        };
        let request = AtomicRequest {
            request_id: input.word(),
            stag: Stag(stag(input)),
            to: offset(input),
            op,
        };
        let mut payload = [0; ATOMIC_REQUEST_LEN];
        request.emit(&mut payload);
        untagged(
            Opcode::AtomicRequest,
            true,
            0,
            self.next_request(),
            0,
            &payload,
        )
    }

    fn atomic_response(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let response = AtomicResponse {
            request_id: self.request_id,
            original: input.long(),
        };
        self.request_id += 1;
        let msn = self.response_msn;
        self.response_msn = msn.next();
        let mut payload = [0; ATOMIC_RESPONSE_LEN];
        response.emit(&mut payload);
        untagged(Opcode::AtomicResponse, true, 0, msn, 0, &payload)
    }

    fn next_request(&mut self) -> Msn {
        let msn = self.request_msn;
        self.request_msn = msn.next();
        msn
    }
}

fn write(last: bool, input: &mut Input<'_>) -> Vec<u8> {
    let header = Tagged {
        last,
        rdmap: Opcode::Write.control(),
        stag: Stag(stag(input)),
        to: offset(input),
    };
    tagged(&header, &vec![0x3C; input.below(256)])
}

fn stag(input: &mut Input<'_>) -> u32 {
    input.pick(&[OPEN, OPEN, OPEN, WRITE_ONLY, READ_ONLY, FOREIGN, TOP, 0])
}

/// Chooses an offset: inside the registrations, at their edges, or far away.
fn offset(input: &mut Input<'_>) -> u64 {
    let near = u64::from(input.byte());
    let end = BASE + REGION_LEN as u64;
    input.pick(&[
        BASE + near,
        BASE + 4 * near,
        end - near,
        end + near,
        u64::MAX - near,
        near,
    ])
}

fn length(input: &mut Input<'_>) -> u32 {
    let near = u32::from(input.byte());
    input.pick(&[near, near, REGION_LEN as u32 - near, u32::MAX - near])
}

fn tagged(header: &Tagged, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [0; TAGGED_LEN];
    header.emit(&mut bytes);
    [&bytes, payload].concat()
}

fn untagged(
    opcode: Opcode,
    last: bool,
    rsvd_ulp: u32,
    msn: Msn,
    mo: u32,
    payload: &[u8],
) -> Vec<u8> {
    let header = Untagged {
        last,
        rdmap: opcode.control(),
        rsvd_ulp,
        qn: opcode.queue().unwrap_or(qn::SEND),
        msn,
        mo,
    };
    let mut bytes = [0; UNTAGGED_LEN];
    header.emit(&mut bytes);
    [&bytes, payload].concat()
}
