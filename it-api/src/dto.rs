//! Data transfer. Each call finds its handles without a lock, and allocates nothing for up to
//! [`INLINE`] segments.

use std::mem::MaybeUninit;

use dat_abi::*;

use crate::abi::*;
use crate::flags;
use crate::handle::{self, Kind};
use crate::lmr;
use crate::rmr;
use crate::srq::{Srq, count};
use crate::status::*;

/// The number of segments whose list is on the stack.
const INLINE: usize = 16;

/// More segments than any adapter takes. A longer list is refused before it is read.
const MOST: usize = 1 << 12;

/// The DAT handle of an endpoint.
fn endpoint(ep: Handle) -> Outcome<DatEpHandle> {
    Ok(handle::of_kind(ep, Kind::Ep).ok_or(INVALID_EP)?.dat())
}

/// A list of segments for DAT.
struct List {
    inline: [MaybeUninit<DatLmrTriplet>; INLINE],
    longer: Vec<DatLmrTriplet>,
    count: usize,
    /// The length of all segments.
    total: DatSegLength,
}

impl List {
    fn read(segments: In<Triplet>, count: usize) -> Outcome<Self> {
        if count > MOST {
            return Err(INVALID_NUM_SEGMENTS);
        }
        let mut list = Self {
            inline: [const { MaybeUninit::uninit() }; INLINE],
            longer: Vec::new(),
            count,
            total: 0,
        };
        for index in 0..count {
            let segment = triplet(&segments.read_at(index)?)?;
            let total = list.total.checked_add(segment.segment_length);
            list.total = total.ok_or(INVALID_LENGTH)?;
            match list.inline.get_mut(index) {
                Some(place) if count <= INLINE => {
                    place.write(segment);
                }
                _ => list.longer.push(segment),
            }
        }
        Ok(list)
    }

    /// The number of segments, and the pointer to the first.
    fn as_dat(&mut self) -> Outcome<(DatCount, *mut DatLmrTriplet)> {
        let first = match self.longer.is_empty() {
            true => self.inline.as_mut_ptr().cast(),
            false => self.longer.as_mut_ptr(),
        };
        Ok((count(self.count, INVALID_NUM_SEGMENTS)?, first))
    }
}

fn triplet(segment: &Triplet) -> Outcome<DatLmrTriplet> {
    Ok(DatLmrTriplet {
        virtual_address: segment.address,
        segment_length: DatSegLength::try_from(segment.length).map_err(|_| INVALID_LENGTH)?,
        lmr_context: match segment.length {
            0 => 0,
            _ => lmr::context(segment.region)?,
        },
    })
}

/// A remote context, of which DAT has 32 bits.
fn remote_context(context: u64) -> Outcome<DatRmrContext> {
    DatRmrContext::try_from(context).map_err(|_| RANGE)
}

fn remote(address: u64, length: DatSegLength, context: u64) -> Outcome<DatRmrTriplet> {
    Ok(DatRmrTriplet {
        virtual_address: address,
        segment_length: length,
        rmr_context: remote_context(context)?,
    })
}

/// The statuses of a refused post.
fn posted(outcome: Outcome) -> Outcome {
    outcome
        .map_err(argument(INVALID_NUM_SEGMENTS))
        .map_err(instead(RESOURCES, TOO_MANY_POSTS))
        .map_err(instead(INVALID_EVD_STATE, INVALID_EP_STATE))
}

