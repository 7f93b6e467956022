use std::ffi::c_char;
use std::ptr;

use dat_abi::*;

use super::*;
use crate::announced::find;
use crate::fake_rnic::FakeRnic;
use crate::handle::Handle;
use crate::harness::unique;

fn info(name: &str) -> DatProviderInfo {
    let mut info = DatProviderInfo::zeroed();
    for (to, byte) in info.ia_name.iter_mut().zip(name.bytes()) {
        *to = c_char::from_ne_bytes([byte]);
    }
    (info.dapl_version_major, info.dapl_version_minor) = (2, 0);
    info
}

#[test]
fn a_name_announced_twice_keeps_its_table_and_has_the_new_parameters() {
    let ia_name = format!("twice{}", unique());
    let announce = |ia_params: &str| {
        announce::<FakeRnic>(RnicConfig {
            ia_name: ia_name.clone(),
            ia_params: ia_params.to_owned(),
        })
    };
    let first = announce("net=a");
    assert!(first == announce("net=b"));
    let (found, config) = find::<FakeRnic>(&ia_name).unwrap();
    assert!(found == first);
    assert_eq!(config.ia_params, "net=b");
}

#[test]
fn init_announces_even_a_device_that_is_absent_and_can_be_repeated() {
    let name = format!("init{}", unique());
    let info = info(&name);
    for _ in 0..2 {
        // SAFETY: a registration key and a C string.
        unsafe { init::<FakeRnic>(&raw const info, c"fail=eth9 0".as_ptr()) };
        let (_, config) = find::<FakeRnic>(&name).unwrap();
        assert_eq!(config.ia_params, "fail=eth9 0");
        // SAFETY: a registration key.
        unsafe { fini::<FakeRnic>(&raw const info) };
    }
}

#[test]
fn init_and_fini_ignore_bad_keys() {
    let mut unterminated = info("");
    unterminated.ia_name = [c_char::from_ne_bytes([b'x']); DAT_NAME_MAX_LENGTH];
    for key in [ptr::null(), &raw const unterminated] {
        // SAFETY: null or a registration key.
        unsafe {
            init::<FakeRnic>(key, ptr::null());
            fini::<FakeRnic>(key);
        }
    }
    assert!(find::<FakeRnic>(&"x".repeat(DAT_NAME_MAX_LENGTH)).is_none());
}

#[test]
fn without_a_registry_the_ia_handle_is_the_provider_s_own() {
    let ia = Handle::from_token(0x1000).unwrap();
    assert_eq!(registry::consumer_ia_handle(ia), ia.as_dat());
}

#[test]
fn entries_of_one_name_that_differ_do_not_take_each_others_parameters() {
    let name = format!("both{}", unique());
    let first = info(&name);
    let mut second = info(&name);
    second.dapl_version_minor = 1;
    let mut third = info(&name);
    third.is_thread_safe = DAT_TRUE;
    let params = || find::<FakeRnic>(&name).unwrap().1.ia_params;
    // SAFETY: registration keys and C strings.
    unsafe {
        init::<FakeRnic>(&raw const first, c"net=a".as_ptr());
        init::<FakeRnic>(&raw const second, c"net=b".as_ptr());
        init::<FakeRnic>(&raw const third, c"net=a".as_ptr());
        assert_eq!(
            params(),
            "net=a",
            "the other entry is refused, an equal one is not"
        );
        fini::<FakeRnic>(&raw const second);
        init::<FakeRnic>(&raw const second, c"net=b".as_ptr());
        assert_eq!(params(), "net=a", "two other entries are in use");
        fini::<FakeRnic>(&raw const first);
        fini::<FakeRnic>(&raw const third);
        init::<FakeRnic>(&raw const second, c"net=b".as_ptr());
    }
    assert_eq!(params(), "net=b", "no other entry is in use");
}

/// A registry library creates the key of `dat_ia_close` from the name that the provider reports.
#[test]
fn a_name_that_is_not_utf_8_is_refused() {
    let name = format!("bad{}", unique());
    let mut info = info(&name);
    info.ia_name[name.len()] = c_char::from_ne_bytes([0xFF]);
    // SAFETY: a registration key and a C string.
    unsafe { init::<FakeRnic>(&raw const info, c"net=a".as_ptr()) };
    assert!(find::<FakeRnic>(&format!("{name}\u{FFFD}")).is_none());
}
