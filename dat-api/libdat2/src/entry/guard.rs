//! The frame around every C entry.

use dat_abi::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an entry and turns its outcome into a return code. A panic must not reach C: it
/// becomes `DAT_INTERNAL_ERROR` and an error in the log.
#[inline]
pub(super) fn guard(
    call: &'static str,
    body: impl FnOnce() -> Result<DatReturn, DatReturn>,
) -> DatReturn {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status) | Err(status)) => status,
        Err(_) => report_panic(call),
    }
}

#[cold]
fn report_panic(call: &'static str) -> DatReturn {
    // The message itself was printed by the panic hook. Logging may be what panicked.
    let _ = catch_unwind(|| tracing::error!(call, "a panic was caught in libdat2"));
    DatReturn::error(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_and_failure_pass_through() {
        assert_eq!(guard("test", || Ok(DatReturn::SUCCESS)), DatReturn::SUCCESS);
        assert_eq!(
            guard("test", || Err(DatReturn(0x8005_000B))),
            DatReturn(0x8005_000B)
        );
    }

    #[test]
    fn a_panic_becomes_an_internal_error() {
        assert_eq!(
            guard("test", || panic!("on purpose")),
            DatReturn(0x8004_0000)
        );
    }
}
