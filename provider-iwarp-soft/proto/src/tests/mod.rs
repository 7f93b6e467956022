//! Tests of complete connections: two connections over a virtual byte pipe, golden frames,
//! violations.

mod agreement;
mod carriers;
mod engine;
mod golden;
mod mutation;
mod pair;
mod places;
mod situations;
mod siw;
mod violations;

/// The step of loops over all values of a type. A native run tries every value. Miri takes a
/// thousand times as long for each value, so a run under Miri tries one value in 255.
pub(crate) const VALUE_STEP: usize = if cfg!(miri) { 255 } else { 1 };

/// Parses the notation of captures: hexadecimal digits in groups, white space ignored.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let pairs = digits.chunks_exact(2);
    assert!(pairs.remainder().is_empty(), "odd number of digits");
    pairs
        .map(|pair| {
            let pair = str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(pair, 16).expect("hexadecimal digits")
        })
        .collect()
}
