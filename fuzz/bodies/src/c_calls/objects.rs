//! Calls that make, query, change and free objects.

use std::ptr::{self, null_mut};

use dat_api::abi::*;

use crate::input::Input;

use super::{
    calls::{Calls, idle_agent},
    world::{Kind, World, arena},
};

/// The result of a call that the library does not have.
pub(super) const MISSING: DatReturn = DatReturn::error(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);

/// A buffer with the longest parameter structure of any query, and the alignment of all.
#[repr(C, align(16))]
pub(super) struct Scratch([u8; 4096]);

impl Scratch {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self([0; 4096]))
    }

    pub(super) fn out<T>(&mut self) -> *mut T {
        const { assert!(size_of::<T>() <= 4096) };
        self.0.as_mut_ptr().cast()
    }
}

impl World {
    pub(super) fn open_ia_again(&mut self, _: &mut Input<'_>) {
        let open = self.objects.iter().filter(|o| o.kind == Kind::Ia && o.live);
        if open.count() < 2 && self.has_room() {
            self.open_ia();
        }
    }

    pub(super) fn close_ia(&mut self, input: &mut Input<'_>) {
        let ia = self.handle(Kind::Ia, input);
        let flags = input.pick(&[DAT_CLOSE_GRACEFUL_FLAG, DAT_CLOSE_ABRUPT_FLAG, 7]);
        // SAFETY: the handle is an integer; the library resolves it or refuses it.
        let closed = unsafe { (self.library.dat_ia_close)(ia, flags) };
        self.check(closed);
        if self.has_closed(closed) {
            self.forget(ia);
        }
    }

    pub(super) fn create_evd(&mut self, input: &mut Input<'_>) {
        let ia = self.handle(Kind::Ia, input);
        let qlen = length(input);
        let cno = if input.byte() & 1 == 0 {
            null_mut()
        } else {
            self.handle(Kind::Cno, input)
        };
        let flags = input.pick(&[
            0x70,
            DAT_EVD_DEFAULT_FLAG,
            DAT_EVD_SOFTWARE_FLAG,
            DAT_EVD_DTO_FLAG,
            DAT_EVD_CR_FLAG,
            DAT_EVD_CONNECTION_FLAG | DAT_EVD_RMR_BIND_FLAG,
            0xFFFF_FFFF,
        ]);
        // SAFETY: the out-pointer is null or a local variable, the rest are words.
        self.create(Kind::Evd, input, |library, out| unsafe {
            (library.dat_evd_create)(ia, qlen, cno, flags, out)
        });
    }

    pub(super) fn create_pz(&mut self, input: &mut Input<'_>) {
        let ia = self.handle(Kind::Ia, input);
        // SAFETY: as in `create_evd`.
        self.create(Kind::Pz, input, |library, out| unsafe {
            (library.dat_pz_create)(ia, out)
        });
    }

    pub(super) fn create_ep(&mut self, input: &mut Input<'_>) {
        self.create_endpoint(input, false);
    }

    pub(super) fn create_ep_with_srq(&mut self, input: &mut Input<'_>) {
        self.create_endpoint(input, true);
    }

    fn create_endpoint(&mut self, input: &mut Input<'_>, with_srq: bool) {
        let ia = self.handle(Kind::Ia, input);
        let pz = self.handle(Kind::Pz, input);
        let evds = [(); 3].map(|()| self.handle(Kind::Evd, input));
        let attr = endpoint_attr(input);
        let attr = attr.as_ref().map_or(ptr::null(), ptr::from_ref);
        let srq = with_srq.then(|| self.handle(Kind::Srq, input));
        // SAFETY: as in `create_evd`; the attributes are null or a local variable whose lists are
        // null.
        self.create(Kind::Ep, input, |library, out| unsafe {
            match srq {
                Some(srq) => (library.dat_ep_create_with_srq)(
                    ia, pz, evds[0], evds[1], evds[2], srq, attr, out,
                ),
                None => (library.dat_ep_create)(ia, pz, evds[0], evds[1], evds[2], attr, out),
            }
        });
    }

    pub(super) fn create_cno(&mut self, input: &mut Input<'_>) {
        let ia = self.handle(Kind::Ia, input);
        let agent = agent(input);
        let descriptor = input.byte() & 1 == 1;
        let mut fd = -1;
        // SAFETY: as in `create_evd`; the agent's function can be called at any time.
        self.create(Kind::Cno, input, |library, out| unsafe {
            match library.dat_cno_fd_create.filter(|_| descriptor) {
                Some(create) => create(ia, &mut fd, out),
                None => (library.dat_cno_create)(ia, agent, out),
            }
        });
    }

