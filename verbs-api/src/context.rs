//! An open device, its attributes, and the table of operations that the header calls.

use std::ffi::{c_char, c_int};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rnic::{Rnic as _, RnicAttr};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::abi::{
    GID_TYPE_ROCE_V2, GID_TYPE_SYSFS_ROCE_V2, Gid, GidEntry, IS_EXTENDED, VerbsContext,
};
use crate::adapter::{self, Adapter, ContextObject};
use crate::completions::{VECTORS, cq_of, create_cq_ex};
use crate::device::{self, Device};
use crate::domains::{alloc_parent_domain, alloc_td, dealloc_td};
use crate::fault::{self, Fault};
use crate::interface::Interface;
use crate::pairs::{create_qp_ex, kind_of};
use crate::qp::READS_MAX;
use crate::srq::{create_srq_ex, srq_of};
use crate::users::Used as _;
use crate::windows::{self, Bind};

/// The only port of a device.
const PORT: u8 = 1;
/// The only entry of the table of partition keys: the default partition, full membership.
const PKEY: u16 = 0xffff;
/// `IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE |
/// IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B`, and
/// `IBV_DEVICE_CURR_QP_STATE_MOD`.
const DEVICE_CAPABILITIES: u32 = 1 << 11 | 1 << 12 | 1 << 13 | 1 << 17 | 1 << 24 | 1 << 7;
/// `IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS`, as on RoCE.
const PORT_CAPABILITIES: u32 = 1 << 16 | 1 << 26;
/// A vendor of no hardware: an identifier that is administered locally.
const VENDOR: u32 = 0x02_4452;
/// `IBV_QPF_GRH_REQUIRED`: a path needs GIDs.
const GRH_REQUIRED: u8 = 1;
/// `IBV_LINK_LAYER_ETHERNET`.
const ETHERNET: u8 = 2;
/// The physical states "link up" and "disabled".
const LINK_UP: u8 = 5;
const LINK_DISABLED: u8 = 3;
/// The longest message, which programs store in an `int`.
const MESSAGE_MAX: u32 = 1 << 30;

/// Opens a device.
pub(crate) fn open(device: *mut ibv_device) -> Result<*mut ibv_context, Fault> {
    // SAFETY: the program passes a device of the list.
    let Device { interface, address } = unsafe { device::of(device) };
    let adapter = Arc::new(Adapter::open(interface, *address)?);
    // No command is written to it. A program may poll it.
    let commands: OwnedFd = eventfd(0, EventfdFlags::CLOEXEC)?;
    let mut context = ibv_context {
        device,
        cmd_fd: commands.as_raw_fd(),
        async_fd: adapter.events.reported.descriptor()?,
        num_comp_vectors: VECTORS,
        abi_compat: IS_EXTENDED,
        ..ibv_context::default()
    };
    context.ops.poll_cq = Some(poll_cq);
    context.ops.req_notify_cq = Some(req_notify_cq);
    context.ops.post_send = Some(post_send);
    context.ops.post_recv = Some(post_recv);
    context.ops.post_srq_recv = Some(post_srq_recv);
    context.ops.alloc_mw = Some(alloc_mw);
    context.ops.bind_mw = Some(bind_mw);
    context.ops.dealloc_mw = Some(dealloc_mw);
    // `close` closes it by its number.
    std::mem::forget(commands);
    let whole = VerbsContext {
        query_port: Some(query_port),
        _from_advise_mr: [0; 13],
        alloc_parent_domain: alloc_parent_domain as *const (),
        dealloc_td: dealloc_td as *const (),
        alloc_td: alloc_td as *const (),
        _from_modify_cq: [0; 8],
        create_cq_ex: create_cq_ex as *const (),
        _priv: 0,
        query_device_ex: query_device_ex as *const (),
        _from_destroy_flow: [0; 5],
        create_qp_ex: create_qp_ex as *const (),
        _get_srq_num: 0,
        create_srq_ex: create_srq_ex as *const (),
        _from_open_xrcd: [0; 3],
        size: size_of::<VerbsContext>(),
        context,
    };
    let object = ContextObject::create(whole, adapter);
    // SAFETY: the structure was just created.
    Ok(unsafe { &raw mut (*object).context })
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, room: c_int, out: *mut ibv_wc) -> c_int {
    let Ok(room @ 1..) = usize::try_from(room) else {
        return 0;
    };
    // SAFETY: the program passes a live queue and room for as many completions, which have only
    // integers.
    let (cq, out) = unsafe { (cq_of(cq), std::slice::from_raw_parts_mut(out, room)) };
    cq.poll(out) as c_int
}

unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the program passes a live queue.
    unsafe { cq_of(cq) }.arm(solicited_only != 0);
    0
}

