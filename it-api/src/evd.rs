//! The calls of event dispatchers.

use dat_abi::*;
use host::locks::lock;

use crate::abi::*;
use crate::aevd::{self, DEQUEUE_NOTIFICATIONS, Deadline};
use crate::asynchronous::{self, take_triggers};
use crate::event;
use crate::handle::{self, Slot};
use crate::ia::Ia;
use crate::queue::{self, Callback, CallbackRoutine, Evd, Notifier, Settings};
use crate::srq::count;
use crate::status::*;

const CREATE_FD: u32 = 0x2;
const OVERFLOW_AUTO_RESET: u32 = 0x10;
const FLAGS: u32 = 0x1F;

/// The streams of DAT that an SEVD of a stream receives. Events that the library makes are
/// software events.
fn dat_streams(stream: EventNumber) -> Outcome<DatEvdFlags> {
    match stream {
        DTO_STREAM => Ok(DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG),
        CM_REQ_STREAM | CM_MSG_STREAM => {
            Ok(DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_SOFTWARE_FLAG)
        }
        AFF_STREAM | UNAFF_STREAM | SOFTWARE_STREAM => Ok(DAT_EVD_SOFTWARE_FLAG),
        _ => Err(INVALID_EVD_TYPE),
    }
}

/// Checks the flags of an EVD. DAT reports every overflow, and no event is received after one.
fn check_flags(stream: EventNumber, flags: u32, aevd: Handle) -> Outcome {
    let is_aggregate = stream == AEVD_STREAM;
    if flags & !FLAGS != 0 || (flags & DEQUEUE_NOTIFICATIONS != 0 && !is_aggregate) {
        return Err(INVALID_FLAGS);
    }
    if flags & OVERFLOW_AUTO_RESET != 0 {
        return Err(OP_NOT_SUPPORTED);
    }
    if is_aggregate && !aevd.is_null() {
        return Err(AEVD_NOT_ALLOWED);
    }
    // The descriptor belongs to the AEVD then.
    match flags & CREATE_FD != 0 && !aevd.is_null() {
        true => Err(MISMATCH_FD),
        false => Ok(()),
    }
}

/// Makes a CNO, with a descriptor if the flags ask for one.
fn make_cno(ia: DatIaHandle, flags: u32) -> Outcome<Notifier> {
    let mut notifier = Notifier::default();
    let mut cno = DAT_HANDLE_NULL;
    if flags & CREATE_FD != 0 {
        let mut descriptor = -1;
        call!(optional dat_cno_fd_create(ia, &raw mut descriptor, &raw mut cno))?;
        notifier.descriptor = Some(descriptor);
    } else {
        call!(dat_cno_create(ia, no_agent(), &raw mut cno))?;
    }
    notifier.set_cno(cno);
    Ok(notifier)
}

fn no_agent() -> DatOsWaitProxyAgent {
    DatOsWaitProxyAgent {
        instance_data: std::ptr::null_mut(),
        proxy_agent_func: None,
    }
}

fn free_cno(notifier: &Notifier) {
    if let Some(cno) = notifier.cno() {
        let _ = call!(dat_cno_free(cno));
    }
}

fn create_aggregate(ia: Handle, dat_ia: DatIaHandle, flags: u32) -> Outcome<(Handle, Notifier)> {
    let notifier = make_cno(dat_ia, flags)?;
    let settings = Settings {
        queue_size: 0,
        threshold: 0,
        aevd: Handle::NULL,
        is_enabled: true,
    };
    let object = Evd::new(ia, AEVD_STREAM, flags, settings, notifier);
    let dat = notifier.cno().unwrap_or(DAT_HANDLE_NULL);
    let made = handle::insert(ia, dat, AEVD_STREAM.into(), object);
    let handle = made.inspect_err(|_| free_cno(&notifier))?;
    Ok((handle, notifier))
}

