//! Long forms of tests.

/// Returns true if `cargo xtask test --full` asked for the long lists.
#[must_use]
pub fn is_full() -> bool {
    std::env::var_os("STACK_TESTS_FULL").is_some_and(|value| !value.is_empty())
}
