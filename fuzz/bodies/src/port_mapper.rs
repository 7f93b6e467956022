//! Port mapper datagrams, as received by a responder and by a requester.
//!
//! Input: one byte for the kind of service that is queried, then the datagram.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ops::portmap::{Answer, Kind, Mappings, Message, Offering, Question};

use crate::seed::{Seed, seed};

/// The handle of the pending query.
const HANDLE: u64 = 0x0102_0304_0506_0708;

/// Services that are queried: privileged and not, of both families.
const SERVICES: [(&str, &str); 3] = [
    ("192.0.2.2:80", "192.0.2.1:4000"),
    ("192.0.2.2:6379", "192.0.2.1:4000"),
    ("[2001:db8::2]:6379", "[2001:db8::1]:4000"),
];

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((which, datagram)) = data.split_first() else {
        return;
    };
    check_codec(datagram);
    check_answering(datagram);
    let (service, own) = SERVICES[usize::from(*which) % SERVICES.len()];
    let request = Message::request(address(service), address(own), HANDLE);
    check_asking(&request.expect("one family"), datagram);
}

/// Checks that a message that was parsed is emitted so that it parses to the same message.
fn check_codec(datagram: &[u8]) {
    match Message::parse(datagram) {
        Ok(message) => {
            let again = message.to_bytes();
            assert_eq!(again.len(), datagram.len());
            assert_eq!(Message::parse(&again), Ok(message));
        }
        Err(malformed) => assert!(!malformed.to_string().is_empty()),
    }
}

fn check_answering(datagram: &[u8]) {
    let mut mappings = Mappings::default();
    for (service, mapped) in [
        ("0.0.0.0:80", "0.0.0.0:1080"),
        ("[::]:90", "[2001:db8::7]:1090"),
    ] {
        mappings.insert(Offering::new(address(service), address(mapped)));
    }
    let Some(answer) = mappings.answer(datagram) else {
        return;
    };
    let request = Message::parse(datagram).expect("only messages are answered");
    assert_eq!(request.kind(), Kind::Request);
    assert_eq!(answer.handle(), request.handle());
    assert_eq!(answer.connecting(), request.connecting());
    let bytes = answer.to_bytes();
    assert!(bytes.len() <= datagram.len());
    assert_eq!(mappings.answer(&bytes), None, "answers are not answered");
}

fn check_asking(request: &Message, datagram: &[u8]) {
    let now = Instant::now();
    let within = Duration::from_millis(30);
    let mut question = Question::new(request.clone(), now, within);
    question.handle_datagram(datagram, now);
    let answer = question.answer();
    let own = Message::parse(datagram).is_ok_and(|message| message.handle() == HANDLE);
    assert!(
        own || answer.is_none(),
        "a message of another process was accepted"
    );
    if let Some(Answer::Mapped(to)) = answer {
        let service = request.accepting();
        assert_eq!(to.is_ipv4(), service.is_ipv4());
        let as_privileged = to.port() < 1024 && to.ip() == service.ip();
        assert!(to.port() != 0 && (service.port() >= 1024 || as_privileged));
    }
    question.handle_datagram(&request.reject().to_bytes(), now);
    assert_eq!(
        question.answer(),
        answer.or(Some(Answer::Refused)),
        "answers are final"
    );
    question.on_time(now + within);
    assert!(question.poll_timeout().is_none());
}

/// The initial inputs of the corpus.
pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (which, (service, own)) in (0_u8..).zip(SERVICES) {
        let request = Message::request(address(service), address(own), HANDLE);
        let request = request.expect("one family");
        let mapped = SocketAddr::new(address(service).ip(), 1023);
        let accept = request.accept(mapped).expect("one family");
        for (name, message) in [
            ("request", request.clone()),
            ("accept", accept.clone()),
            ("ack", accept.ack()),
            ("reject", request.reject()),
        ] {
            let bytes = [vec![which], message.to_bytes()].concat();
            seeds.push(seed("port_mapper", format!("{name}-{which}"), bytes));
        }
    }
    seeds
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}
