//! Long forms of tests.

/// Returns true in a run of `cargo xtask test --full`, which uses the long lists.
pub fn is_full() -> bool {
    std::env::var_os("STACK_TESTS_FULL").is_some_and(|value| !value.is_empty())
}
