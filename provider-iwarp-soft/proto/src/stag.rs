//! The steering tag, which names a registered piece of memory in a tagged segment.

use core::fmt;

/// A steering tag (RFC 5041 section 2, the glossary).
///
/// Opaque on the wire. By verbs convention the upper 24 bits are an index chosen by the provider
/// and the lower 8 bits a key chosen by the consumer; this crate does not interpret them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stag(pub u32);

impl Stag {
    /// The value that names no memory of this end.
    pub const NONE: Self = Self(0);
}

impl fmt::Debug for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stag({:#010x})", self.0)
    }
}

impl fmt::Display for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}
