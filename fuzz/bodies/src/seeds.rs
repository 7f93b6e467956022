//! The initial inputs of the corpora: frames of golden captures and scripts of legal exchanges.
//!
//! The test `seeds_are_in_the_corpora` keeps the committed files equal to this list, and writes
//! them when the environment variable `FUZZ_WRITE_SEEDS` is set.

use crate::seed::{Seed, hex, seed};

/// Start-up frames: revision 1 and 2, enhanced, rejecting, with markers; the last is another
/// protocol.
const STARTUP: &str = "\
rev1-request: 4d504120494420526571204672616d6540010000
rev1-reply: 4d504120494420526570204672616d6540010000
enhanced-request: 4d504120494420526571204672616d65500200088004c00444415421
enhanced-reply: 4d504120494420526570204672616d655002000480048004
siw-request: 4d504120494420526571204672616d651002000400040004
siw-reply: 4d504120494420526570204672616d651002000400040004
reject: 4d504120494420526570204672616d65600100026e6f
markers: 4d504120494420526571204672616d65c0010000
http: 474554202f20485454502f312e310d0a
";

/// FPDUs with their CRCs, and the end that receives them: streams of an initiator, of a responder,
/// and captured from siw.
const STREAMS: &str = "\
initiator-rev1 of responder: \
    001741430000000000000000000000010000000068656c6c6f000000b990b10c \
    001bc14011223344000000000000100048656c6c6f2c20695741525021000000b11d0e65
initiator-read of responder: \
    002e4141000000000000000100000001000000000000000000000000000000000000000000000001\
    0000000000000000ba10e3c9 \
    002e4141000000000000000100000001000000000a0b0c0100000000000020000000001011223344\
    0000000000001008bf750ab4
initiator-rtr-write of responder: \
    000ec140000000010000000000000000ebd34c5f \
    001a414800000000000000000000000100000000010203040506070806c22805
responder-terminate of initiator: \
    0012414300000000000000000000000100000000587be8c4 \
    00264147000000000000000200000001000000001100c0000013c140deadbe000000000000003000\
    07f86cd6
siw-terminate of initiator: \
    002a4147000000000000000200000001000000002102030000054143000000000000000000000001\
    00000000c5d505cb
two-segments of responder: \
    001a014300000000000000000000000100000000414243444546474800000000 \
    0014414300000000000000000000000100000008494a000000000000
";

/// Terminate messages after their DDP header, in the layout of the RFC and of siw.
const TERMINATES: &str = "\
tagged: 1100c0000013c140deadbe000000000000003000
read-bounds: 0101e000002e4141000000000000000100000003000000000a0b0c010000000000002000000010001122\
    33440000000000fff000
crc: 20020000
siw-no-buffer: 210203000005414300000000000000000000000100000000
siw-crc: 02020000
siw-bad-reply: 02040000
ird: 20060000
unknown: f3770000
";

const CONFS: [(&str, &str); 7] = [
    (
        "plain",
        "iwarp-lo u2.0 nonthreadsafe default libdapl-iwarp.so.2 dat-rs.1.0 \"lo 0\" \"\"\n",
    ),
    (
        "comments",
        "# a comment\n\n  \t# another\nia u2 threadsafe nondefault l.so a.1.2 \"\" \"\" # end\n",
    ),
    (
        "escapes",
        "\"a b\" u2. nonthreadsafe default \"li\\\"b\\\\.so\" \"x y.1.0\" \"p\\\nq\" \"\"\n",
    ),
    ("kernel", "k k1.2 threadsafeX defaultY lib.so id.01.002 a b"),
    (
        "bad-lines",
        "a U2.0 threadsafe default l i.1.1 \"\" \"\"\n\
         b u2.0 safe default l i.1.1 \"\" \"\"\n\
         c u2.0 threadsafe default l i.1 \"\" \"\"\n\
         d u2.0 threadsafe default l i.1.1 \"\" \"\" more\n\
         e u2.0 threadsafe default l i.1.1 \"open\n\
         f u2.0 threadsafe default l i.1.1 \"\" \"\"\n",
    ),
    ("crlf", "a u2.0 threadsafe default l i.1.1 \"\" \"\"\r\n"),
    (
        "joined",
        "a\"b\"u2.0 \"threadsafe\"default l\"i.1.1\"\"\"\"\"",
    ),
];

/// The rows of a table: a name, and bytes as hexadecimal digits.
fn rows(table: &'static str) -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    table.lines().map(|row| {
        let (name, digits) = row.split_once(": ").expect("a name and digits");
        (name, hex(digits))
    })
}

/// Every seed.
#[must_use]
pub fn all() -> Vec<Seed> {
    let mut seeds = startup();
    seeds.extend(streams());
    seeds.extend(scripts());
    seeds.extend(reassembly());
    seeds.extend(rows(TERMINATES).map(|(name, message)| {
        let bytes = [vec![2, 0, 0, 0, 0], message].concat();
        seed("terminate", name, bytes)
    }));
    seeds.extend(CONFS.map(|(name, text)| seed("dat_conf", name, text.into())));
    seeds.extend(crate::marked_stream::seeds());
    seeds.extend(crate::local_ring::contents::seeds());
    seeds.extend(crate::local_ring::sequence::seeds());
    seeds.extend(crate::port_mapper::seeds());
    seeds.extend(crate::rule_file::seeds());
    seeds.extend(crate::sdp_hello::seeds());
    seeds.extend(crate::sdp_message::seeds());
    seeds.extend(crate::sdp_sequence::seeds());
    seeds.extend(crate::sdp_trace::seeds());
    seeds.extend(crate::c_calls::seeds());
    seeds.extend(crate::admission::seeds());
    seeds
}

