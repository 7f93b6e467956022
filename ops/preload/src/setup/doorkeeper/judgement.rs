//! The judgement whether the programs that accept from a listener see its offloaded clients.
//!
//! ```text
//!          readable             PATIENCE, nobody has accepted           the program has accepted
//! Armed ─────────────> Doubting ─────────────────────────────> Offering ───────────────────────┐
//!   ^                     │ accepted, or the client is gone        │     by a call of the       │
//!   │        REST         v                                        │     library, which waits   │
//!   └───────────────── Resting <───────────────────────────────────┤     for clients, too       │
//!                                                                  v                            │
//!                                            Withdrawn <────── Draining <──────────────────────┘
//!                                                   no client is connecting   in another way
//! ```
//! A client that nobody accepts is offered to the program over TCP. If a call of this library
//! accepts it, and the program also waits by calls of this library, the program was only slow: it
//! would have seen the client itself. In all other cases clients use TCP from now on.

use std::time::Duration;

use crate::listener::offers::NotOffered;

/// The time from a client's arrival to the first check whether it was accepted.
const PATIENCE: Duration = Duration::from_millis(100);
/// The longest such time. The time doubles each time that a program was only slow.
const PATIENCE_MAX: Duration = Duration::from_millis(800);
/// The time between the checks that follow it, and their number. A check that a busy or stopped
/// machine has delayed may come before the program has had a chance to run; then it runs between
/// these.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const LOOKS_AGAIN: u32 = 3;
/// The time between two checks of a process that inherited the listener over an `exec`, and their
/// number. It cannot count the calls of `accept` of the process that offers the listener, which
/// usually lives on and is first. A client that is moved over TCP ends with the process that moves
/// its bytes, so the heir begins late.
const PATIENCE_OF_HEIR: Duration = Duration::from_millis(200);
const LOOKS_OF_HEIR: u32 = 10;
/// The shortest time between two wake-ups by clients. So a listener whose program accepts costs
/// nothing per client.
pub(super) const REST: Duration = Duration::from_millis(100);
/// The time until the first check whether the program has accepted, and the longest time between
/// two checks.
pub(super) const FIRST_CHECK: Duration = Duration::from_millis(2);
const CHECK_MAX: Duration = Duration::from_millis(100);

/// The state, as the diagram shows it. `accepts` is the number of calls of `accept` at the
/// beginning of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Armed,
    /// The client is offered over TCP unless one of `looks` more checks finds none pending.
    Doubting {
        accepts: u64,
        looks: u32,
    },
    Offering {
        accepts: u64,
        next: Duration,
        /// The last check has found the client accepted. One more check follows, because the call
        /// of the library may not have claimed the client yet.
        is_accepted: bool,
    },
    Resting,
    /// The offer will be withdrawn once no client is connecting, so that no later client, which
    /// uses TCP, is accepted before it. `checks` more checks are made at most.
    Draining {
        checks: u32,
    },
    Withdrawn,
}

/// The number of checks, 2 ms apart, after which the offer is withdrawn though clients connect.
const DRAINING_CHECKS: u32 = 50;

/// The state of the client that is offered over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offered {
    Queued,
    /// A program has accepted the TCP connection.
    Accepted,
    /// A call of this library in this process has accepted the client itself.
    Claimed,
    /// The client has ended.
    Gone,
}

/// The use of the listener by calls of this library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Use {
    /// The number of calls of `accept`.
    pub(super) accepts: u64,
    /// The program waits for clients by a call of this library.
    pub(super) is_awaited: bool,
    /// An executed program, whose calls are not counted, uses the listener.
    pub(super) is_marked: bool,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing until a client is pending.
    Idle,
    /// Report the next pending client.
    Arm,
    /// Check again after this time.
    Check(Duration),
    /// Offer the next client over TCP.
    Offer,
    /// Move the bytes of the client that was accepted over TCP, and check again after this time.
    Carry(Duration),
    /// Offer all pending clients over TCP, and call [`Judgement::on_drained`].
    Drain,
    /// Refuse new clients, and offer all pending clients over TCP.
    Withdraw,
    /// Offer all pending clients over TCP, which had begun to connect before the withdrawal.
    OfferAll,
}

#[derive(Debug)]
pub(super) struct Judgement {
    stage: Stage,
    patience: Duration,
    holder: Holder,
}

/// How the checking process got the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// It offers the listener itself.
    Offerer,
    /// It inherited the listener over an `exec`.
    Heir,
}

