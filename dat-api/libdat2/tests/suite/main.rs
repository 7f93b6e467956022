//! Tests of the library from C: the linked `libdat2.so.2`, its headers, and OFA's where installed.

mod consumer;
mod headers;
mod support;
