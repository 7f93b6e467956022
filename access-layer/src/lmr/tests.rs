use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use dat_abi::*;

use crate::harness::{Dat, SUCCESS, call, refused, succeed};

struct Request {
    mem_type: DatMemType,
    len: u64,
    privileges: DatMemPrivFlags,
    va_type: DatVaType,
    addr: usize,
}

const GOOD: Request = Request {
    mem_type: DAT_MEM_TYPE_VIRTUAL,
    len: 0x1000,
    privileges: DAT_MEM_PRIV_ALL_FLAG,
    va_type: DAT_VA_TYPE_VA,
    addr: 0x10_0000,
};

fn create(dat: &Dat, pz: DatPzHandle, request: &Request) -> (u32, DatLmrHandle) {
    let mut lmr = ptr::null_mut();
    let region = DatRegionDescription {
        for_va: ptr::without_provenance_mut(request.addr),
    };
    let (mut keys, mut size, mut address) = ([0_u32; 2], 0_u64, 0_u64);
    let (out, bytes, place) = (&raw mut lmr, &raw mut size, &raw mut address);
    let [local, remote] = keys.each_mut().map(ptr::from_mut);
    let Request {
        mem_type: kind,
        len,
        privileges: rights,
        va_type: va,
        ..
    } = *request;
    let code = call!(
        dat, lmr_create, dat.ia, kind, region, len, pz, rights, va, out, local, remote, bytes,
        place
    );
    if code == SUCCESS {
        assert!(address <= request.addr as u64);
        assert!(address + size >= request.addr as u64 + request.len);
        assert!(keys[0] != 0 && keys[1] != 0);
    } else {
        assert_eq!((lmr.is_null(), keys, size, address), (true, [0, 0], 0, 0));
    }
    (code, lmr)
}

#[test]
fn memory_is_registered_untouched_and_query_returns_the_arguments() {
    let dat = Dat::open();
    let pz = dat.pz();
    // The address is not mapped, because no code may access it.
    let (code, lmr) = create(&dat, pz, &GOOD);
    assert_eq!(code, SUCCESS);
    let mut param = DatLmrParam::zeroed();
    succeed!(dat, lmr_query, lmr, DAT_LMR_FIELD_ALL, &raw mut param);
    // SAFETY: the memory type selects this member.
    assert_eq!(unsafe { param.region_desc.for_va }.addr(), GOOD.addr);
    assert_eq!((param.length, param.mem_priv), (0x1000, 0x33));
    assert_eq!((param.ia_handle, param.pz_handle), (dat.ia, pz));
    refused!(dat, lmr_query, lmr, DAT_LMR_FIELD_ALL, ptr::null_mut() => 0x8006_0027);
    refused!(dat, lmr_query, lmr, 0x800, &raw mut param => 0x8006_0026);
    succeed!(dat, lmr_free, lmr);
    assert_eq!(call!(dat, lmr_free, lmr), 0x8005_000D);
}

#[test]
fn memory_that_cannot_be_registered_is_refused() {
    let dat = Dat::open();
    let pz = dat.pz();
    let code = |request: Request| create(&dat, pz, &request).0;
    let nothing = Request {
        len: 0,
        addr: 0,
        ..GOOD
    };
    assert_eq!(code(nothing), 0x8008_0000);
    let refused = |change: fn(&mut Request)| {
        let mut request = GOOD;
        change(&mut request);
        code(request)
    };
    assert_eq!(refused(|request| request.len = u64::MAX), 0x8008_0000);
    assert_eq!(refused(|request| request.mem_type = 3), 0x8006_0026);
    assert_eq!(refused(|request| request.privileges = 0x80), 0x8006_002A);
    assert_eq!(refused(|request| request.va_type = 2), 0x8006_002B);
    let region = DatRegionDescription::zeroed();
    let none = ptr::null_mut::<u32>();
    let none64 = ptr::null_mut::<u64>();
    let out = ptr::null_mut();
    let code = call!(
        dat, lmr_create, dat.ia, 0, region, 8, pz, 0, 0, out, none, none, none64, none64
    );
    assert_eq!(code, 0x8006_002B);
}

#[test]
fn an_empty_region_at_an_address_is_valid() {
    let dat = Dat::open();
    let pz = dat.pz();
    let (code, lmr) = create(&dat, pz, &Request { len: 0, ..GOOD });
    assert_eq!(code, SUCCESS);
    succeed!(dat, lmr_free, lmr);
}

/// The zone would prevent its IA from closing while the region of the other IA exists.
#[test]
fn protection_zone_of_another_ia_is_refused() {
    let (dat, other) = (Dat::open(), Dat::open());
    assert_eq!(create(&dat, other.pz(), &GOOD).0, 0x8005_000F);
}

#[test]
fn unwanted_results_may_be_omitted() {
    let dat = Dat::open();
    let pz = dat.pz();
    let memory: Vec<AtomicU8> = (0..16).map(AtomicU8::new).collect();
    assert!(dat.lmr(pz, &memory).lmr_context != 0);
}

#[test]
fn a_zone_with_regions_is_not_freed() {
    let dat = Dat::open();
    let pz = dat.pz();
    let (_, lmr) = create(&dat, pz, &GOOD);
    assert_eq!(call!(dat, pz_free, pz), 0x8007_0053);
    succeed!(dat, lmr_free, lmr);
    let mut param = DatPzParam::zeroed();
    succeed!(dat, pz_query, pz, DAT_PZ_FIELD_ALL, &raw mut param);
    assert_eq!(param.ia_handle, dat.ia);
    assert_eq!(call!(dat, pz_query, pz, 2, &raw mut param), 0x8006_0026);
    assert_eq!(call!(dat, pz_query, pz, 1, ptr::null_mut()), 0x8006_0027);
    assert_eq!(call!(dat, pz_create, dat.ia, ptr::null_mut()), 0x8006_0026);
    succeed!(dat, pz_free, pz);
    assert_eq!(call!(dat, pz_free, pz), 0x8005_000F);
    assert_eq!(create(&dat, pz, &GOOD).0, 0x8005_000F);
}

