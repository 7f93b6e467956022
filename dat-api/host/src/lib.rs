//! Rules for libraries of this project within the program that loads them, their host.
//!
//! | File | Contents |
//! |---|---|
//! | [`adaptive_spin`] | the decision to poll before a sleep, by the success of earlier polls |
//! | [`clock`] | the kernel's clocks |
//! | [`descriptors`] | descriptors of the library, above those of the program |
//! | [`environment`] | environment variables, which a program with raised privileges ignores |
//! | [`forks`] | handlers that run around a `fork` of the program |
//! | [`library`] | the file of a loaded library |
//! | [`locks`] | locks that stay usable after a thread has panicked while it held them |
//! | [`log`] | log lines, on the descriptors of the program or to the system's log |
//! | [`netlink`] | requests to the kernel about devices, addresses, routes and sockets |
//! | [`peer`] | the process at the other end of a Unix socket |
//! | [`readiness`] | the state that `poll` should report for a socket |
//! | [`reserve`] | an allocator with a reserve, so that a lack of memory does not end the program |
//! | [`slots`] | numbered slots that the processes of a user share |
//! | [`stand_in`] | a descriptor for the program, whose readiness the library controls |
//! | [`threads`] | threads of the library, which receive none of the program's signals |
//! | [`user`] | names of users |

pub mod adaptive_spin;
pub mod clock;
pub mod descriptors;
pub mod environment;
pub mod forks;
pub mod library;
pub mod locks;
pub mod log;
pub mod netlink;
pub mod peer;
pub mod readiness;
pub mod reserve;
pub mod slots;
pub mod stand_in;
pub mod threads;
pub mod user;