impl Judgement {
    pub(super) fn new(holder: Holder) -> Self {
        Self {
            stage: Stage::Armed,
            patience: match holder {
                Holder::Offerer => PATIENCE,
                Holder::Heir => PATIENCE_OF_HEIR,
            },
            holder,
        }
    }

    /// Called when a client is pending.
    pub(super) fn on_pending(&mut self, used: Use) -> Step {
        match self.stage {
            Stage::Armed => {
                let accepts = used.accepts;
                let looks = match self.holder {
                    Holder::Offerer => LOOKS_AGAIN,
                    Holder::Heir => LOOKS_OF_HEIR - 1,
                };
                self.stage = Stage::Doubting { accepts, looks };
                Step::Check(self.patience)
            }
            Stage::Withdrawn => Step::OfferAll,
            _ => Step::Idle,
        }
    }

    /// Called when the time of a check has come. `is_pending`: a client is pending. `offered` is
    /// `None` unless a client is offered over TCP.
    pub(super) fn on_time(
        &mut self,
        used: Use,
        is_pending: bool,
        offered: Option<Offered>,
    ) -> Step {
        match (self.stage, offered) {
            (Stage::Doubting { accepts, looks }, _) if is_pending && accepts == used.accepts => {
                if let Some(looks) = looks.checked_sub(1) {
                    self.stage = Stage::Doubting { accepts, looks };
                    return Step::Check(match self.holder {
                        Holder::Offerer => LOOK_AGAIN,
                        Holder::Heir => self.patience,
                    });
                }
                self.stage = Stage::Offering {
                    accepts,
                    next: FIRST_CHECK,
                    is_accepted: false,
                };
                Step::Offer
            }
            (Stage::Doubting { .. }, _) => self.rest(),
            (Stage::Offering { accepts, next, .. }, Some(Offered::Queued)) => {
                let next = (next * 2).min(CHECK_MAX);
                self.stage = Stage::Offering {
                    accepts,
                    next,
                    is_accepted: false,
                };
                Step::Check(next)
            }
            (
                Stage::Offering {
                    accepts,
                    is_accepted: false,
                    ..
                },
                Some(Offered::Accepted),
            ) => {
                self.stage = Stage::Offering {
                    accepts,
                    next: FIRST_CHECK,
                    is_accepted: true,
                };
                Step::Check(FIRST_CHECK)
            }
            (Stage::Offering { accepts, .. }, Some(Offered::Accepted)) => {
                let by_library = accepts != used.accepts || used.is_marked;
                match by_library && self.on_slow(used) {
                    true => Step::Carry(REST),
                    false => self.withdraw(),
                }
            }
            (Stage::Offering { .. }, Some(Offered::Claimed)) => match self.on_slow(used) {
                true => Step::Check(REST),
                false => self.withdraw(),
            },
            (Stage::Offering { .. }, Some(Offered::Gone) | None) => self.rest(),
            (Stage::Resting, _) => {
                self.stage = Stage::Armed;
                Step::Arm
            }
            (Stage::Draining { .. }, _) => Step::Drain,
            (Stage::Withdrawn, _) => Step::OfferAll,
            (Stage::Armed, _) => Step::Idle,
        }
    }

    /// Called when a client could not be offered over TCP. A client of another host is left to a
    /// program that waits by calls of this library.
    pub(super) fn on_not_offered(&mut self, used: Use, why: NotOffered) -> Step {
        match (self.stage, why) {
            (Stage::Offering { .. }, NotOffered::NoListener) => self.withdraw(),
            (Stage::Offering { .. }, NotOffered::OtherHost) if !used.is_awaited => self.withdraw(),
            (Stage::Offering { .. }, _) => self.rest(),
            _ => Step::Idle,
        }
    }

    /// Handles a program that has accepted by a call of this library. Returns false if the program
    /// does not wait by such calls.
    fn on_slow(&mut self, used: Use) -> bool {
        let is_kept = used.is_awaited || used.is_marked;
        if is_kept {
            self.patience = (self.patience * 2).min(PATIENCE_MAX);
            self.stage = Stage::Resting;
        }
        is_kept
    }

    fn rest(&mut self) -> Step {
        self.stage = Stage::Resting;
        Step::Check(REST)
    }

    fn withdraw(&mut self) -> Step {
        self.stage = Stage::Draining {
            checks: DRAINING_CHECKS,
        };
        Step::Drain
    }

