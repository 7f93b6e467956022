//! Messages for which no receive is posted.
//!
//! A message that finds no receive ends the stream of an iWARP connection. Programs written for
//! InfiniBand rely on its retries: OFA's providers ask for them without a limit, so a message waits
//! until its receive is posted. Between two ends of this implementation a message therefore waits
//! for `receive_wait_ms`. The connection receives nothing meanwhile, which to the peer is the flow
//! control of its transport.
//!
//! ```text
//!              a segment finds no receive
//!   RECEIVES ──────────────────────────────> WAITS
//!      ^                                      | |
//!      '------------- a receive is posted ----' '-- time is up, the peer or this end closes: Fault
//! ```
//!
//! A consumer may set a shorter limit: the peer announces how often it would repeat a message, and
//! this end has the pause before each repetition ([`ReceiveWaits`]).
//!
//! A waiting connection is armed, and its socket is watched for its end only. The post of a receive
//! makes the engine drive it. The timer exists in this state only.

use std::time::Duration;

use rnic::ReceiveWaits;

use crate::carrier::End;
use crate::conn::{Conn, Due};
use crate::engine::Key;

use super::{Effects, Link, Qp, lock};

/// The answer of a receive queue to a connection whose next message found no receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// A receive was posted meanwhile.
    Posted,
    /// The next post wakes the connection.
    Waits,
    /// The connection may take no more receives ([`super::watermarks`]).
    Refused,
}

impl Qp {
    /// Called after a pass. Makes a connection wait whose next message found no receive, and ends
    /// the wait of one whose message found its receive.
    pub(super) fn update_wait(&self, conn: &mut Conn, effects: &mut Effects) -> Result<(), End> {
        while conn.inbox.is_unready() {
            let may_wait =
                conn.lifecycle.is_open() && self.receive_wait(conn) != Some(Duration::ZERO);
            let answer = match may_wait {
                true => self.ask_for_receive(conn.socket.key),
                false => Answer::Refused,
            };
            match answer {
                Answer::Waits => return self.wait_for_receive(conn, effects),
                Answer::Posted => {}
                Answer::Refused => conn.proto.wait_for_receives(false),
            }
            let received = conn.receive(self);
            self.settle(conn, effects);
            received?;
        }
        if std::mem::take(&mut conn.waits_for_receive) {
            conn.socket.want_segments(&mut conn.place, true);
            if matches!(conn.deadline, Some((_, Due::Receive))) {
                self.set_deadline(conn, None);
            }
        }
        Ok(())
    }

    fn wait_for_receive(&self, conn: &mut Conn, effects: &mut Effects) -> Result<(), End> {
        if conn.place.is_polled() {
            // Pollers would find the waiting segment in every poll.
            if conn.burst.is_held {
                self.transmit(conn)?;
                self.settle(conn, effects);
            }
            if !conn.arm()? {
                let former = self.shared.progress.remove_polled(&conn.socket);
                effects.former = former.or(effects.former.take());
            }
        }
        if !conn.proto.has_rx_moved() {
            conn.socket.want_segments(&mut conn.place, false);
        }
        if !std::mem::replace(&mut conn.waits_for_receive, true) {
            tracing::debug!(qp = self.token.0, "a message waits for its receive");
            // The acknowledgements of the peer are behind the message that waits.
            conn.outstanding.assume_acknowledged();
            self.settle(conn, effects);
            let limit = self.receive_wait(conn);
            self.set_deadline(conn, limit.map(|limit| (limit, Due::Receive)));
        }
        Ok(())
    }

    /// See [`rnic::Rnic::set_receive_waits`].
    pub(crate) fn set_waits(&self, waits: ReceiveWaits) {
        *lock(&self.waits) = Some(waits);
        let mut link = self.lock_link();
        let mut effects = Effects::default();
        let mut end = None;
        if let Link::Up(conn) = &mut *link
            && conn.lifecycle.is_open()
        {
            conn.announce_retries(waits.retries);
            end = self.step(conn, false, &mut effects).err();
        }
        if let Some(end) = end {
            self.finish(&mut link, end, &mut effects);
        }
        drop(link);
        self.after(&effects);
    }

    /// Announces the retries of this end, if there is a limit, when its connection begins.
    pub(super) fn announce_waits(&self, conn: &mut Conn) {
        let retries = lock(&self.waits).and_then(|waits| waits.retries);
        if retries.is_some() {
            conn.announce_retries(retries);
        }
    }

    /// The time for which the next message of the peer may wait; `None`: no limit.
    fn receive_wait(&self, conn: &Conn) -> Option<Duration> {
        let limit = self.shared.config.receive_wait;
        let (Some(waits), Some(retries)) = (*lock(&self.waits), conn.proto.peer_retries()) else {
            return limit;
        };
        let announced = waits.pause * u32::from(retries);
        Some(limit.map_or(announced, |limit| limit.min(announced)))
    }

    fn ask_for_receive(&self, key: Key) -> Answer {
        let waits = match &self.srq {
            Some(_) if !self.may_take_shared() => return Answer::Refused,
            Some(srq) => srq.wake_at_post(key),
            None => {
                let mut receives = lock(&self.receives);
                let is_empty = receives.slots.is_empty();
                receives.wakes = is_empty.then_some(key);
                is_empty
            }
        };
        match waits {
            true => Answer::Waits,
            false => Answer::Posted,
        }
    }

    /// Makes the engine drive a connection, because a receive was posted for which it waits.
    pub(super) fn wake_for_receive(&self, key: Option<Key>) {
        if let Some(key) = key {
            self.shared.engine.expire(key);
        }
    }
}
