//! The crates whose modules must form layers, and what is still missing.

/// Where the table is, for messages.
pub(super) const FILE: &str = file!();

/// The use of the second module by the first.
pub(super) type Use = (&'static str, &'static str);

/// The crates that are checked, each with the uses that run against its layers: without these uses
/// its modules have no cycle, and each of them closes one. The table only shrinks, because a row
/// that closes no cycle any more is a fault, and so is a cycle without a row.
pub(super) const CHECKED: &[(&str, &[Use])] = &[
    ("access-layer", &[]),
    ("provider-iwarp-soft", &[]),
    ("sdp-over-dat", &[]),
];
