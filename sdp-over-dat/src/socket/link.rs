//! The transport connection below a socket, as the events of DAT report it.
//!
//! ```text
//!                 established          end
//!   SETTING UP ───────────────> UP ──────────> GONE
//!        '──────────────── end ────────────────^
//! ```

/// The way in which this end takes part in the set-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Opening {
    /// This end connects. The Hello is kept for the trace.
    Active {
        hello: Vec<u8>,
        /// True if the peer has suspended the connection, which continues.
        continues: bool,
    },
    /// This end accepts.
    Passive,
    /// This end accepts, and the connection counts as established only after the peer's first
    /// message: until then the peer may have withdrawn.
    PassiveAwaitsMessage,
}

impl Opening {
    pub(super) const fn is_active(&self) -> bool {
        matches!(self, Self::Active { .. })
    }
}

/// A failure of posted work. The next event is the one that ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The work was flushed.
    Flushed,
    /// The transport failed work because the peer did not answer. This may also happen when a peer
    /// ends in good order.
    Unanswered,
}

/// The state, as the module's diagram shows it. The `on_*` methods are the only writers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Link {
    SettingUp {
        opening: Opening,
        failure: Option<Failure>,
    },
    /// The event that the connection is established was read, so the endpoint may post. The peer's
    /// first message may be received before that event.
    Up { failure: Option<Failure> },
    /// The event of the end was read. The protocol is notified after the last message.
    Gone {
        was_up: bool,
        /// The transport did not end in good order.
        is_broken: bool,
        is_unanswered: bool,
    },
}

impl Link {
    pub(super) const fn new(opening: Opening) -> Self {
        Self::SettingUp {
            opening,
            failure: None,
        }
    }

    /// Called when the connection is established. Returns how it was set up, once.
    pub(super) fn on_established(&mut self) -> Option<Opening> {
        let Self::SettingUp { failure, .. } = *self else {
            return None;
        };
        match std::mem::replace(self, Self::Up { failure }) {
            Self::SettingUp { opening, .. } => Some(opening),
            Self::Up { .. } | Self::Gone { .. } => None,
        }
    }

    /// Called when posted work has failed.
    pub(super) fn on_failure(&mut self, new: Failure) {
        match self {
            Self::SettingUp { failure, .. } | Self::Up { failure } => {
                if *failure != Some(Failure::Unanswered) {
                    *failure = Some(new);
                }
            }
            Self::Gone { is_unanswered, .. } => *is_unanswered |= new == Failure::Unanswered,
        }
    }

    /// Called when the connection has ended, or was not made.
    pub(super) fn on_end(&mut self, is_broken: bool) {
        let (was_up, failure) = match self {
            Self::SettingUp { failure, .. } => (false, *failure),
            Self::Up { failure } => (true, *failure),
            Self::Gone { .. } => return,
        };
        *self = Self::Gone {
            was_up,
            is_broken,
            is_unanswered: failure == Some(Failure::Unanswered),
        };
    }

    /// True while a suspended connection is being set up again.
    pub(super) const fn continues(&self) -> bool {
        matches!(
            self,
            Self::SettingUp {
                opening: Opening::Active {
                    continues: true,
                    ..
                },
                ..
            }
        )
    }

    /// True once the endpoint takes Sends and RDMA Reads. On a link that is gone these are flushed.
    pub(super) const fn may_post(&self) -> bool {
        matches!(self, Self::Up { .. } | Self::Gone { was_up: true, .. })
    }

