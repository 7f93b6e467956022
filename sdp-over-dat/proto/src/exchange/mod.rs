//! The exchange about an advertisement of the source's memory, seen from both ends.
//!
//! [`source::Exchange`] is the end that owns the memory, [`sink::Exchange`] the end that reads it.
//! The sink answers with RdmaRdCompl for the bytes that it has read, and with SendSm when the rest
//! is to be sent in Sends. The source may cancel an advertisement (SrcAvailCancel). The answer to
//! that is RdmaRdCompl for all of it, or SendSm.
//!
//! A refusal and a cancel may cross. The source then receives a SendSm that was sent before the
//! cancel was received, and the sink receives a cancel of nothing, which it ignores. So any SendSm
//! that acknowledges the advertisement ends the exchange at the source. There is one advertisement
//! at a time, so the SendSm can only be about the outstanding one.

mod advert;
pub(crate) mod sink;
pub(crate) mod source;

pub use advert::{Advert, AdvertId, OnCancel};