#[unsafe(no_mangle)]
extern "C" fn it_post_send(
    ep: Handle,
    segments: In<Triplet>,
    count: usize,
    cookie: u64,
    flags: u32,
) -> Status {
    answer(|| {
        let ep = endpoint(ep)?;
        let flags = flags::of_request(flags)?;
        let mut list = List::read(segments, count)?;
        let (count, first) = list.as_dat()?;
        let cookie = DatContext::from_u64(cookie);
        posted(call!(dat_ep_post_send(ep, count, first, cookie, flags)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_post_send_and_unlink(
    ep: Handle,
    segments: In<Triplet>,
    count: usize,
    cookie: u64,
    flags: u32,
    rmr_context: u64,
) -> Status {
    answer(|| {
        let ep = endpoint(ep)?;
        let flags = flags::of_request(flags)?;
        let context = remote_context(rmr_context)?;
        let mut list = List::read(segments, count)?;
        let (count, first) = list.as_dat()?;
        posted(call!(optional dat_ep_post_send_with_invalidate(
            ep,
            count,
            first,
            DatContext::from_u64(cookie),
            flags,
            DAT_TRUE,
            context,
        )))
    })
}

/// Posts a receive to an endpoint or to a shared receive queue.
#[unsafe(no_mangle)]
extern "C" fn it_post_recv(
    queue: Handle,
    segments: In<Triplet>,
    count: usize,
    cookie: u64,
    flags: u32,
) -> Status {
    answer(|| {
        flags::check(flags)?;
        let cookie = DatContext::from_u64(cookie);
        if let Ok(srq) = handle::slot::<Srq>(queue) {
            let mut list = List::read(segments, count)?;
            let (count, first) = list.as_dat()?;
            return posted(call!(dat_srq_post_recv(srq.dat(), count, first, cookie)));
        }
        let ep = endpoint(queue)?;
        let mut list = List::read(segments, count)?;
        let (count, first) = list.as_dat()?;
        let flags = DAT_COMPLETION_DEFAULT_FLAG;
        posted(call!(dat_ep_post_recv(ep, count, first, cookie, flags)))
            .map_err(instead(SRQ_BUSY, INVALID_EP_STATE))
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_post_rdma_write(
    ep: Handle,
    segments: In<Triplet>,
    count: usize,
    cookie: u64,
    flags: u32,
    rdma_addr: u64,
    rmr_context: u64,
) -> Status {
    answer(|| {
        let ep = endpoint(ep)?;
        let flags = flags::of_request(flags)?;
        let mut list = List::read(segments, count)?;
        let remote = remote(rdma_addr, list.total, rmr_context)?;
        let (count, first) = list.as_dat()?;
        posted(call!(dat_ep_post_rdma_write(
            ep,
            count,
            first,
            DatContext::from_u64(cookie),
            &raw const remote,
            flags,
        )))
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_post_rdma_read(
    ep: Handle,
    segments: In<Triplet>,
    count: usize,
    cookie: u64,
    flags: u32,
    rdma_addr: u64,
    rmr_context: u64,
) -> Status {
    answer(|| {
        let ep = endpoint(ep)?;
        let flags = flags::of_request(flags)?;
        let mut list = List::read(segments, count)?;
        let remote = remote(rdma_addr, list.total, rmr_context)?;
        let (count, first) = list.as_dat()?;
        posted(call!(dat_ep_post_rdma_read(
            ep,
            count,
            first,
            DatContext::from_u64(cookie),
            &raw const remote,
            flags,
        )))
    })
}

/// DAT reads into one window.
#[unsafe(no_mangle)]
extern "C" fn it_post_rdma_read_to_rmr(
    ep: Handle,
    segments: In<Triplet>,
    count: usize,
    cookie: u64,
    flags: u32,
    rdma_addr: u64,
    rmr_context: u64,
) -> Status {
    answer(|| {
        let ep = endpoint(ep)?;
        let flags = flags::of_request(flags)?;
        if count != 1 {
            return Err(INVALID_NUM_SEGMENTS);
        }
        let segment = segments.read()?;
        let length = DatSegLength::try_from(segment.length).map_err(|_| INVALID_LENGTH)?;
        let local = remote(segment.address, length, rmr::context(segment.region)?)?;
        let remote = remote(rdma_addr, length, rmr_context)?;
        posted(call!(optional dat_ep_post_rdma_read_to_rmr(
            ep,
            &raw const local,
            DatContext::from_u64(cookie),
            &raw const remote,
            flags,
        )))
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_post_atomic(
    ep: Handle,
    operation: u32,
    swap_or_add: u64,
    compare: u64,
    result: In<Triplet>,
    cookie: u64,
    flags: u32,
    rdma_addr: u64,
    rmr_context: u64,
) -> Status {
    const COMPARE_AND_SWAP: u32 = 0;
    const FETCH_AND_ADD: u32 = 1;
    const LENGTH: DatSegLength = 8;
    answer(|| {
        let ep = endpoint(ep)?;
        let flags = flags::of_request(flags)?;
        let local = triplet(&result.read()?)?;
        let remote = remote(rdma_addr, LENGTH, rmr_context)?;
        let [local, remote] = [(&raw const local).cast::<()>(), (&raw const remote).cast()];
        posted(match operation {
            COMPARE_AND_SWAP => call!(dat_extension_op(
                ep,
                DAT_IB_CMP_AND_SWAP_OP,
                compare,
                swap_or_add,
                local,
                cookie,
                remote,
                flags,
            )),
            FETCH_AND_ADD => call!(dat_extension_op(
                ep,
                DAT_IB_FETCH_AND_ADD_OP,
                swap_or_add,
                local,
                cookie,
                remote,
                flags,
            )),
            _ => return Err(INVALID_ATOMIC_OP),
        })
    })
}
