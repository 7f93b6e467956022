//! The suite that every RNIC has to pass, over the verbs devices that the environment names.
//!
//! `PROVIDER_IB_ADAPTERS` holds `ia_params` with `;` between them, such as `v0 0;siw0 1`. Without
//! it there is nothing to run on: most machines have no such device, and `cargo xtask vm` boots one
//! that has.

use provider_ib::IbRnic;

const VARIABLE: &str = "PROVIDER_IB_ADAPTERS";

fn main() {
    let adapters = std::env::var(VARIABLE).unwrap_or_default();
    let adapters: Vec<&str> = adapters.split(';').filter(|a| !a.is_empty()).collect();
    if adapters.is_empty() {
        println!("NOT RUN: conformance of provider-ib: {VARIABLE} names no adapter");
        return;
    }
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let only = only.unwrap_or_default();
    let mut failed = Vec::new();
    for adapter in adapters {
        for (name, case) in access_layer::conformance::cases::<IbRnic>() {
            if !name.contains(&only) {
                continue;
            }
            // Each case opens an interface of its own, so one that fails leaves the others alone.
            let outcome = std::panic::catch_unwind(|| case(adapter));
            println!("{adapter}: {name}: {}", verdict(outcome.is_ok()));
            if outcome.is_err() {
                failed.push(format!("{adapter}: {name}"));
            }
        }
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

fn verdict(passed: bool) -> &'static str {
    if passed { "ok" } else { "FAILED" }
}