    pub(super) fn create_lmr(&mut self, input: &mut Input<'_>) {
        let ia = self.handle(Kind::Ia, input);
        let pz = self.handle(Kind::Pz, input);
        let choice = input.byte();
        let (memory, len) = self.memory(input);
        let len = if choice & 0x40 == 0 { len } else { u64::MAX };
        let mem_type = u32::from(choice & 7);
        let region = match mem_type {
            DAT_MEM_TYPE_LMR => DatRegionDescription {
                for_lmr_handle: self.handle(Kind::Lmr, input),
            },
            _ => DatRegionDescription {
                for_shared_memory: DatSharedMemory {
                    virtual_address: memory.cast(),
                    shared_memory_id: if choice & 8 == 0 {
                        arena().cast()
                    } else {
                        null_mut()
                    },
                },
            },
        };
        let privileges = input.pick(&[0x33, 0x11, 0x22, 0, 0xFFFF_FFFF]);
        let va_type = u32::from(choice >> 7);
        let (mut lmr_context, mut rmr_context) = (0, 0);
        let (mut size, mut address) = (0, 0);
        // SAFETY: as in `create_evd`. The region is payload memory, which is never freed, or has a
        // length that no memory can have. The cookie is null or 40 readable bytes of that memory.
        let created = self.create(Kind::Lmr, input, |library, out| unsafe {
            (library.dat_lmr_create)(
                ia,
                if mem_type == 0 {
                    DAT_MEM_TYPE_VIRTUAL
                } else {
                    mem_type
                },
                region,
                len,
                pz,
                privileges,
                va_type,
                out,
                &mut lmr_context,
                &mut rmr_context,
                &mut size,
                &mut address,
            )
        });
        if created {
            self.contexts.extend([rmr_context, lmr_context]);
        }
    }

    pub(super) fn create_rmr(&mut self, input: &mut Input<'_>) {
        let pz = self.handle(Kind::Pz, input);
        // SAFETY: as in `create_evd`.
        self.create(Kind::Rmr, input, |library, out| unsafe {
            (library.dat_rmr_create)(pz, out)
        });
    }

    pub(super) fn create_srq(&mut self, input: &mut Input<'_>) {
        let ia = self.handle(Kind::Ia, input);
        let pz = self.handle(Kind::Pz, input);
        let mut attr = DatSrqAttr {
            max_recv_dtos: length(input),
            max_recv_iov: length(input),
            low_watermark: length(input),
        };
        // SAFETY: as in `create_evd`; the attributes are a local variable.
        self.create(Kind::Srq, input, |library, out| unsafe {
            (library.dat_srq_create)(ia, pz, &mut attr, out)
        });
    }

    pub(super) fn create_psp(&mut self, input: &mut Input<'_>) {
        let ia = self.handle(Kind::Ia, input);
        let evd = self.handle(Kind::Evd, input);
        let qual = self.qual(input);
        let flags = input.pick(&[DAT_PSP_CONSUMER_FLAG, DAT_PSP_PROVIDER_FLAG, 9]);
        // SAFETY: as in `create_evd`.
        let created = self.create(Kind::Psp, input, |library, out| unsafe {
            (library.dat_psp_create)(ia, qual, evd, flags, out)
        });
        if created {
            self.quals.insert(qual);
        }
    }

    pub(super) fn create_psp_any(&mut self, input: &mut Input<'_>) {
        let ia = self.handle(Kind::Ia, input);
        let evd = self.handle(Kind::Evd, input);
        let mut qual = 0;
        // SAFETY: as in `create_evd`.
        let created = self.create(Kind::Psp, input, |library, out| unsafe {
            (library.dat_psp_create_any)(ia, &mut qual, evd, DAT_PSP_CONSUMER_FLAG, out)
        });
        if created {
            self.quals.insert(qual);
        }
    }

    pub(super) fn create_rsp(&mut self, input: &mut Input<'_>) {
        let ia = self.handle(Kind::Ia, input);
        let (ep, evd) = (self.handle(Kind::Ep, input), self.handle(Kind::Evd, input));
        let qual = self.qual(input);
        // SAFETY: as in `create_evd`.
        let created = self.create(Kind::Rsp, input, |library, out| unsafe {
            (library.dat_rsp_create)(ia, qual, ep, evd, out)
        });
        if created {
            self.quals.insert(qual);
        }
    }

    pub(super) fn create_rmr_for_ep(&mut self, input: &mut Input<'_>) {
        let pz = self.handle(Kind::Pz, input);
        // SAFETY: as in `create_evd`.
        self.create(Kind::Rmr, input, |library, out| unsafe {
            let create = library.dat_rmr_create_for_ep;
            create.map_or(MISSING, |create| create(pz, out))
        });
    }

