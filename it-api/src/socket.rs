//! Conversion of a socket: a TCP connection becomes the connection of an endpoint.
//!
//! The end that passes a message, which may be empty, is the passive one: the message is sent as
//! the last one in streaming mode, and the endpoint waits for the peer's request. It is a Socket
//! Service Point of DAT, whose request `asynchronous` accepts. The end that passes no message sends
//! the request.

use dat_abi::*;

use crate::abi::*;
use crate::asynchronous;
use crate::ep::Ep;
use crate::handle;
use crate::ia::Ia;
use crate::status::*;

/// Converts without the frames of MPA's start-up, which DAT cannot.
const NO_REQ_REP: u32 = 1;

#[unsafe(no_mangle)]
extern "C" fn it_socket_convert(
    socket: i32,
    ep: Handle,
    flags: u32,
    message: In<u8>,
    message_len: usize,
) -> Status {
    answer(|| {
        let (slot, object) = handle::find::<Ep>(ep)?;
        let ia = slot.ia();
        let (dat_ia, adapter) = handle::find::<Ia>(ia)?;
        match flags {
            0 => {}
            NO_REQ_REP => return Err(OP_NOT_SUPPORTED),
            _ => return Err(INVALID_FLAGS),
        }
        if !adapter.has_socket_conversion {
            return Err(OP_NOT_SUPPORTED);
        }
        let refused = |outcome: Outcome| {
            outcome
                .map_err(argument(INVALID_CONVERSION))
                .map_err(instead(INVALID_EVD_STATE, INVALID_CONVERSION))
        };
        if message.is_null() {
            if message_len != 0 {
                return Err(FAULT);
            }
            return refused(call!(dat_extension_op(
                slot.dat(),
                DAT_IW_SOCKET_CONNECT_OP,
                socket,
                DAT_TIMEOUT_INFINITE,
                0_i32,
                std::ptr::null::<u8>(),
            )));
        }
        let message_len = i32::try_from(message_len).map_err(|_| INVALID_LENGTH)?;
        let requests = asynchronous::requests(ia)?;
        asynchronous::convert(ia, ep, object.connect_sevd, || {
            let mut ssp: DatIwSspHandle = DAT_HANDLE_NULL;
            refused(call!(dat_extension_op(
                dat_ia.dat(),
                DAT_IW_SSP_CREATE_OP,
                socket,
                slot.dat(),
                requests,
                message.as_ptr(),
                message_len,
                &raw mut ssp,
            )))?;
            Ok(ssp)
        })
    })
}