/// Posts the requests of a list in order. Stores the first one that is refused in `bad`.
macro_rules! post_list {
    ($list:expr, $bad:expr, $post:expr) => {{
        let mut next = $list;
        // SAFETY: the program passes a valid list, which is read during the call.
        while let Some(wr) = unsafe { next.as_ref() } {
            if let Err(fault) = $post(wr) {
                // SAFETY: the program passes a pointer to its variable.
                unsafe { $bad.write(next) };
                return fault.raw_os_error();
            }
            next = wr.next;
        }
        0
    }};
}

unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the program passes a live queue pair.
    let qp = unsafe { kind_of(qp) };
    post_list!(list, bad, |wr| qp.post_send(wr))
}

unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes a live queue pair.
    let qp = unsafe { kind_of(qp) };
    post_list!(list, bad, |wr| qp.post_recv(wr))
}

unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes a live queue.
    let srq = unsafe { srq_of(srq) };
    post_list!(list, bad, |wr| srq.post(wr))
}

unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the program passes a live domain.
    fault::pointer(unsafe { windows::create(pd, kind) })
}

unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the program passes a live window and does not use it after this call.
    unsafe { windows::destroy(mw) };
    0
}

/// Binds a window of type 1.
unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the program passes live objects, and a structure that is read during the call.
    let bound = unsafe {
        let request = &*bind;
        let bind = Bind::new(mw, IBV_MW_TYPE_1, &request.bind_info, None);
        bind.and_then(|bind| {
            let key = bind.key;
            kind_of(qp).post_bind(bind, request.wr_id, request.send_flags)?;
            (*mw).rkey = key;
            Ok(())
        })
    };
    fault::code(bound)
}

unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    out: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    if port != PORT {
        return fault::code(Err(Errno::INVAL));
    }
    // SAFETY: the program passes a live context.
    let found = port_attributes(unsafe { adapter::of(context) });
    let known = size.min(size_of::<ibv_port_attr>());
    // SAFETY: the program's structure has `size` bytes, which may be fewer or more than ours.
    unsafe {
        out.cast::<u8>().write_bytes(0, size);
        out.cast::<u8>()
            .copy_from_nonoverlapping((&raw const found).cast(), known);
    }
    0
}

fn port_attributes(adapter: &Adapter) -> ibv_port_attr {
    let mut interface = Interface::of(&adapter.interface);
    let is_up = interface.as_mut().is_some_and(Interface::is_running);
    let mbps = interface.as_mut().and_then(Interface::speed);
    let (active_width, active_speed) = rate(mbps);
    ibv_port_attr {
        state: if is_up {
            IBV_PORT_ACTIVE
        } else {
            IBV_PORT_DOWN
        },
        // No packet of InfiniBand exists, so that the network device's MTU sets no limit.
        max_mtu: IBV_MTU_4096,
        active_mtu: IBV_MTU_4096,
        gid_tbl_len: 1,
        port_cap_flags: PORT_CAPABILITIES,
        max_msg_sz: MESSAGE_MAX,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        active_width,
        active_speed,
        phys_state: if is_up { LINK_UP } else { LINK_DISABLED },
        link_layer: ETHERNET,
        flags: GRH_REQUIRED,
        ..ibv_port_attr::default()
    }
}

/// Returns the codes of width and speed whose product is nearest to a rate in Mb/s, as drivers of
/// RoCE devices do. A network device without rate has that of a virtual one.
fn rate(mbps: Option<u32>) -> (u8, u8) {
    const LANE_1: u8 = 1;
    const LANES_4: u8 = 2;
    const SDR: u8 = 1;
    const QDR: u8 = 4;
    const EDR: u8 = 32;
    const HDR: u8 = 64;
    match mbps.unwrap_or(10_000) {
        200_000.. => (LANES_4, HDR),
        100_000..200_000 => (LANES_4, EDR),
        40_000..100_000 => (LANES_4, QDR),
        25_000..40_000 => (LANE_1, EDR),
        10_000..25_000 => (LANE_1, QDR),
        _ => (LANE_1, SDR),
    }
}