    pub(super) fn create_csp(&mut self, input: &mut Input<'_>) {
        let ia = self.handle(Kind::Ia, input);
        let evd = self.handle(Kind::Evd, input);
        let mut comm = DatComm {
            domain: i32::from(input.pick(&[2_u8, 0, 10, 255])),
            r#type: i32::from(input.pick(&[1_u8, 0, 2])),
            protocol: i32::from(input.pick(&[6_u8, 0, 17])),
        };
        let qual = self.qual(input);
        let mut address = socket_address(qual);
        let null = input.byte() == 0xFF;
        let address = if null { null_mut() } else { &raw mut address };
        // SAFETY: as in `create_evd`; the address is null or that of an IPv4 socket.
        let created = self.create(Kind::Csp, input, |library, out| unsafe {
            let create = library.dat_csp_create;
            create.map_or(MISSING, |create| create(ia, &mut comm, address, evd, out))
        });
        if created {
            self.quals.insert(qual);
        }
    }

    /// Frees a handle as an object of its own kind, or of another kind.
    pub(super) fn free(&mut self, input: &mut Input<'_>) {
        let kind = input.pick(&[
            Kind::Ep,
            Kind::Evd,
            Kind::Pz,
            Kind::Lmr,
            Kind::Psp,
            Kind::Cno,
            Kind::Rmr,
            Kind::Srq,
            Kind::Rsp,
            Kind::Ssp,
            Kind::Csp,
        ]);
        let handle = self.handle(kind, input);
        let library = self.library;
        let csp_free = library.dat_csp_free;
        // SAFETY: words; the library resolves them or refuses them. Nothing points at the objects.
        let freed = unsafe {
            match kind {
                Kind::Ep => (library.dat_ep_free)(handle),
                Kind::Evd => (library.dat_evd_free)(handle),
                Kind::Pz => (library.dat_pz_free)(handle),
                Kind::Lmr => (library.dat_lmr_free)(handle),
                Kind::Psp => (library.dat_psp_free)(handle),
                Kind::Cno => (library.dat_cno_free)(handle),
                Kind::Rmr => (library.dat_rmr_free)(handle),
                Kind::Srq => (library.dat_srq_free)(handle),
                Kind::Rsp => (library.dat_rsp_free)(handle),
                Kind::Csp => csp_free.map_or(MISSING, |free| free(handle)),
                _ => (library.dat_extension_op)(handle, DAT_IW_SSP_FREE_OP),
            }
        };
        if self.check(freed) {
            self.forget(handle);
        }
    }

    pub(super) fn query(&mut self, input: &mut Input<'_>) {
        let kind = input.pick(&[
            Kind::Ep,
            Kind::Evd,
            Kind::Pz,
            Kind::Lmr,
            Kind::Psp,
            Kind::Cno,
            Kind::Rmr,
            Kind::Srq,
            Kind::Rsp,
            Kind::Ssp,
            Kind::Cr,
            Kind::Csp,
        ]);
        let handle = self.handle(kind, input);
        let mask = input.pick(&[u32::MAX, 0x7FFF_FFFF, 0xFFFF, 0xFF, 7, 1, 0]);
        let mut scratch = Scratch::new();
        let library = self.library;
        // SAFETY: words, and an out-structure that is longer than any.
        let queried = unsafe {
            match kind {
                Kind::Ep => (library.dat_ep_query)(handle, mask.into(), scratch.out()),
                Kind::Evd => (library.dat_evd_query)(handle, mask, scratch.out()),
                Kind::Pz => (library.dat_pz_query)(handle, mask, scratch.out()),
                Kind::Lmr => (library.dat_lmr_query)(handle, mask, scratch.out()),
                Kind::Psp => (library.dat_psp_query)(handle, mask, scratch.out()),
                Kind::Cno => (library.dat_cno_query)(handle, mask, scratch.out()),
                Kind::Rmr => (library.dat_rmr_query)(handle, mask, scratch.out()),
                Kind::Srq => (library.dat_srq_query)(handle, mask, scratch.out()),
                Kind::Rsp => (library.dat_rsp_query)(handle, mask, scratch.out()),
                Kind::Cr => (library.dat_cr_query)(handle, mask, scratch.out()),
                Kind::Csp => {
                    let query = library.dat_csp_query;
                    query.map_or(MISSING, |query| query(handle, mask, scratch.out()))
                }
                _ => (library.dat_extension_op)(
                    handle,
                    DAT_IW_SSP_QUERY_OP,
                    mask,
                    scratch.out::<DatIwSspParam>(),
                ),
            }
        };
        self.check(queried);
    }

