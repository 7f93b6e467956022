//! libFuzzer around [`fuzz_bodies::local_ring::sequence`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::local_ring::sequence::run(data));
