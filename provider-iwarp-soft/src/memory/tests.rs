use super::*;
use iwarp_proto::Access as Wire;

const ALL: Access = Access {
    local_read: true,
    local_write: true,
    remote_read: true,
    remote_write: true,
    remote_atomic: false,
};

fn register(table: &MemoryTable, pd: u32, bytes: &mut [u8], access: Access) -> Stag {
    let request = RegisterMr {
        addr: bytes.as_mut_ptr().expose_provenance() as u64,
        len: bytes.len() as u64,
        access,
        iova: None,
    };
    table.register(pd, &request).unwrap()
}

fn sge(addr: u64, len: u32, stag: Stag) -> Sge {
    let lkey = stag.0;
    Sge { addr, len, lkey }
}

/// A bind of `range`, whose region its key names, with all rights.
fn bind_to(range: Sge) -> WindowBind {
    WindowBind {
        region: range.lkey,
        range,
        access: ALL,
        zero_based: false,
        is_first: false,
        only: None,
    }
}

/// Returns true if queue pair 11 of domain 1 has this access.
fn reaches(table: &MemoryTable, access: Wire, stag: Stag, to: u64, len: u32) -> bool {
    let open = table.access();
    open.remote(stream(1), access, stag, to, len).is_ok()
}

/// Queue pair 11 of a protection domain. Only one test uses a second queue pair.
fn stream(pd: u32) -> Stream {
    Stream {
        pd,
        qp: QpToken(11),
        denied: Denied::default(),
    }
}

#[test]
fn remote_access_is_checked_in_order() {
    let table = MemoryTable::new().unwrap();
    let mut bytes = vec![0; 100];
    let base = bytes.as_mut_ptr() as u64;
    let stag = register(&table, 1, &mut bytes, ALL);
    let no_write = Access {
        remote_write: false,
        ..ALL
    };
    let read_only = register(&table, 1, &mut bytes[..10], no_write);
    let unknown = Stag(stag.0 ^ 1);
    use ProtectionFault::{AccessViolation, Bounds, InvalidStag, NotAssociated, Wrap};
    use Wire::{RemoteAtomic, RemoteRead, RemoteWrite};
    for (pd, access, stag, to, len, expected) in [
        (1, RemoteWrite, stag, base, 100, Ok(100)),
        (1, RemoteRead, stag, base + 99, 1, Ok(1)),
        (1, RemoteWrite, unknown, base, 1, Err(InvalidStag)),
        (2, RemoteWrite, read_only, base, 1, Err(NotAssociated)),
        (1, RemoteWrite, read_only, u64::MAX, 2, Err(AccessViolation)),
        (1, RemoteAtomic, stag, base, 8, Err(AccessViolation)),
        (1, RemoteWrite, stag, u64::MAX, 2, Err(Wrap)),
        (1, RemoteWrite, stag, base - 1, 2, Err(Bounds)),
        (1, RemoteWrite, stag, base + 1, 100, Err(Bounds)),
        (1, RemoteWrite, stag, base + 101, 1, Err(Bounds)),
    ] {
        let open = table.access();
        let found = open.remote(stream(pd), access, stag, to, len);
        assert_eq!(found.map(|range| range.len()), expected, "{to:x} {len}");
    }
}

#[test]
fn local_segments_need_domain_right_and_range() {
    let table = MemoryTable::new().unwrap();
    let mut bytes = vec![0; 64];
    let base = bytes.as_mut_ptr() as u64;
    let no_write = Access {
        local_write: false,
        ..ALL
    };
    let stag = register(&table, 5, &mut bytes, no_write);
    let open = table.access();
    for (pd, sge, is_write, expected) in [
        (5, sge(base, 64, stag), false, true),
        (5, sge(base, 64, stag), true, false),
        (6, sge(base, 64, stag), false, false),
        (5, sge(base, 65, stag), false, false),
        (5, sge(0, 0, Stag(0)), true, true),
        (5, sge(base, 1, Stag(0)), false, false),
    ] {
        let found = open.local(pd, &sge, is_write);
        assert_eq!(found.is_some(), expected, "{pd} {sge:?} {is_write}");
    }
}

#[test]
fn zero_based_regions_count_from_zero() {
    let table = MemoryTable::new().unwrap();
    let mut bytes = vec![0_u8; 16];
    let request = RegisterMr {
        addr: bytes.as_mut_ptr().expose_provenance() as u64,
        len: 16,
        access: ALL,
        iova: Some(0),
    };
    let stag = table.register(1, &request).unwrap();
    let open = table.access();
    let found = open.remote(stream(1), Wire::RemoteWrite, stag, 4, 3);
    assert!(found.unwrap().write(b"abc"));
    let by_address = open.remote(stream(1), Wire::RemoteWrite, stag, request.addr, 1);
    assert!(by_address.is_err());
    assert_eq!(&bytes[..8], b"\0\0\0\0abc\0");
}

