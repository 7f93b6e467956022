//! The fields of Hello and HelloAck.

use std::ops::Range;

use crate::Broken;

/// The parameters in the set-up message of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HelloParams {
    pub(crate) bufs: u32,
    /// The number of advertisements, of both kinds together, that the sender accepts at a time.
    pub(crate) adverts: u32,
    /// The length of the sender's receive buffers in bytes, base header included.
    pub(crate) size: u32,
}

/// The bit of Cap that announces extended maximum advertisements.
const EXTENDED_ADVERTS: u8 = 0x02;

impl HelloParams {
    /// Parses a Hello (`active`) or HelloAck; trailing zeros may be missing.
    pub(crate) fn read(bytes: &[u8], active: bool) -> Result<Self, Broken> {
        let (mid, whole, used) = if active { (0, 92, 64) } else { (1, 196, 24) };
        let mut full = bytes.to_vec();
        full.resize(bytes.len().max(whole), 0);
        let stated = number(&full, 4) as usize;
        if full[0] != mid || stated != whole || bytes.len() < used {
            return Err(Broken::Hello);
        }
        let zeros = [8..16, whole..full.len()];
        let has_version = matches!(full[16] >> 4, 1 | 2);
        let has_form = if active {
            has_hello_form(&full)
        } else {
            full[17] >> 4 == 0 && are_zero(&full, &[18..19, 24..196])
        };
        if !has_version || !has_form || !are_zero(&full, &zeros) {
            return Err(Broken::Hello);
        }
        let params = Self {
            bufs: u32::from(short(&full, 2)),
            adverts: if active && has_extended_adverts(&full) {
                u32::from(short(&full, 66))
            } else {
                u32::from(full[19])
            },
            size: number(&full, if active { 24 } else { 20 }),
        };
        if params.bufs >= 3 && params.adverts > 0 {
            Ok(params)
        } else {
            Err(Broken::Hello)
        }
    }
}

/// Checks the fields that only Hello has: the addresses and the reserved bytes.
fn has_hello_form(full: &[u8]) -> bool {
    let addresses_fit = match full[17] >> 4 {
        4 => are_zero(full, &[32..44, 48..60]),
        6 => true,
        _ => false,
    };
    let unused = if has_extended_adverts(full) { 68 } else { 66 };
    addresses_fit && are_zero(full, &[18..19, 30..32, 64..66, unused..92])
}

fn has_extended_adverts(full: &[u8]) -> bool {
    full[17] & EXTENDED_ADVERTS != 0
}

fn are_zero(full: &[u8], ranges: &[Range<usize>]) -> bool {
    ranges
        .iter()
        .all(|range| full[range.clone()].iter().all(|byte| *byte == 0))
}

fn short(full: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([full[at], full[at + 1]])
}

fn number(full: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([0, 1, 2, 3].map(|index| full[at + index]))
}
