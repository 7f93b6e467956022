//! Calls that post, wait, connect and change.
//!
//! In the `SAFETY` comments *words* are handles and numbers: the library accepts any value, so a
//! call that takes only words has no conditions.

use std::ptr::{self, null_mut};

use dat_api::abi::*;

use crate::input::Input;

use super::{
    calls::Calls,
    objects::{MISSING, agent, endpoint_attr, length, socket_address},
    world::{Kind, World, arena},
};

impl World {
    pub(super) fn connect(&mut self, input: &mut Input<'_>) {
        let ep = self.handle(Kind::Ep, input);
        let qual = self.qual(input);
        let timeout = self.timeout_us(input);
        let (data, len) = self.private_data(input);
        let mut address = socket_address(0);
        let choice = input.byte();
        let address = match choice {
            0xFF => null_mut(),
            0xFE => {
                address.sa_family = 99;
                &raw mut address
            }
            _ => &raw mut address,
        };
        let flags = u32::from(choice & 3);
        // SAFETY: the address is null or a local variable as long as its family needs; private
        // data is null or payload memory as long as any legal length.
        let answer = unsafe {
            (self.library.dat_ep_connect)(ep, address, qual, timeout, len, data.cast(), 0, flags)
        };
        self.check(answer);
    }

    pub(super) fn common_connect(&mut self, input: &mut Input<'_>) {
        let ep = self.handle(Kind::Ep, input);
        let mut address = socket_address(self.qual(input));
        let timeout = self.timeout_us(input);
        let (data, len) = self.private_data(input);
        let connect = self.library.dat_ep_common_connect;
        // SAFETY: the address is a local variable as long as its family needs; private data as in
        // `connect`.
        let answer = connect.map_or(MISSING, |connect| unsafe {
            connect(ep, &raw mut address, timeout, len, data.cast())
        });
        self.check(answer);
    }

    pub(super) fn duplicate_connection(&mut self, input: &mut Input<'_>) {
        let (ep, other) = (self.handle(Kind::Ep, input), self.handle(Kind::Ep, input));
        let timeout = self.timeout_us(input);
        let (data, len) = self.private_data(input);
        // SAFETY: words, and private data as in `connect`.
        let answer =
            unsafe { (self.library.dat_ep_dup_connect)(ep, other, timeout, len, data.cast(), 0) };
        self.check(answer);
    }

    pub(super) fn accept(&mut self, input: &mut Input<'_>) {
        let (cr, ep) = (self.handle(Kind::Cr, input), self.handle(Kind::Ep, input));
        let (data, len) = self.private_data(input);
        // SAFETY: as in `duplicate_connection`.
        let answer = unsafe { (self.library.dat_cr_accept)(cr, ep, len, data.cast()) };
        if self.check(answer) {
            self.forget(cr);
        }
    }

    pub(super) fn reject(&mut self, input: &mut Input<'_>) {
        let cr = self.handle(Kind::Cr, input);
        let (data, len) = self.private_data(input);
        // SAFETY: as in `duplicate_connection`.
        let answer = unsafe { (self.library.dat_cr_reject)(cr, len, data.cast()) };
        if self.check(answer) {
            self.forget(cr);
        }
    }

    pub(super) fn hand_off(&mut self, input: &mut Input<'_>) {
        let cr = self.handle(Kind::Cr, input);
        let qual = self.qual(input);
        // SAFETY: words.
        let answer = unsafe { (self.library.dat_cr_handoff)(cr, qual) };
        if self.check(answer) {
            self.forget(cr);
        }
    }

    pub(super) fn disconnect(&mut self, input: &mut Input<'_>) {
        let ep = self.handle(Kind::Ep, input);
        let flags = input.pick(&[DAT_CLOSE_GRACEFUL_FLAG, DAT_CLOSE_ABRUPT_FLAG, 7]);
        // SAFETY: words.
        let answer = unsafe { (self.library.dat_ep_disconnect)(ep, flags) };
        self.check(answer);
    }

