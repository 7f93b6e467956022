//! The offload protocols that may carry the sockets.

/// One of them, and what makes `opsrun` offer it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Protocol {
    /// Its name in the table.
    pub(crate) name: &'static str,
    /// Set in the environment of `opsrun`.
    pub(crate) environment: &'static [(&'static str, &'static str)],
}

/// All of them.
pub(crate) const PROTOCOLS: &[Protocol] = &[Protocol {
    name: "test protocol",
    environment: &[("OPS_TEST_PROTOCOL", "1")],
}];
