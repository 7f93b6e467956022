//! The ring of records that two processes of one host share: [`contents`] and [`sequence`].

use std::os::fd::OwnedFd;
use std::sync::Arc;

use self::record::{Body, PIECES_MAX, Record};
use self::ring::{Consumer, Producer};
use self::segment::{Direction, Half, RING_LEN_MIN, SharedSegment};

pub mod contents;
// The provider's own files. They are included by their paths, because a feature that exports them
// would make their items public, and the compiler would no longer report unused ones.
#[allow(dead_code, reason = "the bodies use a part")]
#[path = "../../../../provider-iwarp-soft/src/carrier/local/record.rs"]
mod record;
#[allow(dead_code, unused_imports, reason = "the bodies use a part")]
#[path = "../../../../provider-iwarp-soft/src/carrier/local/ring.rs"]
mod ring;
#[allow(dead_code, reason = "the bodies use a part")]
#[path = "../../../../provider-iwarp-soft/src/carrier/local/segment.rs"]
mod segment;
pub mod sequence;

/// Bytes of the ring.
const RING_LEN: usize = RING_LEN_MIN;

/// A direction of a segment, with a producer, a consumer, and direct access for the test.
struct Ring {
    half: Half,
    producer: Producer,
    consumer: Consumer,
    fd: OwnedFd,
}

impl Ring {
    fn new() -> Self {
        let (segment, fd) = SharedSegment::create(RING_LEN).expect("a memfd");
        let half = Arc::new(segment).half(Direction::FromCreator);
        Self {
            producer: Producer::new(half.clone()),
            consumer: Consumer::new(half.clone()),
            half,
            fd,
        }
    }

    /// The number of units of 512 bytes that the segment occupies.
    fn blocks(&self) -> i64 {
        rustix::fs::fstat(&self.fd).expect("a memfd").st_blocks
    }

    /// Checks that every byte of a record is within the data area, and returns the payload.
    fn check(&self, record: &Record) -> Vec<u8> {
        assert!(record.header().len() <= iwarp_proto::HEADER_MAX);
        match record.body {
            Body::None => Vec::new(),
            Body::Inline { ptr, len } => {
                let area = self.half.bytes(0, RING_LEN).addr();
                assert!(ptr.addr() > area && len <= RING_LEN);
                assert!(ptr.addr() + len <= area + RING_LEN);
                let mut payload = vec![0; len];
                // SAFETY: the assertions above show that the bytes are within the area, which is
                // mapped. The vector has the same length.
                unsafe { std::ptr::copy_nonoverlapping(ptr, payload.as_mut_ptr(), len) };
                payload
            }
            Body::Reference { total } => {
                let pieces = self.consumer.pieces();
                assert!((1..=PIECES_MAX).contains(&pieces.len()));
                let len: u64 = pieces.iter().map(|piece| u64::from(piece.len)).sum();
                assert_eq!(len, u64::from(total));
                Vec::new()
            }
        }
    }
}
