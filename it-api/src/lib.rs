//! `libitapi.so.2`: IT-API 2.1 of the Open Group over DAT 2.0.
//!
//! A program includes `it_api.h` and links with `-litapi`. The library uses the public calls of
//! whichever `libdat2.so.2` is installed, and nothing else of this project. `docs/man/itapi.3`
//! lists the calls.
//!
//! | Module | Contents |
//! |---|---|
//! | `unsupported` | unreliable datagrams, and calls for privileged programs |
//! | `socket` | the conversion of a socket |
//! | `dto` | data transfer |
//! | `evd` | the calls of event dispatchers |
//! | `aevd` | taking events of aggregate event dispatchers |
//! | `event` | taking an event of DAT and translating it |
//! | `ep` | endpoints |
//! | `asynchronous` | events that the library takes itself: asynchronous ones, requests on sockets |
//! | `cm` | listening, connecting, answering requests |
//! | `rmr` | remote memory regions |
//! | `flags` | flags of data transfers |
//! | `srq` | shared receive queues |
//! | `lmr` | local memory regions |
//! | `pz` | protection zones |
//! | `context` | the kind of an object, and the word that the program stores with it |
//! | `queue` | the object of an event dispatcher |
//! | `ia` | interface adapters |
//! | `address` | addresses and paths |
//! | `handle` | the table of all objects |
//! | `dat` | the registry library |
//! | `abi` | the structures of the header |
//! | `status` | statuses, and the table from return codes of DAT |
//!
//! A module uses only modules below it in this table.
//!
//! # Where IT-API and DAT differ
//!
//! | IT-API | DAT | where |
//! |---|---|---|
//! | an EVD has one stream of events | an EVD has several, and one for completions has no others | `evd` |
//! | asynchronous events are two streams | one EVD of the adapter has them all | `asynchronous` |
//! | an aggregate EVD returns the events of others | a CNO names the EVD that has events | `aevd` |
//! | one call converts either end of a socket | two calls, and a request to accept | `socket` |
//! | a region can be modified | it is registered again | `lmr` |
//! | events name objects by the program's handles | by DAT's, whose context is that handle | `queue` |
//!
//! # System calls, copies, locks and allocations of one small Send
//!
//! Those of DAT. The library adds look-ups without a lock, one list of segments on the stack, and
//! for each completion the call by which DAT returns the handle of the endpoint.

// The arguments of a call are those of the header.
#![allow(clippy::too_many_arguments)]

#[macro_use]
mod dat;

mod abi;
mod address;
mod aevd;
mod asynchronous;
mod cm;
mod context;
mod dto;
mod ep;
mod evd;
mod event;
mod flags;
mod handle;
mod ia;
mod lmr;
mod pz;
mod queue;
mod rmr;
mod socket;
mod srq;
mod status;
mod unsupported;
