//! Registered memory that is mapped for reading only, and memory of files.

use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};

use provider_iwarp_soft::SoftMr;
use rnic::*;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::mm::{madvise, mmap, mmap_anonymous, mprotect};

use crate::support::moved::move_on;
use crate::support::*;

const PAGE: usize = 4096;
const PAGES: usize = 64;
const READ_ONLY: Access = Access {
    local_read: true,
    local_write: false,
    remote_read: true,
    remote_write: false,
    remote_atomic: false,
};
/// Shared memory, TCP with and without CRC.
const ADAPTERS: [&str; 3] = ["lo 0", "lo 0 local=off", "lo 0 local=off crc=off"];
/// A payload that is copied with its frame, and one that is not.
const LENGTHS: [usize; 2] = [64, 100_000];

/// A mapping that is never unmapped.
#[derive(Clone, Copy)]
struct Mapped(*mut libc::c_void);

impl Mapped {
    fn anonymous() -> Self {
        let (none, private) = (std::ptr::null_mut(), MapFlags::PRIVATE);
        // SAFETY: a new mapping, to which no other pointer exists.
        let start = unsafe { mmap_anonymous(none, PAGES * PAGE, both(), private) };
        Self(start.unwrap())
    }

    /// Maps a new file, which is as long as the mapping.
    fn file(kind: MapFlags) -> (Self, File) {
        // Not a `memfd`, whose mappings other tests count.
        static FILES: AtomicUsize = AtomicUsize::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("mapped-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true);
        let file = options.open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.set_len((PAGES * PAGE) as u64).unwrap();
        // SAFETY: a new mapping, to which no other pointer exists.
        let start = unsafe { mmap(std::ptr::null_mut(), PAGES * PAGE, both(), kind, &file, 0) };
        (Self(start.unwrap()), file)
    }

    fn protect(self, page: usize, rights: MprotectFlags) {
        // SAFETY: the page is within the mapping, and nothing refers to it.
        unsafe { mprotect(self.0.byte_add(page * PAGE), PAGE, rights) }.unwrap();
    }

    fn request(self, access: Access) -> RegisterMr {
        RegisterMr {
            addr: self.0.expose_provenance() as u64,
            len: (PAGES * PAGE) as u64,
            access,
            iova: None,
        }
    }

    fn register(self, node: &Node) -> Region {
        let request = self.request(ALL_RIGHTS);
        let mr = node.rnic.register_mr(&node.pd, &request).unwrap();
        let keys = node.rnic.mr_keys(&mr);
        Region {
            _mr: mr,
            keys,
            addr: request.addr,
        }
    }
}

fn both() -> ProtFlags {
    ProtFlags::READ | ProtFlags::WRITE
}

/// A registered mapping.
struct Region {
    _mr: SoftMr,
    keys: MrKeys,
    addr: u64,
}

impl Region {
    /// A range after the first page.
    fn sge(&self, len: usize) -> Sge {
        Sge {
            addr: self.addr + 2 * PAGE as u64,
            len: len as u32,
            lkey: self.keys.lkey,
        }
    }