    /// Called when no client is pending before the withdrawal. `are_connecting`: a client has begun
    /// to connect.
    pub(super) fn on_drained(&mut self, are_connecting: bool) -> Step {
        match self.stage {
            Stage::Draining { checks } if are_connecting && checks > 0 => {
                self.stage = Stage::Draining { checks: checks - 1 };
                Step::Check(FIRST_CHECK)
            }
            Stage::Draining { .. } => {
                self.stage = Stage::Withdrawn;
                Step::Withdraw
            }
            _ => Step::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFERING: Stage = Stage::Offering {
        accepts: 1,
        next: FIRST_CHECK,
        is_accepted: false,
    };
    const ACCEPTED: Stage = Stage::Offering {
        accepts: 1,
        next: FIRST_CHECK,
        is_accepted: true,
    };
    const LATER: Stage = Stage::Offering {
        accepts: 1,
        next: Duration::from_millis(4),
        is_accepted: false,
    };
    const DOUBTING: Stage = Stage::Doubting {
        accepts: 1,
        looks: 0,
    };
    const DRAINING: Stage = Stage::Draining { checks: 1 };
    const STAGES: [Stage; 7] = [
        Stage::Armed,
        DOUBTING,
        OFFERING,
        ACCEPTED,
        Stage::Resting,
        Stage::Withdrawn,
        DRAINING,
    ];
    /// Nobody uses the listener by a call of the library.
    const UNUSED: Use = Use {
        accepts: 1,
        is_awaited: false,
        is_marked: false,
    };
    const AWAITED: Use = Use {
        is_awaited: true,
        ..UNUSED
    };
    const ACCEPTING: Use = Use {
        accepts: 2,
        ..UNUSED
    };
    const SLOW: Use = Use {
        accepts: 2,
        ..AWAITED
    };
    const EXECUTED: Use = Use {
        is_marked: true,
        ..UNUSED
    };

    type Row = (
        &'static str,
        fn(&mut Judgement) -> Step,
        [(Stage, Step); STAGES.len()],
    );

    fn same() -> [(Stage, Step); STAGES.len()] {
        STAGES.map(|stage| (stage, Step::Idle))
    }

    /// Returns the outcomes of a check with these outcomes of `Doubting`, `OFFERING`, `ACCEPTED`.
    fn check(of: [(Stage, Step); 3]) -> [(Stage, Step); STAGES.len()] {
        let mut all = same();
        all[1..4].copy_from_slice(&of);
        all[4] = (Stage::Armed, Step::Arm);
        all[5] = (Stage::Withdrawn, Step::OfferAll);
        all[6] = (DRAINING, Step::Drain);
        all
    }

    #[test]
    fn every_event_in_every_stage() {
        use Offered::{Accepted, Claimed, Gone, Queued};
        let rest = (Stage::Resting, Step::Check(REST));
        let offer = (OFFERING, Step::Offer);
        let all_checks = Stage::Draining {
            checks: DRAINING_CHECKS,
        };
        let withdraw = (all_checks, Step::Drain);
        let carry = (Stage::Resting, Step::Carry(REST));
        let once_more = (ACCEPTED, Step::Check(FIRST_CHECK));
        let later = (LATER, Step::Check(Duration::from_millis(4)));
        let mut pending = same();
        let doubting = Stage::Doubting {
            accepts: 1,
            looks: LOOKS_AGAIN,
        };
        pending[0] = (doubting, Step::Check(PATIENCE));
        pending[5] = (Stage::Withdrawn, Step::OfferAll);
        let [mut refused, mut absent] = [same(); 2];
        refused[2..4].copy_from_slice(&[rest; 2]);
        absent[2..4].copy_from_slice(&[withdraw; 2]);
        let [mut connecting, mut drained] = [same(); 2];
        connecting[6] = (Stage::Draining { checks: 0 }, Step::Check(FIRST_CHECK));
        drained[6] = (Stage::Withdrawn, Step::Withdraw);
        let rows: [Row; 18] = [
            ("pending", |it| it.on_pending(UNUSED), pending),
            (
                "nothing pending",
                |it| it.on_time(UNUSED, false, None),
                check([rest; 3]),
            ),
            (
                "still pending",
                |it| it.on_time(UNUSED, true, None),
                check([offer, rest, rest]),
            ),
            (
                "accepted meanwhile",
                |it| it.on_time(ACCEPTING, true, None),
                check([rest; 3]),
            ),
            (
                "queued",
                |it| it.on_time(SLOW, true, Some(Queued)),
                check([rest, later, later]),
            ),
            (
                "past the library",
                |it| it.on_time(UNUSED, false, Some(Accepted)),
                check([rest, once_more, withdraw]),
            ),
            (
                "past the library, awaited",
                |it| it.on_time(AWAITED, false, Some(Accepted)),
                check([rest, once_more, withdraw]),
            ),
            (
                "waits past the library",
                |it| it.on_time(ACCEPTING, false, Some(Accepted)),
                check([rest, once_more, withdraw]),
            ),
            (
                "another process was slow",
                |it| it.on_time(SLOW, false, Some(Accepted)),
                check([rest, once_more, carry]),
            ),
            (
                "another program was slow",
                |it| it.on_time(EXECUTED, false, Some(Accepted)),
                check([rest, once_more, carry]),
            ),
            (
                "this process was slow",
                |it| it.on_time(SLOW, false, Some(Claimed)),
                check([rest; 3]),
            ),
            (
                "claimed, not awaited",
                |it| it.on_time(ACCEPTING, false, Some(Claimed)),
                check([rest, withdraw, withdraw]),
            ),
            (
                "not offered",
                |it| it.on_not_offered(UNUSED, NotOffered::NoClient),
                refused,
            ),
            (
                "no listener",
                |it| it.on_not_offered(AWAITED, NotOffered::NoListener),
                absent,
            ),
            ("connecting", |it| it.on_drained(true), connecting),
            ("drained", |it| it.on_drained(false), drained),
            (
                "of another host",
                |it| it.on_not_offered(UNUSED, NotOffered::OtherHost),
                absent,
            ),
            (
                "of another host, awaited",
                |it| it.on_not_offered(AWAITED, NotOffered::OtherHost),
                refused,
            ),
        ];
        for (name, event, after) in rows {
            for (before, (stage, step)) in STAGES.into_iter().zip(after) {
                let mut judgement = Judgement {
                    stage: before,
                    ..Judgement::new(Holder::Offerer)
                };
                assert_eq!(event(&mut judgement), step, "{name} in {before:?}");
                assert_eq!(judgement.stage, stage, "{name} in {before:?}");
            }
        }
        let mut judgement = Judgement {
            stage: OFFERING,
            ..Judgement::new(Holder::Offerer)
        };
        assert_eq!(judgement.on_time(SLOW, true, Some(Gone)), Step::Check(REST));
    }

    #[test]
    fn a_program_can_run_between_a_late_check_and_the_offer() {
        for accepted_before in 0..LOOKS_AGAIN {
            let mut judgement = Judgement::new(Holder::Offerer);
            assert_eq!(judgement.on_pending(UNUSED), Step::Check(PATIENCE));
            for _ in 0..=accepted_before {
                let step = judgement.on_time(UNUSED, true, None);
                assert_eq!(step, Step::Check(LOOK_AGAIN));
            }
            let step = judgement.on_time(ACCEPTING, true, None);
            assert_eq!(step, Step::Check(REST), "after {accepted_before}");
        }
    }

    #[test]
    fn an_heir_offers_a_client_that_it_always_finds_pending() {
        let mut judgement = Judgement::new(Holder::Heir);
        for gone in (1..=LOOKS_OF_HEIR).rev() {
            judgement.stage = Stage::Armed;
            let mut step = judgement.on_pending(UNUSED);
            for look in 1..gone {
                assert_eq!(step, Step::Check(PATIENCE_OF_HEIR), "before look {look}");
                step = judgement.on_time(UNUSED, true, None);
            }
            assert_eq!(judgement.on_time(UNUSED, false, None), Step::Check(REST));
        }
        judgement.stage = Stage::Armed;
        judgement.on_pending(UNUSED);
        let looks = [(); LOOKS_OF_HEIR as usize].map(|()| judgement.on_time(UNUSED, true, None));
        let offers = looks.iter().position(|step| *step == Step::Offer);
        assert_eq!(offers, Some(looks.len() - 1));
    }

    #[test]
    fn the_patience_with_a_slow_program_is_bounded() {
        let mut judgement = Judgement::new(Holder::Offerer);
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            judgement.stage = Stage::Armed;
            let Step::Check(patience) = judgement.on_pending(SLOW) else {
                panic!("a pending client is not checked");
            };
            assert!(patience >= last && patience <= PATIENCE_MAX);
            last = patience;
            judgement.stage = OFFERING;
            judgement.on_time(SLOW, false, Some(Offered::Claimed));
        }
        assert_eq!(last, PATIENCE_MAX);
    }
}