    pub(super) fn reset_ep(&mut self, input: &mut Input<'_>) {
        let ep = self.handle(Kind::Ep, input);
        // SAFETY: a word.
        let answer = unsafe { (self.library.dat_ep_reset)(ep) };
        self.check(answer);
    }

    pub(super) fn ep_status(&mut self, input: &mut Input<'_>) {
        let ep = self.handle(Kind::Ep, input);
        let (mut state, mut receive_idle, mut request_idle) = (u32::MAX, 0, 0);
        // SAFETY: a word, and local out-variables.
        let answer = unsafe {
            let status = self.library.dat_ep_get_status;
            status(ep, &mut state, &mut receive_idle, &mut request_idle)
        };
        if self.check(answer) {
            assert!(state <= DAT_EP_STATE_CONNECTED_MULTI_PATH);
            assert!(receive_idle <= 1 && request_idle <= 1);
        }
    }

    pub(super) fn modify_ep(&mut self, input: &mut Input<'_>) {
        let ep = self.handle(Kind::Ep, input);
        let mut param = DatEpParam::zeroed();
        param.pz_handle = self.handle(Kind::Pz, input);
        param.recv_evd_handle = self.handle(Kind::Evd, input);
        param.request_evd_handle = self.handle(Kind::Evd, input);
        param.connect_evd_handle = self.handle(Kind::Evd, input);
        if let Some(attr) = endpoint_attr(input) {
            param.ep_attr = attr;
        }
        let mask = match input.byte() {
            choice @ 0..=30 => 1 << choice,
            _ => input.long(),
        };
        // SAFETY: words, and a local structure whose lists are null.
        let answer = unsafe { (self.library.dat_ep_modify)(ep, mask, &param) };
        self.check(answer);
    }

    pub(super) fn watermarks(&mut self, input: &mut Input<'_>) {
        let ep = self.handle(Kind::Ep, input);
        let (mut count, mut span) = (0, 0);
        let (soft, hard) = (length(input), length(input));
        // SAFETY: words, and local out-variables.
        let (set, queried) = unsafe {
            (
                (self.library.dat_ep_set_watermark)(ep, soft, hard),
                (self.library.dat_ep_recv_query)(ep, &mut count, &mut span),
            )
        };
        self.check(set);
        self.check(queried);
    }

    pub(super) fn post_receive(&mut self, input: &mut Input<'_>) {
        self.post(input, |library, ep, (list, count), cookie, flags, _| {
            // SAFETY: as `post` says.
            unsafe { (library.dat_ep_post_recv)(ep, count, list, cookie, flags) }
        });
    }

    pub(super) fn post_send(&mut self, input: &mut Input<'_>) {
        self.post(input, |library, ep, (list, count), cookie, flags, _| {
            // SAFETY: as `post` says.
            unsafe { (library.dat_ep_post_send)(ep, count, list, cookie, flags) }
        });
    }

    pub(super) fn post_write(&mut self, input: &mut Input<'_>) {
        let remote = self.remote(input);
        self.post(input, |library, ep, (list, count), cookie, flags, null| {
            let remote = if null { ptr::null() } else { &raw const remote };
            // SAFETY: as `post` says; the remote triplet is null or a local variable.
            unsafe { (library.dat_ep_post_rdma_write)(ep, count, list, cookie, remote, flags) }
        });
    }

    pub(super) fn post_read(&mut self, input: &mut Input<'_>) {
        let remote = self.remote(input);
        self.post(input, |library, ep, (list, count), cookie, flags, null| {
            let remote = if null { ptr::null() } else { &raw const remote };
            // SAFETY: as `post` says; the remote triplet is null or a local variable.
            unsafe { (library.dat_ep_post_rdma_read)(ep, count, list, cookie, remote, flags) }
        });
    }

    pub(super) fn post_send_with_invalidate(&mut self, input: &mut Input<'_>) {
        let (context, invalidate) = (self.context(input), u32::from(input.byte() & 3));
        let post = self.library.dat_ep_post_send_with_invalidate;
        self.post(input, |_, ep, (list, count), cookie, flags, _| {
            // SAFETY: as `post` says.
            post.map_or(MISSING, |post| unsafe {
                post(ep, count, list, cookie, flags, invalidate, context)
            })
        });
    }

