//! libFuzzer around [`fuzz_bodies::ddp_rdmap_reassembly`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::ddp_rdmap_reassembly::run(data));
