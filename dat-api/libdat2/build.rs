//! Compiles `dat_extension_op`, a variadic function, which stable Rust cannot define.

fn main() {
    println!("cargo::rerun-if-changed=csrc");
    println!("cargo::rerun-if-changed=include");
    println!("cargo::rerun-if-env-changed=DAT2_SYSCONFDIR");
    cc::Build::new()
        .file("csrc/extension_op.c")
        .include("include")
        .flag_if_supported("-fvisibility=default")
        .warnings_into_errors(true)
        .compile("dat2_extension_op");
}
