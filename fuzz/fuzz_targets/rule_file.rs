//! libFuzzer around [`fuzz_bodies::rule_file`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::rule_file::run(data));
