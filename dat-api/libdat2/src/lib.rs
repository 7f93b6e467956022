//! The C ABI of DAT 2.0 and the registry.
