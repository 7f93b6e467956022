//! libFuzzer around [`fuzz_bodies::port_mapper`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::port_mapper::run(data));
