//! The rendezvous for peers of this host that share memory: an `AF_UNIX` listener of the adapter,
//! opened for the first connection that offers to move, and the connections that have offered.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use host::locks::lock;
use rustix::rand::{GetRandomFlags, getrandom};

use super::Owner;
use crate::carrier::local::VERSION;
use crate::carrier::local::rendezvous::{
    Answer, HelloReceiver, Name, ReceivedHello, Refusal, Rendezvous, UnixConn, send_answer,
};
use crate::engine::{Engine, Interest, Key, Source};
use crate::half_open::{HalfOpen, Room};

/// The time that a connected process has to send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of connected processes that have not sent their hello. A further one replaces the
/// oldest.
const PENDING_PEERS_MAX: usize = 64;
/// Maximum number of processes accepted before the engine serves its other sources.
const ACCEPTS_MAX: usize = 32;
/// The pause while connections cannot be accepted for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The rendezvous of an adapter, opened on first use.
pub(crate) struct OfferListener {
    engine: Arc<Engine>,
    local_dir: Option<std::path::PathBuf>,
    place: Mutex<Option<Arc<OpenListener>>>,
}

/// An open rendezvous.
struct OpenListener {
    engine: Arc<Engine>,
    key: Key,
    rendezvous: Rendezvous,
    offers: Mutex<HashMap<u64, Weak<dyn Owner>>>,
    pending_peers: HalfOpen<PendingPeer>,
}

rnic::opaque_debug!(OfferListener {});

impl OfferListener {
    pub(crate) fn new(engine: Arc<Engine>, local_dir: Option<std::path::PathBuf>) -> Self {
        Self {
            engine,
            local_dir,
            place: Mutex::default(),
        }
    }

    /// Announces a connection, so that its peer can move it through this rendezvous. Returns the
    /// name of the rendezvous, and the secret by which the peer identifies the connection.
    pub(crate) fn announce(&self, qp: Weak<dyn Owner>) -> io::Result<(Name, u64)> {
        let place = self.open()?;
        let mut token = [0; 8];
        getrandom(&mut token, GetRandomFlags::empty())?;
        let token = u64::from_ne_bytes(token);
        let mut offers = lock(&place.offers);
        offers.retain(|_, qp| qp.strong_count() > 0);
        offers.insert(token, qp);
        Ok((place.rendezvous.name(), token))
    }

    /// Withdraws a connection that was announced and no longer moves.
    pub(crate) fn withdraw(&self, token: u64) {
        if let Some(place) = &*lock(&self.place) {
            lock(&place.offers).remove(&token);
        }
    }

    fn open(&self) -> io::Result<Arc<OpenListener>> {
        let mut open = lock(&self.place);
        if let Some(place) = &*open {
            return Ok(place.clone());
        }
        let rendezvous = match &self.local_dir {
            None => Rendezvous::open()?,
            Some(dir) => Rendezvous::open_in(dir)?,
        };
        let place = Arc::new(OpenListener {
            engine: self.engine.clone(),
            key: self.engine.new_key(),
            rendezvous,
            offers: Mutex::default(),
            pending_peers: HalfOpen::new(),
        });
        let ended = |_| io::Error::other("the engine has ended");
        self.engine
            .enlist(place.key, place.clone())
            .map_err(ended)?;
        self.engine
            .watch(place.key, place.rendezvous.as_fd(), Interest::Readable)?;
        *open = Some(place.clone());
        Ok(place)
    }
}