fn create_simple(
    ia: Handle,
    dat_ia: DatIaHandle,
    stream: EventNumber,
    flags: u32,
    settings: Settings,
) -> Outcome<(Handle, Notifier)> {
    let streams = dat_streams(stream)?;
    let (_, adapter) = handle::find::<Ia>(ia)?;
    if settings.queue_size == 0 {
        return Err(INVALID_QUEUE_SIZE);
    }
    if settings.queue_size > adapter.limits.queue {
        return Err(RESOURCE_QUEUE_SIZE);
    }
    if settings.threshold > settings.queue_size {
        return Err(INVALID_THRESHOLD);
    }
    let (aggregate, mut cno) = aggregate(ia, settings.aevd)?;
    let notifier = match flags & CREATE_FD {
        0 => Notifier::default(),
        _ => make_cno(dat_ia, flags)?,
    };
    cno = notifier.cno().unwrap_or(cno);
    let mut dat = DAT_HANDLE_NULL;
    let len = count(settings.queue_size, RESOURCE_QUEUE_SIZE)?;
    call!(dat_evd_create(dat_ia, len, cno, streams, &raw mut dat))
        .inspect_err(|_| free_cno(&notifier))?;
    let object = Evd::new(ia, stream, flags, settings, notifier);
    let made = handle::insert(ia, dat, stream.into(), object);
    let attached = made.and_then(|handle| {
        queue::name(dat, handle)?;
        if stream == AFF_STREAM || stream == UNAFF_STREAM {
            asynchronous::attach(ia, stream, handle)?;
        }
        Ok(handle)
    });
    let handle = attached.inspect_err(|_| {
        let _ = made.map(handle::remove);
        let _ = call!(dat_evd_free(dat));
        free_cno(&notifier);
    })?;
    if let Some(aggregate) = aggregate {
        lock(&aggregate.members).push(handle);
    }
    Ok((handle, notifier))
}

/// The AEVD of an adapter that `aevd` names, if it is not null, and its CNO.
fn aggregate(ia: Handle, aevd: Handle) -> Outcome<(Option<std::sync::Arc<Evd>>, DatCnoHandle)> {
    if aevd.is_null() {
        return Ok((None, DAT_HANDLE_NULL));
    }
    let (slot, object) = handle::find::<Evd>(aevd).map_err(|_| INVALID_AEVD)?;
    match object.is_aggregate() && object.ia == ia {
        true => Ok((Some(object), slot.dat())),
        false => Err(INVALID_AEVD),
    }
}