    pub(super) const fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }

    /// True if the connection was established and its transport has ended in good order.
    pub(super) const fn has_ended_in_order(&self) -> bool {
        matches!(
            self,
            Self::Gone {
                was_up: true,
                is_broken: false,
                ..
            }
        )
    }

    /// True while the next event is expected to be a connection event. That is so during the
    /// set-up, unless this end has aborted (`has_aborted`), and after work that failed.
    pub(super) const fn awaits_event(&self, has_aborted: bool) -> bool {
        match self {
            Self::SettingUp { failure, .. } => failure.is_some() || !has_aborted,
            Self::Up { failure } => failure.is_some(),
            Self::Gone { .. } => false,
        }
    }

    /// True if the transport ended the connection because the peer did not answer.
    pub(super) const fn has_timed_out(&self) -> bool {
        matches!(
            self,
            Self::Gone {
                is_broken: true,
                is_unanswered: true,
                ..
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Failure::{Flushed, Unanswered},
        Link::{SettingUp, Up},
        *,
    };

    fn setting_up(failure: Option<Failure>) -> Link {
        let opening = Opening::Passive;
        SettingUp { opening, failure }
    }

    const fn up(failure: Option<Failure>) -> Link {
        Up { failure }
    }

    const fn gone(was_up: bool, is_broken: bool, is_unanswered: bool) -> Link {
        Link::Gone {
            was_up,
            is_broken,
            is_unanswered,
        }
    }

    #[test]
    fn every_event_in_every_state() {
        type Event = fn(&mut Link);
        let events: [Event; 5] = [
            |it| drop(it.on_established()),
            |it| it.on_failure(Flushed),
            |it| it.on_failure(Unanswered),
            |it| it.on_end(false),
            |it| it.on_end(true),
        ];
        // Each row: a state, and the state after established, flushed, unanswered, end and break.
        macro_rules! rows {
            ($($before:expr => $after:expr;)+) => { [$(($before, $after)),+] };
        }
        let rows = rows! {
            setting_up(None)
                => [up(None), setting_up(Some(Flushed)), setting_up(Some(Unanswered)),
                    gone(false, false, false), gone(false, true, false)];
            setting_up(Some(Flushed))
                => [up(Some(Flushed)), setting_up(Some(Flushed)), setting_up(Some(Unanswered)),
                    gone(false, false, false), gone(false, true, false)];
            setting_up(Some(Unanswered))
                => [up(Some(Unanswered)), setting_up(Some(Unanswered)),
                    setting_up(Some(Unanswered)), gone(false, false, true),
                    gone(false, true, true)];
            up(None)
                => [up(None), up(Some(Flushed)), up(Some(Unanswered)), gone(true, false, false),
                    gone(true, true, false)];
            up(Some(Flushed))
                => [up(Some(Flushed)), up(Some(Flushed)), up(Some(Unanswered)),
                    gone(true, false, false), gone(true, true, false)];
            up(Some(Unanswered))
                => [up(Some(Unanswered)), up(Some(Unanswered)), up(Some(Unanswered)),
                    gone(true, false, true), gone(true, true, true)];
            gone(true, true, false)
                => [gone(true, true, false), gone(true, true, false), gone(true, true, true),
                    gone(true, true, false), gone(true, true, false)];
        };
        for (before, after) in rows {
            for (number, (event, expected)) in events.into_iter().zip(after).enumerate() {
                let mut state = before.clone();
                event(&mut state);
                assert_eq!(state, expected, "event {number} in {before:?}");
            }
        }
    }

    #[test]
    fn each_state_permits_the_right_operations() {
        for (state, may_post, awaits_event, has_timed_out) in [
            (setting_up(None), false, true, false),
            (setting_up(Some(Unanswered)), false, true, false),
            (up(None), true, false, false),
            (up(Some(Flushed)), true, true, false),
            (gone(false, true, false), false, false, false),
            (gone(true, false, true), true, false, false),
            (gone(true, true, true), true, false, true),
        ] {
            assert_eq!(state.may_post(), may_post, "{state:?}");
            assert_eq!(state.awaits_event(false), awaits_event, "{state:?}");
            assert_eq!(state.has_timed_out(), has_timed_out, "{state:?}");
        }
    }

    #[test]
    fn a_link_ends_in_order_if_it_was_up_and_did_not_break() {
        for (state, expected) in [
            (setting_up(None), false),
            (up(None), false),
            (gone(false, false, false), false),
            (gone(true, true, false), false),
            (gone(true, false, false), true),
            (gone(true, false, true), true),
        ] {
            assert_eq!(state.has_ended_in_order(), expected, "{state:?}");
        }
    }

    #[test]
    fn an_aborted_set_up_awaits_an_event_only_after_work_that_failed() {
        assert!(!setting_up(None).awaits_event(true));
        assert!(setting_up(Some(Flushed)).awaits_event(true));
    }

    #[test]
    fn how_a_connection_was_set_up_is_returned_once() {
        let hello = vec![1, 2];
        let mut link = Link::new(Opening::Active {
            hello,
            continues: true,
        });
        assert!(link.continues());
        assert!(link.on_established().is_some_and(|it| it.is_active()));
        assert_eq!(link.on_established(), None);
        assert!(!link.continues());
    }
}