#[test]
fn synchronising_memory_checks_its_arguments_and_does_nothing() {
    let dat = Dat::open();
    let (ia, none) = (dat.ia, ptr::null());
    let segments = [DatLmrTriplet::zeroed(); 2];
    let some = segments.as_ptr();
    for (segments, count, code) in [
        (none, 0, SUCCESS),
        (some, 2, SUCCESS),
        (none, 1, 0x8006_0026),
        (some, u64::MAX, 0x8006_0027),
    ] {
        assert_eq!(call!(dat, lmr_sync_rdma_read, ia, segments, count), code);
        assert_eq!(call!(dat, lmr_sync_rdma_write, ia, segments, count), code);
    }
}

/// Calls `dat_lmr_create` with a description of any kind, and returns the result of a query.
fn create_of(
    dat: &Dat,
    pz: DatPzHandle,
    mem_type: DatMemType,
    region: DatRegionDescription,
    len: u64,
) -> Result<DatLmrParam, u32> {
    let (mut lmr, mut param) = (ptr::null_mut(), DatLmrParam::zeroed());
    let (key, place) = (ptr::null_mut(), ptr::null_mut());
    let (read, zb) = (DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_ZB);
    let (kind, out) = (mem_type, &raw mut lmr);
    let code = call!(
        dat, lmr_create, dat.ia, kind, region, len, pz, read, zb, out, key, key, place, place
    );
    if code != SUCCESS {
        return Err(code);
    }
    let all = DAT_LMR_FIELD_ALL;
    succeed!(dat, lmr_query, lmr, all, &raw mut param);
    Ok(param)
}

#[test]
fn a_region_of_a_region_has_own_rights_and_keys() {
    let dat = Dat::open();
    let (pz, other_pz) = (dat.pz(), dat.pz());
    let (_, parent) = create(&dat, pz, &GOOD);
    let region = DatRegionDescription {
        for_lmr_handle: parent,
    };
    let of = |region, len| create_of(&dat, other_pz, DAT_MEM_TYPE_LMR, region, len);
    let whole = of(region, 0).unwrap();
    assert_eq!(whole.registered_address, GOOD.addr as u64);
    assert_eq!(whole.registered_size, GOOD.len);
    assert_eq!(whole.mem_type, DAT_MEM_TYPE_LMR);
    assert_eq!(whole.mem_priv, DAT_MEM_PRIV_REMOTE_READ_FLAG);
    assert_eq!(whole.pz_handle, other_pz);
    // SAFETY: the memory type selects this member.
    assert_eq!(unsafe { whole.region_desc.for_lmr_handle }, parent);
    let part = of(region, 0x10).unwrap();
    assert_eq!(part.registered_size, 0x10);
    assert_ne!(part.rmr_context, whole.rmr_context);
    assert_eq!(of(region, GOOD.len + 1).unwrap_err(), 0x8008_0000);
    succeed!(dat, lmr_free, parent);
    assert_eq!(of(region, 0).unwrap_err(), 0x8005_000D);
    let elsewhere = Dat::open();
    let (_, foreign) = create(&elsewhere, elsewhere.pz(), &GOOD);
    let region = DatRegionDescription {
        for_lmr_handle: foreign,
    };
    assert_eq!(of(region, 0).unwrap_err(), 0x8005_000D);
}

#[test]
fn shared_memory_is_registered_under_its_identifier() {
    let dat = Dat::open();
    let pz = dat.pz();
    let mut id = [7; DAT_LMR_COOKIE_SIZE];
    let region = |id: *mut _| DatRegionDescription {
        for_shared_memory: DatSharedMemory {
            virtual_address: ptr::without_provenance_mut(GOOD.addr),
            shared_memory_id: id,
        },
    };
    let of = |region| create_of(&dat, pz, DAT_MEM_TYPE_SHARED_VIRTUAL, region, GOOD.len);
    let first = of(region((&raw mut id).cast())).unwrap();
    let second = of(region((&raw mut id).cast())).unwrap();
    assert_eq!(first.registered_address, GOOD.addr as u64);
    assert_ne!(first.rmr_context, second.rmr_context);
    assert_eq!(of(region(ptr::null_mut())).unwrap_err(), 0x8006_0027);
}

#[test]
fn a_region_is_deregistered_when_its_free_returns_although_another_call_uses_it() {
    type Region = super::Lmr<crate::fake_rnic::FakeRnic>;
    let dat = Dat::open();
    let (code, lmr) = create(&dat, dat.pz(), &GOOD);
    assert_eq!(code, SUCCESS);
    // The call of another thread.
    let used = dat.pin::<Region>(lmr);
    let region = Arc::downgrade(&used.to_arc());
    let (free, handle) = (dat.provider.lmr_free, lmr.expose_provenance());
    std::thread::scope(|scope| {
        let freeing = scope.spawn(|| {
            let lmr = ptr::with_exposed_provenance_mut(handle);
            // SAFETY: any word may be passed as a handle.
            let code = unsafe { free.unwrap()(lmr) };
            (code.0, region.strong_count())
        });
        while crate::handle::pin::<Region>(lmr).is_some() {
            std::thread::yield_now();
        }
        // A free that does not wait returns within this time.
        for _ in 0..100 {
            if freeing.is_finished() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        drop(used);
        assert_eq!(freeing.join().unwrap(), (SUCCESS, 0));
    });
}
