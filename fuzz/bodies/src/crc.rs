//! CRC32C, as the provider computes it.

use crc_fast::CrcAlgorithm::Crc32Iscsi;

pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}
