//! Interface adapters.

use std::ffi::{CStr, c_char};
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use dat_abi::*;
use host::locks::lock;

use crate::abi::*;
use crate::address::{self, SPIGOT};
use crate::dat;
use crate::handle::{self, Kind, Object};
use crate::status::*;

/// The length of the asynchronous EVD that is asked for; DAT makes it longer.
const ASYNC_LEN: DatCount = 64;

/// The limits of an adapter, to which requests are compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) dtos: usize,
    pub(crate) segments: usize,
    pub(crate) read_segments: usize,
    pub(crate) write_segments: usize,
    pub(crate) ird: usize,
    pub(crate) ord: usize,
    pub(crate) queue: usize,
    pub(crate) private_data: usize,
}

/// A socket that waits for its peer's request: the socket service point and the endpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conversion {
    pub(crate) ssp: usize,
    pub(crate) ep: Handle,
    pub(crate) connect_sevd: Handle,
}

/// The queues of DAT that the library itself reads: asynchronous events and requests on sockets.
#[derive(Debug, Default)]
pub(crate) struct Internal {
    /// The CNO of both, made with the first SEVD or socket that needs it.
    pub(crate) cno: Option<usize>,
    /// The EVD of requests on sockets.
    pub(crate) requests: Option<usize>,
    pub(crate) affiliated: Handle,
    pub(crate) unaffiliated: Handle,
    pub(crate) conversions: Vec<Conversion>,
}

/// An open adapter.
#[derive(Debug)]
pub(crate) struct Ia {
    name: Vec<u8>,
    pub(crate) async_evd: usize,
    pub(crate) address: Option<IpAddr>,
    pub(crate) limits: Limits,
    pub(crate) has_socket_conversion: bool,
    pub(crate) internal: Mutex<Internal>,
}

impl Object for Ia {
    const KIND: Kind = Kind::Ia;
    const WRONG: Status = INVALID_IA;
}

/// Attributes of an adapter and of its provider.
struct Attributes {
    ia: DatIaAttr,
    provider: DatProviderAttr,
    has_socket_conversion: bool,
    has_atomics: bool,
}

fn attributes(ia: DatIaHandle) -> Outcome<Attributes> {
    let mut evd = DAT_HANDLE_NULL;
    let mut attr = DatIaAttr::zeroed();
    let mut provider = DatProviderAttr::zeroed();
    call!(dat_ia_query(
        ia,
        &raw mut evd,
        DAT_IA_FIELD_ALL,
        &raw mut attr,
        DAT_PROVIDER_FIELD_ALL,
        &raw mut provider,
    ))?;
    let list = provider.provider_specific_attr;
    let count = if list.is_null() {
        0
    } else {
        size(provider.num_provider_specific_attr)
    };
    let named = |wanted: &CStr| {
        (0..count).any(|index| {
            // SAFETY: DAT's list has as many pairs, which stay while the adapter is open.
            let pair = unsafe { *list.add(index) };
            // SAFETY: the strings of a pair are null or have a terminating zero.
            let is = |text: *const c_char, wanted| unsafe {
                !text.is_null() && CStr::from_ptr(text) == wanted
            };
            is(pair.name, wanted) && is(pair.value, c"TRUE")
        })
    };
    Ok(Attributes {
        has_socket_conversion: named(DAT_IW_ATTR_SSP),
        has_atomics: named(DAT_IB_ATTR_FETCH_AND_ADD) && named(DAT_IB_ATTR_CMP_AND_SWAP),
        ia: attr,
        provider,
    })
}

/// A count of DAT, which is signed.
fn size(count: DatCount) -> usize {
    usize::try_from(count).unwrap_or(0)
}

impl Attributes {
    fn limits(&self) -> Limits {
        let segments = size(self.ia.max_iov_segments_per_dto);
        // Providers that leave these at zero mean the general limit.
        let or_general = |count| match size(count) {
            0 => segments,
            count => count,
        };
        Limits {
            dtos: size(self.ia.max_dto_per_ep),
            segments,
            read_segments: or_general(self.ia.max_iov_segments_per_rdma_read),
            write_segments: or_general(self.ia.max_iov_segments_per_rdma_write),
            ird: size(self.ia.max_rdma_read_per_ep_in),
            ord: size(self.ia.max_rdma_read_per_ep_out),
            queue: size(self.ia.max_evd_qlen),
            private_data: size(self.provider.max_private_data_size).min(PRIVATE_DATA),
        }
    }

