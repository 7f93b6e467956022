//! libFuzzer around [`fuzz_bodies::dat_conf`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::dat_conf::run(data));
