//! Bytes that were written and not sent, in stream order.

use std::collections::VecDeque;

use crate::{Advert, AdvertId, OnCancel, Payload};

/// The distance to an urgent byte, in bytes, from which on the peer is notified of it.
const URGENT_NOTICE: u64 = 64 * 1024;

/// Consecutive bytes of the stream that are sent in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Bytes that the engine keeps in order. If `urgent`, the last one is urgent.
    Stream { len: u64, urgent: bool },
    /// Memory to be advertised.
    Advert(Advert),
    /// Memory whose bytes from `offset` on are sent in Sends.
    Rest { advert: Advert, offset: u32 },
}

#[derive(Debug, Default)]
pub(super) struct SendQueue {
    items: VecDeque<Item>,
}

/// The payload of a Data message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) payload: Payload,
    /// True if the last byte is urgent.
    pub(super) urgent: bool,
    /// The advertisement that is completed by this payload.
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

    /// Adds memory to be advertised at the front of the queue.
    pub(super) fn push_advert_first(&mut self, advert: Advert) {
        self.items.push_front(Item::Advert(advert));
    }

    /// Adds memory whose bytes are sent in Sends, at the end of the queue.
    pub(super) fn push_rest_last(&mut self, advert: Advert) {
        self.items.push_back(Item::Rest { advert, offset: 0 });
    }

    /// Adds the rest of an advertisement at the front of the queue.
    pub(super) fn push_rest(&mut self, advert: Advert, offset: u32) {
        self.items.push_front(Item::Rest { advert, offset });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn front(&self) -> Option<&Item> {
        self.items.front()
    }

    /// Removes the advertisement at the front.
    pub(super) fn take_advert(&mut self) {
        if matches!(self.items.front(), Some(Item::Advert(_))) {
            self.items.pop_front();
        }
    }

    /// The number of advertisements that wait.
    pub(super) fn adverts(&self) -> usize {
        let is_advert = |item: &&Item| matches!(item, Item::Advert(_));
        self.items.iter().filter(is_advert).count()
    }

    /// Changes memory at the front that is to be advertised to be sent in Sends.
    pub(super) fn send_first_advert(&mut self) {
        if let Some(item) = self.items.front_mut()
            && let Item::Advert(advert) = *item
        {
            *item = Item::Rest { advert, offset: 0 };
        }
    }

    /// The number of bytes at the front that are sent in the same way and are not urgent.
    pub(super) fn run(&self) -> u64 {
        match self.items.front() {
            None | Some(Item::Advert(_)) => 0,
            Some(Item::Stream { len, urgent }) => len - u64::from(*urgent),
            Some(Item::Rest { advert, offset }) => u64::from(advert.len - offset),
        }
    }

    /// Takes at most `max` bytes that are sent in a Send.
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

    /// Changes memory that has not been advertised to be sent in Sends.
    pub(super) fn send_adverts(&mut self) {
        for item in &mut self.items {
            if let Item::Advert(advert) = *item {
                *item = Item::Rest { advert, offset: 0 };
            }
        }
    }

    /// Cancels memory that is still in the queue. Returns the number of its bytes that were sent,
    /// if the memory was removed from the queue by this call.
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

    /// True if an urgent byte is close enough for the peer to be notified.
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