#[test]
fn a_removed_stag_is_invalid_and_not_the_next_one() {
    let table = MemoryTable::new().unwrap();
    let mut bytes = vec![0; 8];
    let stag = register(&table, 1, &mut bytes, ALL);
    table.remove(stag);
    let base = bytes.as_ptr() as u64;
    assert!(!reaches(&table, Wire::RemoteRead, stag, base, 1));
    let next = register(&table, 1, &mut bytes, ALL);
    assert_ne!(next, stag);
    // Removing a region twice, or one that was never registered, has no effect.
    table.remove(stag);
    table.remove(Stag(0x1234_5678));
    assert!(reaches(&table, Wire::RemoteRead, next, base, 1));
}

#[test]
fn thousands_of_regions_are_found_again() {
    let table = MemoryTable::new().unwrap();
    let mut bytes = vec![0; 8];
    let stags: Vec<_> = (0..5000)
        .map(|_| register(&table, 1, &mut bytes, ALL))
        .collect();
    for stag in stags.iter().step_by(2) {
        table.remove(*stag);
    }
    let more: Vec<_> = (0..4000)
        .map(|_| register(&table, 2, &mut bytes, ALL))
        .collect();
    let open = table.access();
    let base = bytes.as_ptr() as u64;
    let found = |pd, stag: &Stag| {
        let range = open.remote(stream(pd), Wire::RemoteRead, *stag, base, 8);
        range.is_ok()
    };
    for (index, stag) in stags.iter().enumerate() {
        assert_eq!(found(1, stag), index % 2 == 1);
    }
    assert!(more.iter().all(|stag| found(2, stag)));
}

#[test]
fn windows_have_the_range_of_their_last_bind() {
    let table = MemoryTable::new().unwrap();
    let mut bytes = vec![0; 100];
    let base = bytes.as_mut_ptr() as u64;
    let local = Access {
        remote_read: false,
        remote_write: false,
        ..ALL
    };
    let region = register(&table, 1, &mut bytes, local);
    let window = table.create_window(1).unwrap();
    let first = table.next_window(window).unwrap();
    let bind = WindowBind {
        access: Access {
            remote_write: true,
            ..Access::default()
        },
        ..bind_to(sge(base + 10, 20, region))
    };
    assert!(!table.bind_window(2, first, Some(&bind)), "another domain");
    assert!(table.bind_window(1, first, Some(&bind)));
    let reaches = |access, stag, to, len| reaches(&table, access, stag, base + to, len);
    assert!(reaches(Wire::RemoteWrite, first.stag, 10, 20));
    assert!(!reaches(Wire::RemoteWrite, first.stag, 9, 1));
    assert!(!reaches(Wire::RemoteRead, first.stag, 10, 1));

    let second = table.next_window(window).unwrap();
    assert!(table.bind_window(1, second, Some(&bind)));
    assert!(!reaches(Wire::RemoteWrite, first.stag, 10, 1));
    let invalidatable = |stag| table.access().check_invalidate(stream(1), stag);
    use InvalidateFault::{InvalidStag, NotInvalidatable};
    assert_eq!(invalidatable(region), Err(NotInvalidatable));
    assert_eq!(invalidatable(second.stag), Ok(()));
    table.access().invalidate(second.stag);
    assert_eq!(invalidatable(second.stag), Err(InvalidStag));
    assert!(!reaches(Wire::RemoteWrite, second.stag, 10, 1));
    let third = table.next_window(window).unwrap();
    table.remove_window(window);
    assert!(!table.bind_window(1, third, Some(&bind)));
    assert!(table.next_window(window).is_err());
}

/// Records the STags whose references end.
#[derive(Debug, Default)]
struct EndedReferences(Mutex<Vec<Stag>>);

impl ReferenceHolder for EndedReferences {
    fn revoke(&self, stag: Stag) {
        lock(&self.0).push(stag);
    }

    fn is_in_use(&self) -> bool {
        false
    }
}

