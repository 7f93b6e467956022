//! Tests of complete connections: two connections over a virtual byte pipe, golden frames,
//! violations.

mod agreement;
mod carriers;
pub(crate) mod engine;
mod golden;
mod mutation;
mod pair;
mod places;
mod situations;
mod siw;
mod violations;

/// Checks a state machine. A row is an event and the states after it, in the order of `$all`, the
/// states before it.
macro_rules! transitions {
    ($state:ty: $all:expr; $($name:literal: $event:expr => $after:expr;)+) => {$(
        let event: fn(&mut $state) = $event;
        for (before, expected) in $all.into_iter().zip($after) {
            let mut state = before;
            event(&mut state);
            assert_eq!(state, expected, "{} in {before:?}", $name);
        }
    )+};
}
pub(crate) use transitions;

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

/// The rows of a table of faults: the name; the segments, the last of which is the fault; and the
/// layer, type and code. A segment may be one of those that `named` lists.
fn faults<'a>(
    table: &'a str,
    named: &[(&str, &str)],
) -> impl Iterator<Item = (&'a str, Vec<Vec<u8>>, &'a str)> {
    table.lines().map(|row| {
        let [name, segments, code] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("not a row: {row}");
        };
        let segments = segments.split(", ").map(|segment| {
            let known = named.iter().find(|(name, _)| *name == segment);
            hex(known.map_or(segment, |(_, digits)| digits))
        });
        (name, segments.collect(), code)
    })
}

/// Layer, type and code of a fault, if there was one.
fn triple(result: Result<(), crate::ProtocolError>) -> Option<(u8, u8, u8)> {
    result.err().map(|error| error.code.to_triple())
}

/// Layer, type and code, as in a table of faults.
fn code(error: &crate::ProtocolError) -> String {
    let (layer, etype, code) = error.code.to_triple();
    format!("{layer}/{etype}/{code:02x}")
}