fn device_attributes(device: &Device, attr: &RnicAttr) -> ibv_device_attr {
    let int = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
    let guid = device::guid(device);
    let mut found = ibv_device_attr {
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: attr.mr_len_max,
        page_size_cap: !0xfff,
        max_qp: int(attr.qp_max),
        max_qp_wr: int(attr.wr_max),
        device_cap_flags: DEVICE_CAPABILITIES,
        max_sge: int(attr.sge_max),
        max_sge_rd: int(attr.read_sge_max),
        max_cq: int(attr.cq_max),
        max_cqe: int(attr.cqe_max),
        max_mr: int(attr.mr_max),
        max_mw: int(attr.mw_max),
        max_pd: int(attr.pd_max),
        max_qp_rd_atom: int(READS_MAX),
        max_res_rd_atom: int(READS_MAX.saturating_mul(attr.qp_max)),
        max_qp_init_rd_atom: int(READS_MAX),
        atomic_cap: IBV_ATOMIC_HCA,
        max_srq: int(attr.srq_max),
        max_srq_wr: int(attr.srq_wr_max),
        max_srq_sge: int(attr.sge_max),
        max_ah: int(attr.mr_max),
        max_pkeys: 1,
        phys_port_cnt: PORT,
        vendor_id: VENDOR,
        vendor_part_id: 1,
        hw_ver: 1,
        ..ibv_device_attr::default()
    };
    for (place, byte) in found
        .fw_ver
        .iter_mut()
        .zip(env!("CARGO_PKG_VERSION").bytes())
    {
        *place = c_char::from_ne_bytes([byte]);
    }
    found
}

/// `struct ibv_device_attr_ex`.
#[repr(C)]
struct DeviceAttrEx {
    attr: ibv_device_attr,
    mask: u32,
    odp: [u64; 3],
    timestamp_mask: u64,
    core_clock: u64,
    capabilities: u64,
    _from_max_tso: [u64; 13],
    xrc_odp: u32,
    ports: u32,
}

const _: () = assert!(size_of::<DeviceAttrEx>() == 400);

/// `ibv_query_device_ex(3)`, called by the header. The members between `device_cap_flags_ex` and
/// `phys_port_cnt_ex` report features that this device does not have.
unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    _input: *const libc::c_void,
    out: *mut libc::c_void,
    size: usize,
) -> c_int {
    // SAFETY: the program passes a live context, which names a device of the list.
    let (adapter, device) = unsafe { (adapter::of(context), device::of((*context).device)) };
    let attr = device_attributes(device, adapter.rnic.attr());
    let found = DeviceAttrEx {
        capabilities: attr.device_cap_flags.into(),
        attr,
        mask: 0,
        odp: [0; 3],
        timestamp_mask: 0,
        core_clock: 0,
        _from_max_tso: [0; 13],
        xrc_odp: 0,
        ports: PORT.into(),
    };
    let known = size.min(size_of::<DeviceAttrEx>());
    // SAFETY: the program's structure has `size` bytes, which may be fewer or more than ours.
    unsafe {
        out.cast::<u8>().write_bytes(0, size);
        out.cast::<u8>()
            .copy_from_nonoverlapping((&raw const found).cast(), known);
    }
    0
}

/// Checks a port and an index of a table with one entry.
fn check_entry(port: u32, index: i64) -> Result<(), Fault> {
    match port == u32::from(PORT) && index == 0 {
        true => Ok(()),
        false => Err(Errno::INVAL),
    }
}

/// The functions of contexts; each does as its manual page says.
mod exported {
    use super::*;

