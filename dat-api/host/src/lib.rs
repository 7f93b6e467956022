//! Rules for libraries of this project within the program that loads them, their host.
//!
//! | File | Contents |
//! |---|---|
//! | [`descriptors`] | descriptors of the library, above those of the program |
//! | [`environment`] | environment variables, which a program with raised privileges ignores |
//! | [`threads`] | threads of the library, which receive none of the program's signals |

pub mod descriptors;
pub mod environment;
pub mod threads;
