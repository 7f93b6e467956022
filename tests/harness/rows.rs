//! Tables with one row per line.

/// Makes an array of tuples. Cells are separated by commas and rows by semicolons.
///
/// The formatter spreads a tuple of more than 60 columns over several lines, which hides the
/// columns of a table. It leaves these rows as they are.
#[macro_export]
macro_rules! rows {
    ($($($cell:expr),+;)+) => {
        [$(($($cell),+)),+]
    };
}