    pub(super) fn post_read_to_rmr(&mut self, input: &mut Input<'_>) {
        let (local, remote) = (self.remote(input), self.remote(input));
        let post = self.library.dat_ep_post_rdma_read_to_rmr;
        self.post(input, |_, ep, _, cookie, flags, null| {
            let local = if null { ptr::null() } else { &raw const local };
            // SAFETY: as `post` says; the triplets are null or local variables.
            post.map_or(MISSING, |post| unsafe {
                post(ep, local, cookie, &remote, flags)
            })
        });
    }

    /// Makes a post. The list is null or longer than any legal count. Its segments are in payload
    /// memory or in memory that is not registered.
    pub(super) fn post(
        &mut self,
        input: &mut Input<'_>,
        call: impl FnOnce(
            &Calls,
            DatEpHandle,
            (*mut DatLmrTriplet, DatCount),
            DatDtoCookie,
            DatCompletionFlags,
            bool,
        ) -> DatReturn,
    ) {
        let ep = self.handle(Kind::Ep, input);
        let (mut list, count) = self.segments(input);
        let choice = input.byte();
        let flags = match choice {
            0xF0.. => u32::MAX,
            choice => u32::from(choice & 0x3F),
        };
        let no_list = choice == 0xFF;
        let list = if no_list {
            null_mut()
        } else {
            list.as_mut_ptr()
        };
        let cookie = DatContext::from_u64(0xC00C_1E00 | u64::from(choice));
        let answer = call(
            self.library,
            ep,
            (list, count),
            cookie,
            flags,
            choice == 0xFE,
        );
        self.check(answer);
    }

    pub(super) fn post_to_srq(&mut self, input: &mut Input<'_>) {
        let srq = self.handle(Kind::Srq, input);
        let (mut list, count) = self.segments(input);
        let cookie = DatContext::from_u64(1);
        // SAFETY: the list is longer than any legal count.
        let answer =
            unsafe { (self.library.dat_srq_post_recv)(srq, count, list.as_mut_ptr(), cookie) };
        self.check(answer);
    }

    pub(super) fn change_srq(&mut self, input: &mut Input<'_>) {
        let srq = self.handle(Kind::Srq, input);
        let (low, depth) = (length(input), length(input));
        // SAFETY: words.
        let (marked, resized) = unsafe {
            (
                (self.library.dat_srq_set_lw)(srq, low),
                (self.library.dat_srq_resize)(srq, depth),
            )
        };
        self.check(marked);
        self.check(resized);
    }

    pub(super) fn bind(&mut self, input: &mut Input<'_>) {
        let (rmr, lmr) = (self.handle(Kind::Rmr, input), self.handle(Kind::Lmr, input));
        let ep = self.handle(Kind::Ep, input);
        let (list, _) = self.segments(input);
        let privileges = input.pick(&[0x33, 0x11, 0x22, 0, u32::MAX]);
        let mut context = 0;
        // SAFETY: words, a local triplet, and a local out-variable.
        let answer = unsafe {
            let cookie = DatContext::from_u64(2);
            let bind = self.library.dat_rmr_bind;
            bind(
                rmr,
                lmr,
                &list[0],
                privileges,
                0,
                ep,
                cookie,
                0,
                &mut context,
            )
        };
        if self.check(answer) {
            self.contexts.push(context);
        }
    }

    pub(super) fn sync_memory(&mut self, input: &mut Input<'_>) {
        let ia = self.handle(Kind::Ia, input);
        let (list, count) = self.segments(input);
        let count = u64::from(count.unsigned_abs()).min(list.len() as u64);
        // SAFETY: the list holds as many segments as the count says.
        let (read, write) = unsafe {
            (
                (self.library.dat_lmr_sync_rdma_read)(ia, list.as_ptr(), count),
                (self.library.dat_lmr_sync_rdma_write)(ia, list.as_ptr(), count),
            )
        };
        self.check(read);
        self.check(write);
    }

