//! The offload protocol `local` next to the kernel's TCP, for every combination of listeners,
//! clients, options, users and ports.
//!
//! Each test is one product of choices, up to eight million cases. A run checks cases that are
//! spread over the product evenly, and more of them with `cargo xtask test --full`.

use std::io::Write as _;

use fuzz_bodies::admission::{
    ADDRESSES, At, Case, LISTENING, SocketOption, UNPRIVILEGED, USERS, check, on_host,
};

const NOBODY: At = At {
    address: 0,
    option: SocketOption::None,
};

/// The number of cases of an ordinary run.
const ORDINARY: usize = 20_000;

/// The number of cases of a full run.
const FULL: usize = 500_000;

/// Counts the product of choices. Each call of [`Odometer::of`] takes one digit.
struct Odometer {
    rest: usize,
    product: usize,
}

impl Odometer {
    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        let choice = choices[self.rest % choices.len()];
        self.rest /= choices.len();
        self.product *= choices.len();
        choice
    }

    fn below(&mut self, bound: usize) -> usize {
        let choice = self.rest % bound;
        self.rest /= bound;
        self.product *= bound;
        choice
    }
}

/// Checks the cases of a product.
fn check_all(case: impl Fn(&mut Odometer) -> Case) {
    let is_full = std::env::var_os("STACK_TESTS_FULL").is_some_and(|value| !value.is_empty());
    let of = |rest| {
        let mut odometer = Odometer { rest, product: 1 };
        let case = case(&mut odometer);
        (case, odometer.product)
    };
    let (_, all) = of(0);
    let count = if is_full { FULL } else { ORDINARY };
    // Multiples of the golden ratio are spread over the product evenly.
    let spread = |number: usize| (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16) % all;
    let counted = on_host(|host| {
        let mut counts = [0_usize; 4];
        for number in 0..count {
            counts[check(host, &of(spread(number)).0) as usize] += 1;
        }
        counts
    });
    match counted {
        Ok([impossible, refused, tcp, carried]) => {
            println!("{impossible} impossible, {refused} refused, {tcp} by TCP, {carried} carried");
            assert!(tcp > 0 && carried > 0, "the test checks nothing");
        }
        // The line is written past the capture of the test harness.
        Err(why) => {
            let text = format!("\nNOT RUN: {why}\n");
            std::io::stderr()
                .write_all(text.as_bytes())
                .expect("stderr");
        }
    }
}

/// A service, and an attacker's listener that overlaps with it.
#[test]
fn the_listener_that_tcp_chooses_receives_the_connection() {
    check_all(|next| Case {
        to: next.below(ADDRESSES.len()),
        user: next.of(&USERS),
        service: At {
            address: next.below(LISTENING),
            option: next.of(&SocketOption::ALL),
        },
        attacker: At {
            address: next.below(LISTENING),
            option: next.of(&SocketOption::ALL),
        },
        is_ipv6: next.below(2) == 1,
        unprivileged: 1024,
        is_nonlocal: false,
        option: SocketOption::None,
        from: 0,
        is_low: false,
        is_claim: false,
    });
}

/// A client with each form of socket.
#[test]
fn a_client_is_carried_if_tcp_connects_it_and_shows_its_addresses() {
    check_all(|next| Case {
        from: next.below(ADDRESSES.len()),
        to: next.below(ADDRESSES.len()),
        option: next.of(&SocketOption::ALL),
        is_ipv6: next.below(2) == 1,
        service: At {
            address: next.below(LISTENING),
            option: next.of(&[
                SocketOption::None,
                SocketOption::Ipv6Only,
                SocketOption::FreeBind,
            ]),
        },
        user: next.of(&USERS),
        unprivileged: next.of(&UNPRIVILEGED),
        is_nonlocal: next.below(2) == 1,
        is_low: next.below(2) == 1,
        attacker: NOBODY,
        is_claim: false,
    });
}

/// A peer that names addresses without having a TCP socket.
#[test]
fn a_peer_that_claims_addresses_is_accepted_only_with_those_that_tcp_would_show() {
    check_all(|next| Case {
        from: next.below(ADDRESSES.len()),
        to: next.below(ADDRESSES.len()),
        is_ipv6: next.below(2) == 1,
        service: At {
            address: next.below(LISTENING),
            option: next.of(&[SocketOption::None, SocketOption::Ipv6Only]),
        },
        user: next.of(&USERS),
        is_low: next.below(2) == 1,
        unprivileged: next.of(&UNPRIVILEGED),
        is_nonlocal: next.below(2) == 1,
        option: SocketOption::None,
        attacker: NOBODY,
        is_claim: true,
    });
}