    fn address(&self) -> Option<IpAddr> {
        address::of_dat(self.ia.ia_address_ptr).map(|address: SocketAddr| address.ip())
    }
}

/// Versions 1.0, 2.0 and 2.1.
fn check_version(major: u32, minor: u32) -> Outcome {
    match (major, minor) {
        (1, 0) | (2, 0 | 1) => Ok(()),
        (1 | 2, _) => Err(INVALID_MINOR_VERSION),
        _ => Err(INVALID_MAJOR_VERSION),
    }
}

fn open(name: &CStr) -> Outcome<(DatIaHandle, DatEvdHandle)> {
    let (mut ia, mut evd) = (DAT_HANDLE_NULL, DAT_HANDLE_NULL);
    // The registry finds an entry by its name and by whether it is thread safe. A provider that has
    // registered itself is in no list.
    let listed = entries()?;
    let entry = listed
        .iter()
        .find(|entry| entry.name.as_slice() == name.to_bytes());
    call!(dat_ia_openv(
        name.as_ptr().cast_mut(),
        ASYNC_LEN,
        &raw mut evd,
        &raw mut ia,
        DAT_VERSION_MAJOR,
        DAT_VERSION_MINOR,
        entry.map_or(DAT_FALSE, |entry| entry.is_thread_safe),
    ))
    .map_err(argument(INVALID_NAME))?;
    Ok((ia, evd))
}

#[unsafe(no_mangle)]
extern "C" fn it_ia_create(name: In<c_char>, major: u32, minor: u32, ia: Out<Handle>) -> Status {
    answer(|| {
        check_version(major, minor)?;
        ia.required()?;
        if name.is_null() {
            return Err(INVALID_NAME);
        }
        // SAFETY: the header asks for a string with its terminating zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr().cast()) };
        let (dat, async_evd) = open(name)?;
        let close = |status| {
            let _ = call!(dat_ia_close(dat, DAT_CLOSE_ABRUPT_FLAG));
            status
        };
        let attributes = attributes(dat).map_err(close)?;
        let object = Ia {
            name: name.to_bytes_with_nul().to_owned(),
            async_evd: async_evd.expose_provenance(),
            address: attributes.address(),
            limits: attributes.limits(),
            has_socket_conversion: attributes.has_socket_conversion,
            internal: Mutex::default(),
        };
        ia.write(handle::insert(Handle::NULL, dat, 0, object).map_err(close)?);
        Ok(())
    })
}

/// Ends the adapter with all its objects.
#[unsafe(no_mangle)]
extern "C" fn it_ia_free(ia: Handle) -> Status {
    answer(|| {
        let dat = handle::slot::<Ia>(ia)?.dat();
        // Handles end first, so that no callback finds an object of a closed adapter.
        if !handle::remove(ia) {
            return Err(INVALID_IA);
        }
        for child in handle::of_adapter(ia) {
            handle::remove(child);
        }
        call!(dat_ia_close(dat, DAT_CLOSE_ABRUPT_FLAG))
    })
}

/// The block that `it_ia_query` returns: the structures and the name that they point to.
#[repr(C)]
struct Block {
    info: IaInfo,
    spigot: SpigotInfo,
    address: NetAddr,
    name: [u8; DAT_NAME_MAX_LENGTH],
}

