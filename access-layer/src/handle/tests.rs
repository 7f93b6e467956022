use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use super::*;

struct Probe {
    drops: Arc<AtomicUsize>,
}

struct Other;

impl Object for Probe {
    const KIND: Kind = Kind::Pz;
}

/// Another type of the same kind, as an object of another RNIC would be.
impl Object for Other {
    const KIND: Kind = Kind::Pz;
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns a table that is never freed, as those of real providers are. It stays reachable, because
/// a leak detector would report it otherwise.
fn provider() -> ProviderRef {
    static KEPT: Mutex<Vec<ProviderRef>> = Mutex::new(Vec::new());
    let provider = ProviderRef::new(Box::leak(Box::new(DatProvider::zeroed())));
    KEPT.lock().unwrap().push(provider);
    provider
}

fn probe(provider: ProviderRef) -> (Handle, Arc<AtomicUsize>) {
    let drops = Arc::new(AtomicUsize::new(0));
    let object = Arc::new(Probe {
        drops: drops.clone(),
    });
    (reserve(provider).unwrap().publish(object), drops)
}

#[test]
fn a_live_handle_is_pinned_and_names_its_provider() {
    let provider = provider();
    let (handle, _) = probe(provider);
    let pinned = pin_handle::<Probe>(handle).unwrap();
    assert_eq!(pinned.handle(), handle);
    let word = handle.as_dat().cast::<*const DatProvider>();
    // SAFETY: every handle is the address of a provider word.
    assert!(std::ptr::eq(unsafe { word.read() }, provider.get()));
    assert_eq!(kind_of(handle.as_dat()), Some(Kind::Pz));
    assert!(pinned.retire());
}

#[test]
fn every_other_word_of_a_slot_and_around_it_is_refused() {
    let (handle, _) = probe(provider());
    let good = handle.as_dat().addr();
    for addr in good - 256..good + 256 {
        // A probe of another test may be in the next slot.
        let near = std::ptr::with_exposed_provenance_mut(addr);
        if addr % 8 != 0 {
            assert!(pin::<Probe>(near).is_none(), "{addr:#x}");
        }
        if addr != good && addr.abs_diff(good) < 64 {
            assert!(pin::<Other>(near).is_none(), "{addr:#x}");
        }
    }
    for addr in [0, 1, 2, 7, 8, 64, 4096, usize::MAX, usize::MAX - 7, 1 << 47] {
        let wild = std::ptr::without_provenance_mut(addr);
        assert!(pin::<Probe>(wild).is_none(), "{addr:#x}");
        let is_unknown = kind_of(wild).is_none() && context(wild).is_none();
        assert!(is_unknown, "{addr:#x}");
        assert!(set_context(wild, 1).is_none(), "{addr:#x}");
    }
    assert!(pin_handle::<Probe>(handle).unwrap().retire());
}

#[test]
fn random_words_are_refused() {
    let (handle, _) = probe(provider());
    let mut word = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..20_000 {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        let addr = usize::try_from(word).unwrap();
        if addr != handle.as_dat().addr() {
            assert!(pin::<Other>(std::ptr::without_provenance_mut(addr)).is_none());
        }
    }
    assert!(pin_handle::<Probe>(handle).unwrap().retire());
}

#[test]
fn a_type_of_the_same_kind_is_refused() {
    let (handle, _) = probe(provider());
    assert!(pin_handle::<Other>(handle).is_none());
    assert!(pin_handle::<Probe>(handle).unwrap().retire());
}

#[test]
fn a_retired_object_is_dropped_with_its_last_pin() {
    let (handle, drops) = probe(provider());
    let first = pin_handle::<Probe>(handle).unwrap();
    let second = pin_handle::<Probe>(handle).unwrap();
    assert!(first.retire());
    assert!(!second.retire());
    assert!(pin_handle::<Probe>(handle).is_none());
    drop(first);
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    drop(second);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    assert!(pin_handle::<Probe>(handle).is_none());
}

#[test]
fn a_share_outlives_pin_and_handle() {
    let (handle, drops) = probe(provider());
    let pinned = pin_handle::<Probe>(handle).unwrap();
    let share = pinned.to_arc();
    assert!(pinned.retire());
    drop(pinned);
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    drop(share);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn a_reservation_is_no_handle_yet_and_can_be_abandoned() {
    let reservation = reserve(provider()).unwrap();
    let handle = reservation.handle();
    assert!(pin_handle::<Probe>(handle).is_none());
    assert!(kind_of(handle.as_dat()).is_none());
    drop(reservation);
    assert!(pin_handle::<Probe>(handle).is_none());
}

#[test]
fn a_context_begins_at_zero_and_ends_with_its_handle() {
    let provider = provider();
    let (handle, _) = probe(provider);
    assert_eq!(context(handle.as_dat()), Some(0));
    assert_eq!(set_context(handle.as_dat(), u64::MAX), Some(()));
    assert_eq!(context(handle.as_dat()), Some(u64::MAX));
    assert!(pin_handle::<Probe>(handle).unwrap().retire());
    assert_eq!(context(handle.as_dat()), None);
    let (next, _) = probe(provider);
    assert_eq!(context(next.as_dat()), Some(0));
    assert!(pin_handle::<Probe>(next).unwrap().retire());
}

#[test]
fn a_reused_slot_has_another_handle() {
    let provider = provider();
    // The queue of freed slots contains more than a thousand, so this many lives reuse each slot a
    // few times.
    let lives = if cfg!(miri) { 1500 } else { 8000 };
    let mut seen = std::collections::HashSet::new();
    for _ in 0..lives {
        let (handle, _) = probe(provider);
        assert!(seen.insert(handle), "{handle:?} was repeated");
        assert!(pin_handle::<Probe>(handle).unwrap().retire());
    }
    let are_refused = seen
        .iter()
        .all(|handle| pin_handle::<Probe>(*handle).is_none());
    assert!(are_refused);
}

/// Four threads pin an object until one of them retires it. `counts` is true for each thread that
/// counts its pins in the slot instead of announcing them.
fn race(provider: ProviderRef, counts: [bool; 4]) {
    let (handle, drops) = probe(provider);
    let start = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let (start, drops) = (start.clone(), drops.clone());
            std::thread::spawn(move || {
                if counts[number] {
                    pins::tests::go_without_record();
                    assert!(!pins::tests::has_record());
                }
                start.wait();
                for _ in 0..50 {
                    let Some(pinned) = pin_handle::<Probe>(handle) else {
                        break;
                    };
                    // Access through the pin: the object is alive as long as the pin is held.
                    assert_eq!(pinned.drops.load(Ordering::SeqCst), 0);
                    if number == 0 {
                        assert!(pinned.retire());
                    }
                }
                drops
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn racing_pins_and_one_retirement_drop_the_object_once() {
    let provider = provider();
    let kinds_of_pins = [
        [false; 4],
        [true; 4],
        [false, true, false, true],
        [true, false, true, false],
    ];
    for counts in kinds_of_pins {
        for _ in 0..if cfg!(miri) { 3 } else { 200 } {
            race(provider, counts);
        }
    }
}

/// Takes more pins than a record has entries; the remaining pins are counted. Another thread ends
/// all of them.
#[test]
fn announced_and_counted_pins_keep_an_object_together() {
    let (handle, drops) = probe(provider());
    let pins: Vec<_> = (0..20)
        .map(|_| pin_handle::<Probe>(handle).unwrap())
        .collect();
    assert!(pins[0].retire());
    assert_eq!(pins[0].pin_count(), 20);
    let end_half = |pins: Vec<Pinned<Probe>>| {
        let (first, second): (Vec<_>, Vec<_>) = pins
            .into_iter()
            .enumerate()
            .partition(|(number, _)| number % 2 == 0);
        let first: Vec<_> = first.into_iter().map(|(_, pin)| pin).collect();
        std::thread::spawn(move || drop(first)).join().unwrap();
        second.into_iter().map(|(_, pin)| pin).collect::<Vec<_>>()
    };
    let rest = end_half(pins);
    assert_eq!(rest[0].pin_count(), 10);
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    drop(rest);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn a_panic_in_a_destructor_leaves_no_handle() {
    struct Bomb;
    impl Object for Bomb {
        const KIND: Kind = Kind::Pz;
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let handle = reserve(provider()).unwrap().publish(Arc::new(Bomb));
    let result = std::panic::catch_unwind(|| {
        let pinned = pin_handle::<Bomb>(handle).unwrap();
        assert!(pinned.retire());
    });
    assert!(result.is_err());
    assert!(kind_of(handle.as_dat()).is_none());
}

#[cfg(not(miri))]
#[test]
fn the_handles_of_a_parent_are_invalid_in_its_child() {
    let provider = provider();
    let (handle, drops) = probe(provider);
    let pinned = pin_handle::<Probe>(handle).unwrap();
    // SAFETY: the child uses only the table and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the call takes a number. The alarm ends a child that hangs.
        unsafe { libc::alarm(20) };
        let is_refused = pin_handle::<Probe>(handle).is_none() && !pinned.retire();
        drop(pinned);
        let (own, own_drops) = probe(provider);
        let is_own = pin_handle::<Probe>(own).is_some_and(|own| own.retire());
        let are_dropped = (
            drops.load(Ordering::SeqCst),
            own_drops.load(Ordering::SeqCst),
        );
        let ends_well = is_refused && is_own && are_dropped == (0, 1);
        // SAFETY: the call takes a number.
        unsafe { libc::_exit(i32::from(!ends_well)) };
    }
    let mut status = -1;
    // SAFETY: the process is a child of this process, and the pointer is to a local.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    let is_valid = pin_handle::<Probe>(handle).is_some();
    assert!(is_valid, "the parent's is valid");
    assert!(pinned.retire());
}
