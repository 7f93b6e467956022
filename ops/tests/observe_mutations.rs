//! Damaged pages: any bytes of any length are refused or give wrong values, but cause no panic.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::net::SocketAddr;

use ops::observe::layout::{HEADER_LEN, RECORD_LEN};
use ops::observe::snapshot::len_used;
use ops::observe::{Carrier, Description, Fault, Kind, PageRoot, Snapshot, State, Writer};

/// The number of random changes.
const CHANGES: u64 = 60_000;

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn page() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let writer: &'static Writer = Box::leak(Box::new(Writer::new()));
    writer.begin(PageRoot::at(dir.path()));
    let records: Vec<_> = (0..4)
        .map(|number| {
            let description = Description {
                kind: if number == 3 {
                    Kind::Listener
                } else {
                    Kind::Connection
                },
                local: SocketAddr::from(([192, 0, 2, 1], number)),
                remote: SocketAddr::from(([0; 16], number)),
                carrier: Carrier::Tcp {
                    reason: "no route".to_owned(),
                },
            };
            writer.list(&description, State::Native)
        })
        .collect();
    let user = rustix::process::geteuid().as_raw();
    let own = dir.path().join(format!("ops-{user}"));
    let file = std::fs::read_dir(own).unwrap().next().unwrap().unwrap();
    let bytes = std::fs::read(file.path()).unwrap();
    drop(records);
    bytes[..HEADER_LEN + 4 * RECORD_LEN].to_vec()
}

#[test]
fn changed_pages_are_refused_or_read() {
    let page = page();
    let whole = Snapshot::parse(&page, &page, &page).unwrap();
    assert_eq!((whole.rows.len(), whole.torn), (4, 0));
    let mut dice = Dice(1);
    let mut refused = 0;
    for _ in 0..CHANGES {
        let mut copies = [page.clone(), page.clone(), page.clone()];
        for _ in 0..=dice.below(4) {
            let copy = &mut copies[dice.below(3)];
            let at = match dice.below(2) {
                0 => dice.below(128),
                _ => dice.below(copy.len()),
            }
            .min(copy.len() - 1);
            match dice.below(4) {
                0 => copy.truncate(at.max(1)),
                1 => copy[at] ^= 1 << dice.below(8),
                2 => copy[at] = 0xff,
                _ => copy[at..].fill(dice.below(256) as u8),
            }
        }
        let [before, bytes, after] = &copies;
        assert!(len_used(bytes) <= ops::observe::layout::PAGE_LEN);
        match Snapshot::parse(before, bytes, after) {
            Err(_) => refused += 1,
            Ok(snapshot) => {
                assert!(snapshot.rows.len() + snapshot.torn <= ops::observe::layout::RECORDS_MAX);
                for row in &snapshot.rows {
                    let said = format!("{:?}", row.description.carrier.protocol());
                    assert!(!said.contains(char::is_control));
                }
            }
        }
    }
    assert!(refused > 0 && refused < CHANGES, "{refused}");
}

#[test]
fn every_length_is_refused_or_read() {
    let page = page();
    for len in 0..page.len() {
        let cut = &page[..len];
        match Snapshot::parse(cut, cut, cut) {
            Err(fault) => assert!(fault == Fault::Incomplete && len < HEADER_LEN, "{len}"),
            Ok(snapshot) => assert_eq!(snapshot.rows.len(), (len - HEADER_LEN) / RECORD_LEN),
        }
    }
}

#[test]
fn a_record_that_changes_is_torn() {
    let page = page();
    for copy in 0..3 {
        let mut copies = [page.clone(), page.clone(), page.clone()];
        copies[copy][HEADER_LEN] += 2;
        let [before, bytes, after] = &copies;
        let snapshot = Snapshot::parse(before, bytes, after).unwrap();
        assert_eq!((snapshot.rows.len(), snapshot.torn), (3, 1));
    }
}
