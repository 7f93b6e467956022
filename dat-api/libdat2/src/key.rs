//! The registration key: name, version, thread safety. Matching is exact; there are no wildcards.

use dat_abi::*;
use std::ffi::{CStr, CString, c_char};
use std::fmt;

/// The key of one provider in the registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    name: CString,
    major: u32,
    minor: u32,
    thread_safe: DatBoolean,
}

impl Key {
    /// Creates a key; `None` if the name does not fit into a `DAT_PROVIDER_INFO`.
    #[must_use]
    pub fn new(name: &CStr, major: u32, minor: u32, thread_safe: DatBoolean) -> Option<Self> {
        let fits = name.count_bytes() < DAT_NAME_MAX_LENGTH;
        fits.then(|| Self {
            name: name.to_owned(),
            major,
            minor,
            thread_safe,
        })
    }

    /// Creates the key for a C string of a caller; `None` if it has 256 or more characters.
    ///
    /// # Safety
    /// `name` points at a NUL-terminated string, or at 256 readable bytes.
    #[must_use]
    pub unsafe fn from_c(
        name: *const c_char,
        major: u32,
        minor: u32,
        thread_safe: DatBoolean,
    ) -> Option<Self> {
        // SAFETY: the call reads up to the NUL or 256 bytes, which the caller guarantees to be
        // readable.
        let len = unsafe { libc::strnlen(name, DAT_NAME_MAX_LENGTH) };
        if len >= DAT_NAME_MAX_LENGTH {
            return None;
        }
        // SAFETY: the string ends within 256 bytes, as just checked, and is not changed during the
        // call.
        Self::new(unsafe { CStr::from_ptr(name) }, major, minor, thread_safe)
    }

    /// Creates the key under which a provider registers; a name without NUL is truncated at 255
    /// characters.
    #[must_use]
    pub fn from_info(info: &DatProviderInfo) -> Self {
        let bytes: Vec<u8> = info.ia_name[..DAT_NAME_MAX_LENGTH - 1]
            .iter()
            .flat_map(|byte| byte.to_ne_bytes())
            .take_while(|&byte| byte != 0)
            .collect();
        Self {
            name: CString::new(bytes).unwrap_or_default(),
            major: info.dapl_version_major,
            minor: info.dapl_version_minor,
            thread_safe: info.is_thread_safe,
        }
    }

    /// Returns the key in the form that providers and consumers use.
    #[must_use]
    pub fn to_info(&self) -> DatProviderInfo {
        let mut info = DatProviderInfo::zeroed();
        for (to, &byte) in info.ia_name.iter_mut().zip(self.name.as_bytes()) {
            *to = c_char::from_ne_bytes([byte]);
        }
        info.dapl_version_major = self.major;
        info.dapl_version_minor = self.minor;
        info.is_thread_safe = self.thread_safe;
        info
    }

    /// The name of the interface adapter, with at most 255 characters.
    #[must_use]
    pub fn name(&self) -> &CStr {
        &self.name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let safety = if self.thread_safe == DAT_FALSE {
            "nonthreadsafe"
        } else {
            "threadsafe"
        };
        write!(
            f,
            "{} u{}.{} {safety}",
            self.name.to_string_lossy(),
            self.major,
            self.minor
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_equal_after_conversion_to_provider_info_and_back() {
        let key = Key::new(c"iwarp-lo", 2, 0, DAT_FALSE).expect("short name");
        assert_eq!(Key::from_info(&key.to_info()), key);
    }

    #[test]
    fn names_of_256_characters_are_no_keys_and_255_are() {
        let name = |len| CString::new(vec![b'n'; len]).expect("no NUL");
        assert!(Key::new(&name(256), 2, 0, DAT_FALSE).is_none());
        let longest = Key::new(&name(255), 2, 0, DAT_FALSE).expect("fits");
        assert_eq!(Key::from_info(&longest.to_info()), longest);
    }

    #[test]
    fn a_name_without_terminator_is_truncated() {
        let mut info = DatProviderInfo::zeroed();
        info.ia_name = [c_char::from_ne_bytes(*b"x"); DAT_NAME_MAX_LENGTH];
        assert_eq!(Key::from_info(&info).name().count_bytes(), 255);
    }
}
