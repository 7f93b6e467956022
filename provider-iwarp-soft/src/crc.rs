//! CRC32C as MPA uses it, over one piece or several.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC32C of one contiguous piece.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC32C over pieces in order.
#[derive(Debug)]
pub(crate) struct Crc32c(Digest);

impl Crc32c {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_polynomial() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        let mut parts = Crc32c::new();
        parts.update(b"1234");
        parts.update(b"");
        parts.update(b"56789");
        assert_eq!(parts.value(), 0xE306_9283);
    }
}
