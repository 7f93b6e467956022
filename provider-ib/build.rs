//! Sets the soname of the shared library, which is its name in `dat.conf` too.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdapl-ib.so.2");
}
