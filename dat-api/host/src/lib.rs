//! How a library of ours behaves within the program that loads it, its host.
//!
//! | File | What |
//! |---|---|
//! | [`descriptors`] | descriptors of ours, above those of the program |
//! | [`environment`] | environment variables, which a program with raised privileges does not obey |
//! | [`threads`] | threads of ours, which take none of the program's signals |

pub mod descriptors;
pub mod environment;
pub mod threads;
