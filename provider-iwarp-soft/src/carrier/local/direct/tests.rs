use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use rnic::RegisterMr;

use super::*;
use crate::carrier::local::references::OutstandingReferences;
use crate::carrier::local::rendezvous::{UnixConn, peer_credentials};
use crate::carrier::local::ring::Producer;
use crate::carrier::local::segment::{Direction, RING_LEN_MIN, SharedSegment};
use crate::memory::{Denied, MemoryTable, ReferenceHolder, WindowBind};

const OWN: Stream = Stream {
    pd: 1,
    qp: QpToken(u64::MAX),
    denied: Denied::from_bits(0),
};
const LEN: usize = 20_000;

/// Both sides of a connection of this process with itself.
struct Ends {
    table: MemoryTable,
    references: Arc<OutstandingReferences>,
    initiator: Initiator,
    puller: Puller,
    memory: Vec<u8>,
    stag: Stag,
    far: UnixStream,
}

impl Ends {
    fn new() -> Self {
        let (created, fd) = SharedSegment::create(RING_LEN_MIN).unwrap();
        let adopted = SharedSegment::adopt(fd, RING_LEN_MIN).unwrap();
        let half = |segment: SharedSegment| Arc::new(segment).half(Direction::FromCreator);
        let (near, far) = UnixStream::pair().unwrap();
        let witness = Witness::new().unwrap();
        let known = witness.known_word();
        let puller = Puller::probe(peer_credentials(&far).unwrap(), known).unwrap();
        let grant = Grant::new(half(created), witness);
        let revoker = Producer::new(grant.half.clone()).revoker();
        let conn = Arc::new(UnixConn::new(near.into()));
        let references = Arc::new(OutstandingReferences::new(revoker, conn, grant));
        let table = MemoryTable::new().unwrap();
        let holder: Arc<dyn ReferenceHolder> = references.clone();
        table.add_reference_holder(&holder);
        let memory = vec![0; LEN];
        let stag = table.register(1, &request(&memory)).unwrap();
        references.grant.announce(table.published_at(), OWN);
        Self {
            table,
            references,
            initiator: Initiator::new(half(adopted)),
            puller,
            memory,
            stag,
            far,
        }
    }

    fn claim(&self) -> &AtomicU64 {
        self.references.grant.word(CLAIM)
    }

    fn remote(&self, access: Access, at: usize, len: usize) -> Remote {
        Remote {
            access,
            stag: self.stag,
            to: at as u64,
            len: len as u32,
        }
    }

    /// Carries out a request with `local` as the local memory, in two pieces.
    fn copy(&mut self, remote: &Remote, local: &mut [u8]) -> bool {
        let (first, second) = local.split_at_mut(local.len() / 3);
        let local = [first, second].map(|piece| Target {
            ptr: piece.as_mut_ptr(),
            len: piece.len(),
        });
        // SAFETY: the pieces are those of the mutable slice.
        unsafe { self.initiator.copy(&self.puller, remote, &local) }
    }

    fn write(&mut self, at: usize, bytes: &mut [u8]) -> bool {
        self.copy(&self.remote(Access::RemoteWrite, at, bytes.len()), bytes)
    }

    /// The bytes of the registered memory, which the kernel may have written.
    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        std::hint::black_box(&self.memory)[at..at + len].to_vec()
    }
}

fn request(memory: &[u8]) -> RegisterMr {
    RegisterMr {
        addr: memory.as_ptr().expose_provenance() as u64,
        len: memory.len() as u64,
        access: rnic::Access {
            local_read: true,
            local_write: true,
            remote_read: true,
            remote_write: true,
            remote_atomic: true,
        },
        iova: Some(0),
    }
}

#[test]
fn bytes_of_every_length_are_written_and_read() {
    let mut ends = Ends::new();
    assert!(ends.initiator.is_permitted());
    for (index, len) in [1, 7, 8, 9, 63, 64, 4096, 4104, 19_990]
        .into_iter()
        .enumerate()
    {
        let sample: Vec<u8> = (0..len).map(|at| (at + 3 * index) as u8).collect();
        assert!(ends.write(10, &mut sample.clone()), "{len}");
        assert_eq!(ends.bytes(10, len), sample, "{len}");
        let mut read = vec![0xEE; len];
        let remote = ends.remote(Access::RemoteRead, 10, len);
        assert!(ends.copy(&remote, &mut read), "{len}");
        assert_eq!(read, sample, "{len}");
        assert_eq!(ends.claim().load(Ordering::Relaxed), 0);
    }
    assert_eq!(ends.bytes(0, 10), [0; 10]);
}