    pub(super) fn query_ia(&mut self, input: &mut Input<'_>) {
        let ia = self.handle(Kind::Ia, input);
        let mut evd = null_mut();
        let (mut attr, mut provider) = (Scratch::new(), Scratch::new());
        let mask = input.pick(&[DAT_IA_FIELD_ALL, 0, u64::MAX]);
        // SAFETY: words, and out-structures that are long enough.
        let queried = unsafe {
            let provider_mask = input.pick(&[DAT_PROVIDER_FIELD_ALL, 0, u64::MAX]);
            (self.library.dat_ia_query)(
                ia,
                &mut evd,
                mask,
                attr.out(),
                provider_mask,
                provider.out(),
            )
        };
        self.check(queried);
    }

    pub(super) fn set_context(&mut self, input: &mut Input<'_>) {
        let handle = self.handle(Kind::Ep, input);
        let value = input.long();
        let mut back = DatContext::from_u64(!value);
        // SAFETY: words, and a local out-variable.
        let (set, got) = unsafe {
            (
                (self.library.dat_set_consumer_context)(handle, DatContext::from_u64(value)),
                (self.library.dat_get_consumer_context)(handle, &mut back),
            )
        };
        assert_eq!(self.check(set), self.check(got), "{set:?} but {got:?}");
        if set.is_success() {
            assert_eq!(back.to_u64(), value);
        }
    }

    pub(super) fn handle_type(&mut self, input: &mut Input<'_>) {
        let handle = self.handle(Kind::Ep, input);
        let mut found = u32::MAX;
        // SAFETY: a word, and a local out-variable.
        let answer = unsafe { (self.library.dat_get_handle_type)(handle, &mut found) };
        if self.check(answer) {
            assert!(found <= DAT_IW_HANDLE_TYPE_SSP);
        }
    }

    /// Makes a call that returns a handle; sometimes its out-pointer is null.
    pub(super) fn create(
        &mut self,
        kind: Kind,
        input: &mut Input<'_>,
        call: impl FnOnce(&Calls, *mut DatHandle) -> DatReturn,
    ) -> bool {
        if !self.has_room() {
            return false;
        }
        let mut handle = null_mut();
        let is_null = input.byte() == 0xFF;
        let out = if is_null { null_mut() } else { &raw mut handle };
        let result = call(self.library, out);
        let created = self.check(result);
        assert!(
            !(created && is_null),
            "{kind:?} created although the out-pointer is null"
        );
        if created {
            self.add(kind, handle);
        }
        created
    }
}

/// The loopback address with this port, as `struct sockaddr_in`.
pub(super) fn socket_address(qual: DatConnQual) -> DatSockAddr {
    let mut address = DatSockAddr {
        sa_family: 2,
        sa_data: [0; 14],
    };
    address.sa_data[..2].copy_from_slice(&(qual as u16).to_be_bytes());
    address.sa_data[2..6].copy_from_slice(&[127, 0, 0, 1]);
    address
}

/// Chooses lengths and depths: sensible, at limits, and absurd.
pub(super) fn length(input: &mut Input<'_>) -> DatCount {
    match input.byte() {
        0xFF => i32::MAX,
        0xFE => -1,
        0xFD => i32::MIN,
        0xFC => 65_535,
        0xFB => 65_536,
        0xFA => 16_384,
        len => i32::from(len),
    }
}

pub(super) fn agent(input: &mut Input<'_>) -> DatOsWaitProxyAgent {
    idle_agent(input.byte() & 1 == 1)
}

/// Attributes of an endpoint, or none.
pub(super) fn endpoint_attr(input: &mut Input<'_>) -> Option<DatEpAttr> {
    if input.byte() & 1 == 0 {
        return None;
    }
    let mut attr = DatEpAttr::zeroed();
    attr.service_type = u32::from(input.byte() & 1);
    attr.max_message_size = input.word();
    attr.max_rdma_size = input.word();
    attr.recv_completion_flags = u32::from(input.byte());
    attr.request_completion_flags = u32::from(input.byte());
    for field in [
        &mut attr.max_recv_dtos,
        &mut attr.max_request_dtos,
        &mut attr.max_recv_iov,
        &mut attr.max_request_iov,
        &mut attr.max_rdma_read_in,
        &mut attr.max_rdma_read_out,
        &mut attr.srq_soft_hw,
        &mut attr.max_rdma_read_iov,
        &mut attr.max_rdma_write_iov,
    ] {
        *field = length(input);
    }
    Some(attr)
}
