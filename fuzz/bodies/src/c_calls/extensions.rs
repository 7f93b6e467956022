//! Operations of the extensions, and calls that name no object.

use std::ptr::{self, null_mut};

use dat_api::abi::*;

use crate::input::Input;

use super::{
    memory,
    objects::Scratch,
    world::{Backend, Kind, World},
};

impl World {
    pub(super) fn create_ssp(&mut self, input: &mut Input<'_>) {
        let ia = self.handle(Kind::Ia, input);
        let socket = self.socket(input);
        let (ep, evd) = (self.handle(Kind::Ep, input), self.handle(Kind::Evd, input));
        let (message, len) = self.private_data(input);
        // The library cannot detect that a message is longer than its memory, so the length is
        // limited here.
        let (message, len) = (message.cast_mut(), len.min(4096));
        // SAFETY: the operation takes these arguments; the message is as long as any legal one.
        self.create(Kind::Ssp, input, |library, out| unsafe {
            (library.dat_extension_op)(ia, DAT_IW_SSP_CREATE_OP, socket, ep, evd, message, len, out)
        });
    }

    pub(super) fn connect_socket(&mut self, input: &mut Input<'_>) {
        let ep = self.handle(Kind::Ep, input);
        let socket = self.socket(input);
        let timeout = self.timeout_us(input);
        let (data, len) = self.private_data(input);
        // SAFETY: the operation takes these arguments; private data as in `connect`.
        let answer = unsafe {
            let op = DAT_IW_SOCKET_CONNECT_OP;
            (self.library.dat_extension_op)(ep, op, socket, timeout, len, data)
        };
        self.check(answer);
    }

    pub(super) fn extension(&mut self, input: &mut Input<'_>) {
        let handle = self.handle(Kind::Ep, input);
        let op = input.pick(&[0, -1, 1, 0x3FF, 0x4FF, DAT_IW_SSP_FREE_OP, i32::MAX]);
        let none = 0_u64;
        // SAFETY: no operation of these numbers takes more arguments than there are, and each
        // takes null, 0 or descriptor 0 for any of them.
        let answer = unsafe {
            (self.library.dat_extension_op)(handle, op, none, none, none, none, none, none, none)
        };
        if self.check(answer) {
            self.forget(handle);
        }
    }

    pub(super) fn post_atomic(&mut self, input: &mut Input<'_>) {
        let remote = self.remote(input);
        let (first, second) = (input.long(), input.long());
        let swap = input.byte() & 1 == 1;
        self.post(input, |library, ep, (list, _), cookie, flags, null| {
            let remote = if null { ptr::null() } else { &raw const remote };
            let (call, cookie) = (library.dat_extension_op, cookie.to_u64());
            // SAFETY: the operations take these arguments; the triplets are null or local
            // variables.
            unsafe {
                if swap {
                    let op = DAT_IB_CMP_AND_SWAP_OP;
                    call(ep, op, first, second, list, cookie, remote, flags)
                } else {
                    call(
                        ep,
                        DAT_IB_FETCH_AND_ADD_OP,
                        first,
                        list,
                        cookie,
                        remote,
                        flags,
                    )
                }
            }
        });
    }

    pub(super) fn post_write_immediate(&mut self, input: &mut Input<'_>) {
        let (remote, immediate) = (self.remote(input), input.word());
        self.post(input, |library, ep, (list, count), cookie, flags, null| {
            let remote = if null { ptr::null() } else { &raw const remote };
            let (op, cookie) = (DAT_IB_RDMA_WRITE_IMMED_OP, cookie.to_u64());
            // SAFETY: the operation takes these arguments; list and triplet as `post` says.
            unsafe {
                let call = library.dat_extension_op;
                call(ep, op, count, list, cookie, remote, immediate, flags)
            }
        });
    }

    pub(super) fn counters(&mut self, input: &mut Input<'_>) {
        let kind = input.pick(&[Kind::Ep, Kind::Ia, Kind::Evd, Kind::Pz]);
        let handle = self.handle(kind, input);
        let counter = match input.byte() {
            0xFF => -1,
            0xFE => i32::MAX,
            counter => i32::from(counter),
        };
        let mut values = Scratch::new();
        // SAFETY: the operation takes these arguments; the buffer is longer than all counters.
        let answer = unsafe {
            let (op, call) = (DAT_IB_QUERY_COUNTERS_OP, self.library.dat_extension_op);
            call(
                handle,
                op,
                counter,
                values.out::<u64>(),
                i32::from(input.byte() & 1),
            )
        };
        self.check(answer);
    }

    pub(super) fn list_providers(&mut self, input: &mut Input<'_>) {
        let (mut count, mut info) = (0, DatProviderInfo::zeroed());
        let mut list = [&raw mut info, null_mut()];
        let max = input.pick(&[1, 0, 2, -1, i32::MIN]);
        // SAFETY: the list has two places, which are null or a local structure.
        let answer = unsafe {
            let call = self.library.dat_registry_list_providers;
            call(max, &mut count, list.as_mut_ptr())
        };
        self.check(answer);
    }

    pub(super) fn name_error(&mut self, input: &mut Input<'_>) {
        let (mut major, mut minor) = (ptr::null(), ptr::null());
        let code = DatReturn(input.word());
        // SAFETY: local out-variables.
        let answer = unsafe { (self.library.dat_strerror)(code, &mut major, &mut minor) };
        if self.check(answer) {
            assert!(!major.is_null() && !minor.is_null());
        }
    }

    /// Makes timeouts expire, if the program controls time.
    pub(super) fn pass_time(&mut self, _: &mut Input<'_>) {
        if self.backend == Backend::Memory {
            memory::expire_timeouts();
        }
    }
}
