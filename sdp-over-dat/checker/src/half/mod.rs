//! A half of a connection, as its two ends see it.
//!
//! The end that sends the data of a half is its source, the other end is its sink. [`Source`] and
//! [`Sink`] hold the state of the half as each of these ends sees it. The methods `send_*` check a
//! message that the end sends and apply it, the methods `receive_*` apply a message of the peer.
//! The two states differ while messages are in flight. The rules for crossing messages make them
//! agree afterwards:
//!
//! - *A data message crosses SinkAvail.* Each data message uses up one sink advertisement, if the
//!   sink has one outstanding, and is then not counted in NonDiscards. The source compares
//!   NonDiscards with its own count: if they differ, a data message crossed SinkAvail and has used
//!   it up, so the source drops the advertisement and reduces its count by one. The same holds for
//!   a data message that the source sends while it holds a valid sink advertisement.
//! - *SrcAvail crosses SinkAvail.* A valid SinkAvail revokes all source advertisements of the half
//!   and ends their cancel. The sink drops every source advertisement that is received while a sink
//!   advertisement is outstanding.
//! - *SinkAvail crosses the change to combined mode.* The specification is silent. The checker
//!   keeps such an advertisement: the next RdmaWrCompl or data message uses it up, as in pipelined
//!   mode. Another rule would make the counts differ, if data messages cross as well.
//! - *RdmaRdCompl crosses the change to combined mode*, which withdraws all source advertisements:
//!   its MSeqAck precedes the change, so the source counts these bytes for a withdrawn one.
//! - *SrcAvail crosses SendSm.* The specification is silent. SendSm refuses the advertisements
//!   that it acknowledges. A later one is doubtful: the source may drop it or cancel it, and the
//!   sink may ignore it or refuse it, but not read it.
//! - *SrcAvailCancel crosses SendSm or the last RdmaRdCompl.* The sink ignores a cancel of nothing,
//!   and the source ends the cancel when its last advertisement is gone.
//! - *SinkAvailCancel crosses RdmaWrCompl or a data message.* Likewise, without SinkCancelAck.

mod sink;
mod source;

pub(crate) use sink::Sink;
pub(crate) use source::Source;
