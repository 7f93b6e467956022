//! The explanation of a decision, without a connection.

use std::time::Instant;

use rustix::io::Errno;

use crate::decision::{Intent, Offer, Plan};
use crate::portmap::{Answer, Asking};
use crate::reason::Reason;
use crate::rules::Role;
use crate::switch::Switch;
use crate::trace::{DecisionTrace, Subject};

impl Switch {
    /// Returns every step of a decision in the order in which it is taken, the peer's answer
    /// included. Nothing is connected, and nothing listens.
    #[must_use]
    pub fn explain(&self, intent: &Intent) -> DecisionTrace {
        let mut trace = DecisionTrace::kept();
        let verdict = match self.plan(intent, &mut trace) {
            Plan::Native(reason) => format!("tcp, because {reason}"),
            // A listening socket is the kernel's in any case and accepts connections over TCP.
            Plan::Impossible(reason) if intent.role == Role::Listen => {
                format!("tcp, because {reason}")
            }
            Plan::Impossible(reason) => fails(&reason),
            Plan::Offload(offer) => match intent.role {
                Role::Listen => listening(&offer),
                Role::Connect => self.connecting(intent, offer, &mut trace),
            },
        };
        trace.note(Subject::Verdict, || verdict);
        trace
    }

    fn connecting(&self, intent: &Intent, mut offer: Offer, trace: &mut DecisionTrace) -> String {
        let mut refused = None;
        for protocol in std::mem::take(&mut offer.protocols) {
            let offered = protocol
                .sockets()
                .kernel()
                .map_or(Ok(()), |sockets| sockets.is_offered(intent.address));
            match offered {
                Ok(()) => offer.protocols.push(protocol),
                Err(reason) => {
                    let subject = Subject::Protocol(protocol.name().to_owned());
                    trace.note(subject, || format!("no: {}", reason.at_length()));
                    refused = Some(reason);
                }
            }
        }
        if offer
            .protocols
            .iter()
            .any(|protocol| protocol.capabilities().asks_peer)
        {
            let answer = self.ask(intent, &offer);
            trace.note(Subject::Peer, || match &answer {
                Ok(Answer::Mapped(mapped)) => format!("offers it at {mapped}"),
                Ok(answer) => {
                    Reason::of_answer(*answer).map_or_else(String::new, |it| it.at_length())
                }
                Err(errno) => format!("cannot be asked: {errno}"),
            });
            refused = match answer {
                Ok(answer) => Reason::of_answer(answer),
                Err(errno) => Some(Reason::NoRoute(errno)),
            };
            if refused.is_some() {
                offer
                    .protocols
                    .retain(|protocol| !protocol.capabilities().asks_peer);
            }
        }
        let names = names(&offer);
        match (refused, offer.may_fall_back) {
            (Some(reason), true) if names.is_empty() => format!("tcp, because {reason}"),
            (Some(reason), false) if names.is_empty() => fails(&reason),
            (_, true) => format!("{names}; tcp if that fails within {:?}", offer.within),
            (_, false) => format!("{names}, and no tcp"),
        }
    }

    fn ask(&self, intent: &Intent, offer: &Offer) -> Result<Answer, Errno> {
        let path = self.path_to(offer.route.as_ref());
        let kept = self.answers().get(intent.address, &path, Instant::now());
        kept.map_or_else(
            || Asking::begin(intent.address, offer.within / 2).map(Asking::wait),
            Ok,
        )
    }
}

impl Reason {
    /// Returns the reason why a protocol that asks peers does not connect after this answer.
    /// `None`: the protocol connects.
    pub(crate) fn of_answer(answer: Answer) -> Option<Self> {
        match answer {
            Answer::Mapped(_) => None,
            Answer::Absent => Some(Self::PeerAbsent),
            Answer::Silent => Some(Self::PeerSilent),
            Answer::Refused => Some(Self::PeerRefused),
            Answer::Untrusted => Some(Self::PeerUntrusted),
        }
    }
}

fn fails(reason: &Reason) -> String {
    format!("connect() would fail: {reason} ({})", reason.errno())
}

/// The kernel's listener is kept whether or not the rule permits TCP: without it, peers that lack
/// offload protocols could not connect.
fn listening(offer: &Offer) -> String {
    format!("{} and tcp", names(offer))
}

fn names(offer: &Offer) -> String {
    let names: Vec<&str> = offer
        .protocols
        .iter()
        .map(|protocol| protocol.name())
        .collect();
    names.join(", ")
}
