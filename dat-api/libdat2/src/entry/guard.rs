//! Unwind guard of the C entries.

use dat_abi::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an entry and converts its result into a return code. A panic must not reach C:
/// it is converted to `DAT_INTERNAL_ERROR` and an error in the log.
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
    // The panic hook has printed the message. The log call is guarded too, because logging may have
    // caused the panic.
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
