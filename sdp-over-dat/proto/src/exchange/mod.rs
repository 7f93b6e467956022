//! The exchanges about advertised memory, seen from both ends.
//!
//! A connection has two independent halves. Each half has a source and a sink, and two exchanges:
//!
//! | Exchange | At the source | At the sink |
//! |---|---|---|
//! | SrcAvail: the source's memory, which the sink reads | [`read::source::Exchange`] | [`read::sink::Exchange`] |
//! | SinkAvail: the sink's memory, which the source writes | [`write::source::Exchange`] | [`write::sink::Exchange`] |
//!
//! The exchanges handle neither messages nor credits. `connection::inbound` passes received
//! messages to them, `connection::outbound` asks them for the messages that are due, and
//! `connection::commands` passes the engine's commands. An end of an exchange returns the memory
//! that it no longer needs. The connection puts the bytes of the memory back into the queue, or
//! reports the end of the exchange to the engine.
//!
//! # Reading: SrcAvail
//!
//! The sink answers the oldest advertisement first, with RdmaRdCompl for the bytes that it has
//! read, and with SendSm when the rest is to be sent in Sends. The source may cancel all
//! advertisements (SrcAvailCancel). The answer to that is RdmaRdCompl for all of them, or SendSm.
//!
//! * In combined mode there is one advertisement at a time, and it carries payload. In pipelined
//!   mode there are several, without payload.
//! * A refusal and a cancel may cross. The source then receives a SendSm that was sent before the
//!   cancel was received, and the sink receives a cancel without an advertisement, which it
//!   ignores. So a SendSm ends the exchange about every advertisement that it acknowledges.
//! * In pipelined mode a refusal and further advertisements may cross. Their bytes follow those of
//!   the refused ones, so the sink drops every SrcAvail that does not acknowledge its last SendSm,
//!   and the source advertises them again. If the source has cancelled them before it received the
//!   SendSm, the sink answers the cancel with another SendSm.
//!
//! # Writing: SinkAvail
//!
//! In pipelined mode the sink may advertise memory while it has no advertisement of the source. The
//! source writes into the oldest one and reports the bytes with RdmaWrCompl, which retires the
//! advertisement even if it is not full. Both ends count the messages with data that met no sink
//! advertisement (`NonDiscards`). The rules, which are those of the only public implementation:
//!
//! * A message with data uses up the oldest sink advertisement, at the source when it is sent and
//!   at the sink when it is received, and is then not counted.
//! * A SinkAvail whose count differs from the source's was crossed by data. Its memory is not
//!   written, and the source counts one message less.
//! * A valid SinkAvail revokes all source advertisements of the half. The sink drops every SrcAvail
//!   that it receives while it has a sink advertisement outstanding. No message reports this.
//! * SinkAvailCancel cancels all sink advertisements. The source answers with SinkCancelAck only if
//!   it drops at least one because of that.
//!
//! The rules that this implementation adds:
//!
//! * The source leaves pipelined mode only while it has no advertisement of either kind. A
//!   SinkAvail that crosses the ModeChange stays valid until it is used up, as in pipelined mode.
//! * DisConn retires sink advertisements too.
//! * The payload of a SinkAvail (Transaction) belongs to the opposite half and is not counted. An
//!   end sends it only while no sink advertisement of the peer can exist for that half, because
//!   such an advertisement would leave the position of the payload in the stream open.
//! * An end that has used up the peer's MaxAdverts with sink advertisements sends its own data in
//!   Sends. Otherwise two ends that wait for each other's data would wait for ever.

mod advert;
pub(crate) mod read;
pub(crate) mod write;

pub use advert::{Advert, AdvertId, OnCancel, SinkAdvert};

/// The progress of a cancel, which concerns all outstanding advertisements of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancel {
    /// No cancel.
    None,
    /// The advertisements are to be cancelled, and the peer has not been notified yet.
    Due,
    /// The message was sent.
    Sent,
}
