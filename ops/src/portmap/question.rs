//! A question, without a socket and without a clock.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::portmap::message::{Kind, Message};

/// The number of times that a Request is sent within the bound, because datagrams may be lost.
const TRIES: u32 = 3;

/// The lowest port that an unprivileged program may bind.
const UNPRIVILEGED: u16 = 1024;

/// The result of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The service is offered over RDMA at this address.
    Mapped(SocketAddr),
    /// The peer has a port mapper, but does not offer the service.
    Refused,
    /// The peer's mapping cannot be trusted.
    Untrusted,
    /// No socket is open at the peer's port mapper port.
    Absent,
    /// No answer was received in time.
    Silent,
}

/// The state of a question. The `on_*` methods are the only writers.
///
/// ```text
///             answer, absence, deadline
///   Open ─────────────────────────────> Closed(answer)      Closed stays as it is
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open { sent: u32 },
    Closed(Answer),
}

/// A question to one peer.
#[derive(Debug)]
pub struct Question {
    request: Message,
    state: State,
    begin: Instant,
    within: Duration,
    ack: Option<Message>,
}

impl Question {
    /// Asks with this Request from `now` on. The answer is `Silent` after `within`.
    #[must_use]
    pub fn new(request: Message, now: Instant, within: Duration) -> Self {
        Self {
            request,
            state: State::Open { sent: 0 },
            begin: now,
            within,
            ack: None,
        }
    }

