//! Who answers for a namespace: one process is the server, the others are its clients.

/// What this process is among those that offer services. `on_*` are the only writers.
///
/// ```text
///         on_name_bound              on_server_gone
///   Idle ───────────────> Server    Client ──────────> Idle
///        ───────────────> Client
///         on_name_in_use            any ── on_leave ──> Idle
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It is neither yet, or offers nothing.
    Idle,
    /// It has bound the name and answers for all.
    Server,
    /// It has told the server what it offers.
    Client,
}

impl Role {
    /// Nobody answered for the namespace, and now this process does.
    pub(crate) fn on_name_bound(&mut self) {
        if *self == Self::Idle {
            *self = Self::Server;
        }
    }

    /// Somebody answers already and takes what this process offers.
    pub(crate) fn on_name_in_use(&mut self) {
        if *self == Self::Idle {
            *self = Self::Client;
        }
    }

    /// Who answered for this process is gone.
    pub(crate) fn on_server_gone(&mut self) {
        if *self == Self::Client {
            *self = Self::Idle;
        }
    }

    /// This process offers nothing any more, or is the child of a fork.
    pub(crate) fn on_leave(&mut self) {
        *self = Self::Idle;
    }
}

#[cfg(test)]
mod tests {
    use super::Role::{self, Client, Idle, Server};

    #[test]
    fn every_event_in_every_state() {
        let events: [fn(&mut Role); 4] = [
            Role::on_name_bound,
            Role::on_name_in_use,
            Role::on_server_gone,
            Role::on_leave,
        ];
        for (state, after) in [
            (Idle, [Server, Client, Idle, Idle]),
            (Server, [Server, Server, Server, Idle]),
            (Client, [Client, Client, Idle, Idle]),
        ] {
            for (event, expected) in events.into_iter().zip(after) {
                let mut role = state;
                event(&mut role);
                assert_eq!(role, expected, "{state:?}");
            }
        }
    }
}
