//! The sizes of the receive buffers of both ends, as one end knows them, and their changes.

use crate::{Broken, frame::BASE_LEN};

/// The sizes as one end knows them, in bytes with the base header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    own: u32,
    peer: u32,
    requested: Requests,
    /// The number of requests of this end that the peer has not answered.
    unanswered: u32,
}

/// The peer's requests that this end has not answered, and a range that contains their sizes. The
/// range starts again with the first request after all were answered.
#[derive(Clone, Copy, Debug, Default)]
struct Requests {
    count: u32,
    smallest: u32,
    largest: u32,
}

impl Sizes {
    pub(crate) fn new(own: u32, peer: u32) -> Self {
        Self {
            own,
            peer,
            requested: Requests::default(),
            unanswered: 0,
        }
    }

    /// The longest message that this end may send.
    pub(crate) const fn peer(&self) -> u32 {
        self.peer
    }

    /// The payload of a full receive buffer of this end.
    pub(crate) const fn own_payload(&self) -> u32 {
        self.own.saturating_sub(BASE_LEN)
    }

    /// True if no request is unanswered.
    pub(crate) const fn has_nothing_pending(&self) -> bool {
        self.requested.count == 0 && self.unanswered == 0
    }

    /// ChRcvBuf for buffers of `size` bytes.
    pub(crate) fn send_request(&mut self, size: u32) -> Result<(), Broken> {
        if size <= BASE_LEN {
            return Err(Broken::Resize);
        }
        self.unanswered = self.unanswered.saturating_add(1);
        Ok(())
    }

    /// ChRcvBufAck: the buffers of this end have `size` bytes from now on.
    pub(crate) fn send_answer(&mut self, size: u32) -> Result<(), Broken> {
        let Requests {
            count,
            smallest,
            largest,
        } = self.requested;
        if count == 0 {
            return Err(Broken::Unasked);
        }
        let least = self.own.min(smallest);
        // An answer may round a larger size up.
        let most = if largest > self.own {
            u32::MAX
        } else {
            self.own
        };
        if size <= BASE_LEN || size < least || size > most {
            return Err(Broken::Resize);
        }
        self.requested.count -= 1;
        self.own = size;
        Ok(())
    }

    /// ChRcvBuf was received.
    pub(crate) fn receive_request(&mut self, size: u32) {
        let requests = &mut self.requested;
        if requests.count == 0 {
            (requests.smallest, requests.largest) = (size, size);
        }
        requests.count = requests.count.saturating_add(1);
        requests.smallest = requests.smallest.min(size);
        requests.largest = requests.largest.max(size);
    }

    /// ChRcvBufAck was received: the peer's buffers have `size` bytes.
    pub(crate) fn receive_answer(&mut self, size: u32) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.peer = size;
    }
}
