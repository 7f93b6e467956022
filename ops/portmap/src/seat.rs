//! Who answers for a namespace.

/// What this process is among those that offer services. `on_*` are the only writers.
///
/// ```text
///               on_seat_free                   on_owner_gone
///   Standing ────────────────> Owner     Member ─────────────> Standing
///            ────────────────> Member
///               on_seat_taken             any ── on_leave ──> Standing
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// It has not found its place yet, or needs none.
    Standing,
    /// It answers for all.
    Owner,
    /// It has told the owner what it offers.
    Member,
}

impl Seat {
    /// Nobody answered for the namespace, and now this process does.
    pub(crate) fn on_seat_free(&mut self) {
        if *self == Self::Standing {
            *self = Self::Owner;
        }
    }

    /// Somebody answers already and takes what this process offers.
    pub(crate) fn on_seat_taken(&mut self) {
        if *self == Self::Standing {
            *self = Self::Member;
        }
    }

    /// Who answered for this process is gone.
    pub(crate) fn on_owner_gone(&mut self) {
        if *self == Self::Member {
            *self = Self::Standing;
        }
    }

    /// This process offers nothing any more, or is the child of a fork.
    pub(crate) fn on_leave(&mut self) {
        *self = Self::Standing;
    }
}

#[cfg(test)]
mod tests {
    use super::Seat::{self, Member, Owner, Standing};

    #[test]
    fn every_event_in_every_state() {
        let events: [fn(&mut Seat); 4] = [
            Seat::on_seat_free,
            Seat::on_seat_taken,
            Seat::on_owner_gone,
            Seat::on_leave,
        ];
        for (state, after) in [
            (Standing, [Owner, Member, Standing, Standing]),
            (Owner, [Owner, Owner, Owner, Standing]),
            (Member, [Member, Member, Standing, Standing]),
        ] {
            for (event, expected) in events.into_iter().zip(after) {
                let mut seat = state;
                event(&mut seat);
                assert_eq!(seat, expected, "{state:?}");
            }
        }
    }
}