#[test]
fn what_the_target_would_refuse_is_sent() {
    let mut ends = Ends::new();
    let good = ends.remote(Access::RemoteWrite, 0, 8);
    let mut bytes = [1; 8];
    assert!(ends.copy(&good, &mut bytes));
    let stag = Stag(ends.stag.0 ^ 1);
    let other = ends.table.register(2, &request(&ends.memory)).unwrap();
    let read_only = RegisterMr {
        access: rnic::Access {
            remote_read: true,
            ..rnic::Access::default()
        },
        ..request(&ends.memory)
    };
    let read_only = ends.table.register(1, &read_only).unwrap();
    for (name, bad) in [
        ("unknown", Remote { stag, ..good }),
        (
            "other domain",
            Remote {
                stag: other,
                ..good
            },
        ),
        (
            "no right",
            Remote {
                stag: read_only,
                ..good
            },
        ),
        (
            "after the end",
            Remote {
                to: LEN as u64 - 7,
                ..good
            },
        ),
        (
            "wraps",
            Remote {
                to: u64::MAX - 3,
                ..good
            },
        ),
    ] {
        assert!(!ends.copy(&bad, &mut bytes), "{name}");
    }
    assert!(ends.copy(&good, &mut bytes), "a refusal has an effect");
}

#[test]
fn a_window_leads_to_memory_until_its_next_bind_and_for_its_queue_pair() {
    let mut ends = Ends::new();
    let id = ends.table.create_window(1).unwrap();
    let bind = |only| WindowBind {
        region: ends.stag.0,
        range: rnic::Sge {
            addr: 64,
            len: 64,
            lkey: ends.stag.0,
        },
        access: request(&ends.memory).access,
        zero_based: false,
        is_first: false,
        only,
    };
    let binds = [bind(Some(OWN.qp)), bind(Some(QpToken(3)))];
    let mut former = None;
    for (bind, is_permitted) in binds.into_iter().zip([true, false]) {
        let window = ends.table.next_window(id).unwrap();
        assert!(ends.table.bind_window(1, window, Some(&bind)));
        let remote = Remote {
            access: Access::RemoteWrite,
            stag: window.stag,
            to: bind_start(&ends),
            len: 64,
        };
        assert_eq!(ends.copy(&remote, &mut [5; 64]), is_permitted);
        if let Some(former) = former.replace(remote) {
            assert!(!ends.copy(&former, &mut [6; 64]), "bound again");
        }
    }
    assert_eq!(ends.bytes(64, 64), [5; 64]);
}

/// The tagged offset of byte 64 of the region under the key of the window.
fn bind_start(ends: &Ends) -> u64 {
    ends.memory.as_ptr().expose_provenance() as u64 + 64
}

#[test]
fn a_deregistration_waits_for_the_claim_of_its_memory_alone() {
    let mut ends = Ends::new();
    let other = ends.table.register(1, &request(&ends.memory)).unwrap();
    assert!(ends.write(0, &mut [1; 8]));
    // The initiator is between its claim and its copy.
    ends.claim().store(ends.stag.0.into(), Ordering::SeqCst);
    ends.table.remove(other);
    let generation = || {
        ends.references
            .grant
            .word(GENERATION)
            .load(Ordering::SeqCst)
    };
    // Read before the removal starts: it may be waiting before this thread runs again.
    let before = generation();
    thread::scope(|scope| {
        let removal = scope.spawn(|| ends.table.remove(ends.stag));
        while generation() == before && !removal.is_finished() {
            thread::yield_now();
        }
        assert!(!removal.is_finished(), "the removal does not wait");
        ends.claim().store(0, Ordering::SeqCst);
        removal.join().unwrap();
    });
    assert!(!ends.references.grant.is_withdrawn());
    assert!(
        !ends.write(0, &mut [2; 8]),
        "written after the deregistration"
    );
    assert_eq!(ends.bytes(0, 8), [1; 8]);
}

