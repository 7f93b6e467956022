//! Words that the program stores with an object, and the kind of an object.

use crate::abi::{Handle, Out};
use crate::handle::{self, Kind};
use crate::status::*;

/// The slot of an object of the program, and its kind. A connection request is none.
fn object(handle: Handle) -> Outcome<(&'static handle::Slot, u8)> {
    handle::any(handle)
        .filter(|(_, kind)| *kind != Kind::Request as u8)
        .ok_or(INVALID_HANDLE)
}

#[unsafe(no_mangle)]
extern "C" fn it_get_handle_type(handle: Handle, kind: Out<u32>) -> Status {
    answer(|| {
        let (_, found) = object(handle)?;
        kind.required()?.write(found.into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_set_consumer_context(handle: Handle, context: u64) -> Status {
    answer(|| {
        object(handle)?.0.set_context(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_get_consumer_context(handle: Handle, context: Out<u64>) -> Status {
    answer(|| {
        let (slot, _) = object(handle)?;
        context.required()?;
        context.write(slot.context().ok_or(NO_CONTEXT)?);
        Ok(())
    })
}
