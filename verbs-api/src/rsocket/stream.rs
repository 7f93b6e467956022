//! The queue pair and the buffers of a connection.

use std::sync::Arc;

use rustix::io::Errno;
use verbs_dl::types::*;

use crate::channel;
use crate::cm;
use crate::completions;
use crate::cq::Cq;
use crate::fault::{self, Fault};
use crate::memory;
use crate::pairs::connected;
use crate::qp::Qp;

use super::flow::{Incoming, Outgoing, Part};
use super::region::Region;
use super::wire::{DATA_MAX, Hello, IOMAP_LEN, Message, Range, iomap_entry};

/// The number of entries in which the peer names its buffers.
const ENTRIES: usize = 2;
/// The requests that are kept for messages without data.
const CONTROLS: u32 = 8;
/// The most completions of one poll.
const BATCH: usize = 16;

/// The work request of a receive, and the bit of a message without data. Other sends have the
/// number of bytes that they hold in the ring.
const RECEIVE: u64 = 1 << 62;
const CONTROL: u64 = 1 << 63;

/// The sizes of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) send_buffer: u32,
    pub(super) receive_buffer: u32,
    pub(super) send_queue: u16,
    pub(super) receive_queue: u16,
    pub(super) inline: u32,
    /// The number of buffers that the peer may map.
    pub(super) iomaps: u8,
}

/// A buffer that the program has mapped for the peer.
struct Map {
    addr: usize,
    len: usize,
    mr: *mut ibv_mr,
}

/// A connection.
pub(super) struct Stream {
    id: *mut rdma_cm_id,
    channel: *mut ibv_comp_channel,
    c_cq: *mut ibv_cq,
    qp: Arc<Qp>,
    cq: Arc<Cq>,
    /// The tables that the peer writes, followed by the receive buffer.
    inbound: Region,
    outbound: Region,
    sizes: Sizes,
    incoming: Incoming,
    outgoing: Outgoing,
    /// The rest of the peer's buffer that is filled now, and the entry that names the next one.
    target: Range,
    next_entry: usize,
    /// The entry of the peer that names our next half.
    peer_entry: u32,
    /// Free requests for data, and for other messages.
    slots: u32,
    controls: u32,
    peer: Option<Hello>,
    maps: Vec<Option<Map>>,
    /// The peer sends no more data.
    pub(super) is_finished: bool,
    /// The peer receives no more data.
    pub(super) is_closed: bool,
    /// The connection has failed.
    pub(super) is_broken: bool,
}

impl Stream {
    /// Makes the queue pair of an identifier with a device, and everything that it needs.
    ///
    /// # Safety
    /// `id` is alive until after the drop of the stream.
    pub(super) unsafe fn new(id: *mut rdma_cm_id, sizes: Sizes) -> Result<Self, Fault> {
        // SAFETY: the caller guarantees the identifier.
        let (context, pd) = unsafe { ((*id).verbs, (*id).pd) };
        let half = sizes.receive_buffer / 2;
        let tables = tables_len(sizes.iomaps);
        let rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        let inbound = Region::new(pd, tables + 2 * half as usize, rights)?;
        let outbound = Region::new(pd, sizes.send_buffer as usize, IBV_ACCESS_LOCAL_WRITE)?;
        let channel = channel::create(context)?;
        let sends = u32::from(sizes.send_queue) + CONTROLS;
        let receives = u32::from(sizes.receive_queue) + CONTROLS;
        let depth = libc::c_int::try_from(sends + receives).map_err(|_| Errno::INVAL)?;
        let created = completions::create(context, depth, std::ptr::null_mut(), channel, 0);
        let c_cq = created.inspect_err(|_| {
            // SAFETY: nothing uses the channel that was just created.
            unsafe { channel::ibv_destroy_comp_channel(channel) };
        })?;
        // SAFETY: the identifier and the completion queue are alive.
        let made = unsafe { make_pair(id, c_cq, sends, receives, sizes.inline) };
        let (qp, inline) = made.inspect_err(|_| {
            // SAFETY: no queue pair uses the objects that were just created.
            unsafe {
                completions::ibv_destroy_cq(c_cq);
                channel::ibv_destroy_comp_channel(channel);
            }
        })?;
        // SAFETY: the completion queue is alive.
        let cq = unsafe { completions::cq_of(c_cq) }.clone();
        let stream = Self {
            id,
            channel,
            c_cq,
            qp,
            cq,
            inbound,
            outbound,
            sizes: Sizes { inline, ..sizes },
            incoming: Incoming::new(half, sizes.receive_queue),
            outgoing: Outgoing::new(sizes.send_buffer),
            target: Range::default(),
            next_entry: 0,
            peer_entry: 0,
            slots: sizes.send_queue.into(),
            controls: CONTROLS,
            peer: None,
            maps: Vec::new(),
            is_finished: false,
            is_closed: false,
            is_broken: false,
        };
        (0..receives).try_for_each(|_| stream.post_receive())?;
        Ok(stream)
    }