#[test]
fn a_claim_that_never_ends_ends_all_copies_of_the_peer() {
    let mut ends = Ends::new();
    let kept = ends.table.register(1, &request(&ends.memory)).unwrap();
    assert!(ends.write(0, &mut [1; 8]));
    ends.claim().store(ends.stag.0.into(), Ordering::SeqCst);
    ends.table.remove(ends.stag);
    assert!(ends.references.grant.is_withdrawn());
    assert!(!ends.initiator.is_permitted());
    // The claimant continues with its copy.
    let remote = Remote {
        stag: kept,
        ..ends.remote(Access::RemoteWrite, 0, 8)
    };
    let place = ends.memory.as_mut_ptr().expose_provenance() as u64;
    let mut bytes = [2; 8];
    let local = [Target {
        ptr: bytes.as_mut_ptr(),
        len: 8,
    }];
    for access in [Access::RemoteWrite, Access::RemoteRead] {
        let remote = Remote { access, ..remote };
        // SAFETY: the local memory is that of the array.
        let copied = unsafe { copy_checked(&ends.puller, &remote, place, &local) };
        let error = copied.expect_err("copied after the deregistration");
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    }
    assert_eq!((ends.bytes(0, 8), bytes), (vec![1; 8], [2; 8]));
    ends.table.remove(kept);
}

#[test]
fn the_claim_of_a_peer_that_has_ended_is_void() {
    let ends = Ends::new();
    ends.claim().store(ends.stag.0.into(), Ordering::SeqCst);
    ends.far.shutdown(std::net::Shutdown::Both).unwrap();
    ends.table.remove(ends.stag);
    assert!(
        !ends.references.grant.is_withdrawn(),
        "the removal has waited"
    );
}

#[test]
fn memory_that_is_claimed_when_the_connection_ends_is_not_freed() {
    let ends = Ends::new();
    ends.claim().store(ends.stag.0.into(), Ordering::SeqCst);
    ends.references.revoke_all();
    ends.table.keep_reference_holder(ends.references.clone());
    thread::scope(|scope| {
        let removal = scope.spawn(|| ends.table.remove(ends.stag));
        thread::sleep(std::time::Duration::from_millis(50));
        assert!(!removal.is_finished(), "the removal does not wait");
        ends.claim().store(0, Ordering::SeqCst);
        removal.join().unwrap();
    });
}

#[test]
fn words_of_a_hostile_peer_cause_no_copy() {
    let mut ends = Ends::new();
    assert!(ends.write(0, &mut [1; 64]));
    let words = [TABLE, PD, QP, GENERATION, CLAIM];
    let values = [0, 1, 8, 4096, u64::MAX / 2, u64::MAX - 7, u64::MAX];
    for at in words {
        for value in values {
            let word = ends.references.grant.word(at);
            let before = word.swap(value, Ordering::SeqCst);
            // A wrong generation makes the initiator read the entry again.
            ends.references.grant.on_removed();
            let is_copied = ends.copy(&ends.remote(Access::RemoteWrite, 0, 8), &mut [2; 8]);
            // Regions belong to no queue pair.
            let is_harmless = [QP, GENERATION, CLAIM].contains(&at);
            let is_same = before == value;
            assert_eq!(is_copied, is_harmless || is_same, "{at}: {value:#x}");
            ends.references
                .grant
                .word(at)
                .store(before, Ordering::SeqCst);
        }
    }
}

#[test]
fn entries_of_a_hostile_peer_lead_nowhere_in_this_process() {
    let mut ends = Ends::new();
    // The peer's table: the sum is right, the words are not.
    for word in 0..6 {
        for value in [0, 1, u64::MAX / 2, u64::MAX - 7, u64::MAX] {
            let mut table = vec![0_u64; 8 * 8 * 1024];
            let mut entry = [u64::from(OWN.pd), 3, 0, 0x1000, u64::MAX, 0];
            entry[word] = value;
            let at = (bucket_at(0, ends.stag.0) / 8) as usize;
            crate::memory::forge_published(&mut table[at..at + 8], ends.stag.0, entry);
            let addr = table.as_ptr().expose_provenance() as u64;
            ends.references.grant.announce(addr, OWN);
            ends.references.grant.on_removed();
            let remote = ends.remote(Access::RemoteWrite, 0, 8);
            // No page is mapped there: the kernel refuses.
            assert!(!ends.copy(&remote, &mut [2; 8]), "{word}: {value:#x}");
        }
    }
}
