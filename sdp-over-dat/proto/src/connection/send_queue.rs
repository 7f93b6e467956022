//! What was written and has not left, in stream order.

use std::collections::VecDeque;

use crate::{Advert, AdvertId, OnCancel, Payload};

/// How far ahead of an urgent byte the peer is told of it.
const URGENT_NOTICE: u64 = 64 * 1024;

/// Consecutive bytes of the stream that leave in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Bytes that the engine keeps in order; the last one is urgent, or none.
    Stream { len: u64, urgent: bool },
    /// Memory to be advertised.
    Advert(Advert),
    /// Advertised memory whose bytes from `offset` on leave in Sends.
    Rest { advert: Advert, offset: u32 },
}

#[derive(Debug, Default)]
pub(super) struct SendQueue {
    items: VecDeque<Item>,
}

/// Payload of a Data message, and what its last byte means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) payload: Payload,
    /// Its last byte is urgent.
    pub(super) urgent: bool,
    /// The advertisement that ends with it.
    pub(super) done: Option<Advert>,
}

impl SendQueue {
    pub(super) fn push_stream(&mut self, more: u32, urgent: bool) {
        if more == 0 {
            return;
        }
        let more = u64::from(more);
        match self.items.back_mut() {
            Some(Item::Stream { len, urgent: false }) => {
                *len += more;
                if urgent {
                    self.mark_last_urgent();
                }
            }
            _ => self.items.push_back(Item::Stream { len: more, urgent }),
        }
    }

    fn mark_last_urgent(&mut self) {
        if let Some(Item::Stream { urgent, .. }) = self.items.back_mut() {
            *urgent = true;
        }
    }

    pub(super) fn push_advert(&mut self, advert: Advert) {
        self.items.push_back(Item::Advert(advert));
    }

    /// Memory whose bytes leave in Sends, behind what is there.
    pub(super) fn push_rest_behind(&mut self, advert: Advert) {
        self.items.push_back(Item::Rest { advert, offset: 0 });
    }

    /// The rest of an advertisement leaves next.
    pub(super) fn push_rest(&mut self, advert: Advert, offset: u32) {
        self.items.push_front(Item::Rest { advert, offset });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn front(&self) -> Option<&Item> {
        self.items.front()
    }

    /// Takes the advertisement that is next.
    pub(super) fn take_advert(&mut self) {
        if matches!(self.items.front(), Some(Item::Advert(_))) {
            self.items.pop_front();
        }
    }

    /// Takes at most `max` bytes that leave in a Send.
    pub(super) fn take_piece(&mut self, max: u32) -> Option<Piece> {
        match self.items.front_mut()? {
            Item::Advert(_) => None,
            Item::Stream { len, urgent } => {
                let taken = u64::from(max).min(*len);
                *len -= taken;
                let is_last = *len == 0;
                let urgent = is_last && *urgent;
                if is_last {
                    self.items.pop_front();
                }
                Some(Piece {
                    payload: Payload::Stream(taken as u32),
                    urgent,
                    done: None,
                })
            }
            Item::Rest { advert, offset } => {
                let (advert, from) = (*advert, *offset);
                let len = max.min(advert.len - from);
                *offset += len;
                let is_last = *offset == advert.len;
                if is_last {
                    self.items.pop_front();
                }
                let id = advert.id;
                Some(Piece {
                    payload: Payload::Advert {
                        id,
                        offset: from,
                        len,
                    },
                    urgent: false,
                    done: is_last.then_some(advert),
                })
            }
        }
    }

    /// Memory that has not been advertised leaves in Sends instead.
    pub(super) fn send_adverts(&mut self) {
        for item in &mut self.items {
            if let Item::Advert(advert) = *item {
                *item = Item::Rest { advert, offset: 0 };
            }
        }
    }

    /// Handles a wish to cancel for what is still here: bytes of it that have left, when it is
    /// gone from the queue now.
    pub(super) fn cancel(&mut self, id: AdvertId, then: OnCancel) -> Option<u32> {
        let at = self.items.iter().position(|item| match item {
            Item::Advert(advert) | Item::Rest { advert, .. } => advert.id == id,
            Item::Stream { .. } => false,
        })?;
        match (then, self.items[at]) {
            (OnCancel::TakeBack, Item::Advert(_)) => {
                self.items.remove(at);
                Some(0)
            }
            (OnCancel::TakeBack, Item::Rest { offset, .. }) => {
                self.items.remove(at);
                Some(offset)
            }
            (OnCancel::Send, Item::Advert(advert)) => {
                self.items[at] = Item::Rest { advert, offset: 0 };
                None
            }
            (_, Item::Stream { .. }) | (OnCancel::Send, Item::Rest { .. }) => None,
        }
    }

    /// Whether an urgent byte is near enough for the peer to be told.
    pub(super) fn urgent_is_near(&self) -> bool {
        let mut ahead = 0;
        for item in &self.items {
            match *item {
                Item::Stream { len, urgent } => {
                    ahead += len;
                    if urgent {
                        return ahead <= URGENT_NOTICE;
                    }
                }
                Item::Advert(advert) => ahead += u64::from(advert.len),
                Item::Rest { advert, offset } => ahead += u64::from(advert.len - offset),
            }
            if ahead > URGENT_NOTICE {
                return false;
            }
        }
        false
    }
}
