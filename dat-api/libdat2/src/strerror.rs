//! Return codes as text.

use dat_abi::*;
use std::ffi::CStr;

/// Major text, minor text, and the result of `dat_strerror`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// Name of the type.
    pub major: &'static CStr,
    /// Name of the subtype; empty if there is none. It is never null, because programs print it
    /// without a check.
    pub minor: &'static CStr,
    /// Success if both parts are defined.
    pub status: DatReturn,
}

/// Describes a code; the class bits are ignored.
#[must_use]
pub fn describe(code: DatReturn) -> Text {
    let major = code.ty().name();
    let minor = if code.subtype() == DAT_NO_SUBTYPE {
        Some(c"")
    } else {
        code.subtype().name()
    };
    let known = major.is_some() && minor.is_some();
    Text {
        major: major.unwrap_or(c"unknown error"),
        minor: minor.unwrap_or(c"unknown minor error"),
        status: if known {
            DatReturn::SUCCESS
        } else {
            // OFA's library omits the class bit here.
            DatReturn::without_class(DAT_INVALID_PARAMETER, DAT_NO_SUBTYPE)
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(code: u32) -> (&'static CStr, &'static CStr, u32) {
        let text = describe(DatReturn(code));
        (text.major, text.minor, text.status.0)
    }

    #[test]
    fn known_codes() {
        assert_eq!(text(0), (c"DAT_SUCCESS", c"", 0));
        let expected = (c"DAT_INVALID_HANDLE", c"DAT_INVALID_HANDLE_IA", 0);
        assert_eq!(text(0x8005_000B), expected);
        assert_eq!(text(0x4005_000B), expected);
        assert_eq!(text(0x0005_000B), expected);
        assert_eq!(text(0xBFFF_0000), (c"DAT_NOT_IMPLEMENTED", c"", 0));
    }

    #[test]
    fn codes_that_ofa_cannot_name() {
        assert_eq!(text(0x8014_0000), (c"DAT_CONN_QUAL_UNAVAILABLE", c"", 0));
        assert_eq!(text(0x8017_0000), (c"DAT_COMM_NOT_SUPPORTED", c"", 0));
        assert_eq!(
            text(0x8007_0057),
            (c"DAT_INVALID_STATE", c"DAT_INVALID_STATE_SRQ_IN_USE", 0)
        );
        assert_eq!(
            text(0x8007_003D),
            (c"DAT_INVALID_STATE", c"DAT_INVALID_STATE_EP_EVD_RECV", 0)
        );
    }

    #[test]
    fn unknown_codes_have_text_too() {
        assert_eq!(
            text(0x8007_0068),
            (c"DAT_INVALID_STATE", c"unknown minor error", 0x0006_0000)
        );
        assert_eq!(text(0x8018_0000), (c"unknown error", c"", 0x0006_0000));
        assert_eq!(
            text(0xFFFF_FFFF),
            (c"DAT_NOT_IMPLEMENTED", c"unknown minor error", 0x0006_0000)
        );
    }
}
