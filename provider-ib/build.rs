//! Gives the shared library the name by which `dat.conf` and the loader know it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdapl-ib.so.2");
}
