//! A connection that receives a stream of a peer, once as a whole and once in pieces. Both must
//! have the same effects.
//!
//! Input: one byte of flags; IRD and ORD; the posted receives and the posted work, each with its
//! count first; the cuts, with their count first; then the stream. The stream is either raw or a
//! script (`script`), which corrects lengths and CRCs and keeps the numbers of a legal peer, so
//! that faults occur deep inside a conversation.

mod script;

use iwarp_proto::{
    Access, Config, Role, Stag, WorkKind,
    testing::{engine::Engine, memory::Region},
    wire::{mpa::RtrKind, rdmap::AtomicOp},
};

use crate::input::{Input, in_pieces};

use script::Script;

/// The registration to which peers have every right, and which is the sink of our reads.
const OPEN: u32 = 0x100;
/// The tagged offset of its first byte.
const BASE: u64 = 0x1000;
/// The length of registrations in bytes.
const REGION_LEN: usize = 1024;
/// The initial content of registrations.
static PATTERN: [u8; REGION_LEN] = {
    let mut pattern = [0; REGION_LEN];
    let mut index = 0;
    while index < REGION_LEN {
        pattern[index] = index as u8;
        index += 1;
    }
    pattern
};
/// Bytes of the registration that one read of ours may fill.
const SINK_LEN: usize = 100;
/// Further STags: writable only, readable only, of another stream, at the end of the address space.
const WRITE_ONLY: u32 = 0x200;
const READ_ONLY: u32 = 0x300;
const FOREIGN: u32 = 0x400;
const TOP: u32 = 0x500;
/// The tagged offset of the first byte of the registration `TOP`.
const TOP_BASE: u64 = u64::MAX - REGION_LEN as u64;

/// The longest stream. It limits time; the protocol has no such limit.
const STREAM_MAX: usize = 1 << 14;

/// The lengths of the pieces of streams whose input has no cuts.
const CUTS: &[u8] = &[1, 1, 1, 13, 2, 1, 97, 3];

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let setup = Setup::take(&mut input);
    let cut_count = input.below(16);
    let cuts = input.bytes(cut_count);
    let stream = if setup.raw {
        input.rest().to_vec()
    } else {
        Script::new(&setup).stream(&mut input)
    };
    let whole = setup.play(&stream, &[]);
    let pieces = setup.play(&stream, if cuts.is_empty() { CUTS } else { cuts });
    assert_eq!(whole.events, pieces.events, "cuts at {cuts:?}");
    assert_eq!(whole.completions, pieces.completions);
    for (stag, region) in &whole.memory.regions {
        assert_eq!(region.bytes, pieces.memory.regions[stag].bytes);
    }
    assert_eq!(whole.buffers, pieces.buffers);
}

/// The state of our side before the stream begins.
#[derive(Debug)]
struct Setup {
    config: Config,
    crc: bool,
    raw: bool,
    receives: Vec<u32>,
    work: Vec<(WorkKind, u32, bool)>,
}

impl Setup {
    fn take(input: &mut Input<'_>) -> Self {
        let flags = input.byte();
        let role = if flags & 1 == 0 {
            Role::Responder
        } else {
            Role::Initiator
        };
        let rtr = [
            None,
            Some(RtrKind::Send),
            Some(RtrKind::Write),
            Some(RtrKind::Read),
        ][usize::from(flags >> 3 & 3)];
        let config = Config {
            role,
            mulpdu: 128 + usize::from(flags),
            ird: u16::from(input.byte() % 9),
            ord: u16::from(input.byte() % 9),
            rtr,
            send_queue_len: 16,
            rfc7306: flags & 4 == 0,
            peer: iwarp_proto::Peer::Unknown,
        };
        let receives = (0..input.below(8))
            .map(|_| 8 * u32::from(input.byte()))
            .collect();
        let work = (0..input.below(10))
            .map(|index| Self::take_work(input, index as u64))
            .collect();
        Self {
            config,
            crc: flags & 2 == 0,
            raw: flags & 0x20 != 0,
            receives,
            work,
        }
    }

    /// Reads work number `index` from the input. Each read has a sink of its own.
    fn take_work(input: &mut Input<'_>, index: u64) -> (WorkKind, u32, bool) {
        let choice = input.byte();
        let len = u32::from(input.byte());
        let kind = match choice & 7 {
            0 | 1 => WorkKind::Send {
                solicited: choice & 1 != 0,
                invalidate: (choice & 0x20 != 0).then_some(Stag(7)),
            },
            2 => WorkKind::Write {
                stag: Stag(7),
                to: u64::MAX - u64::from(choice),
            },
            3 => WorkKind::ImmediateData {
                data: [choice; 8],
                solicited: false,
            },
            4 => WorkKind::Atomic {
                op: AtomicOp::FetchAdd { add: 1, mask: 2 },
                stag: Stag(7),
                to: 8 * u64::from(choice),
            },
            _ => WorkKind::Read {
                source_stag: Stag(7),
                source_to: 0,
                sink_stag: Stag(OPEN),
                sink_to: BASE + SINK_LEN as u64 * index,
            },
        };
        let len = match kind {
            WorkKind::Read { .. } => len % SINK_LEN as u32,
            _ => len,
        };
        (kind, len, choice & 0x80 != 0)
    }

    fn engine(&self) -> Engine {
        let mut engine = Engine::new(self.config);
        engine.checks_crc = self.crc;
        let open = || Region::open(BASE, PATTERN.to_vec());
        let with_rights = |rights| Region { rights, ..open() };
        let foreign = Region {
            foreign: true,
            ..open()
        };
        let regions = [
            (OPEN, open()),
            (WRITE_ONLY, with_rights(&[Access::RemoteWrite])),
            (READ_ONLY, with_rights(&[Access::RemoteRead])),
            (FOREIGN, foreign),
            (TOP, Region::open(TOP_BASE, PATTERN.to_vec())),
        ];
        engine.memory.regions.extend(regions);
        for (token, &len) in (1000..).zip(&self.receives) {
            engine.post_receive(token, len);
        }
        for (token, &(kind, len, fence)) in (0..).zip(&self.work) {
            engine.try_post(token, kind, vec![0x5A; len as usize], fence);
        }
        engine
    }

    fn play(&self, stream: &[u8], cuts: &[u8]) -> Engine {
        let mut engine = self.engine();
        engine.transmit_all();
        in_pieces(stream, cuts, |piece| engine.receive_and_answer(piece));
        engine.close();
        for stag in [READ_ONLY, FOREIGN] {
            assert_eq!(engine.memory.regions[&stag].bytes, PATTERN);
        }
        engine
    }
}
