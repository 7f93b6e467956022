//! Connections: listening, connecting, and answering requests.

use std::ffi::c_void;
use std::net::{IpAddr, SocketAddr};

use dat_abi::*;

use crate::abi::*;
use crate::address::{self, SPIGOT};
use crate::handle::{self, Kind, Object};
use crate::ia::Ia;
use crate::queue;
use crate::status::*;

const LISTEN_CONN_QUAL_INPUT: u32 = 1;
const CONNECT_TWO_WAY: u32 = 1;

/// A listener.
#[derive(Debug)]
struct Listen(ListenParam);

impl Object for Listen {
    const KIND: Kind = Kind::Listen;
    const WRONG: Status = INVALID_LISTEN;
}

/// A connection request that the program has not answered.
#[derive(Debug)]
pub(crate) struct Request;

impl Object for Request {
    const KIND: Kind = Kind::Request;
    const WRONG: Status = INVALID_CN_EST_ID;
}

/// The port that a qualifier names, at this end or at the other.
fn port(qualifier: &ConnQual, is_remote: bool) -> Outcome<u16> {
    let word = match qualifier.kind {
        IT_IANA_PORT => 0,
        IT_IANA_LR_PORT => usize::from(is_remote),
        _ => return Err(INVALID_CONN_QUAL),
    };
    Ok(u16::from_be(qualifier.words[word]))
}

