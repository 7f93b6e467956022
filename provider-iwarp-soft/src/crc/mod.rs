//! CRC32C as MPA uses it.
//!
//! `crc_fast` is fastest where there is AVX-512. Many processors multiply carry-less in 256 bits
//! and have no AVX-512; there it uses 128 bits, and `wide` takes two thirds of its time for long
//! pieces and half of it for those of one TCP segment.

#[cfg(target_arch = "x86_64")]
mod wide;

use crc_fast::CrcAlgorithm;

/// CRC32C of one contiguous piece.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= wide::LEN_MIN
        && let Some(wide) = wide::Wide::detect()
    {
        return wide.crc32c(bytes);
    }
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_polynomial() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn every_length_at_every_alignment_agrees_with_the_definition() {
        // The interpreter has none of the instructions that this is about.
        let (len, step) = if cfg!(miri) { (300, 31) } else { (1200, 1) };
        let bytes: Vec<u8> = (0..len).map(|i: u32| ((i * 7919) >> 5) as u8).collect();
        for start in (0..33).step_by(step) {
            let mut crc = u32::MAX;
            for (at, byte) in bytes[start..].iter().enumerate() {
                crc = bit_by_bit(crc, *byte);
                let piece = &bytes[start..=start + at];
                if at % step == 0 {
                    assert_eq!(crc32c(piece), !crc, "{} bytes from {start}", piece.len());
                }
            }
        }
    }

    #[test]
    fn long_pieces_agree_with_the_other_implementation() {
        let bytes: Vec<u8> = (0..70_000_u32).map(|i| ((i * 40_503) >> 7) as u8).collect();
        let step = if cfg!(miri) { 33_333 } else { 1013 };
        for len in (0..bytes.len()).step_by(step) {
            let other = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &bytes[..len]) as u32;
            assert_eq!(crc32c(&bytes[..len]), other, "{len} bytes");
        }
    }

    fn bit_by_bit(crc: u32, byte: u8) -> u32 {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 {
                (crc >> 1) ^ 0x82F6_3B78
            } else {
                crc >> 1
            }
        })
    }
}
