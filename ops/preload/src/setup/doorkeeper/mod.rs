//! Offloaded clients that no call of this library accepts.
//!
//! The program may wait for clients or accept them past this library: by io_uring, in a child that
//! lacks the library, in a plug-in that is bound to the C library itself. Such a program sees its
//! TCP listener alone. So the event thread checks each listener next to it. A client that nobody
//! accepts for a while is *offered* over TCP: the thread accepts the client, and connects to the
//! program's TCP listener for it, from the address that the client has; the port may differ over
//! SDP, or if the client has ended. Every way of waiting and accepting sees that connection. A
//! program that was only slow, and accepts by a call of this library, gets the client's own socket.
//! For any other program the thread moves the bytes between the client and the TCP connection, and
//! withdraws the offer, so that later clients use TCP.
//!
//! No client is lost: one whose TCP connection cannot be made stays with the offers, where each
//! `accept` of this library finds it, and the thread tries again. A check of an offered client is
//! one request, or two, on a netlink socket that the process has, and makes no descriptor. An offer
//! makes some, which have low numbers until the next call moves them.
//!
//! A client of another host cannot be offered, because no socket of this host can have its address.
//! If the program has not waited by a call of this library, the offer is withdrawn nevertheless.
//!
//! A client that is accepted in time costs nothing. The thread wakes at most three times in 100 ms,
//! and not at all while no clients connect.
//!
//! | File | Contents |
//! |---|---|
//! | `mod` | the checks of one listener, on the event thread |
//! | [`clients`] | the clients of a kernel listener or of a service |
//! | [`judgement`] | the judgement whether the program sees its clients |
//! | [`offered`] | offers a client over TCP, and takes it back |
//! | [`bridge`] | moves the bytes of a client that was accepted over TCP |

mod bridge;
mod clients;
mod judgement;
mod offered;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use host::locks::IgnorePoison as _;
use ops::netlink::NetStack;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use tracing::info;

use crate::events::{EventHandler, event_thread};
use crate::listener::Listener;
use crate::listener::common::Common;
use crate::listener::offers::NotOffered;
use crate::setup::doorkeeper::clients::{Clients, OnWithdrawn};
use crate::setup::doorkeeper::judgement::{Judgement, Step, Use};
use crate::setup::doorkeeper::offered::TcpOffer;
use crate::switch;

pub(crate) use crate::setup::doorkeeper::bridge::{Bridges, lock};
pub(crate) use crate::setup::doorkeeper::judgement::Holder;
pub(crate) use crate::setup::doorkeeper::offered::{claim, claim_waiting};

/// Checks one listener.
struct Doorkeeper {
    clients: Clients,
    /// The network stack of the listener's namespace; `None` without netlink.
    stack: Option<&'static NetStack>,
    common: Arc<Common>,
    state: Mutex<State>,
    myself: Weak<Self>,
}

struct State {
    judgement: Judgement,
    offered: Option<TcpOffer>,
}

/// Begins the checks of the listeners next to `socket` that this process has not begun.
/// `on_withdrawn` is called after the offer of a kernel listener has been withdrawn.
pub(crate) fn begin(
    socket: BorrowedFd<'_>,
    listener: &Listener,
    holder: Holder,
    on_withdrawn: OnWithdrawn,
) -> Result<(), Errno> {
    if let Some(kernel) = listener.kernel()
        && let Some(doorway) = kernel.open_doorway(socket)?
    {
        let clients = Clients::Kernel(Arc::clone(doorway), on_withdrawn);
        check(socket, clients, kernel.as_fd(), listener, holder)?;
    }
    if let Some(service) = listener.service()
        && let Some(arrivals) = service.begin_checks()
    {
        let clients = Clients::Service(arrivals);
        check(socket, clients, service.as_fd(), listener, holder)?;
    }
    Ok(())
}

