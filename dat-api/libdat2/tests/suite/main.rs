//! The library from the C side: the linked `libdat2.so.2`, its headers, and OFA's where installed.

mod consumer;
mod headers;
mod support;