#[unsafe(no_mangle)]
extern "C" fn it_evd_create(
    ia: Handle,
    stream: EventNumber,
    flags: u32,
    queue_size: usize,
    threshold: usize,
    aevd: Handle,
    evd: Out<Handle>,
    fd: Out<i32>,
) -> Status {
    answer(|| {
        let slot = handle::slot::<Ia>(ia)?;
        evd.required()?;
        check_flags(stream, flags, aevd)?;
        if flags & CREATE_FD != 0 {
            fd.required()?;
        }
        let (handle, notifier) = match stream {
            AEVD_STREAM => create_aggregate(ia, slot.dat(), flags)?,
            _ => {
                let settings = Settings {
                    queue_size,
                    threshold,
                    aevd,
                    is_enabled: true,
                };
                create_simple(ia, slot.dat(), stream, flags, settings)?
            }
        };
        evd.write(handle);
        if let Some(descriptor) = notifier.descriptor {
            fd.write(descriptor);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_evd_free(evd: Handle) -> Status {
    answer(|| {
        let (slot, object) = handle::find::<Evd>(evd)?;
        if object.is_aggregate() {
            if !lock(&object.members).is_empty() {
                return Err(EVD_BUSY);
            }
            call!(dat_cno_free(slot.dat())).map_err(instead(INVALID_EVD_STATE, EVD_BUSY))?;
        } else {
            call!(dat_evd_free(slot.dat()))?;
            leave(evd, lock(&object.settings).aevd);
            asynchronous::detach(object.ia, evd);
        }
        // The notifier's lock is not held while the CNO ends, because a callback may need it.
        let notifier = std::mem::take(&mut *lock(&object.notifier));
        handle::remove(evd);
        if !object.is_aggregate() {
            free_cno(&notifier);
        }
        Ok(())
    })
}

/// Removes an SEVD from its AEVD.
fn leave(evd: Handle, aevd: Handle) {
    if let Ok((_, object)) = handle::find::<Evd>(aevd) {
        lock(&object.members).retain(|member| *member != evd);
    }
}

#[unsafe(no_mangle)]
extern "C" fn it_evd_query(evd: Handle, mask: u32, params: Out<EvdParam>) -> Status {
    answer(|| {
        let (_, object) = handle::find::<Evd>(evd)?;
        check_mask(mask, 0x800)?;
        let settings = *lock(&object.settings);
        let notifier = *lock(&object.notifier);
        params.required()?.write(EvdParam {
            ia: object.ia,
            event_number: object.stream,
            flags: object.flags,
            queue_size: settings.queue_size,
            threshold: settings.threshold,
            aevd: settings.aevd,
            fd: notifier.descriptor.unwrap_or(-1),
            is_bound: Boolean::from(!lock(&object.members).is_empty()),
            is_enabled: Boolean::from(settings.is_enabled),
            is_overflowed: 0,
            has_callback: Boolean::from(notifier.callback.is_some()),
        });
        Ok(())
    })
}

/// Changes queue size, threshold, AEVD and whether the SEVD notifies.
#[unsafe(no_mangle)]
extern "C" fn it_evd_modify(evd: Handle, mask: u32, params: In<EvdParam>) -> Status {
    const QUEUE_SIZE: u32 = 0x10;
    const THRESHOLD: u32 = 0x20;
    const AEVD: u32 = 0x40;
    const ENABLED: u32 = 0x200;
    answer(|| {
        let (slot, object) = handle::find::<Evd>(evd)?;
        if mask == 0 || mask & !(QUEUE_SIZE | THRESHOLD | AEVD | ENABLED) != 0 {
            return Err(INVALID_MASK);
        }
        if object.is_aggregate() {
            return Err(INVALID_EVD_TYPE);
        }
        let wanted = params.read()?;
        let mut settings = lock(&object.settings);
        if mask & QUEUE_SIZE != 0 {
            let len = count(wanted.queue_size, INVALID_QUEUE_SIZE)?;
            call!(dat_evd_resize(slot.dat(), len)).map_err(argument(INVALID_QUEUE_SIZE))?;
            settings.queue_size = wanted.queue_size;
        }
        if mask & THRESHOLD != 0 {
            if wanted.threshold > settings.queue_size {
                return Err(INVALID_THRESHOLD);
            }
            settings.threshold = wanted.threshold;
        }
        if mask & AEVD != 0 {
            if lock(&object.notifier).cno.is_some() {
                return Err(MISMATCH_FD);
            }
            let (aggregate, cno) = aggregate(object.ia, wanted.aevd)?;
            call!(dat_evd_modify_cno(slot.dat(), cno))?;
            leave(evd, settings.aevd);
            settings.aevd = wanted.aevd;
            if let Some(aggregate) = aggregate {
                lock(&aggregate.members).push(evd);
            }
        }
        if mask & ENABLED != 0 {
            settings.is_enabled = wanted.is_enabled != 0;
            match settings.is_enabled {
                true => call!(dat_evd_enable(slot.dat()))?,
                false => call!(dat_evd_disable(slot.dat()))?,
            }
        }
        Ok(())
    })
}

/// The only lock on this path is that of the DAT queue, unless the SEVD is empty or an AEVD.
#[unsafe(no_mangle)]
extern "C" fn it_evd_dequeue(evd: Handle, event: Out<Event>) -> Status {
    answer(|| {
        let slot = handle::slot::<Evd>(evd)?;
        event.required()?;
        if slot.key() == u64::from(AEVD_STREAM) {
            let (slot, object) = handle::find::<Evd>(evd)?;
            return aevd::dequeue(evd, slot, &object, event);
        }
        let taken = event::take(evd, slot, event);
        if taken != Err(QUEUE_EMPTY) {
            return taken;
        }
        let (_, object) = handle::find::<Evd>(evd)?;
        let notifier = *lock(&object.notifier);
        match (notifier.cno(), notifier.descriptor) {
            // The descriptor is readable until the trigger is taken. An event may have arrived in
            // between.
            (Some(cno), Some(_)) => {
                take_triggers(cno);
                event::take(evd, slot, event)
            }
            _ => taken,
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_evd_wait(
    evd: Handle,
    timeout_us: u64,
    event: Out<Event>,
    nmore: Out<usize>,
) -> Status {
    answer(|| {
        let (slot, object) = handle::find::<Evd>(evd)?;
        event.required()?;
        if lock(&object.notifier).callback.is_some() {
            return Err(CALLBACK_EXISTS);
        }
        let deadline = Deadline::after(timeout_us);
        if object.is_aggregate() {
            aevd::wait(evd, slot, &object, deadline, event)?;
            nmore.write(0);
            return Ok(());
        }
        let threshold = lock(&object.settings).threshold.max(1);
        let threshold = count(threshold, INVALID_THRESHOLD)?;
        wait_simple(evd, slot, threshold, deadline, event, nmore)
    })
}

fn wait_simple(
    evd: Handle,
    slot: &Slot,
    threshold: DatCount,
    deadline: Deadline,
    event: Out<Event>,
    nmore: Out<usize>,
) -> Outcome {
    loop {
        let mut dat = DatEvent::zeroed();
        let mut more = 0;
        let waited = call!(dat_evd_wait(
            slot.dat(),
            deadline.left(),
            threshold,
            &raw mut dat,
            &raw mut more,
        ));
        match waited.map_err(argument(INVALID_THRESHOLD)) {
            Ok(()) if event::deliver(evd, slot, &dat, event) => {
                nmore.write(more.unsigned_abs() as usize);
                return Ok(());
            }
            Ok(()) => {}
            Err(TIMEOUT_EXPIRED) if !deadline.is_over() => {}
            Err(status) => return Err(status),
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn it_evd_post_se(evd: Handle, data: u64) -> Status {
    answer(|| {
        let slot = handle::slot::<Evd>(evd)?;
        if slot.key() != u64::from(SOFTWARE_STREAM) {
            return Err(INVALID_SOFT_EVD);
        }
        let mut event = DatEvent::zeroed();
        event.event_number = DAT_SOFTWARE_EVENT;
        event.event_data.software_event_data = DatSoftwareEventData {
            pointer: std::ptr::with_exposed_provenance_mut(data as usize),
        };
        call!(dat_evd_post_se(slot.dat(), &raw const event))
    })
}

fn agent_of(evd: Handle) -> DatOsWaitProxyAgent {
    DatOsWaitProxyAgent {
        instance_data: std::ptr::without_provenance_mut(evd.0 as usize),
        proxy_agent_func: Some(agent),
    }
}

/// Called by DAT when the EVD is notified. The data is its handle, which is looked up and never
/// dereferenced.
unsafe extern "C" fn agent(instance: DatPvoid, _evd: DatEvdHandle) {
    let evd = Handle(instance.addr() as u64);
    let _ = answer(|| {
        let (_, object) = handle::find::<Evd>(evd)?;
        let notifier = *lock(&object.notifier);
        let (Some(cno), Some(callback)) = (notifier.cno(), notifier.callback) else {
            return Ok(());
        };
        // Set again before the program reads its events: an event after that calls once more.
        call!(dat_cno_modify_agent(cno, agent_of(evd)))?;
        take_triggers(cno);
        // SAFETY: the program passed routine and argument together, for this call.
        unsafe { (callback.routine)(evd, callback.argument) };
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn it_evd_callback_attach(
    evd: Handle,
    routine: Option<CallbackRoutine>,
    argument: u64,
) -> Status {
    answer(|| {
        let (slot, object) = handle::find::<Evd>(evd)?;
        let routine = routine.ok_or(FAULT)?;
        if !lock(&object.settings).aevd.is_null() {
            return Err(AEVD_NOT_ALLOWED);
        }
        {
            let mut notifier = lock(&object.notifier);
            if notifier.callback.is_some() {
                return Err(CALLBACK_EXISTS);
            }
            if notifier.descriptor.is_some() {
                return Err(MISMATCH_FD);
            }
            notifier.callback = Some(Callback { routine, argument });
        }
        // Without the lock, because DAT waits for an agent that runs, and the agent needs the lock.
        let attached = match object.is_aggregate() {
            true => call!(dat_cno_modify_agent(slot.dat(), agent_of(evd))),
            false => attach_simple(evd, slot, &object),
        };
        attached.inspect_err(|_| lock(&object.notifier).callback = None)
    })
}

/// Gives an SEVD a CNO with the agent. Events that are queued already cause a call.
fn attach_simple(evd: Handle, slot: &Slot, object: &Evd) -> Outcome {
    let ia = handle::slot::<Ia>(slot.ia())?.dat();
    let mut cno = DAT_HANDLE_NULL;
    call!(dat_cno_create(ia, no_agent(), &raw mut cno))?;
    // The agent finds the CNO, whenever its first call is.
    lock(&object.notifier).set_cno(cno);
    let attached = call!(dat_cno_modify_agent(cno, agent_of(evd)))
        .and_then(|()| call!(dat_evd_modify_cno(slot.dat(), cno)));
    attached.inspect_err(|_| {
        lock(&object.notifier).cno = None;
        let _ = call!(dat_cno_free(cno));
    })
}

/// When the call returns, the callback is no longer running, unless it made the call itself.
#[unsafe(no_mangle)]
extern "C" fn it_evd_callback_detach(evd: Handle) -> Status {
    answer(|| {
        let (slot, object) = handle::find::<Evd>(evd)?;
        let cno = {
            let mut notifier = lock(&object.notifier);
            notifier.callback.take().ok_or(INVALID_EVD_STATE)?;
            match object.is_aggregate() {
                true => notifier.cno(),
                false => notifier
                    .cno
                    .take()
                    .map(std::ptr::with_exposed_provenance_mut),
            }
        };
        let cno = cno.ok_or(INVALID_EVD_STATE)?;
        call!(dat_cno_modify_agent(cno, no_agent()))?;
        if !object.is_aggregate() {
            call!(dat_evd_modify_cno(slot.dat(), DAT_HANDLE_NULL))?;
            call!(dat_cno_free(cno))?;
        }
        Ok(())
    })
}
