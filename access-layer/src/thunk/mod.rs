//! Conversion of C arguments to Rust, and of Rust results to `DAT_RETURN`.
//!
//! One file per object, one function per slot of the provider table. A thunk has no semantics. It
//! checks that out-pointers are present, converts handles to pinned objects and pointer pairs to
//! slices, calls one method and writes the result, in this order. Nothing borrowed from C outlives
//! the call.
//!
//! # Safety of all thunks
//!
//! The contract of every function here is that of the C call of the same name: each pointer is null
//! or points at as much memory as its C type and the count next to it require, valid for the
//! duration of the call. Handles may be any words.

pub(crate) mod cno;
pub(crate) mod cr;
pub(crate) mod csp;
pub(crate) mod ep;
pub(crate) mod evd;
pub(crate) mod guard;
pub(crate) mod ia;
pub(crate) mod lmr;
pub(crate) mod object;
pub(crate) mod psp;
pub(crate) mod pz;
pub(crate) mod rmr;
pub(crate) mod rsp;
pub(crate) mod srq;

pub(crate) use guard::guard_unit;

#[cfg(test)]
mod null_pointers;
#[cfg(test)]
mod tests;