    /// The descriptor that is readable after a completion for which the stream was armed.
    pub(super) fn descriptor(&self) -> libc::c_int {
        // SAFETY: the channel is alive.
        unsafe { (*self.channel).fd }
    }

    /// The private data for the peer.
    pub(super) fn hello(&self) -> Hello {
        Hello {
            credits: self.sizes.receive_queue,
            iomaps: self.sizes.iomaps,
            table: self.inbound.range(0, ENTRIES as u32),
            buffer: self
                .inbound
                .range(tables_len(self.sizes.iomaps), self.sizes.receive_buffer / 2),
        }
    }

    /// Called with the private data of the peer.
    pub(super) fn on_hello(&mut self, hello: Hello) {
        self.outgoing.on_credits(hello.credits);
        self.target = hello.buffer;
        // The first entry stands for the buffer of the private data.
        self.next_entry = 1;
        self.peer_entry = 1 % hello.table.len;
        self.peer = Some(hello);
    }

    /// Takes completions, and gives the peer credits. Returns true if anything happened.
    pub(super) fn progress(&mut self) -> bool {
        // SAFETY: the channel is alive.
        unsafe { channel::discard_events(self.channel) };
        let mut has_happened = false;
        let mut completions = [ibv_wc::default(); BATCH];
        loop {
            let count = self.cq.poll(&mut completions);
            for completion in completions.iter().take(count) {
                self.on_completion(completion);
            }
            has_happened |= count > 0;
            if count < BATCH {
                break;
            }
        }
        self.give_credits();
        has_happened
    }

    /// Requests that the descriptor becomes readable with the next completion.
    pub(super) fn arm(&self) {
        self.cq.arm(false);
    }

    fn on_completion(&mut self, completion: &ibv_wc) {
        let is_good = completion.status == IBV_WC_SUCCESS;
        self.is_broken |= !is_good;
        match completion.wr_id {
            RECEIVE if is_good => {
                // SAFETY: both members are numbers.
                let number = u32::from_be(unsafe { completion.__bindgen_anon_1.imm_data });
                let has_number = completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
                let message = Message::decode(number).filter(|_| has_number);
                self.on_message(message);
                self.is_broken |= self.post_receive().is_err();
            }
            RECEIVE => {}
            CONTROL => self.controls += 1,
            len => {
                self.slots += 1;
                self.outgoing.on_completed(len as u32);
            }
        }
    }

    /// Called with a message of the peer; `None` is not one.
    fn on_message(&mut self, message: Option<Message>) {
        match message {
            Some(Message::Data(len)) => self.is_broken |= self.incoming.on_data(len).is_err(),
            Some(Message::Credits(limit)) => self.outgoing.on_credits(limit),
            Some(Message::Iomap(_) | Message::Keepalive) => {}
            Some(Message::Shutdown) => self.is_finished = true,
            Some(Message::Disconnect) => (self.is_finished, self.is_closed) = (true, true),
            None => self.is_broken = true,
        }
    }

    fn post_receive(&self) -> Result<(), Fault> {
        self.qp.post_recv(&ibv_recv_wr {
            wr_id: RECEIVE,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: 0,
        })
    }

