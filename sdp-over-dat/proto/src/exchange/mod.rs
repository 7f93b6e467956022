//! One advertisement of the source's memory, seen from both ends.
//!
//! [`source::Exchange`] is the end whose memory it is, [`sink::Exchange`] the one that reads it.
//! The sink answers with RdmaRdCompl for what it has read, and with SendSm when the rest shall come
//! in Sends. The source may take an advertisement back (SrcAvailCancel); what answers that is
//! RdmaRdCompl for all of it, or SendSm.
//!
//! A refusal and a cancel may cross. The source then gets a SendSm that left before the cancel
//! arrived, and the sink a cancel of nothing, which it passes over. So any SendSm that
//! acknowledges the advertisement itself ends the exchange at the source: there is one
//! advertisement at a time, and none but the outstanding one can be meant.

mod advert;
pub(crate) mod sink;
pub(crate) mod source;

pub use advert::{Advert, AdvertId, OnCancel};
