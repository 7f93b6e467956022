//! Compiles the C functions that read variable arguments, which stable Rust cannot do.

fn main() {
    println!("cargo::rerun-if-changed=csrc");
    cc::Build::new()
        .file("csrc/counters.c")
        .file("csrc/iw_extension.c")
        .file("csrc/open_query.c")
        .file("csrc/variadic_caller.c")
        .warnings(true)
        .compile("access_layer_c");
}