    fn give_credits(&mut self) {
        let Some(peer) = self.peer else { return };
        while self.controls > 0
            && self.can_write()
            && let Some(update) = self.incoming.update()
        {
            let message = Message::Credits(update.limit);
            let posted = match update.half {
                None => self.control(message),
                Some(half) => {
                    let at = tables_len(self.sizes.iomaps) + half.at as usize;
                    let entry = self.inbound.range(at, half.len).entry();
                    let at = u64::from(self.peer_entry) * Range::LEN as u64;
                    self.peer_entry = (self.peer_entry + 1) % peer.table.len;
                    self.write_entry(&entry, peer.table.addr.wrapping_add(at), message)
                }
            };
            self.is_broken |= posted.is_err();
        }
    }

    /// True if Writes reach the peer.
    pub(super) fn can_write(&self) -> bool {
        !self.is_broken && !self.is_closed
    }

    /// True if all Writes have completed.
    pub(super) fn is_idle(&self) -> bool {
        self.slots == u32::from(self.sizes.send_queue) && self.controls == CONTROLS
    }

    /// True if a message without data can be sent.
    pub(super) fn has_control(&self) -> bool {
        self.controls > 0
    }

    /// Sends a message without data.
    pub(super) fn control(&mut self, message: Message) -> Result<(), Fault> {
        let to = self.peer.map_or(0, |peer| peer.table.addr);
        self.write_entry(&[], to, message)
    }

    /// Writes an entry of a table of the peer, with a message.
    fn write_entry(&mut self, entry: &[u8], to: u64, message: Message) -> Result<(), Fault> {
        let table = self.peer.ok_or(Errno::NOTCONN)?.table;
        let mut segment = ibv_sge {
            addr: entry.as_ptr().addr() as u64,
            length: entry.len() as u32,
            lkey: 0,
        };
        let to = Range { addr: to, ..table };
        let wr = self.write(&mut segment, to, Some(message), CONTROL);
        // The payload is copied before the call returns.
        self.post(ibv_send_wr {
            send_flags: wr.send_flags | IBV_SEND_INLINE,
            num_sge: (!entry.is_empty()).into(),
            ..wr
        })?;
        self.controls = self.controls.saturating_sub(1);
        Ok(())
    }

