#![no_std]
//! C types of DAT 2.0.
