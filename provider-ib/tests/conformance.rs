//! The suite that every RNIC has to pass, over the verbs devices that `--adapters` names.
//!
//! `PROVIDER_IB_ADAPTERS`, or the argument `--adapters=`, contains `ia_params` with `;` between
//! them, such as `r0 0;w0 0`. Without adapters nothing is run, because most machines have no such
//! device. `cargo xtask vm run` boots a guest with devices and runs a program in it. `cargo test -p
//! provider-ib --no-run` prints the path of this program.

use std::sync::Arc;

use access_layer::rnic::{
    AsyncEvent, ConnectionEvent, CqToken, EventUpcall, ListenToken, QpToken, RequestInfo, Rnic,
    RnicConfig, Upcall,
};
use provider_ib::{IbRequest, IbRnic};

const VARIABLE: &str = "PROVIDER_IB_ADAPTERS";
const ARGUMENT: &str = "--adapters=";

/// A case that a device cannot pass.
struct Difference {
    /// The vendor's name in the attributes of the adapter.
    vendor: &'static str,
    case: &'static str,
    why: &'static str,
}

const DIFFERENCES: [Difference; 1] = [Difference {
    vendor: "0x626d74",
    case: "transfer::foreign_memory_is_not_reached",
    why: "siw only logs a Terminate, so a Read that the peer refused completes as flushed",
}];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let argument = args.iter().find_map(|arg| arg.strip_prefix(ARGUMENT));
    let variable = std::env::var(VARIABLE).unwrap_or_default();
    let adapters = argument.unwrap_or(&variable).split(';');
    let adapters: Vec<&str> = adapters.filter(|adapter| !adapter.is_empty()).collect();
    if adapters.is_empty() {
        println!("NOT RUN: conformance of provider-ib: {VARIABLE} names no adapter");
        return;
    }
    let only = args.iter().find(|arg| !arg.starts_with('-'));
    let only = only.map_or("", String::as_str);
    let mut failed = Vec::new();
    for adapter in adapters {
        let vendor = vendor_of(adapter);
        for (name, case) in access_layer::conformance::cases::<IbRnic>() {
            if !name.contains(only) {
                continue;
            }
            // Each case opens an interface of its own, so a failed case does not affect the others.
            let passed = std::panic::catch_unwind(|| case(adapter)).is_ok();
            let difference = DIFFERENCES
                .iter()
                .find(|known| known.vendor == vendor && known.case == name);
            let verdict = match (passed, difference) {
                (true, None) => "ok".to_owned(),
                (false, Some(known)) => format!("differs: {}", known.why),
                (false, None) => "FAILED".to_owned(),
                // A case that passes must not be in the list.
                (true, Some(_)) => "FAILED: it passes, and is listed as a difference".to_owned(),
            };
            println!("{adapter}: {name}: {verdict}");
            if verdict.starts_with("FAILED") {
                failed.push(format!("{adapter}: {name}"));
            }
        }
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

fn vendor_of(adapter: &str) -> String {
    let config = RnicConfig {
        ia_name: "conformance".to_owned(),
        ia_params: adapter.to_owned(),
    };
    let rnic = IbRnic::open(&config, Arc::new(IgnoreUpcalls)).expect("the named adapter exists");
    rnic.shutdown();
    rnic.attr().vendor_name.clone()
}

/// An upcall that ignores all events.
struct IgnoreUpcalls;

impl EventUpcall for IgnoreUpcalls {
    fn cq_ready(&self, _cq: CqToken) {}
    fn connection(&self, _qp: QpToken, _event: ConnectionEvent<'_>) {}
    fn socket_down(&self, _armed: ListenToken) {}
    fn async_event(&self, _event: AsyncEvent) {}
}

impl Upcall<IbRnic> for IgnoreUpcalls {
    fn connection_request(&self, _: ListenToken, _: IbRequest, _: &RequestInfo<'_>) {}
}
