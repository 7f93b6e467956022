//! Byte patterns that show at which offset each byte belongs.

use anyhow::{Result, bail};
use dat_api::Region;

/// The byte at `offset` of the pattern `seed`.
fn byte(seed: u8, offset: usize) -> u8 {
    // Bytes differ if they are neighbours, or words, pages or 64 KiB apart.
    let mixed = offset ^ (offset >> 8) ^ (offset >> 16);
    (mixed as u8).wrapping_mul(31).wrapping_add(seed)
}

pub(crate) fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|offset| byte(seed, offset)).collect()
}

/// Writes the pattern into a part of a region.
pub(crate) fn fill(region: &Region, at: usize, len: usize, seed: u8) -> Result<()> {
    Ok(region.write(at, &bytes(seed, len))?)
}

/// Checks that a part of a region holds the pattern.
pub(crate) fn check(region: &Region, at: usize, len: usize, seed: u8) -> Result<()> {
    same(&region.to_vec(at, len)?, &bytes(seed, len))
}

/// Checks that a part of a region still has its initial content.
pub(crate) fn untouched(region: &Region, at: usize, len: usize) -> Result<()> {
    same(&region.to_vec(at, len)?, &vec![0; len])
}

fn same(found: &[u8], expected: &[u8]) -> Result<()> {
    match found
        .iter()
        .zip(expected)
        .position(|(found, expected)| found != expected)
    {
        None => Ok(()),
        Some(at) => bail!(
            "byte {at} of {} is {:#04x} instead of {:#04x}",
            expected.len(),
            found[at],
            expected[at]
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_named() {
        let expected = bytes(7, 70_000);
        let mut found = expected.clone();
        found[65_536] ^= 1;
        let error = same(&found, &expected).unwrap_err().to_string();
        assert!(error.starts_with("byte 65536 of 70000"), "{error}");
        assert!(same(&expected, &expected).is_ok());
    }

    #[test]
    fn pieces_out_of_order_are_detected() {
        let pattern = bytes(1, 1 << 18);
        for apart in [1, 8, 256, 1448, 4096, 16_384, 65_536] {
            assert_ne!(pattern[..apart], pattern[apart..2 * apart], "{apart}");
        }
    }
}
