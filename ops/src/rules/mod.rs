//! The rule file of the offload protocol switch, which selects the sockets that may leave TCP.
//!
//! The syntax of `libsdp.conf` is valid here with the same meaning. Settings may follow the
//! address:
//!
//! ```text
//! # target role program address:port [key=value ...]
//! use tcp  client  *      *:22
//! use both listen  nginx  10.0.0.0/8:80-443
//! use both connect *      [2001:db8::]/32:*    interface=eth1 user=1000 within=100ms
//! use sdp  connect redis* *:6379               sdp.send-buffer=2M
//! log destination stderr min-level 8
//! protocol /usr/lib/libexample.so priority=5
//! ```
//!
//! | Word | Values |
//! |---|---|
//! | target | `tcp`: the kernel's stack; `both`: an offload protocol, and TCP if that fails; `offload`: no TCP; `sdp` and `local`: short for `offload protocol=sdp` and `offload protocol=local` |
//! | role | `listen` or `server`, `connect` or `client` |
//! | program | a glob, matched against the base name of the program's file and of the name it was started by, or against the path of its file if the glob has a `/` |
//! | address | `*`, or an address with or without a prefix length; the program's own when it listens, the peer's when it connects |
//! | port | `*`, one port or a range |
//! | `protocol=` | only these offload protocols, with commas between them |
//! | `user=` | only programs of this numeric user id |
//! | `interface=` | only if the route uses this device, or the device has the address |
//! | `within=` | the time in `ms` or `s` that an offload protocol may delay TCP when the socket connects |
//! | `NAME.KEY=` | a setting passed to offload protocol NAME, which declares its settings as [`Known`] |
//!
//! The first rule that matches wins; a socket that no rule matches is `both`. This is true for a
//! file without rules too, where libsdp disables TCP. A file with one bad line is refused as a
//! whole, because skipping a rule would apply the next one to its sockets.
//!
//! - [`parse`](parse()) reads a file into [`Rules`], or into all its [`Fault`]s; [`parse_for`] also
//!   checks the settings of the given protocols
//! - [`Rules`] answers a [`Query`] with a [`Verdict`] and counts the decisions of each rule
//! - [`Source`] finds the file of this process
//! - `glob`, `endpoints` and `word` are the parts of a line

#![forbid(unsafe_code)]

mod endpoints;
mod fault;
mod glob;
mod known;
mod log;
mod parse;
mod query;
mod rule;
mod source;
mod table;
mod word;

pub use endpoints::{Addresses, Endpoints, Ports};
pub use fault::{Fault, Reason};
pub use glob::Glob;
pub use known::Known;
pub use log::{Destination, Log};
pub use parse::{parse, parse_for};
pub use query::{Query, Role};
pub use rule::{Rule, Setting, Target};
pub use source::{CONFIG_FILES, Loaded, Source, Unusable, VARIABLES};
pub use table::{Object, Rules, Verdict};
