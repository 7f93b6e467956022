//! From what comes about on a connection to what the program's descriptor shows.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use stand_in::{LibraryEnd, Signals};

use super::parking::Parking;

/// Steers the descriptor of one socket. Streams tell it what comes about.
#[derive(Debug)]
pub(crate) struct Observer {
    end: Mutex<Option<LibraryEnd>>,
    signals: Signals,
    parking: Parking,
    /// What `SO_ERROR` and the next call say, once.
    error: AtomicI32,
    peer_has_shut_down: AtomicBool,
    we_have_shut_down: AtomicBool,
    reading_has_ended: AtomicBool,
}

impl Observer {
    pub(crate) fn new(end: LibraryEnd, signals: Signals) -> Self {
        Self {
            end: Mutex::new(Some(end)),
            signals,
            parking: Parking::default(),
            error: AtomicI32::new(0),
            peer_has_shut_down: AtomicBool::new(false),
            we_have_shut_down: AtomicBool::new(false),
            reading_has_ended: AtomicBool::new(false),
        }
    }

    /// Bytes, or the end of the stream, can be received.
    pub(crate) fn arrived(&self) {
        self.steer(|end| end.announce(&self.signals));
    }

    /// Bytes can be given.
    pub(crate) fn room(&self) {
        self.steer(|end| end.open_window(&self.signals));
    }

    /// An urgent byte can be received.
    pub(crate) fn urgent(&self) {
        self.steer(LibraryEnd::announce_urgent);
    }

    /// The peer sends no more.
    pub(crate) fn peer_has_shut_down(&self) {
        self.peer_has_shut_down.store(true, Ordering::SeqCst);
        self.show_end();
    }

    /// Whether neither side sends any more.
    pub(crate) fn is_over(&self) -> bool {
        self.peer_has_shut_down.load(Ordering::SeqCst)
            && self.we_have_shut_down.load(Ordering::SeqCst)
    }

    /// The program receives no more, which shows as if the peer sent no more.
    pub(crate) fn reading_has_ended(&self) {
        self.reading_has_ended.store(true, Ordering::SeqCst);
        self.show_end();
    }

    /// The program sends no more.
    pub(crate) fn writing_has_ended(&self) {
        self.we_have_shut_down.store(true, Ordering::SeqCst);
        if self.is_over() || self.reading_has_ended.load(Ordering::SeqCst) {
            self.show_end();
        }
        self.parking.wake();
    }

    fn show_end(&self) {
        if self.we_have_shut_down.load(Ordering::SeqCst) {
            self.steer(LibraryEnd::end);
        } else {
            self.steer(LibraryEnd::half_close);
        }
    }

    /// The connection broke or never came about.
    pub(crate) fn broken(&self, why: Errno) {
        if self.is_over() {
            // Both sides have had their say; TCP has closed by then and hears no reset.
            return;
        }
        self.error.store(why.raw_os_error(), Ordering::Release);
        if let Some(end) = self.end().take() {
            end.reset();
        }
        self.parking.wake();
    }

    /// The pending error, which is told once; the descriptor shows it no more.
    pub(crate) fn take_error(&self, program: impl AsFd) -> Option<Errno> {
        let error = self.error.swap(0, Ordering::AcqRel);
        if error == 0 {
            return None;
        }
        // The pair's own error stands for ours, and asking takes it away.
        let _ = rustix::net::sockopt::socket_error(program);
        Some(Errno::from_raw_os_error(error))
    }

    /// Whether it broke.
    pub(crate) fn is_broken(&self) -> bool {
        self.end().is_none()
    }

    /// Where threads of the program sleep.
    pub(crate) fn parking(&self) -> &Parking {
        &self.parking
    }

    /// The program found nothing to read: no announcement must be left. The caller looks again.
    pub(crate) fn nothing_to_read(&self, program: impl AsFd) {
        // Without the pair there is nothing to show; the program sees the hang-up.
        let _ = stand_in::consume(program, &self.signals, true);
    }

    /// The program read something, and there is more.
    pub(crate) fn something_left(&self, program: impl AsFd) {
        let _ = stand_in::consume(program, &self.signals, false);
    }

    /// The program found no room. The caller looks again.
    pub(crate) fn no_room(&self, program: impl AsFd) {
        let _ = stand_in::close_window(program, &self.signals);
    }

    fn steer(&self, how: impl FnOnce(&LibraryEnd) -> io::Result<()>) {
        if let Some(end) = &*self.end() {
            // It fails when every descriptor of the program is closed; its end is told elsewhere.
            let _ = how(end);
        }
        self.parking.wake();
    }

    fn end(&self) -> std::sync::MutexGuard<'_, Option<LibraryEnd>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
