//! A hostile peer: every field of every frame has other values, over a real TCP connection into a
//! process with the staged libraries.
//!
//! After each attack the following must hold. The stream has ended as the RFCs require, or
//! continues unaffected. Only bytes that a valid segment named have changed. Every posted request
//! has completed once. Another connection in the same process has exchanged data before and after.
//! At the end no descriptor is leaked. The frames are made by `frame_writer`, which shares no code
//! with the stack.

mod arena;
mod attack;
mod exhaustion;
mod fields;
mod kinds;
mod rfc5042;
mod sequences;
mod startup;
mod victim;
