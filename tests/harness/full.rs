//! Long forms of tests.

/// Whether the long lists were asked for, by `cargo xtask test --full`.
#[must_use]
pub fn is_full() -> bool {
    std::env::var_os("STACK_TESTS_FULL").is_some_and(|value| !value.is_empty())
}
