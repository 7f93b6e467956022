//! Sends that are posted before the connection is established.
//!
//! A program may post in RTS, which it reaches before its peer is ready. The RNIC takes sends only
//! on a connection, so these wait here in order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use host::locks::lock;
use rnic::{Resource, RnicError, SendOp, SendWr, Sge};

use crate::windows::Bind;

/// A request of the send queue.
#[derive(Debug, Clone, Copy)]
pub(super) enum Request<'a> {
    Send(&'a SendWr<'a>),
    Bind(&'a Arc<Bind>),
}

/// A request that waits.
#[derive(Debug)]
enum Waiting {
    Send(Send),
    Bind(Arc<Bind>),
}

impl Waiting {
    fn of(request: Request<'_>) -> Self {
        match request {
            Request::Send(wr) => Self::Send(Send::of(wr)),
            Request::Bind(bind) => Self::Bind(bind.clone()),
        }
    }

    /// Calls `post` with the request, and `fail` with its identifier if it is refused.
    fn post(
        &self,
        post: impl FnOnce(Request<'_>) -> Result<(), RnicError>,
        fail: impl FnOnce(u64),
    ) {
        let (result, wr_id) = match self {
            Self::Send(send) => (post(Request::Send(&send.request())), send.wr_id),
            Self::Bind(bind) => (post(Request::Bind(bind)), bind.wr_id),
        };
        if result.is_err() {
            fail(wr_id);
        }
    }
}

/// A send that owns its list of segments.
#[derive(Debug)]
struct Send {
    wr_id: u64,
    op: SendOp,
    sgl: Box<[Sge]>,
    completion: bool,
    fence: bool,
    inline: bool,
}

impl Send {
    fn of(wr: &SendWr<'_>) -> Self {
        Self {
            wr_id: wr.wr_id,
            op: wr.op,
            sgl: wr.sgl.into(),
            completion: wr.completion,
            fence: wr.fence,
            inline: wr.inline,
        }
    }

    fn request(&self) -> SendWr<'_> {
        SendWr {
            wr_id: self.wr_id,
            op: self.op,
            sgl: &self.sgl,
            completion: self.completion,
            signalled: true,
            fence: self.fence,
            inline: self.inline,
        }
    }
}

/// The sends of one queue pair that wait for its connection.
#[derive(Debug, Default)]
pub(super) struct EarlySends {
    /// True if nothing waits and the RNIC takes sends. Written under the lock of the queue.
    is_open: AtomicBool,
    /// True while a thread posts the sends that waited.
    is_opening: AtomicBool,
    waiting: Mutex<VecDeque<Waiting>>,
}

impl EarlySends {
    /// The number of sends that wait.
    pub(super) fn len(&self) -> usize {
        match self.is_open.load(Ordering::Acquire) {
            true => 0,
            false => lock(&self.waiting).len(),
        }
    }

    /// Posts a send by `post`, or queues it if earlier ones wait or there is no connection. At most
    /// `max` sends wait.
    pub(super) fn post(
        &self,
        request: Request<'_>,
        max: u32,
        post: impl FnOnce(Request<'_>) -> Result<(), RnicError>,
    ) -> Result<(), RnicError> {
        if !self.is_open.load(Ordering::Acquire) {
            let mut waiting = lock(&self.waiting);
            if !self.is_open.load(Ordering::Acquire) {
                if waiting.len() >= max as usize {
                    return Err(RnicError::NoResources(Resource::WorkRequest));
                }
                waiting.push_back(Waiting::of(request));
                return Ok(());
            }
        }
        post(request)
    }

    /// Called when the RNIC takes sends: the connection is established, or it has ended and sends
    /// are flushed. Posts those that waited by `post`; `fail` reports one that was refused.
    pub(super) fn open(
        &self,
        post: impl Fn(Request<'_>) -> Result<(), RnicError>,
        fail: impl Fn(u64),
    ) {
        if self.is_opening.swap(true, Ordering::AcqRel) {
            return;
        }
        loop {
            let mut waiting = lock(&self.waiting);
            let Some(request) = waiting.pop_front() else {
                self.is_open.store(true, Ordering::Release);
                break;
            };
            // Not held during the call, which may call up.
            drop(waiting);
            request.post(&post, &fail);
        }
        self.is_opening.store(false, Ordering::Release);
    }

    /// Called when the queue pair stops its send queue: requests wait from now on.
    pub(super) fn hold(&self) {
        let _waiting = lock(&self.waiting);
        self.is_open.store(false, Ordering::Release);
    }

    /// Called when the queue pair is reset: drops the sends that wait.
    pub(super) fn close(&self) {
        let mut waiting = lock(&self.waiting);
        self.is_open.store(false, Ordering::Release);
        waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn send(wr_id: u64) -> SendWr<'static> {
        SendWr {
            wr_id,
            op: SendOp::Send {
                solicited: false,
                invalidate: None,
            },
            sgl: &[],
            completion: true,
            signalled: true,
            fence: false,
            inline: false,
        }
    }

    fn refused(_: Request<'_>) -> Result<(), RnicError> {
        Err(RnicError::InvalidState("of the test"))
    }

    #[test]
    fn sends_wait_and_are_posted_in_order() {
        let early = EarlySends::default();
        for wr_id in 1..=3 {
            early.post(Request::Send(&send(wr_id)), 3, refused).unwrap();
        }
        assert!(
            early.post(Request::Send(&send(4)), 3, refused).is_err(),
            "the queue is full"
        );
        let posted = RefCell::new(Vec::new());
        let post = |request: Request<'_>| {
            let Request::Send(wr) = request else {
                panic!("no bind is posted");
            };
            posted.borrow_mut().push(wr.wr_id);
            Ok(())
        };
        early.open(post, |_| panic!("no send is refused"));
        early.post(Request::Send(&send(5)), 3, post).unwrap();
        assert_eq!(*posted.borrow(), [1, 2, 3, 5]);
    }

    #[test]
    fn a_send_that_the_rnic_refuses_is_reported() {
        let early = EarlySends::default();
        early.post(Request::Send(&send(1)), 1, refused).unwrap();
        let failed = RefCell::new(Vec::new());
        early.open(refused, |wr_id| failed.borrow_mut().push(wr_id));
        assert_eq!(*failed.borrow(), [1]);
    }

    #[test]
    fn a_reset_drops_what_waits() {
        let early = EarlySends::default();
        early.post(Request::Send(&send(1)), 1, refused).unwrap();
        early.close();
        assert_eq!(early.len(), 0);
        early.open(refused, |_| panic!("nothing is posted"));
        early.close();
        early.post(Request::Send(&send(2)), 1, refused).unwrap();
        assert_eq!(early.len(), 1);
    }
}
