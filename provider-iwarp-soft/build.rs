//! Sets the name of the shared library, which `dat.conf` and the loader use, and keeps the library
//! loaded until the process ends, because its tables are used until then.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdapl-iwarp.so.2");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
