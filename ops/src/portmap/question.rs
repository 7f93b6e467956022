//! A question, without a socket and without a clock.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::portmap::message::{Kind, Message};

/// The number of times that a Request is sent within the bound, because datagrams may be lost.
const TRIES: u32 = 3;

/// The delay before a persistent question is sent again after the first denial. The delay doubles
/// with each denial.
const DENIED_MIN: Duration = Duration::from_millis(2);

/// The longest delay before a persistent question is sent again.
const DENIED_MAX: Duration = Duration::from_millis(100);

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
///    └──denial of a persistent question──> Open
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open(Open),
    Closed(Answer),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Open {
    /// The time at which the Request is sent next.
    send_at: Instant,
    /// The last denial: the peer does not offer the service, or has no port mapper.
    denial: Option<Answer>,
    /// The delay after the next denial.
    delay: Duration,
}

/// A question to one peer.
#[derive(Debug)]
pub struct Question {
    request: Message,
    state: State,
    begin: Instant,
    within: Duration,
    is_persistent: bool,
    ack: Option<Message>,
}

impl Question {
    /// Creates a question that sends `request` from `now` on. The answer is `Silent` after
    /// `within`.
    #[must_use]
    pub fn new(request: Message, now: Instant, within: Duration) -> Self {
        Self {
            request,
            state: State::Open(Open {
                send_at: now,
                denial: None,
                delay: DENIED_MIN,
            }),
            begin: now,
            within,
            is_persistent: false,
            ack: None,
        }
    }

    /// Makes the question persistent: it is asked again after each denial, until the deadline.
    ///
    /// A denial may be wrong for some milliseconds. When the process that answers for a host ends,
    /// another process takes over, and until then nothing answers there. The new process does not
    /// know the services of the other processes at once.
    #[must_use]
    pub fn persistent(mut self) -> Self {
        self.is_persistent = true;
        self
    }