    /// A Write of one segment.
    fn write(
        &self,
        segment: &mut ibv_sge,
        to: Range,
        message: Option<Message>,
        wr_id: u64,
    ) -> ibv_send_wr {
        let mut wr = ibv_send_wr {
            wr_id,
            sg_list: segment,
            num_sge: 1,
            opcode: IBV_WR_RDMA_WRITE,
            send_flags: IBV_SEND_SIGNALED,
            ..ibv_send_wr::default()
        };
        wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
            remote_addr: to.addr,
            rkey: to.key,
        };
        if let Some(message) = message {
            wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
            wr.__bindgen_anon_1.imm_data = message.encode().to_be();
        }
        wr
    }

    fn post(&self, wr: ibv_send_wr) -> Result<(), Fault> {
        self.qp.post_send(&wr)
    }

    /// Writes at most `len` bytes to `to`. Returns their number; `None` if there is no request or
    /// no room in the ring for them now.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    unsafe fn write_some(
        &mut self,
        data: *const u8,
        len: u32,
        to: Range,
        is_data: bool,
    ) -> Result<Option<u32>, Fault> {
        if self.slots == 0 {
            return Ok(None);
        }
        let len = len.min(to.len).min(DATA_MAX);
        let is_inline = len <= self.sizes.inline;
        let (mut segment, held) = if is_inline {
            let addr = data.addr() as u64;
            (
                ibv_sge {
                    addr,
                    length: len,
                    lkey: 0,
                },
                0,
            )
        } else {
            let Some(part) = self.outgoing.take(len) else {
                return Ok(None);
            };
            // SAFETY: the part is within the ring, and the caller guarantees the data.
            unsafe {
                self.outbound
                    .write(part.at as usize, data, part.len as usize)
            };
            (self.outbound.segment(part), part.len)
        };
        let message = is_data.then_some(Message::Data(segment.length));
        let mut wr = self.write(&mut segment, to, message, held.into());
        if is_inline {
            wr.send_flags |= IBV_SEND_INLINE;
        }
        let posted = self.post(wr);
        posted.inspect_err(|_| self.is_broken = true)?;
        self.slots -= 1;
        Ok(Some(segment.length))
    }

    /// Sends as much as the peer's buffer and ours take now. Returns the number of bytes.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    pub(super) unsafe fn send(&mut self, data: *const u8, len: usize) -> Result<usize, Fault> {
        let mut done = 0;
        while done < len && self.find_target() {
            let rest = u32::try_from(len - done).unwrap_or(u32::MAX);
            // SAFETY: the rest of the data is readable (caller).
            let sent = unsafe { self.write_some(data.add(done), rest, self.target, true) }?;
            let Some(sent) = sent else { break };
            self.outgoing.on_sent();
            self.target.addr = self.target.addr.wrapping_add(sent.into());
            self.target.len -= sent;
            done += sent as usize;
        }
        Ok(done)
    }

    /// True if data can be sent now.
    pub(super) fn is_writable(&mut self) -> bool {
        self.slots > 0 && self.outgoing.has_room() && self.find_target()
    }

    /// Finds the buffer of the peer for the next data. Returns false if there is none, or no
    /// credit.
    fn find_target(&mut self) -> bool {
        if !self.outgoing.has_credit() {
            return false;
        }
        if self.target.len == 0 {
            let at = self.next_entry * Range::LEN;
            // The length comes last in the entry. An entry that has it is whole.
            let len = self.inbound.number(at + 12);
            if len == 0 {
                return false;
            }
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            let [low, high, key] = [0, 4, 8].map(|part| self.inbound.number(at + part));
            self.inbound.set_number(at + 12, 0);
            self.target = Range {
                addr: joined(low, high),
                key,
                len,
            };
            self.next_entry = (self.next_entry + 1) % ENTRIES;
        }
        true
    }

    /// True if there is data to read.
    pub(super) fn is_readable(&self) -> bool {
        self.incoming.is_readable()
    }

    /// Reads at most `len` bytes. Returns their number.
    ///
    /// # Safety
    /// `out` is writable for `len` bytes.
    pub(super) unsafe fn receive(&mut self, out: *mut u8, len: usize) -> usize {
        let mut done = 0;
        while done < len {
            let part = self
                .incoming
                .next(u32::try_from(len - done).unwrap_or(u32::MAX));
            if part.len == 0 {
                break;
            }
            // SAFETY: the rest of `out` is writable (caller).
            unsafe { self.copy(part, out.add(done)) };
            self.incoming.on_read(part.len);
            done += part.len as usize;
        }
        self.give_credits();
        done
    }

    /// Copies at most `len` bytes without reading them, up to the end of the ring.
    ///
    /// # Safety
    /// As for [`receive`](Self::receive).
    pub(super) unsafe fn peek(&self, out: *mut u8, len: usize) -> usize {
        let part = self.incoming.next(u32::try_from(len).unwrap_or(u32::MAX));
        // SAFETY: as for the caller.
        unsafe { self.copy(part, out) };
        part.len as usize
    }

    /// # Safety
    /// `out` is writable for the length of the part.
    unsafe fn copy(&self, part: Part, out: *mut u8) {
        let at = tables_len(self.sizes.iomaps) + part.at as usize;
        // SAFETY: as for the caller.
        unsafe { self.inbound.read(at, out, part.len as usize) };
    }

    /// Maps a buffer for the peer, under an offset.
    pub(super) fn map(
        &mut self,
        buffer: *mut libc::c_void,
        len: usize,
        offset: u64,
    ) -> Result<(), Fault> {
        let peer = self.peer.ok_or(Errno::NOTCONN)?;
        let known = u32::try_from(len).map_err(|_| Errno::INVAL)?;
        let free = self.maps.iter().position(Option::is_none);
        let index = free.unwrap_or(self.maps.len());
        if index >= peer.iomaps.into() {
            return Err(Errno::NOBUFS);
        }
        let rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        // SAFETY: the identifier is alive.
        let pd = unsafe { (*self.id).pd };
        let mr = memory::register(pd, buffer, len, buffer.addr() as u64, rights)?;
        let map = Some(Map {
            addr: buffer.addr(),
            len,
            mr,
        });
        match self.maps.get_mut(index) {
            Some(place) => *place = map,
            None => self.maps.push(map),
        }
        // SAFETY: the region was just registered.
        let key = unsafe { (*mr).rkey };
        let addr = buffer.addr() as u64;
        let entry = iomap_entry(
            offset,
            Range {
                addr,
                key,
                len: known,
            },
        );
        let at = u64::from(peer.table.len) * Range::LEN as u64 + (index * IOMAP_LEN) as u64;
        let to = peer.table.addr.wrapping_add(at);
        self.write_entry(&entry, to, Message::Iomap(index as u32))
    }

    /// Ends the mapping of a buffer. Once it has returned, the peer cannot write the buffer.
    pub(super) fn unmap(&mut self, buffer: usize, len: usize) -> Result<(), Fault> {
        let is_it = |map: &Option<Map>| {
            let of = |map: &Map| map.addr == buffer && map.len == len;
            map.as_ref().is_some_and(of)
        };
        let place = self.maps.iter_mut().find(|map| is_it(map));
        let map = place.and_then(Option::take).ok_or(Errno::INVAL)?;
        // SAFETY: the region is alive, and nothing else has its pointer.
        unsafe { memory::ibv_dereg_mr(map.mr) };
        Ok(())
    }

    /// Writes to a buffer that the peer has mapped. Returns the number of bytes that were taken.
    ///
    /// # Safety
    /// `data` is readable for `len` bytes.
    pub(super) unsafe fn write_mapped(
        &mut self,
        data: *const u8,
        len: usize,
        offset: u64,
    ) -> Result<usize, Fault> {
        let mut done = 0;
        while done < len {
            let to = self.mapped(offset.checked_add(done as u64).ok_or(Errno::INVAL)?)?;
            let rest = u32::try_from(len - done).unwrap_or(u32::MAX);
            // SAFETY: the rest of the data is readable (caller).
            match unsafe { self.write_some(data.add(done), rest, to, false) }? {
                Some(written) => done += written as usize,
                None => break,
            }
        }
        Ok(done)
    }

    /// Finds the memory of the peer at an offset.
    fn mapped(&self, offset: u64) -> Result<Range, Fault> {
        let found = (0..usize::from(self.sizes.iomaps)).find_map(|index| {
            let at = ENTRIES * Range::LEN + index * IOMAP_LEN;
            let [o_low, o_high, low, high, key, len] =
                [0, 4, 8, 12, 16, 20].map(|part| self.inbound.number(at + part));
            let into = offset.checked_sub(joined(o_low, o_high))?;
            let rest = len.checked_sub(u32::try_from(into).ok()?)?;
            let addr = joined(low, high).wrapping_add(into);
            (rest > 0).then_some(Range {
                addr,
                key,
                len: rest,
            })
        });
        found.ok_or(Errno::INVAL)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the identifier is alive, and the objects are used by this stream alone. The queue
        // pair is the first to end.
        unsafe {
            cm::rdma_destroy_qp(self.id);
            completions::ibv_destroy_cq(self.c_cq);
            channel::ibv_destroy_comp_channel(self.channel);
            for map in self.maps.drain(..).flatten() {
                memory::ibv_dereg_mr(map.mr);
            }
        }
    }
}

