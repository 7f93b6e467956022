//! The clients of a kernel listener or of a service, as the event thread checks them.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use ops::KernelConnection;
use ops::netlink::NetStack;
use rustix::event::PollFlags;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::events::{EventHandler, event_thread};
use crate::listener::kernel_listener::Doorway;
use crate::listener::offers::{Beside, NotOffered};
use crate::listener::service::Arrivals;
use crate::process;
use crate::socket::Socket;

/// One event each time that the listener is armed, so that clients cost no wake-up.
const INTEREST: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

/// Removes the kernel listener with this doorway from the table.
pub(crate) type OnWithdrawn = fn(&Arc<Doorway>);

/// The clients of one listener.
pub(super) enum Clients {
    Kernel(Arc<Doorway>, OnWithdrawn),
    Service(Arrivals),
}

impl Clients {
    /// Returns the listener.
    pub(super) fn of(&self) -> Beside {
        match self {
            Self::Kernel(..) => Beside::Kernel,
            Self::Service(_) => Beside::Service,
        }
    }

    /// Watches for the first client. `number` is that of the listener.
    pub(super) fn watch(
        &self,
        number: BorrowedFd<'_>,
        handler: Arc<dyn EventHandler>,
    ) -> Result<(), Errno> {
        match self {
            Self::Kernel(..) => event_thread()?.watch(number, INTEREST, handler),
            Self::Service(arrivals) => arrivals.watch(INTEREST, handler),
        }
    }

    /// Watches for the next client.
    pub(super) fn arm(&self) {
        match self {
            Self::Kernel(doorway, _) => {
                doorway.with(|socket, _| {
                    if let Ok(thread) = event_thread() {
                        thread.modify(socket, INTEREST);
                    }
                });
            }
            Self::Service(arrivals) => arrivals.arm(INTEREST),
        }
    }

    pub(super) fn are_pending(&self) -> bool {
        match self {
            Self::Kernel(doorway, _) => shown(doorway).contains(PollFlags::IN),
            Self::Service(arrivals) => arrivals.are_pending(),
        }
    }

    /// Returns true while clients have begun to connect, which the listener will report.
    pub(super) fn are_connecting(&self) -> bool {
        match self {
            Self::Kernel(..) => false,
            Self::Service(arrivals) => arrivals.are_connecting(),
        }
    }

    /// Returns true if an executed program uses the listener.
    pub(super) fn are_marked(&self) -> bool {
        match self {
            Self::Kernel(doorway, _) => doorway.is_marked(),
            Self::Service(_) => false,
        }
    }

    /// Accepts the next client. The second value is the connection of a client of a service.
    pub(super) fn take(
        &self,
        stack: Option<&NetStack>,
    ) -> Result<(KernelConnection, Weak<Socket>), NotOffered> {
        match self {
            Self::Kernel(doorway, _) => match doorway.accept() {
                Some(Ok(Some(client))) => Ok((client, Weak::new())),
                Some(Ok(None)) if !shown(doorway).contains(PollFlags::HUP) => {
                    Err(NotOffered::NoClient)
                }
                Some(Err(_)) => Err(NotOffered::NoDescriptor),
                Some(Ok(None)) | None => Err(NotOffered::Ended),
            },
            Self::Service(arrivals) => arrivals.take(stack),
        }
    }

    /// Refuses new clients.
    pub(super) fn withdraw(&self) {
        match self {
            Self::Kernel(doorway, _) => doorway.withdraw(),
            Self::Service(arrivals) => arrivals.withdraw(),
        }
    }

    /// Called when no client is pending after the withdrawal. Clients of a service that had begun
    /// to connect before may still arrive.
    pub(super) fn on_withdrawn(&self) {
        match self {
            Self::Kernel(doorway, on_withdrawn) => on_withdrawn(doorway),
            Self::Service(arrivals) => arrivals.arm(INTEREST),
        }
    }
}

fn shown(doorway: &Doorway) -> PollFlags {
    let shown = doorway.with(|socket, _| process::shown_events(socket, PollFlags::IN));
    shown.and_then(Result::ok).unwrap_or(PollFlags::empty())
}
