//! The suite that every RNIC must pass, over the loopback device.

use provider_iwarp_soft::SoftRnic;

#[test]
fn the_software_rnic_conforms() {
    access_layer::conformance::run::<SoftRnic>("lo 0 connect_retry_ms=100");
}

#[test]
fn the_software_rnic_conforms_on_tcp_alone() {
    for setting in ["", "crc=off", "fpdu_max=1442"] {
        let params = format!("lo 0 connect_retry_ms=100 local=off {setting}");
        access_layer::conformance::run::<SoftRnic>(&params);
    }
}