    /// Returns the next datagram to send, if one is due.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        if let Some(ack) = self.ack.take() {
            return Some(ack.to_bytes());
        }
        match self.state {
            State::Open { sent } if now >= self.send_at(sent) && now < self.deadline() => {
                self.state = State::Open { sent: sent + 1 };
                Some(self.request.to_bytes())
            }
            _ => None,
        }
    }

    /// Returns the time of the next step, while there is no answer.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Open { sent } if sent < TRIES => Some(self.send_at(sent)),
            State::Open { .. } => Some(self.deadline()),
            State::Closed(_) => None,
        }
    }

    /// Returns the answer, once there is one.
    #[must_use]
    pub fn answer(&self) -> Option<Answer> {
        match self.state {
            State::Open { .. } => None,
            State::Closed(answer) => Some(answer),
        }
    }

    /// Handles a datagram of the peer.
    pub fn handle_datagram(&mut self, bytes: &[u8]) {
        let Ok(message) = Message::parse(bytes) else {
            return;
        };
        // Only the peer has received the handle, so datagrams of other senders are ignored.
        if message.handle() != self.request.handle() {
            return;
        }
        match message.kind() {
            Kind::Accept => self.on_accept(&message),
            Kind::Reject => self.on_answer(Answer::Refused),
            Kind::Request | Kind::Ack => {}
        }
    }

    /// Handles the system's report that no socket is open at the peer's port.
    pub fn on_absent(&mut self) {
        self.on_answer(Answer::Absent);
    }

    /// Closes the question if its deadline has passed.
    pub fn on_time(&mut self, now: Instant) {
        if now >= self.deadline() {
            self.on_answer(Answer::Silent);
        }
    }

    fn on_accept(&mut self, accept: &Message) {
        if self.answer().is_none() {
            self.ack = Some(accept.ack());
        }
        let mapped = accept.accepting();
        self.on_answer(if self.is_trusted(mapped) {
            Answer::Mapped(mapped)
        } else {
            Answer::Untrusted
        });
    }

    /// Stores the first answer and ignores later ones.
    fn on_answer(&mut self, answer: Answer) {
        if let State::Open { .. } = self.state {
            self.state = State::Closed(answer);
        }
    }

    /// True if a connection may use the mapped address instead of the service's. Any user of the
    /// peer's host may have answered. So a privileged service must be mapped to a privileged port
    /// at its own address: at another host's address that user may be privileged.
    fn is_trusted(&self, mapped: SocketAddr) -> bool {
        let service = self.request.accepting();
        let ip = mapped.ip();
        let as_privileged =
            service.port() >= UNPRIVILEGED || (mapped.port() < UNPRIVILEGED && ip == service.ip());
        let nowhere = ip.is_unspecified() || ip.is_multicast() || mapped.port() == 0;
        mapped.is_ipv4() == service.is_ipv4() && as_privileged && !nowhere
    }

    fn deadline(&self) -> Instant {
        self.begin + self.within
    }

    fn send_at(&self, sent: u32) -> Instant {
        self.begin + self.within * sent.min(TRIES) / TRIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_millis(30);

    fn asked(service: &str) -> (Question, Message, Instant) {
        let service: SocketAddr = service.parse().unwrap();
        let own = if service.is_ipv4() {
            "192.0.2.1:40000".parse().unwrap()
        } else {
            "[2001:db8::1]:40000".parse().unwrap()
        };
        let request = Message::request(service, own, 77).unwrap();
        let now = Instant::now();
        (Question::new(request.clone(), now, WITHIN), request, now)
    }

    fn accept(request: &Message, mapped: &str) -> Vec<u8> {
        request.accept(mapped.parse().unwrap()).unwrap().to_bytes()
    }

    #[test]
    fn every_event_in_every_state() {
        let mapped = || Answer::Mapped("192.0.2.2:41000".parse().unwrap());
        type Event = fn(&mut Question, &Message, Instant);
        let events: [(Event, Option<Answer>); 6] = [
            (
                |q, r, _| q.handle_datagram(&accept(r, "192.0.2.2:41000")),
                Some(mapped()),
            ),
            (
                |q, r, _| q.handle_datagram(&r.reject().to_bytes()),
                Some(Answer::Refused),
            ),
            (|q, _, _| q.on_absent(), Some(Answer::Absent)),
            (|q, _, now| q.on_time(now + WITHIN), Some(Answer::Silent)),
            (|q, _, now| q.on_time(now + WITHIN / 2), None),
            (|q, r, _| q.handle_datagram(&r.to_bytes()), None),
        ];
        for (first, answer) in events {
            let (mut question, request, now) = asked("192.0.2.2:6379");
            first(&mut question, &request, now);
            assert_eq!(question.answer(), answer);
            // An answer is final: whatever happens after it changes nothing.
            for (second, later) in events {
                let (mut question, request, now) = asked("192.0.2.2:6379");
                first(&mut question, &request, now);
                second(&mut question, &request, now);
                assert_eq!(question.answer(), answer.or(later));
            }
        }
    }

    #[test]
    fn a_request_is_repeated_within_the_bound_and_not_after_it() {
        let (mut question, request, begin) = asked("192.0.2.2:6379");
        let mut sent = Vec::new();
        while let Some(at) = question.poll_timeout() {
            let millis = at.duration_since(begin).as_millis();
            while let Some(bytes) = question.poll_transmit(at) {
                assert_eq!(bytes, request.to_bytes());
                sent.push(millis);
            }
            question.on_time(at);
        }
        assert_eq!(sent, [0, 10, 20]);
        assert_eq!(question.answer(), Some(Answer::Silent));
        assert_eq!(question.poll_transmit(begin + WITHIN), None);
    }

    #[test]
    fn an_accept_is_acknowledged_once() {
        let (mut question, request, now) = asked("192.0.2.2:6379");
        question.poll_transmit(now);
        question.handle_datagram(&accept(&request, "192.0.2.2:41000"));
        let ack = Message::parse(&question.poll_transmit(now).unwrap()).unwrap();
        assert_eq!((ack.kind(), ack.handle()), (Kind::Ack, 77));
        question.handle_datagram(&accept(&request, "192.0.2.2:41000"));
        assert_eq!(question.poll_transmit(now), None);
    }

    #[test]
    fn datagrams_of_other_senders_and_malformed_ones_are_ignored() {
        let (mut question, request, _) = asked("192.0.2.2:6379");
        let other = Message::request(request.accepting(), request.connecting(), 78).unwrap();
        question.handle_datagram(&accept(&other, "192.0.2.2:41000"));
        question.handle_datagram(&other.reject().to_bytes());
        question.handle_datagram(b"nonsense");
        question.handle_datagram(&[]);
        assert_eq!(question.answer(), None);
    }

    #[test]
    fn a_privileged_service_is_looked_for_at_privileged_ports_of_its_host() {
        for (service, mapped, answer) in [
            ("192.0.2.2:22", "192.0.2.2:1023", true),
            ("192.0.2.2:22", "192.0.2.2:1024", false),
            ("192.0.2.2:22", "192.0.2.3:22", false),
            ("[2001:db8::2]:22", "[2001:db8::2]:22", true),
            ("[2001:db8::2]:22", "[2001:db8::3]:22", false),
            ("192.0.2.2:1024", "192.0.2.2:1024", true),
            ("192.0.2.2:1024", "192.0.2.3:7", true),
            ("192.0.2.2:1024", "0.0.0.0:7", false),
            ("192.0.2.2:1024", "224.0.0.1:7", false),
            ("192.0.2.2:1024", "192.0.2.2:0", false),
        ] {
            let (mut question, request, _) = asked(service);
            question.handle_datagram(&accept(&request, mapped));
            let expected = if answer {
                Answer::Mapped(mapped.parse().unwrap())
            } else {
                Answer::Untrusted
            };
            assert_eq!(question.answer(), Some(expected), "{service} {mapped}");
        }
    }
}
