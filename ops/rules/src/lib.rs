//! The rule file of the offload protocol switch: which sockets may leave TCP.
//!
//! What `libsdp.conf` says, this file says as well; more is possible behind the address:
//!
//! ```text
//! # target role program address:port [key=value ...]
//! use tcp  client  *      *:22
//! use both listen  nginx  10.0.0.0/8:80-443
//! use both connect *      [2001:db8::]/32:*    interface=eth1 user=1000 within=100ms
//! use sdp  connect redis* *:6379               sdp.send-buffer=2M
//! log destination stderr min-level 8
//! ```
//!
//! | Word | Values |
//! |---|---|
//! | target | `tcp`: the kernel's stack; `both`: an offload protocol, and TCP where that fails; `offload`: no TCP; `sdp`: as `offload protocol=sdp` |
//! | role | `listen` or `server`, `connect` or `client` |
//! | program | a glob against the base name of the program's file or of what it was started as, or against the path of its file if the glob has a `/` |
//! | address | `*`, or an address with a prefix length or without; the program's own when it listens, the peer's when it connects |
//! | port | `*`, one port or a range |
//! | `protocol=` | only these offload protocols, with commas between them |
//! | `user=` | only programs of this numeric user id |
//! | `interface=` | only where the route leaves, or the address lives, on this device |
//! | `within=` | `ms` or `s`: how long an offload protocol may delay TCP when the socket connects |
//! | `NAME.KEY=` | a setting handed to offload protocol NAME, which says which it has ([`Known`]) |
//!
//! The first rule that matches wins; a socket that none matches is `both`. That holds for a file
//! without rules too, where libsdp takes TCP away. A file with one bad line is refused whole,
//! because leaving a rule out would give its sockets to the next one.
//!
//! - [`parse`](parse()) reads a file into [`Rules`], or into all its [`Fault`]s;
//!   [`parse_for`] does so for the protocols at hand
//! - [`Rules`] answers a [`Query`] with a [`Verdict`] and counts what each rule decided
//! - [`Source`] finds the file of this process
//! - `glob`, `place`, `word` are what a line is made of

#![forbid(unsafe_code)]

mod fault;
mod glob;
mod known;
mod log;
mod parse;
mod place;
mod query;
mod rule;
mod rules;
mod source;
mod word;

pub use fault::{Fault, Reason};
pub use glob::Glob;
pub use known::Known;
pub use log::{Destination, Log};
pub use parse::{parse, parse_for};
pub use place::{Addresses, Place, Ports};
pub use query::{Query, Role};
pub use rule::{Rule, Setting, Target};
pub use rules::{Rules, Verdict};
pub use source::{CONFIG_FILES, Loaded, Source, Unusable, VARIABLES};