#[test]
fn references_end_with_the_bind_and_with_the_region() {
    let table = MemoryTable::new().unwrap();
    let ended = Arc::new(EndedReferences::default());
    let holder: Arc<dyn ReferenceHolder> = ended.clone();
    table.add_reference_holder(&holder);
    let take_ended = || std::mem::take(&mut *lock(&ended.0));
    let region = register(&table, 1, &mut [0; 8], ALL);
    let id = table.create_window(1).unwrap();
    let [first, unbind, last] = [(); 3].map(|()| table.next_window(id).unwrap());
    assert!(table.bind_window(1, first, None));
    assert_eq!(take_ended(), []);
    assert!(table.bind_window(1, unbind, None));
    assert_eq!(take_ended(), [first.stag]);
    assert!(table.bind_window(1, last, None));
    assert_eq!(take_ended(), [unbind.stag]);
    assert!(!table.bind_window(1, last, None), "carried out already");
    assert_eq!(take_ended(), []);
    table.remove_window(id);
    assert_eq!(take_ended(), [last.stag]);
    table.remove(region);
    assert_eq!(take_ended(), [region]);
}

#[test]
fn a_bind_of_a_removed_window_does_nothing_to_other_windows() {
    let table = MemoryTable::new().unwrap();
    let removed = table.create_window(1).unwrap();
    let late = table.next_window(removed).unwrap();
    table.remove_window(removed);
    let later = table.create_window(1).unwrap();
    let bind = table.next_window(later).unwrap();
    assert!(!table.bind_window(1, late, None));
    assert!(table.bind_window(1, bind, None));
}

#[test]
fn binds_are_carried_out_in_any_order_and_each_at_most_once() {
    let table = MemoryTable::new().unwrap();
    let mut bytes = vec![0; 8];
    let region = register(&table, 1, &mut bytes, ALL);
    let bind = WindowBind {
        zero_based: true,
        ..bind_to(sge(bytes.as_ptr() as u64, 8, region))
    };
    let reaches = |stag| reaches(&table, Wire::RemoteRead, stag, 0, 8);
    let id = table.create_window(1).unwrap();
    let first = table.next_window(id).unwrap();
    let second = table.next_window(id).unwrap();
    assert!(!reaches(first.stag) && !reaches(second.stag), "only posted");
    assert!(table.bind_window(1, second, Some(&bind)));
    assert!(!reaches(first.stag) && reaches(second.stag));
    assert!(table.bind_window(1, first, Some(&bind)));
    assert!(reaches(first.stag) && !reaches(second.stag));
    assert!(!table.bind_window(1, second, Some(&bind)), "a second time");
    assert!(reaches(first.stag));
}

#[test]
fn a_reserved_stag_belongs_to_its_window_until_it_is_cancelled() {
    let table = MemoryTable::new().unwrap();
    let id = table.create_window(1).unwrap();
    let window = table.next_window(id).unwrap();
    assert!(table.write().entries.contains_key(&window.stag.0));
    assert_eq!(
        table.access().check_invalidate(stream(1), window.stag),
        Err(InvalidateFault::InvalidStag)
    );
    table.cancel_bind(window);
    table.cancel_bind(window);
    assert!(!table.bind_window(1, window, None));
    let next = table.next_window(id).unwrap();
    assert!(table.bind_window(1, next, None));
    table.cancel_bind(next);
    assert_eq!(table.write().entries.len(), 1, "a bind that is carried out");
    table.next_window(id).unwrap();
    table.remove_window(id);
    assert!(table.write().entries.is_empty(), "no STag stays reserved");
}

#[test]
fn the_next_stag_of_a_window_cannot_be_computed_from_earlier_ones() {
    let table = MemoryTable::new().unwrap();
    let id = table.create_window(1).unwrap();
    let stags: Vec<u32> = (0..1000)
        .map(|_| {
            let window = table.next_window(id).unwrap();
            assert!(table.bind_window(1, window, None));
            window.stag.0
        })
        .collect();
    let mut steps: Vec<u32> = stags
        .windows(2)
        .map(|pair| pair[1].wrapping_sub(pair[0]))
        .collect();
    // With random STags, a shorter step occurs in one of 130000 runs.
    assert!(steps.iter().all(|step| (16..=!16).contains(step)));
    steps.sort_unstable();
    steps.dedup();
    assert!(steps.len() > 990, "only {} steps", steps.len());
}

