//! CRC32C for MPA, by two external implementations.
//!
//! The faster implementation depends on the processor and on the length. `crc_fast` uses carry-less
//! multiplication in vectors of 512 bits if there is AVX-512. Without AVX-512, `crc32c` is faster
//! for long pieces, because it runs the CRC instruction over three parts at once.

use crc_fast::CrcAlgorithm;

/// The minimum length for which `crc32c` may be faster. For shorter pieces `crc_fast` is faster on
/// every processor.
const LEN_MIN: usize = 1024;

/// CRC32C of one contiguous piece.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    if bytes.len() < LEN_MIN || has_wide_vectors() {
        crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
    } else {
        ::crc32c::crc32c(bytes)
    }
}

/// Makes the implementations detect the features of the processor. A detection that takes a while
/// happens once, and other threads wait for its end. The child of a fork would wait for ever if a
/// thread of the parent was in the detection at the time of the fork.
pub(crate) fn prepare() {
    for len in [1, LEN_MIN] {
        std::hint::black_box(crc32c(&vec![0; len]));
    }
}

/// True if the processor has carry-less multiplication in 512 bits.
#[cfg(target_arch = "x86_64")]
fn has_wide_vectors() -> bool {
    is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx512vl")
}

/// On other processors `crc_fast` is used at every length.
#[cfg(not(target_arch = "x86_64"))]
fn has_wide_vectors() -> bool {
    true
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
