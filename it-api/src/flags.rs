//! `it_dto_flags_t` as DAT's completion flags.

use dat_abi::*;

use crate::status::*;

const COMPLETION: u32 = 0x1;
const NOTIFY: u32 = 0x2;
const SOLICITED_WAIT: u32 = 0x4;
const BARRIER_FENCE: u32 = 0x8;
const UNLINK_FENCE: u32 = 0x10;
const UNLINK_LOCAL_SINK: u32 = 0x20;

/// The flags of a request. No completion means no event on success; a completion without
/// notification is an event that wakes no waiter.
pub(crate) fn of_request(flags: u32) -> Outcome<DatCompletionFlags> {
    check(flags)?;
    let mut dat = match (flags & COMPLETION, flags & NOTIFY) {
        (0, 0) => DAT_COMPLETION_SUPPRESS_FLAG,
        (_, 0) => DAT_COMPLETION_UNSIGNALLED_FLAG,
        _ => DAT_COMPLETION_DEFAULT_FLAG,
    };
    if flags & SOLICITED_WAIT != 0 {
        dat |= DAT_COMPLETION_SOLICITED_WAIT_FLAG;
    }
    if flags & (BARRIER_FENCE | UNLINK_FENCE) != 0 {
        dat |= DAT_COMPLETION_BARRIER_FENCE_FLAG;
    }
    Ok(dat)
}

/// Checks the flags of a receive. A receive always has an event that notifies, because DAT cannot
/// leave the choice to the flags of the message that it receives.
pub(crate) fn check(flags: u32) -> Outcome {
    if flags & UNLINK_LOCAL_SINK != 0 {
        return Err(OP_NOT_SUPPORTED);
    }
    match flags < UNLINK_LOCAL_SINK {
        true => Ok(()),
        false => Err(INVALID_DTO_FLAGS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_and_notification_are_chosen_separately() {
        assert_eq!(of_request(0), Ok(DAT_COMPLETION_SUPPRESS_FLAG));
        assert_eq!(of_request(1), Ok(DAT_COMPLETION_UNSIGNALLED_FLAG));
        assert_eq!(of_request(3), Ok(0));
        assert_eq!(of_request(2), Ok(0));
        assert_eq!(of_request(0xF), Ok(0xA));
    }

    #[test]
    fn flags_that_dat_lacks_are_refused() {
        assert_eq!(of_request(0x21), Err(OP_NOT_SUPPORTED));
        assert_eq!(of_request(0x43), Err(INVALID_DTO_FLAGS));
        assert_eq!(check(0x80), Err(INVALID_DTO_FLAGS));
    }
}
