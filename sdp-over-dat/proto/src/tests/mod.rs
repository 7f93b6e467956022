//! Tests of whole messages and whole connections.
//!
//! | File | What |
//! |---|---|
//! | `golden.rs` | every message byte for byte |
//! | `setup.rs` | Hello, HelloAck, versions, trimming |

mod golden;
mod setup;

/// Bytes written as groups of hexadecimal digits.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter_map(|byte| char::from(byte).to_digit(16).map(|digit| digit as u8))
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}
