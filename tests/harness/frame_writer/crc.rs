//! CRC32C by its definition (RFC 5044 section 4.4: polynomial 0x1EDC6F41, reflected).

const REFLECTED: u32 = 0x82f6_3b78;

/// The CRC of `bytes`. It is sent least significant byte first.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = crc & 1;
            crc >>= 1;
            if carry == 1 {
                crc ^= REFLECTED;
            }
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn the_check_value_of_the_polynomial() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