fn startup() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (name, frame) in rows(STARTUP) {
        for (kind, flags) in [("plain", 0x12), ("all", 0xFF), ("enhanced", 0xDB)] {
            // Initiator: IRD 4, at most 16; ORD 4. Responder: IRD 4, ORD 4. Private data: at most
            // 256 bytes in a Request, and one byte in the answer.
            let mut bytes = vec![flags, 4, 0, 16, 0, 4, 0, 4, 0, 4, 0, 0, 1, 1];
            bytes.extend(&frame);
            seeds.push(seed("mpa_startup", format!("{name}-{kind}"), bytes));
        }
    }
    seeds
}

fn streams() -> impl Iterator<Item = Seed> {
    rows(STREAMS).map(|(name, fpdus)| {
        let (name, side) = name.split_once(" of ").expect("a name and a receiver");
        let role = u8::from(side == "initiator");
        // Raw, RTR Write; IRD and ORD 4; two receives; no work; cuts of 3 and 30 bytes. The streams
        // without CRC have it off.
        let crc_off = if name == "two-segments" { 2 } else { 0 };
        let mut bytes = vec![0x20 | 0x10 | crc_off | role, 4, 4, 2, 8, 8, 0, 2, 3, 30];
        bytes.extend(fpdus);
        seed("fpdu_stream", name, bytes)
    })
}

/// Scripts for each kind of segment. A script without a fault sends legal segments. A script with a
/// fault sends them twice, and the first segment of the second time has the fault.
fn scripts() -> Vec<Seed> {
    // Three receives of 80 bytes; work: two reads, an atomic; one cut.
    let setup = |flags: u8| {
        let mut bytes = vec![flags, 4, 4, 3, 10, 10, 10];
        bytes.extend([3, 5, 40, 5, 0, 4, 0, 1, 7]);
        bytes
    };
    let legal: [(&str, &[u8]); 8] = [
        ("send", &[0x00, 16, 0x11, 16, 0x10, 0]),
        ("write", &[0x04, 0, 8, 0, 32, 0x14, 0, 8, 0, 32]),
        ("read", &[0x16, 64, 0, 0, 0, 0, 0x16, 0, 0, 0, 0, 0]),
        (
            "responses",
            &[0x08, 8, 0x18, 0, 0x18, 0, 0x1C, 1, 1, 1, 1, 1, 1, 1, 1],
        ),
        ("immediate", &[0x1A, 1, 2, 3, 4, 5, 6, 7, 8]),
        (
            "atomic",
            &[0x1B, 5, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 1, 1],
        ),
        ("invalidate", &[0x12, 0, 4]),
        ("terminate", &[0x1D, 4, 0x20, 2, 0, 0]),
    ];
    let mut seeds = Vec::new();
    for (name, steps) in legal {
        for (role, flags) in [("responder", 0), ("initiator", 1)] {
            let bytes = [setup(flags), steps.to_vec()].concat();
            seeds.push(seed("fpdu_stream", format!("{name}-{role}"), bytes));
        }
        for (fault, bit) in [("flip", 0x20), ("crc", 0x40), ("cut", 0x80)] {
            let mut bytes = [setup(0), steps.to_vec(), steps.to_vec()].concat();
            let at = bytes.len() - steps.len();
            bytes[at] |= bit;
            seeds.push(seed("fpdu_stream", format!("{name}-{fault}"), bytes));
        }
    }
    seeds
}

fn reassembly() -> Vec<Seed> {
    // MULPDU 128 on both sides, 7 receives (16 modulo 9). Work of the initiator: one operation of
    // each of the five kinds. Work of the responder: two Sends and an atomic.
    let exchange = |rtr: u8| {
        let mut bytes = vec![rtr, 0, 0, 16];
        bytes.extend([5, 0, 44, 1, 1, 44, 1, 2, 44, 1, 3, 0, 0, 4, 0, 0]);
        bytes.extend([3, 0, 200, 0, 0x82, 100, 0, 4, 0, 0]);
        bytes
    };
    let mut seeds = Vec::new();
    for (name, rtr) in [("write", 0), ("read", 1), ("send", 2)] {
        let bytes = exchange(rtr);
        seeds.push(seed("ddp_rdmap_reassembly", format!("clean-{name}"), bytes));
    }
    let faults = ["lost", "twice", "swapped", "damaged", "cut"];
    for (choice, fault) in (0..).zip(faults) {
        for which in [1, 4, 9] {
            let fault_bytes = vec![which, choice, 20, 0, 3];
            let bytes = [exchange(0), fault_bytes].concat();
            let name = format!("{fault}-{which}");
            seeds.push(seed("ddp_rdmap_reassembly", name, bytes));
        }
    }
    seeds
}
