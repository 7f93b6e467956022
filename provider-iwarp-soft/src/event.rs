//! Events of a queue pair on their way to the access layer.

use std::net::SocketAddr;

use access_layer::rnic::ConnectionEvent;

/// A [`ConnectionEvent`] that owns its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnEvent {
    Established {
        local: SocketAddr,
        remote: SocketAddr,
        private_data: Vec<u8>,
    },
    PeerRejected {
        private_data: Vec<u8>,
    },
    NonPeerRejected,
    Unreachable,
    TimedOut,
    AcceptFailed,
    Disconnected,
    Broken,
}

impl OwnEvent {
    /// True if the connection was established and has ended.
    pub(crate) fn is_disconnect(&self) -> bool {
        matches!(self, Self::Disconnected | Self::Broken)
    }

    pub(crate) fn as_event(&self) -> ConnectionEvent<'_> {
        match self {
            Self::Established {
                local,
                remote,
                private_data,
            } => ConnectionEvent::Established {
                local: *local,
                remote: *remote,
                private_data,
            },
            Self::PeerRejected { private_data } => ConnectionEvent::PeerRejected { private_data },
            Self::NonPeerRejected => ConnectionEvent::NonPeerRejected,
            Self::Unreachable => ConnectionEvent::Unreachable,
            Self::TimedOut => ConnectionEvent::TimedOut,
            Self::AcceptFailed => ConnectionEvent::AcceptFailed,
            Self::Disconnected => ConnectionEvent::Disconnected,
            Self::Broken => ConnectionEvent::Broken,
        }
    }
}