    /// Returns the next datagram to send, if one is due.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        if let Some(ack) = self.ack.take() {
            return Some(ack.to_bytes());
        }
        let (interval, deadline) = (self.within / TRIES, self.deadline());
        match &mut self.state {
            State::Open(open) if now >= open.send_at && now < deadline => {
                open.send_at = now + interval;
                Some(self.request.to_bytes())
            }
            _ => None,
        }
    }

    /// Returns the time of the next step, while there is no answer.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Open(open) => Some(open.send_at.min(self.deadline())),
            State::Closed(_) => None,
        }
    }

    /// Returns the answer, once there is one.
    #[must_use]
    pub fn answer(&self) -> Option<Answer> {
        match self.state {
            State::Open(_) => None,
            State::Closed(answer) => Some(answer),
        }
    }

    /// Handles a datagram of the peer.
    pub fn handle_datagram(&mut self, bytes: &[u8], now: Instant) {
        let Ok(message) = Message::parse(bytes) else {
            return;
        };
        // Only the peer has received the handle, so datagrams of other senders are ignored.
        if message.handle() != self.request.handle() {
            return;
        }
        match message.kind() {
            Kind::Accept => self.on_accept(&message),
            Kind::Reject => self.on_denial(Answer::Refused, now),
            Kind::Request | Kind::Ack => {}
        }
    }

    /// Handles the system's report that no socket is open at the peer's port.
    pub fn on_absent(&mut self, now: Instant) {
        self.on_denial(Answer::Absent, now);
    }

    /// Closes the question if its deadline has passed.
    pub fn on_time(&mut self, now: Instant) {
        if let State::Open(open) = self.state
            && now >= self.deadline()
        {
            self.on_answer(open.denial.unwrap_or(Answer::Silent));
        }
    }

    /// Closes the question with a denial, or sends a persistent question again after a delay.
    fn on_denial(&mut self, denial: Answer, now: Instant) {
        match &mut self.state {
            State::Open(open) if self.is_persistent => {
                open.denial = Some(denial);
                open.send_at = now + open.delay;
                open.delay = (2 * open.delay).min(DENIED_MAX);
            }
            _ => self.on_answer(denial),
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
        if let State::Open(_) = self.state {
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
}

#[cfg(test)]
mod tests {
    use stack_tests::rows;

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
        let events: [(Event, Option<Answer>); 6] = rows! {
            |q, r, now| q.handle_datagram(&accept(r, "192.0.2.2:41000"), now), Some(mapped());
            |q, r, now| q.handle_datagram(&r.reject().to_bytes(), now), Some(Answer::Refused);
            |q, _, now| q.on_absent(now), Some(Answer::Absent);
            |q, _, now| q.on_time(now + WITHIN), Some(Answer::Silent);
            |q, _, now| q.on_time(now + WITHIN / 2), None;
            |q, r, now| q.handle_datagram(&r.to_bytes(), now), None;
        };
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
    fn every_event_in_every_state_of_a_persistent_question() {
        let mapped = || Answer::Mapped("192.0.2.2:41000".parse().unwrap());
        type Event = fn(&mut Question, &Message, Instant);
        let accepts: Event = |q, r, now| q.handle_datagram(&accept(r, "192.0.2.2:41000"), now);
        let refuses: Event = |q, r, now| q.handle_datagram(&r.reject().to_bytes(), now);
        let absent: Event = |q, _, now| q.on_absent(now);
        for (first, answer, at_the_end) in [
            (accepts, Some(mapped()), mapped()),
            (refuses, None, Answer::Refused),
            (absent, None, Answer::Absent),
        ] {
            let (question, request, now) = asked("192.0.2.2:6379");
            let mut question = question.persistent();
            first(&mut question, &request, now);
            assert_eq!(question.answer(), answer);
            question.on_time(now + WITHIN);
            assert_eq!(question.answer(), Some(at_the_end));
            // The last denial is the answer, unless the peer accepts.
            for (second, later) in [
                (accepts, mapped()),
                (refuses, Answer::Refused),
                (absent, Answer::Absent),
            ] {
                let (question, request, now) = asked("192.0.2.2:6379");
                let mut question = question.persistent();
                first(&mut question, &request, now);
                second(&mut question, &request, now);
                question.on_time(now + WITHIN);
                assert_eq!(question.answer(), answer.or(Some(later)));
            }
        }
    }

    #[test]
    fn a_persistent_question_is_sent_again_after_each_denial_and_ever_more_rarely() {
        let (question, _, begin) = asked("192.0.2.2:6379");
        let mut question = question.persistent();
        let mut sent = Vec::new();
        while let Some(at) = question.poll_timeout() {
            if question.poll_transmit(at).is_some() {
                sent.push(at.duration_since(begin).as_millis());
                question.on_absent(at);
            }
            question.on_time(at);
        }
        assert_eq!(sent, [0, 2, 6, 14]);
        assert_eq!(question.answer(), Some(Answer::Absent));
        assert_eq!(question.poll_transmit(begin + WITHIN), None);
    }

    #[test]
    fn a_persistent_question_ends_within_the_bound_where_the_peer_turns_silent() {
        let (question, _, begin) = asked("192.0.2.2:6379");
        let mut question = question.persistent();
        question.on_absent(begin);
        let mut sent = Vec::new();
        while let Some(at) = question.poll_timeout() {
            if question.poll_transmit(at).is_some() {
                sent.push(at.duration_since(begin).as_millis());
            }
            question.on_time(at);
        }
        assert_eq!(sent, [2, 12, 22]);
        assert_eq!(question.answer(), Some(Answer::Absent));
    }

    #[test]
    fn an_accept_is_acknowledged_once() {
        let (mut question, request, now) = asked("192.0.2.2:6379");
        question.poll_transmit(now);
        question.handle_datagram(&accept(&request, "192.0.2.2:41000"), now);
        let ack = Message::parse(&question.poll_transmit(now).unwrap()).unwrap();
        assert_eq!((ack.kind(), ack.handle()), (Kind::Ack, 77));
        question.handle_datagram(&accept(&request, "192.0.2.2:41000"), now);
        assert_eq!(question.poll_transmit(now), None);
    }

    #[test]
    fn datagrams_of_other_senders_and_malformed_ones_are_ignored() {
        let (mut question, request, now) = asked("192.0.2.2:6379");
        let other = Message::request(request.accepting(), request.connecting(), 78).unwrap();
        question.handle_datagram(&accept(&other, "192.0.2.2:41000"), now);
        question.handle_datagram(&other.reject().to_bytes(), now);
        question.handle_datagram(b"nonsense", now);
        question.handle_datagram(&[], now);
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
            let (mut question, request, now) = asked(service);
            question.handle_datagram(&accept(&request, mapped), now);
            let expected = if answer {
                Answer::Mapped(mapped.parse().unwrap())
            } else {
                Answer::Untrusted
            };
            assert_eq!(question.answer(), Some(expected), "{service} {mapped}");
        }
    }
}
