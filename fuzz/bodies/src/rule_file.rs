//! The rule file of the offload switch: a bad line is reported on its own, and a rule that is
//! written out parses to the same rule.
//!
//! Input: the file.

use std::net::SocketAddr;

use ops::rules::{Fault, Query, Role, Rule, Rules, parse};

use crate::seed::{Seed, seed};

/// A rule that matches none of the queries below.
const GOOD: &[u8] = b"use tcp connect nobody 192.0.2.255:1\n";

/// The addresses of the connect and listen queries.
const ADDRESSES: [&str; 5] = [
    "10.0.0.1:80",
    "192.168.1.9:65535",
    "0.0.0.0:0",
    "[2001:db8::1]:443",
    "[::ffff:10.0.0.1]:80",
];

/// Runs one input.
pub fn run(data: &[u8]) {
    match parse(data) {
        Ok(rules) => {
            rules.rules().iter().for_each(check_rule);
            check_verdicts(&rules);
            check_after_another_line(data, &rules);
        }
        Err(faults) => {
            check_faults(data, &faults);
            check_without_bad_lines(data, &faults);
        }
    }
}

/// Checks that a rule parses from its own text.
fn check_rule(rule: &Rule) {
    let line = rule.to_string();
    match parse(line.as_bytes()) {
        Ok(again) => assert_eq!(again.rules(), std::slice::from_ref(rule), "{line}"),
        Err(faults) => panic!("{line}: {faults:?}"),
    }
}

/// Checks that the verdict is that of the first rule that matches.
fn check_verdicts(rules: &Rules) {
    for program in ["/usr/bin/redis-server", "a", ""] {
        for (role, address) in ADDRESSES
            .iter()
            .flat_map(|address| [Role::Listen, Role::Connect].map(|role| (role, *address)))
        {
            let query = Query {
                role,
                program,
                called: program,
                user: 1000,
                address: address.parse::<SocketAddr>().expect("an address"),
                interface: None,
            };
            let verdict = rules.verdict(&query);
            let first = rules.rules().iter().find(|rule| rule.matches(&query));
            assert_eq!(verdict.rule, first);
        }
    }
}

fn check_after_another_line(data: &[u8], rules: &Rules) {
    let shifted = parse(&[GOOD, data].concat()).expect("one more good line");
    assert_eq!(&shifted.rules()[1..], rules.rules());
    for (shifted, rule) in shifted.rules()[1..].iter().zip(rules.rules()) {
        assert_eq!(shifted.line, rule.line + 1);
    }
}

fn check_faults(data: &[u8], faults: &[Fault]) {
    assert!(faults.windows(2).all(|pair| pair[0].line < pair[1].line));
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    for fault in faults {
        let line = lines[fault.line as usize - 1];
        assert!((1..=line.len() + 1).contains(&(fault.column as usize)));
        assert!(!fault.to_string().is_empty());
    }
}

fn check_without_bad_lines(data: &[u8], faults: &[Fault]) {
    let is_bad = |number| faults.iter().any(|fault| fault.line == number);
    let good: Vec<&[u8]> = (1..)
        .zip(data.split(|byte| *byte == b'\n'))
        .filter_map(|(number, line)| (!is_bad(number)).then_some(line))
        .collect();
    assert!(parse(&good.join(&b'\n')).is_ok());
}

/// The initial inputs of the corpus.
pub(crate) fn seeds() -> Vec<Seed> {
    [
        (
            "libsdp",
            "# comment\nlog min-level 9 destination file libsdp.log\n\
             use sdp server * *:5001\nuse tcp client ssh* *:22 # shell\n\
             use both client * 192.168.0.0/16:1024-65535\nuse both server * *:*\n",
        ),
        (
            "settings",
            "use both connect /usr/bin/[r-t]* [2001:db8::]/32:* protocol=sdp user=1000\n\
             use offload listen nginx 10.1.2.3/8:80 interface=eth0 within=100ms sdp.zcopy=64\n",
        ),
        (
            "mapped",
            "use tcp client * ::ffff:10.0.0.0/104:*\r\nuse tcp client * ::/0:7\n",
        ),
        ("always", "use tcp client * *:*\nuse tcp server * *:*\n"),
        (
            "bad-lines",
            "use\nuse udp client * *:*\nuse both client [ *:*\nlog min-level 0\nmatch\n\
             use both client * 10.0.0.1/33:*\nuse both client * *:2-1\nuse both client * *:* x\n",
        ),
    ]
    .map(|(name, text)| seed("rule_file", name, text.into()))
    .into()
}