    fn remote(&self, len: usize) -> RemoteRange {
        RemoteRange {
            addr: self.sge(len).addr,
            len: len as u32,
            rkey: self.keys.rkey,
        }
    }
}

#[test]
fn memory_without_the_right_that_is_granted_is_not_registered() {
    let node = Node::new("lo 0");
    let register = |mapped: Mapped, access| {
        let registered = node.rnic.register_mr(&node.pd, &mapped.request(access));
        match registered {
            Ok(_) => true,
            Err(RnicError::InvalidArgument(_)) => false,
            Err(other) => panic!("{other:?}"),
        }
    };
    let mapped = Mapped::anonymous();
    assert!(register(mapped, ALL_RIGHTS) && register(mapped, READ_ONLY));
    mapped.protect(7, MprotectFlags::READ);
    assert!(!register(mapped, ALL_RIGHTS) && register(mapped, READ_ONLY));
    mapped.protect(7, MprotectFlags::WRITE);
    assert!(register(mapped, ALL_RIGHTS));
    mapped.protect(7, MprotectFlags::empty());
    assert!(!register(mapped, ALL_RIGHTS) && !register(mapped, READ_ONLY));
}

#[test]
fn a_peer_reads_read_only_memory_and_cannot_write_to_it() {
    for params in ADAPTERS {
        let (a, b) = (Node::new(params), Node::new(params));
        let (client, server) = connected(&a, &b);
        let mapped = Mapped::anonymous();
        mapped.protect(2, MprotectFlags::READ);
        let mr = b.rnic.register_mr(&b.pd, &mapped.request(READ_ONLY));
        let mr = mr.unwrap();
        let keys = b.rnic.mr_keys(&mr);
        let addr = mapped.request(READ_ONLY).addr;
        let region = Region {
            _mr: mr,
            keys,
            addr,
        };
        let local = a.memory(64);
        client.read(1, region.remote(64), &[local.sge(0, 64)]);
        client.expect_sent(1);
        client.write(2, region.remote(64), &[local.sge(0, 64)]);
        server.expect_end(params);
        client.expect_end(params);
    }
}

/// A registration keeps no page: after the program has discarded pages, an operation uses the new
/// ones. A device would use the pages that it has pinned.
#[test]
fn operations_use_the_pages_that_are_mapped_at_that_time() {
    for params in ADAPTERS {
        let (a, b) = (Node::new(params), Node::new(params));
        let (client, server) = connected(&a, &b);
        let mapped = Mapped::anonymous();
        // SAFETY: the pages are the test's, and nothing refers to them.
        unsafe { rustix::mm::mlock(mapped.0, PAGES * PAGE).unwrap() };
        let region = mapped.register(&b);
        // SAFETY: as above.
        unsafe { rustix::mm::munlock(mapped.0, PAGES * PAGE).unwrap() };
        let local = a.memory(128);
        local.fill(3);
        for _ in 0..2 {
            client.write(1, region.remote(64), &[local.sge(0, 64)]);
            client.expect_sent(1);
            client.read(2, region.remote(64), &[local.sge(64, 64)]);
            client.expect_sent(2);
            assert_eq!(local.copy(0, 64), local.copy(64, 64), "{params}");
            // SAFETY: as above.
            unsafe { madvise(mapped.0, PAGES * PAGE, Advice::LinuxDontNeed) }.unwrap();
        }
        client.read(3, region.remote(64), &[local.sge(64, 64)]);
        client.expect_sent(3);
        assert_eq!(local.copy(64, 64), [0; 64], "{params}");
        drop(server);
    }
}

/// An operation on the memory of a truncated file.
#[derive(Debug, Clone, Copy)]
enum Step {
    Send,
    Receive,
    WriteFrom,
    WriteTo,
    ReadFrom,
    ReadTo,
    Atomic,
    AtomicResult,
}

const STEPS: [Step; 8] = [
    Step::Send,
    Step::Receive,
    Step::WriteFrom,
    Step::WriteTo,
    Step::ReadFrom,
    Step::ReadTo,
    Step::Atomic,
    Step::AtomicResult,
];

/// Carries out an operation whose memory at one end is beyond the end of its file.
fn expect_failure(params: &str, kind: MapFlags, step: Step, len: usize) {
    let name = format!("{params} {step:?} {len}");
    let (a, b) = (Node::new(params), Node::new(params));
    let (client, server) = connected(&a, &b);
    if params == ADAPTERS[0] {
        move_on(&client, &server);
    }
    let (mapped, file) = Mapped::file(kind);
    let (ours, theirs) = (mapped.register(&a), mapped.register(&b));
    let (here, there) = (a.memory(len), b.memory(len));
    file.set_len(PAGE as u64).unwrap();
    let sge = [ours.sge(len)];
    let whole = [here.sge(0, len)];
    let add = |to| SendOp::FetchAdd(to, 1);
    match step {
        Step::Send => {
            server.recv(1, &[there.sge(0, len)]);
            client.send(1, &sge);
        }
        Step::Receive => {
            server.recv(1, &[theirs.sge(len)]);
            client.send(1, &whole);
            let failed = server.received();
            assert_eq!(failed.status, WcStatus::LocalProtection, "{name}");
        }
        Step::WriteFrom => client.write(1, there.remote(0, len), &sge),
        Step::WriteTo => client.write(1, theirs.remote(len), &whole),
        Step::ReadFrom => client.read(1, theirs.remote(len), &whole),
        Step::ReadTo => client.read(1, there.remote(0, len), &sge),
        Step::Atomic => client.post(1, add(theirs.remote(8)), &[here.sge(0, 8)]),
        Step::AtomicResult => client.post(1, add(there.remote(0, 8)), &[ours.sge(8)]),
    }
    let sent = client.sent();
    match step {
        // iWARP has no answer to a Send or a Write.
        Step::Receive | Step::WriteTo => {}
        _ => assert_ne!(sent.status, WcStatus::Success, "{name}"),
    }
    client.expect_end(&name);
    server.expect_end(&name);
}

#[test]
fn operations_fail_on_memory_of_a_file_that_was_truncated() {
    for params in ADAPTERS {
        for step in STEPS {
            for len in LENGTHS {
                expect_failure(params, MapFlags::SHARED, step, len);
            }
            expect_failure(params, MapFlags::PRIVATE, step, LENGTHS[0]);
        }
    }
}
