//! Tests from C: the linked `libdat2.so.2`, its headers, and those of OFA where installed.

mod consumer;
mod headers;
mod support;
