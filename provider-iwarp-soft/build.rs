//! Gives the shared library the name that `dat.conf` and the loader use.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdapl-iwarp.so.2");
}