    pub(super) fn wait(&mut self, input: &mut Input<'_>) {
        let evd = self.handle(Kind::Evd, input);
        let timeout = self.patience_us(input);
        let threshold = match input.byte() {
            0 => 1,
            _ => length(input),
        };
        let (mut event, mut more) = (DatEvent::zeroed(), 0);
        // SAFETY: words, and local out-variables.
        let answer =
            unsafe { (self.library.dat_evd_wait)(evd, timeout, threshold, &mut event, &mut more) };
        if self.check(answer) {
            self.on_event(&event);
        }
    }

    pub(super) fn dequeue(&mut self, input: &mut Input<'_>) {
        let evd = self.handle(Kind::Evd, input);
        let mut event = DatEvent::zeroed();
        // SAFETY: a word, and a local out-variable.
        let answer = unsafe { (self.library.dat_evd_dequeue)(evd, &mut event) };
        if self.check(answer) {
            self.on_event(&event);
        }
    }

    fn on_event(&mut self, event: &DatEvent) {
        if event.event_number == DAT_CONNECTION_REQUEST_EVENT {
            // SAFETY: the event number says which member of the union is valid.
            let arrival = unsafe { event.event_data.cr_arrival_event_data };
            if self.has_room() {
                self.add(Kind::Cr, arrival.cr_handle);
            }
        }
    }

    pub(super) fn post_software_event(&mut self, input: &mut Input<'_>) {
        let evd = self.handle(Kind::Evd, input);
        let mut event = DatEvent::zeroed();
        event.event_number = input.pick(&[DAT_SOFTWARE_EVENT, 0, u32::MAX]);
        event.event_data.software_event_data = DatSoftwareEventData {
            pointer: arena().cast(),
        };
        // SAFETY: a word, and a local structure.
        let answer = unsafe { (self.library.dat_evd_post_se)(evd, &event) };
        self.check(answer);
    }

    pub(super) fn change_evd(&mut self, input: &mut Input<'_>) {
        let evd = self.handle(Kind::Evd, input);
        let library = self.library;
        let choice = input.byte() % 5;
        let cno = self.handle(Kind::Cno, input);
        // SAFETY: words.
        let answer = unsafe {
            match choice {
                0 => (library.dat_evd_enable)(evd),
                1 => (library.dat_evd_disable)(evd),
                2 => (library.dat_evd_set_unwaitable)(evd),
                3 => (library.dat_evd_clear_unwaitable)(evd),
                _ => (library.dat_evd_modify_cno)(evd, cno),
            }
        };
        self.check(answer);
    }

    pub(super) fn resize_evd(&mut self, input: &mut Input<'_>) {
        let evd = self.handle(Kind::Evd, input);
        let depth = length(input);
        // SAFETY: words.
        let answer = unsafe { (self.library.dat_evd_resize)(evd, depth) };
        self.check(answer);
    }

    pub(super) fn wait_cno(&mut self, input: &mut Input<'_>) {
        let cno = self.handle(Kind::Cno, input);
        let timeout = self.patience_us(input);
        let mut evd = null_mut();
        // SAFETY: words, and a local out-variable.
        let answer = unsafe { (self.library.dat_cno_wait)(cno, timeout, &mut evd) };
        self.check(answer);
    }

    pub(super) fn trigger_cno(&mut self, input: &mut Input<'_>) {
        let cno = self.handle(Kind::Cno, input);
        let mut evd = null_mut();
        let trigger = self.library.dat_cno_trigger;
        // SAFETY: a word, and a local out-variable.
        let answer = trigger.map_or(MISSING, |trigger| unsafe { trigger(cno, &mut evd) });
        self.check(answer);
    }

    pub(super) fn change_cno(&mut self, input: &mut Input<'_>) {
        let cno = self.handle(Kind::Cno, input);
        let agent = agent(input);
        // SAFETY: a word, and an agent whose function can be called at any time.
        let answer = unsafe { (self.library.dat_cno_modify_agent)(cno, agent) };
        self.check(answer);
    }
}