#[test]
fn a_window_for_one_queue_pair_cannot_be_used_by_another() {
    let table = MemoryTable::new().unwrap();
    let mut bytes = vec![0; 100];
    let base = bytes.as_mut_ptr() as u64;
    let region = register(&table, 1, &mut bytes, ALL);
    let window = table.create_window(1).unwrap();
    let window = table.next_window(window).unwrap();
    let stag = window.stag;
    let bind = WindowBind {
        only: Some(stream(1).qp),
        ..bind_to(sge(base, 20, region))
    };
    assert!(table.bind_window(1, window, Some(&bind)));
    let other = Stream {
        qp: QpToken(12),
        ..stream(1)
    };
    let open = table.access();
    let reach = |who| {
        open.remote(who, Wire::RemoteRead, stag, base, 20)
            .map(|b| b.len())
    };
    assert_eq!(reach(stream(1)), Ok(20));
    assert_eq!(reach(other), Err(ProtectionFault::NotAssociated));
    assert_eq!(
        open.check_invalidate(other, stag),
        Err(InvalidateFault::NotAssociated)
    );
    assert_eq!(open.check_invalidate(stream(1), stag), Ok(()));
}

#[test]
fn deregistration_waits_for_an_access_in_progress() {
    let table = std::sync::Arc::new(MemoryTable::new().unwrap());
    let mut bytes = vec![0; 8];
    let stag = register(&table, 1, &mut bytes, ALL);
    let open = table.access();
    let (sender, receiver) = std::sync::mpsc::channel();
    let other = table.clone();
    let thread = std::thread::spawn(move || {
        sender.send(false).unwrap();
        other.remove(stag);
        sender.send(true).unwrap();
    });
    assert_eq!(receiver.recv(), Ok(false));
    assert_eq!(
        receiver.try_recv(),
        Err(std::sync::mpsc::TryRecvError::Empty)
    );
    assert!(
        open.remote(stream(1), Wire::RemoteWrite, stag, bytes.as_ptr() as u64, 8)
            .is_ok()
    );
    drop(open);
    assert_eq!(receiver.recv(), Ok(true));
    thread.join().unwrap();
}

#[test]
fn copies_include_both_ends_at_every_length() {
    let table = MemoryTable::new().unwrap();
    let mut bytes = vec![0_u8; 20_000];
    let base = bytes.as_mut_ptr() as u64;
    let stag = register(&table, 1, &mut bytes, ALL);
    let source: Vec<u8> = (0..20_000_u32).map(|i| (i % 251) as u8 + 1).collect();
    for len in [1, 7, 8, 9, 63, 4095, 4096, 4097, 4104, 19_990] {
        let open = table.access();
        let range = open
            .remote(stream(1), Wire::RemoteWrite, stag, base + 3, len)
            .unwrap();
        assert!(range.write(&source));
        let mut back = vec![0; 20_000];
        assert!(range.read_into(&mut back));
        assert_eq!(back[..len as usize], source[..len as usize], "{len}");
        assert!(back[len as usize..].iter().all(|b| *b == 0), "{len}");
    }
}

#[test]
fn a_pinned_registration_delays_its_own_removal_only() {
    let table = MemoryTable::new().unwrap();
    let mut bytes = vec![0; 64];
    let pinned = register(&table, 1, &mut bytes, ALL);
    let other = register(&table, 1, &mut bytes, ALL);
    let open = table.access();
    let pins = [(); 2].map(|()| table.pin(&open, [pinned]));
    drop(open);
    table.remove(other);
    register(&table, 1, &mut bytes, ALL);
    std::thread::scope(|scope| {
        let removal = scope.spawn(|| table.remove(pinned));
        while table.access().entry(pinned.0).is_some() {
            std::thread::yield_now();
        }
        for pin in pins {
            assert!(!removal.is_finished(), "the removal does not wait");
            drop(pin);
        }
        removal.join().unwrap();
    });
}

#[test]
fn a_region_is_registered_anew_under_its_stag() {
    let table = MemoryTable::new().unwrap();
    let bytes = [0_u8; 64];
    let base = bytes.as_ptr().addr() as u64;
    let request = RegisterMr {
        addr: base,
        len: 64,
        access: Access {
            local_read: true,
            remote_read: true,
            ..Access::default()
        },
        iova: None,
    };
    let stag = table.register(1, &request).unwrap();
    assert!(reaches(&table, Wire::RemoteRead, stag, base, 64));
    let other = RegisterMr {
        addr: base + 32,
        len: 32,
        ..request
    };
    table.replace(stag, 1, &other).unwrap();
    assert!(!reaches(&table, Wire::RemoteRead, stag, base, 64));
    assert!(reaches(&table, Wire::RemoteRead, stag, base + 32, 32));
    table.replace(stag, 2, &request).unwrap();
    assert!(
        !reaches(&table, Wire::RemoteRead, stag, base, 64),
        "another domain"
    );
    table.remove(stag);
    assert!(!reaches(&table, Wire::RemoteRead, stag, base, 64));
}
