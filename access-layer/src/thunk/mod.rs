//! Conversion of C arguments to Rust.
//!
//! One file per object, one function per slot of the provider table, with the name and the
//! arguments of the slot; the entries of the table catch panics and return a `DAT_RETURN`. A thunk
//! has no semantics. It checks that out-pointers are present, converts handles to pinned objects
//! and pointer pairs to slices, calls one method and writes the result, in this order. Nothing
//! borrowed from C outlives the call.
//!
//! # Safety of all thunks
//!
//! The contract of every function here is that of the C call of the same name: each pointer is null
//! or points at as much memory as its C type and the count next to it require, valid for the
//! duration of the call. Handles may be any words.

#![expect(
    clippy::too_many_arguments,
    reason = "the arguments are those of the C calls"
)]

mod cno;
mod cr;
mod csp;
mod ep;
mod evd;
pub(crate) mod guard;
mod ia;
mod lmr;
mod object;
mod psp;
mod pz;
mod rmr;
mod rsp;
mod srq;

pub(crate) use cno::*;
pub(crate) use cr::*;
pub(crate) use csp::*;
pub(crate) use ep::*;
pub(crate) use evd::*;
pub(crate) use ia::*;
pub(crate) use lmr::*;
pub(crate) use object::*;
pub(crate) use psp::*;
pub(crate) use pz::*;
pub(crate) use rmr::*;
pub(crate) use rsp::*;
pub(crate) use srq::*;

#[cfg(test)]
mod null_pointers;
#[cfg(test)]
mod tests;