    /// `ibv_open_device(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
        fault::pointer(open(device))
    }

    /// `ibv_close_device(3)`. The kernel would end the objects of the device. Here the context
    /// remains until the process ends if there are any, because they refer to it.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
        // SAFETY: the program passes a live context and does not use it after this call.
        unsafe {
            let adapter = adapter::of(context);
            if adapter.users().exist() {
                return 0;
            }
            // No upcall follows, so that the next lines drop the adapter.
            adapter.rnic.shutdown();
            libc::close((*context).cmd_fd);
            libc::close((*context).async_fd);
            let whole = context.byte_sub(std::mem::offset_of!(VerbsContext, context));
            ContextObject::destroy(whole.cast());
        }
        0
    }

    /// `ibv_query_device(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_query_device(
        context: *mut ibv_context,
        out: *mut ibv_device_attr,
    ) -> c_int {
        // SAFETY: the program passes a live context, which names a device of the list.
        let (adapter, device) = unsafe { (adapter::of(context), device::of((*context).device)) };
        let found = device_attributes(device, adapter.rnic.attr());
        // SAFETY: the program passes a pointer to its structure.
        unsafe { out.write(found) };
        0
    }

    /// `ibv_query_port(3)` of programs that were compiled before the structure grew: they have room
    /// for the members up to `flags`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_query_port(
        context: *mut ibv_context,
        port: u8,
        out: *mut ibv_port_attr,
    ) -> c_int {
        let size = std::mem::offset_of!(ibv_port_attr, flags);
        // SAFETY: the contracts are the same.
        unsafe { query_port(context, port, out, size) }
    }

    /// `ibv_query_gid(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_query_gid(
        context: *mut ibv_context,
        port: u8,
        index: c_int,
        out: *mut Gid,
    ) -> c_int {
        if let Err(fault) = check_entry(port.into(), index.into()) {
            return fault::minus_one(Err(fault));
        }
        // SAFETY: the program passes a live context and a pointer to its variable.
        unsafe {
            out.cast::<[u8; 16]>()
                .write_unaligned(adapter::of(context).gid.0)
        };
        0
    }

    /// `ibv_query_gid_type`, which rdma-core's tools call.
    ///
    /// # Safety
    /// `out` points to a variable.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_query_gid_type(
        _context: *mut ibv_context,
        port: u8,
        index: libc::c_uint,
        out: *mut c_int,
    ) -> c_int {
        if let Err(fault) = check_entry(port.into(), index.into()) {
            return fault::minus_one(Err(fault));
        }
        // SAFETY: the caller passes a pointer to its variable.
        unsafe { out.write(GID_TYPE_SYSFS_ROCE_V2) };
        0
    }

    fn entry(context: *mut ibv_context) -> GidEntry {
        // SAFETY: the program passes a live context.
        let adapter = unsafe { adapter::of(context) };
        let index = Interface::of(&adapter.interface).and_then(|mut found| found.index());
        GidEntry {
            gid: adapter.gid,
            gid_index: 0,
            port_num: PORT.into(),
            gid_type: GID_TYPE_ROCE_V2,
            ndev_ifindex: index.map_or(0, i32::cast_unsigned),
        }
    }

    /// `ibv_query_gid_ex(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn _ibv_query_gid_ex(
        context: *mut ibv_context,
        port: u32,
        index: u32,
        out: *mut GidEntry,
        flags: u32,
        size: usize,
    ) -> c_int {
        if flags != 0 || size < size_of::<GidEntry>() {
            return fault::code(Err(Errno::OPNOTSUPP));
        }
        if let Err(fault) = check_entry(port, index.into()) {
            return fault::code(Err(fault));
        }
        // SAFETY: the program passes a pointer to its structure of at least this size.
        unsafe { out.write_unaligned(entry(context)) };
        0
    }

    /// `ibv_query_gid_table(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn _ibv_query_gid_table(
        context: *mut ibv_context,
        out: *mut GidEntry,
        max: usize,
        flags: u32,
        size: usize,
    ) -> isize {
        if flags != 0 || size < size_of::<GidEntry>() {
            return -(Errno::OPNOTSUPP.raw_os_error() as isize);
        }
        if max == 0 {
            return -(Errno::INVAL.raw_os_error() as isize);
        }
        // SAFETY: the program passes room for `max` entries.
        unsafe { out.write_unaligned(entry(context)) };
        1
    }

    /// `ibv_query_pkey(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_query_pkey(
        _context: *mut ibv_context,
        port: u8,
        index: c_int,
        out: *mut u16,
    ) -> c_int {
        if let Err(fault) = check_entry(port.into(), index.into()) {
            return fault::minus_one(Err(fault));
        }
        // SAFETY: the program passes a pointer to its variable.
        unsafe { out.write(PKEY.to_be()) };
        0
    }

    /// `ibv_get_pkey_index(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_get_pkey_index(
        _context: *mut ibv_context,
        port: u8,
        pkey: u16,
    ) -> c_int {
        if port == PORT && pkey == PKEY { 0 } else { -1 }
    }

    /// `ibv_get_async_event(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_get_async_event(
        context: *mut ibv_context,
        out: *mut ibv_async_event,
    ) -> c_int {
        // SAFETY: the program passes a live context.
        let adapter = unsafe { adapter::of(context) };
        match adapter.events.reported.next() {
            Ok(event) => {
                // SAFETY: the program passes a pointer to its structure.
                unsafe { out.write(event.0) };
                0
            }
            Err(fault) => fault::minus_one(Err(fault)),
        }
    }

    /// `ibv_ack_async_event(3)`. The objects of this library do not wait for it: their destruction
    /// removes the events that were not received, and received ones refer to nothing.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_ack_async_event(_event: *mut ibv_async_event) {}

    /// `ibv_fork_init(3)`: memory is never pinned.
    #[unsafe(no_mangle)]
    extern "C" fn ibv_fork_init() -> c_int {
        0
    }

    /// `ibv_is_fork_initialized(3)`: `IBV_FORK_UNNEEDED`.
    #[unsafe(no_mangle)]
    extern "C" fn ibv_is_fork_initialized() -> c_int {
        2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_a_port_is_that_of_its_network_device() {
        assert_eq!(rate(Some(1_000)), (1, 1));
        assert_eq!(rate(Some(10_000)), (1, 4));
        assert_eq!(rate(Some(100_000)), (2, 32));
        assert_eq!(rate(None), rate(Some(10_000)));
    }

    #[test]
    fn tables_have_one_entry() {
        assert_eq!(check_entry(1, 0), Ok(()));
        assert_eq!(check_entry(1, 1), Err(Errno::INVAL));
        assert_eq!(check_entry(1, -1), Err(Errno::INVAL));
        assert_eq!(check_entry(2, 0), Err(Errno::INVAL));
    }
}