#[unsafe(no_mangle)]
extern "C" fn it_listen_create(
    ia: Handle,
    spigot: usize,
    evd: Handle,
    flags: u32,
    conn_qual: Out<ConnQual>,
    listen: Out<Handle>,
) -> Status {
    answer(|| {
        let slot = handle::slot::<Ia>(ia)?;
        address::check_spigot(spigot)?;
        let dat_evd = queue::sevd(evd, ia, &[CM_REQ_STREAM], INVALID_CONN_EVD)?;
        listen.required()?;
        let mut qualifier = conn_qual.read()?;
        let mut dat = DAT_HANDLE_NULL;
        match flags {
            LISTEN_CONN_QUAL_INPUT => call!(dat_psp_create(
                slot.dat(),
                port(&qualifier, false)?.into(),
                dat_evd,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut dat,
            )),
            0 => {
                let mut chosen = 0;
                let created = call!(dat_psp_create_any(
                    slot.dat(),
                    &raw mut chosen,
                    dat_evd,
                    DAT_PSP_CONSUMER_FLAG,
                    &raw mut dat,
                ));
                let kind = match qualifier.kind {
                    IT_IANA_LR_PORT => IT_IANA_LR_PORT,
                    _ => IT_IANA_PORT,
                };
                qualifier = ConnQual::local_port(kind, chosen as u16);
                created
            }
            _ => Err(INVALID_FLAGS),
        }
        .map_err(argument(INVALID_CONN_QUAL))?;
        let object = Listen(ListenParam {
            ia,
            spigot,
            evd,
            conn_qual: qualifier,
        });
        let handle = handle::insert(ia, dat, 0, object);
        listen.write(handle.inspect_err(|_| {
            let _ = call!(dat_psp_free(dat));
        })?);
        conn_qual.write(qualifier);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_listen_free(listen: Handle) -> Status {
    answer(|| {
        let slot = handle::slot::<Listen>(listen)?;
        call!(dat_psp_free(slot.dat()))?;
        handle::remove(listen);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_listen_query(listen: Handle, mask: u32, params: Out<ListenParam>) -> Status {
    answer(|| {
        let (_, object) = handle::find::<Listen>(listen)?;
        check_mask(mask, 0x10)?;
        params.required()?.write(object.0);
        Ok(())
    })
}

/// Private data for DAT: length and pointer. `ia` limits the length.
fn private_data(ia: Handle, data: In<u8>, len: usize) -> Outcome<(DatCount, *const c_void)> {
    let (_, adapter) = handle::find::<Ia>(ia)?;
    if len > adapter.limits.private_data {
        return Err(INVALID_PDATA_LENGTH);
    }
    if len > 0 && data.is_null() {
        return Err(FAULT);
    }
    Ok((len as DatCount, data.as_ptr().cast()))
}

#[unsafe(no_mangle)]
extern "C" fn it_ep_connect(
    ep: Handle,
    path: In<Path>,
    _attributes: In<u64>,
    conn_qual: In<ConnQual>,
    flags: u32,
    data: In<u8>,
    data_len: usize,
) -> Status {
    answer(|| {
        let slot = handle::of_kind(ep, Kind::Ep).ok_or(INVALID_EP)?;
        // The other flags need a third message, or depths that the requester does not send.
        if flags != CONNECT_TWO_WAY {
            return Err(INVALID_CN_EST_FLAGS);
        }
        let path = path.read()?;
        let port = port(&conn_qual.read()?, true)?;
        let remote = SocketAddr::new(address::remote_of(&path)?, 0);
        let (len, data) = private_data(slot.ia(), data, data_len)?;
        // Programs that leave the limit at 0 mean none.
        let timeout = match address::timeout(path.timeout_us) {
            0 => DAT_TIMEOUT_INFINITE,
            timeout => timeout,
        };
        let mut remote = CSocketAddr::from(remote);
        call!(dat_ep_connect(
            slot.dat(),
            remote.as_ptr(),
            port.into(),
            timeout,
            len,
            data,
            DAT_QOS_BEST_EFFORT,
            DAT_CONNECT_DEFAULT_FLAG,
        ))
        .map_err(argument(INVALID_CONN_QUAL))
        .map_err(instead(INVALID_EVD_STATE, INVALID_EP_STATE))
    })
}

/// Answers a request. The handle ends with the answer, and stays if the answer was refused.
fn answer_request(id: Handle, answer: impl FnOnce(DatCrHandle) -> Outcome) -> Outcome {
    let slot = handle::slot::<Request>(id)?;
    answer(slot.dat())?;
    handle::remove(id);
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn it_ep_accept(ep: Handle, id: Handle, data: In<u8>, data_len: usize) -> Status {
    answer(|| {
        let slot = handle::of_kind(ep, Kind::Ep).ok_or(INVALID_EP)?;
        let (len, data) = private_data(slot.ia(), data, data_len)?;
        answer_request(id, |cr| {
            call!(dat_cr_accept(cr, slot.dat(), len, data))
                .map_err(argument(INVALID_PDATA_LENGTH))
                .map_err(instead(INVALID_EVD_STATE, INVALID_EP_STATE))
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_reject(id: Handle, data: In<u8>, data_len: usize) -> Status {
    answer(|| {
        let slot = handle::slot::<Request>(id)?;
        let (len, data) = private_data(slot.ia(), data, data_len)?;
        answer_request(id, |cr| call!(dat_cr_reject(cr, len, data)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_handoff(conn_qual: In<ConnQual>, spigot: usize, id: Handle) -> Status {
    answer(|| {
        address::check_spigot(spigot)?;
        let port = port(&conn_qual.read()?, false)?;
        answer_request(id, |cr| {
            call!(dat_cr_handoff(cr, port.into())).map_err(argument(INVALID_CONN_QUAL))
        })
    })
}

/// The event of a connection request, with a new handle for the request.
pub(crate) fn request_event(
    evd: Handle,
    ia: Handle,
    arrival: &DatCrArrivalEventData,
) -> Outcome<RequestEvent> {
    let cr = arrival.cr_handle;
    let mut param = DatCrParam {
        remote_ia_address_ptr: std::ptr::null_mut(),
        remote_port_qual: 0,
        private_data_size: 0,
        private_data: std::ptr::null_mut(),
        local_ep_handle: DAT_HANDLE_NULL,
    };
    call!(dat_cr_query(cr, DAT_CR_FIELD_ALL, &raw mut param))?;
    let source: Option<IpAddr> =
        address::of_dat(param.remote_ia_address_ptr).map(|address| address.ip());
    let id = handle::insert(ia, cr, 0, Request)?;
    Ok(RequestEvent {
        number: CONN_REQUEST,
        evd,
        private_data: copied(param.private_data, param.private_data_size),
        has_private_data: Boolean::from(param.private_data_size > 0),
        id,
        conn_qual: ConnQual::local_port(IT_IANA_PORT, arrival.conn_qual as u16),
        source: address::to_net(source),
        spigot: SPIGOT,
        max_message_size: 0,
        rdma_read_ird: 0,
        rdma_read_ord: 0,
    })
}

/// The beginning of private data that DAT returns.
pub(crate) fn copied(data: DatPvoid, len: DatCount) -> PrivateData {
    let mut copy = [0; PRIVATE_DATA];
    let len = usize::try_from(len).unwrap_or(0).min(PRIVATE_DATA);
    if !data.is_null() {
        // SAFETY: DAT's private data has this length, and stays until the request is answered or
        // the endpoint is reset.
        unsafe {
            data.cast::<u8>()
                .copy_to_nonoverlapping(copy.as_mut_ptr(), len)
        };
    }
    copy
}
