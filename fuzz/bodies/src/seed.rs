//! One initial input of a corpus.

/// An initial input.
#[derive(Clone, Debug)]
pub struct Seed {
    /// Corpus directory.
    pub target: &'static str,
    /// File name after `seed-`.
    pub name: String,
    /// The input.
    pub bytes: Vec<u8>,
}

pub(crate) fn seed(target: &'static str, name: impl Into<String>, bytes: Vec<u8>) -> Seed {
    Seed {
        target,
        name: name.into(),
        bytes,
    }
}

/// Bytes from hexadecimal digits; blanks are skipped.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}
