//! The role of a process in a namespace: one is the server, the others are its clients.

/// The role of this process among those that offer services. The `on_*` methods are the only
/// writers.
///
/// ```text
///         on_name_bound              on_server_gone
///   Idle ───────────────> Server    Client ──────────> Idle
///        ───────────────> Client
///         on_name_in_use            any ── on_leave ──> Idle
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Neither server nor client: not yet, or because the process offers nothing.
    Idle,
    /// Has bound the name and answers for all processes.
    Server,
    /// Has sent its offerings to the server.
    Client,
}

impl Role {
    /// Called when this process has bound the name and is the server of the namespace from now on.
    pub(super) fn on_name_bound(&mut self) {
        if *self == Self::Idle {
            *self = Self::Server;
        }
    }

    /// Called when another process is the server and accepts the offerings of this process.
    pub(super) fn on_name_in_use(&mut self) {
        if *self == Self::Idle {
            *self = Self::Client;
        }
    }

    /// Called when the server of this process has ended.
    pub(super) fn on_server_gone(&mut self) {
        if *self == Self::Client {
            *self = Self::Idle;
        }
    }

    /// Called when this process has no offerings any more, was suspended, or is the child of a
    /// fork.
    pub(super) fn on_leave(&mut self) {
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