/// The length of the tables that the peer writes.
fn tables_len(iomaps: u8) -> usize {
    (ENTRIES * Range::LEN + usize::from(iomaps) * IOMAP_LEN).next_multiple_of(64)
}

fn joined(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Makes a queue pair. Returns it with the number of bytes that are sent inline.
///
/// # Safety
/// `id` and `cq` are alive.
unsafe fn make_pair(
    id: *mut rdma_cm_id,
    cq: *mut ibv_cq,
    sends: u32,
    receives: u32,
    inline: u32,
) -> Result<(Arc<Qp>, u32), Fault> {
    let mut init = ibv_qp_init_attr {
        send_cq: cq,
        recv_cq: cq,
        qp_type: IBV_QPT_RC,
        ..ibv_qp_init_attr::default()
    };
    init.cap.max_send_wr = sends;
    init.cap.max_recv_wr = receives;
    init.cap.max_send_sge = 1;
    init.cap.max_recv_sge = 1;
    init.cap.max_inline_data = inline.max(IOMAP_LEN as u32);
    // SAFETY: the caller guarantees the objects.
    unsafe {
        if cm::rdma_create_qp(id, std::ptr::null_mut(), &raw mut init) != 0 {
            return Err(fault::errno());
        }
        Ok((
            connected((*id).qp)?.clone(),
            init.cap.max_inline_data.min(inline),
        ))
    }
}