#[unsafe(no_mangle)]
extern "C" fn it_ia_query(ia: Handle, info: Out<*mut IaInfo>) -> Status {
    answer(|| {
        let (slot, object) = handle::find::<Ia>(ia)?;
        info.required()?;
        let attributes = attributes(slot.dat())?;
        // SAFETY: `malloc` has no requirements.
        let block: *mut Block = unsafe { libc::malloc(size_of::<Block>()) }.cast();
        if block.is_null() {
            return Err(RESOURCES);
        }
        let mut name = [0; DAT_NAME_MAX_LENGTH];
        let len = object.name.len().min(name.len() - 1);
        name[..len].copy_from_slice(&object.name[..len]);
        let filled = Block {
            info: describe(&object, &attributes),
            spigot: describe_spigot(&attributes),
            address: address::to_net(object.address),
            name,
        };
        // SAFETY: the block has this size, and the alignment that `malloc` guarantees suffices.
        unsafe {
            block.write(filled);
            (*block).info.ia_name = (&raw mut (*block).name).cast();
            (*block).info.spigot_info = &raw mut (*block).spigot;
            (*block).spigot.net_addr = &raw mut (*block).address;
        }
        info.write(block.cast());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_ia_info_free(info: *mut IaInfo) {
    // SAFETY: the program passes a pointer of `it_ia_query`, which is that of the block, or null.
    unsafe { libc::free(info.cast()) };
}

fn describe_spigot(attributes: &Attributes) -> SpigotInfo {
    SpigotInfo {
        spigot_id: SPIGOT,
        max_rc_send_len: attributes.ia.max_message_size as usize,
        max_rc_rdma_len: attributes.ia.max_rdma_size as usize,
        max_ud_send_len: 0,
        spigot_online: DAT_TRUE,
        active_side_conn_qual: IT_IANA_PORT | IT_IANA_LR_PORT,
        passive_side_conn_qual: IT_IANA_PORT | IT_IANA_LR_PORT,
        num_net_addr: 1,
        net_addr: std::ptr::null_mut(),
    }
}

fn describe(object: &Ia, attributes: &Attributes) -> IaInfo {
    let private_data = object.limits.private_data;
    let internal = lock(&object.internal);
    let has_srq = Boolean::from(attributes.provider.srq_supported != DAT_FALSE);
    let has_conversion = Boolean::from(object.has_socket_conversion);
    // OFA's library lacks some calls.
    let library = dat::library().ok();
    let has_unlink = library.is_some_and(|it| it.dat_ep_post_send_with_invalidate.is_some());
    let windows = windows(attributes);
    let write_for_read = attributes.provider.rdma_write_for_rdma_read_req;
    IaInfo {
        ia_name: std::ptr::null_mut(),
        api_major_version: 2,
        api_minor_version: 1,
        sw_major_version: attributes.provider.provider_version_major,
        sw_minor_version: attributes.provider.provider_version_minor,
        vendor: [0; 10],
        dto_alignment_hint: attributes.provider.optimal_buffer_alignment,
        transport_type: transport(object.has_socket_conversion),
        supported_service_types: IT_RC_SERVICE,
        ep_work_queues_resizable: 1,
        three_way_handshake_support: 0,
        private_data_support: 1,
        max_message_size_support: 0,
        // DAT does not report the depths of a connection request.
        ird_ord_ia_support: 0,
        ird_ord_suppressible: 0,
        spigot_online_support: 0,
        spigot_offline_support: 1,
        connect_private_data_len: private_data,
        accept_private_data_len: private_data,
        reject_private_data_len: private_data,
        disconnect_private_data_len: 0,
        ud_req_private_data_len: 0,
        ud_rep_private_data_len: 0,
        num_spigots: 1,
        spigot_info: std::ptr::null_mut(),
        affiliated_err_evd: internal.affiliated,
        unaffiliated_err_evd: internal.unaffiliated,
        srq_support: has_srq,
        hard_hi_watermark_support: has_srq & has_conversion,
        soft_hi_watermark_support: has_srq & has_conversion,
        srq_resizable: has_srq,
        extended_iwarp_qp_states: 0,
        socket_conversion_support: has_conversion,
        rdma_read_ord_increasable: 1,
        rdma_read_ird_modifiable: 1,
        rmr_types_supported: windows,
        addr_mode_relative_support: Boolean::from(attributes.ia.zb_supported != DAT_FALSE),
        rdma_read_requires_remote_write: Boolean::from(write_for_read != DAT_FALSE),
        ep_rdma_enables_modifiable: 0,
        rdma_read_local_extensions: 0,
        dto_evd_overflow_detection: 1,
        atomic_support: Boolean::from(attributes.has_atomics),
        lmr_link_support: 0,
        direct_lmr_handle_support: 0,
        direct_lmr_handle: Handle::NULL,
        post_send_unlink_remote_support: has_conversion & Boolean::from(has_unlink),
        narrow_rmr_unlink_support: Boolean::from(windows & IT_RMR_TYPE_NARROW != 0),
        wide_rmr_unlink_support: Boolean::from(windows & IT_RMR_TYPE_WIDE != 0),
        unlink_fence_support: 0,
        iobl_types_supported: 0,
    }
}

/// The types of windows that can be made.
fn windows(attributes: &Attributes) -> u32 {
    let library = dat::library().ok();
    let has_narrow = library.is_some_and(|it| it.dat_rmr_create_for_ep.is_some());
    match (attributes.ia.max_rmrs > 0, has_narrow) {
        (false, _) => 0,
        (true, false) => IT_RMR_TYPE_WIDE,
        (true, true) => IT_RMR_TYPE_WIDE | IT_RMR_TYPE_NARROW,
    }
}

/// DAT does not name the transport. Only adapters over TCP can convert sockets.
fn transport(has_socket_conversion: bool) -> u32 {
    match has_socket_conversion {
        true => IT_IWARP_TCP_TRANSPORT,
        false => IT_VENDOR_TRANSPORT,
    }
}

/// An entry of the registry.
struct Entry {
    name: Vec<u8>,
    is_thread_safe: DatBoolean,
}

/// The entries of version 2 in the registry.
fn entries() -> Outcome<Vec<Entry>> {
    const MOST: usize = 256;
    let mut infos = vec![DatProviderInfo::zeroed(); MOST];
    let mut pointers: Vec<*mut DatProviderInfo> = infos.iter_mut().map(|i| &raw mut *i).collect();
    let mut count = 0;
    call!(dat_registry_list_providers(
        MOST as DatCount,
        &raw mut count,
        pointers.as_mut_ptr(),
    ))?;
    let listed = infos.iter().take(size(count));
    let listed = listed.filter(|info| info.dapl_version_major == DAT_VERSION_MAJOR);
    let entry = |info: &DatProviderInfo| {
        let letters = info.ia_name.iter().take_while(|letter| **letter != 0);
        Entry {
            name: letters.map(|letter| letter.to_ne_bytes()[0]).collect(),
            is_thread_safe: info.is_thread_safe,
        }
    };
    Ok(listed.map(entry).collect())
}

/// The names that a program can receive and open, each once.
fn names() -> Outcome<Vec<[u8; NAME_SIZE]>> {
    let mut names = Vec::new();
    for Entry { name, .. } in entries()? {
        let mut padded = [0; NAME_SIZE];
        if name.len() < NAME_SIZE {
            padded[..name.len()].copy_from_slice(&name);
            if !names.contains(&padded) {
                names.push(padded);
            }
        }
    }
    Ok(names)
}

#[unsafe(no_mangle)]
extern "C" fn it_interface_list(list: Out<Interface>, count: Out<usize>, total: Out<usize>) {
    // The call has no status: without a registry there are no adapters.
    let _ = answer(|| {
        let names = names().unwrap_or_default();
        let room = match list.is_null() || count.is_null() {
            true => 0,
            false => count.read()?,
        };
        for (index, name) in names.iter().take(room).enumerate() {
            let interface = Interface {
                major_version: 2,
                minor_version: 1,
                // The registry does not say; `it_ia_query` returns the one of an open adapter.
                transport_type: IT_VENDOR_TRANSPORT,
                name: *name,
            };
            list.write_at(index, interface);
        }
        count.write(room.min(names.len()));
        total.write(names.len());
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn it_get_pathinfo(
    ia: Handle,
    spigot: usize,
    net_addr: In<NetAddr>,
    count: Out<usize>,
    total: Out<usize>,
    paths: Out<Path>,
) -> Status {
    answer(|| {
        let (_, object) = handle::find::<Ia>(ia)?;
        address::check_spigot(spigot)?;
        let remote = address::from_net(&net_addr.read()?)?;
        let room = count.required()?.read()?.min(1);
        if room == 1 {
            paths
                .required()?
                .write(address::path(object.address, Some(remote)));
        }
        count.write(room);
        total.write(1);
        Ok(())
    })
}