fn check(
    socket: BorrowedFd<'_>,
    clients: Clients,
    number: BorrowedFd<'_>,
    listener: &Listener,
    holder: Holder,
) -> Result<(), Errno> {
    let handler = Arc::new_cyclic(|myself| Doorkeeper {
        clients,
        stack: switch::stack_of(socket),
        common: Arc::clone(listener.common()),
        state: Mutex::new(State {
            judgement: Judgement::new(holder),
            offered: None,
        }),
        myself: Weak::clone(myself),
    });
    handler.clients.watch(number, Arc::clone(&handler) as _)
}

impl EventHandler for Doorkeeper {
    fn ready(&self, seen: EventFlags) {
        if seen.is_empty() && !offered::has_room(offered::DESCRIPTORS) {
            // Without room, a client that is taken from a queue would be lost.
            return self.check_after(judgement::REST);
        }
        let mut guard = self.state.lock().ignore_poison();
        let state = &mut *guard;
        let used = self.used();
        let mut step = if seen.is_empty() {
            let offered = state.offered.as_mut();
            let offered = offered.map(|it| offered::state(&self.common, self.stack, it));
            let are_pending = self.clients.are_pending();
            state.judgement.on_time(used, are_pending, offered)
        } else {
            state.judgement.on_pending(used)
        };
        loop {
            step = match step {
                Step::Idle => return,
                Step::Arm => return self.clients.arm(),
                Step::Check(after) => return self.check_after(after),
                Step::Carry(after) => {
                    self.carry(state.offered.take());
                    return self.check_after(after);
                }
                Step::Offer => match self.offer_next() {
                    Ok(offer) => {
                        state.offered = Some(offer);
                        return self.check_after(judgement::FIRST_CHECK);
                    }
                    // Another process has withdrawn the offer, and no client is left.
                    Err(NotOffered::Ended) => return,
                    Err(why) => state.judgement.on_not_offered(used, why),
                },
                Step::Drain => {
                    self.common.activity().set_draining(true);
                    self.carry(state.offered.take());
                    self.offer_pending();
                    let are_connecting = self.clients.are_connecting();
                    state.judgement.on_drained(are_connecting)
                }
                Step::Withdraw => {
                    self.clients.withdraw();
                    info!("a service uses TCP alone: its program does not see offloaded clients");
                    Step::OfferAll
                }
                Step::OfferAll => {
                    drop(guard);
                    return self.offer_all();
                }
            };
        }
    }
}

impl Doorkeeper {
    fn used(&self) -> Use {
        let activity = self.common.activity();
        Use {
            accepts: activity.accepts(),
            is_awaited: activity.is_awaited(),
            is_marked: self.clients.are_marked(),
        }
    }

    fn check_after(&self, time: Duration) {
        if let (Ok(thread), Some(myself)) = (event_thread(), self.myself.upgrade()) {
            thread.run_at(Instant::now() + time, myself);
        }
    }

    /// Offers the next client over TCP.
    fn offer_next(&self) -> Result<TcpOffer, NotOffered> {
        if !offered::has_room(offered::DESCRIPTORS) {
            return Err(NotOffered::NoDescriptor);
        }
        let (client, carried) = self.clients.take(self.stack)?;
        offered::offer(&self.common, self.clients.of(), client, carried)
    }

    fn carry(&self, offer: Option<TcpOffer>) {
        if let Some(mut offer) = offer {
            offered::carry(&self.common, &mut offer);
        }
    }

    /// Serves all pending clients over TCP. Returns the reason why no more clients are served.
    fn offer_pending(&self) -> NotOffered {
        loop {
            match self.offer_next() {
                Ok(offer) if !offer.has_begun() => return NotOffered::NoDescriptor,
                Ok(offer) => self.carry(Some(offer)),
                Err(why) => return why,
            }
        }
    }

    /// Serves all pending clients over TCP after the withdrawal.
    fn offer_all(&self) {
        let why = self.offer_pending();
        if !self.clients.are_connecting() {
            self.common.activity().set_draining(false);
        }
        match why {
            // The client stays pending, and would be reported again at once.
            NotOffered::OtherHost => {}
            NotOffered::NoDescriptor => self.check_after(judgement::REST),
            _ => self.clients.on_withdrawn(),
        }
    }
}
