//! Consumer notification object.

use dat_abi::*;

use super::guard::{Out, pin, pin_ia};
use crate::cno::Cno;
use crate::error::{DatError, DatResult};
use crate::handle::Pinned;
use crate::rnic::Rnic;

fn pin_cno<R: Rnic>(cno: DatCnoHandle) -> DatResult<Pinned<Cno<R>>> {
    pin(cno, DAT_INVALID_HANDLE_CNO)
}

pub(crate) unsafe fn cno_create<R: Rnic>(
    ia: DatIaHandle,
    agent: DatOsWaitProxyAgent,
    cno: *mut DatCnoHandle,
) -> DatResult {
    let ia = pin_ia::<R>(ia)?;
    let out = Out::required(cno, 3)?;
    out.write(Cno::create(&ia.to_arc(), agent)?.as_dat());
    Ok(())
}

pub(crate) unsafe fn cno_modify_agent<R: Rnic>(
    cno: DatCnoHandle,
    agent: DatOsWaitProxyAgent,
) -> DatResult {
    pin_cno::<R>(cno)?.modify_agent(agent)
}

pub(crate) unsafe fn cno_query<R: Rnic>(
    cno: DatCnoHandle,
    _mask: DatCnoParamMask,
    param: *mut DatCnoParam,
) -> DatResult {
    // The mask is ignored, because the header defines values for it that are not bits.
    let cno = pin_cno::<R>(cno)?;
    Out::required(param, 3)?.write(cno.query());
    Ok(())
}

pub(crate) unsafe fn cno_free<R: Rnic>(cno: DatCnoHandle) -> DatResult {
    Cno::free(&pin_cno::<R>(cno)?)
}

pub(crate) unsafe fn cno_wait<R: Rnic>(
    cno: DatCnoHandle,
    timeout_us: DatTimeout,
    evd: *mut DatEvdHandle,
) -> DatResult {
    // OFA's providers omit the class bit here.
    let bad = DatError::bare(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
    let cno = pin_cno::<R>(cno).map_err(|_| bad)?;
    let out = Out::required(evd, 3)?;
    let result = cno.wait(timeout_us);
    // Written on failure as well, because consumers check the null handle after a timeout.
    out.write(result.map_or(DAT_HANDLE_NULL, |evd| evd.as_dat()));
    result.map(drop)
}

pub(crate) unsafe fn cno_fd_create<R: Rnic>(
    ia: DatIaHandle,
    fd: *mut DatFd,
    cno: *mut DatCnoHandle,
) -> DatResult {
    let ia = pin_ia::<R>(ia)?;
    let fd_out = Out::required(fd, 2)?;
    let cno_out = Out::required(cno, 3)?;
    let (cno, fd) = Cno::create_with_fd(&ia.to_arc())?;
    fd_out.write(fd);
    cno_out.write(cno.as_dat());
    Ok(())
}

pub(crate) unsafe fn cno_trigger<R: Rnic>(cno: DatCnoHandle, evd: *mut DatEvdHandle) -> DatResult {
    let cno = pin_cno::<R>(cno)?;
    let out = Out::required(evd, 2)?;
    let result = cno.take_trigger();
    // Written on failure as well, because consumers check the null handle when nothing has
    // triggered.
    out.write(result.map_or(DAT_HANDLE_NULL, |evd| evd.as_dat()));
    result.map(drop)
}
