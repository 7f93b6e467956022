//! A peer that lies: every field of every frame, over a real TCP connection into a process with the
//! staged libraries.
//!
//! After each attack the stream has ended as the RFCs say, or goes on as if nothing had been; no
//! byte but those that a valid segment named has changed; every posted request has completed once;
//! a connection beside it in the same process has exchanged data before and after; and in the end
//! no descriptor is left. The frames come from `frame_writer`, which shares no code with the stack.

mod arena;
mod attack;
mod exhaustion;
mod fields;
mod kinds;
mod rfc5042;
mod sequences;
mod startup;
mod victim;