impl OpenListener {
    /// Accepts the waiting processes, up to a limit.
    fn accept_some(self: &Arc<Self>) -> io::Result<()> {
        for _ in 0..ACCEPTS_MAX {
            match self.rendezvous.accept() {
                Ok(Some(unix)) => {
                    let room = self.pending_peers.room(PENDING_PEERS_MAX, Duration::ZERO);
                    Self::make(room);
                    PendingPeer::begin(self, unix);
                }
                Ok(None) => break,
                Err(error) => match self.pending_peers.oldest(Duration::ZERO) {
                    Some(room) => Self::make(room),
                    None => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Ends the oldest process, if a new one replaces it.
    fn make(room: Room<PendingPeer>) {
        if let Room::InsteadOf(oldest) = room {
            oldest.end();
        }
    }

    fn listen(&self, key: Key) {
        let armed = self
            .engine
            .rearm(key, self.rendezvous.as_fd(), Interest::Readable);
        if armed.is_err() {
            self.engine.delist(key);
        }
    }
}

impl Source for OpenListener {
    fn on_ready(self: Arc<Self>, key: Key, _readable: bool, _writable: bool) {
        match self.accept_some() {
            Ok(()) => self.listen(key),
            // The connection stays in the kernel's queue, so watching the socket would give an
            // event at once.
            Err(error) => {
                tracing::debug!(%error, "a local peer cannot be accepted");
                let at = Instant::now() + ACCEPT_PAUSE;
                self.engine.set_deadline(key, Some(at));
            }
        }
    }

    fn on_deadline(self: Arc<Self>, key: Key) {
        self.listen(key);
    }
}

/// A process that has connected and has not sent its hello.
struct PendingPeer {
    place: Arc<OpenListener>,
    key: Key,
    state: Mutex<Option<(UnixConn, HelloReceiver)>>,
}

impl PendingPeer {
    fn begin(place: &Arc<OpenListener>, unix: UnixConn) {
        let engine = &place.engine;
        let key = engine.new_key();
        let pending_peer = Arc::new(Self {
            place: place.clone(),
            key,
            state: Mutex::new(Some((unix, HelloReceiver::default()))),
        });
        if engine.enlist(key, pending_peer.clone()).is_err() {
            return;
        }
        place.pending_peers.add(key, &pending_peer);
        engine.set_deadline(key, Some(Instant::now() + HELLO_TIMEOUT));
        pending_peer.receive(true);
    }

    /// Receives the available part of the hello. Waits for the rest if it is incomplete.
    fn receive(&self, is_first: bool) {
        let key = self.key;
        let mut state = lock(&self.state);
        let Some((unix, receiver)) = &mut *state else {
            return;
        };
        let engine = &self.place.engine;
        match receiver.receive(&*unix) {
            ReceivedHello::Incomplete => {
                let is_watched = match is_first {
                    true => engine.watch(key, unix.as_fd(), Interest::Readable).is_ok(),
                    false => engine.rearm(key, unix.as_fd(), Interest::Readable).is_ok(),
                };
                if is_watched {
                    return;
                }
            }
            ReceivedHello::Complete(hello, memory) => {
                if let Some((unix, _)) = state.take() {
                    drop(state);
                    if !is_first {
                        engine.unwatch(unix.as_fd());
                    }
                    self.delist();
                    self.adopt(&hello, memory, unix);
                }
                return;
            }
            ReceivedHello::Bad => {}
        }
        drop(state);
        self.end();
    }

    fn adopt(
        &self,
        hello: &crate::carrier::local::rendezvous::Hello,
        memory: std::os::fd::OwnedFd,
        unix: UnixConn,
    ) {
        let answerer = unix.as_fd().try_clone_to_owned();
        let qp = lock(&self.place.offers).remove(&hello.token);
        let adopted = match qp.and_then(|qp| qp.upgrade()) {
            _ if hello.version != VERSION => Err(Refusal::Version),
            None => Err(Refusal::Token),
            Some(qp) => qp.adopt(hello.token, hello.ring_len as usize, memory, unix),
        };
        if let (Err(refusal), Ok(answerer)) = (adopted, answerer) {
            send_answer(answerer, Answer::No(refusal));
        }
    }

    fn end(&self) {
        if let Some((unix, _)) = lock(&self.state).take() {
            self.place.engine.unwatch(unix.as_fd());
        }
        self.delist();
    }

    fn delist(&self) {
        self.place.engine.delist(self.key);
        // The listener never waits for a free place.
        let _ = self.place.pending_peers.remove(self.key);
    }
}

impl Source for PendingPeer {
    fn on_ready(self: Arc<Self>, _key: Key, _readable: bool, _writable: bool) {
        self.receive(false);
    }

    fn on_deadline(self: Arc<Self>, _key: Key) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use rnic::Rnic;

    use super::*;
    use crate::qp::Link;
    use crate::support::scripted::Scripted;
    use crate::support::{DEADLINE, Event, Node};

    #[test]
    fn an_unused_offer_ends_with_its_connection() {
        let node = Node::new("lo 0");
        let side = node.side(10);
        let offer_listener = &node.side(20).qp.qp.shared.offer_listener;
        let offers = || {
            offer_listener
                .place
                .lock()
                .unwrap()
                .as_ref()
                .map(|it| lock(&it.offers).len())
        };
        for _ in 0..3 {
            let mut peer = Scripted::initiator(&side);
            peer.provoke_offer(&side);
            assert_eq!(offers(), Some(1));
            drop(peer);
            assert!(matches!(side.event(), Event::Disconnected | Event::Broken));
            let deadline = Instant::now() + DEADLINE;
            while !matches!(*side.qp.qp.lock_link(), Link::Down) {
                assert!(Instant::now() < deadline);
            }
            assert_eq!(offers(), Some(0));
            node.rnic.reset_qp(&side.qp).unwrap();
        }
    }
}
