//! The destructors of a library's thread-local values, without memory of the system.
//!
//! The standard library registers each destructor with `__cxa_thread_atexit_impl` when a thread
//! first uses the value. The C library's function allocates, and ends the process if it cannot. So
//! each library defines this function for itself, under the same name, which the link editor binds
//! first. The list of destructors is allocated by [`Reserve`](super::Reserve).
//!
//! The destructors run when the C library destroys the values of its keys. At the end of the main
//! thread, which is the end of the process, they do not run.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};

type Destructor = unsafe extern "C" fn(*mut c_void);

/// One registered destructor.
struct Registered {
    destructor: Destructor,
    object: *mut c_void,
    next: *mut Registered,
}

const LAYOUT: Layout = Layout::new::<Registered>();

thread_local! {
    /// The destructors that the thread has registered, the latest first.
    static REGISTERED: Cell<*mut Registered> = const { Cell::new(ptr::null_mut()) };
}

/// The key of the C library whose destructor runs the list; negative while there is none.
static KEY: AtomicI64 = AtomicI64::new(-1);

/// Registers a destructor for the end of the calling thread. Returns -1 without memory or a key;
/// the object is then not destroyed.
///
/// # Safety
/// The destructor may be called with the object at the end of the thread, if the library is still
/// loaded.
#[doc(hidden)]
pub unsafe extern "C" fn register(
    destructor: Destructor,
    object: *mut c_void,
    _library: *mut c_void,
) -> c_int {
    // SAFETY: the layout is not empty.
    let place = unsafe { alloc(LAYOUT) }.cast::<Registered>();
    if place.is_null() {
        return -1;
    }
    let next = REGISTERED.get();
    let registered = Registered {
        destructor,
        object,
        next,
    };
    // SAFETY: the block has the layout of the value.
    unsafe { place.write(registered) };
    REGISTERED.set(place);
    if !next.is_null() || arm() {
        return 0;
    }
    REGISTERED.set(next);
    // SAFETY: the block was allocated above with this layout, and the list does not have it.
    unsafe { dealloc(place.cast(), LAYOUT) };
    -1
}

/// Makes the C library run the list at the end of the calling thread.
fn arm() -> bool {
    let Some(key) = key() else {
        return false;
    };
    let any = REGISTERED.get().cast_const().cast();
    // SAFETY: the key exists. The value is only compared with null.
    unsafe { libc::pthread_setspecific(key, any) == 0 }
}

/// Returns the key, which the first call makes.
fn key() -> Option<libc::pthread_key_t> {
    let found = KEY.load(Ordering::Acquire);
    if found >= 0 {
        return libc::pthread_key_t::try_from(found).ok();
    }
    let mut key = 0;
    // SAFETY: the pointer is to a local variable. The library is not unloaded, so the destructor
    // stays valid.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(run_all)) } != 0 {
        return None;
    }
    match KEY.compare_exchange(-1, key.into(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(key),
        Err(other) => {
            // SAFETY: no other thread has received this key.
            unsafe { libc::pthread_key_delete(key) };
            libc::pthread_key_t::try_from(other).ok()
        }
    }
}

/// Runs the destructors of the calling thread, the latest first. A destructor may register another.
unsafe extern "C" fn run_all(_any: *mut c_void) {
    loop {
        let first = REGISTERED.get();
        if first.is_null() {
            return;
        }
        // SAFETY: `register` has filled the block, which is removed from the list here and freed
        // once with its layout. The registration permits the call of the destructor now.
        unsafe {
            let registered = first.read();
            REGISTERED.set(registered.next);
            dealloc(first.cast(), LAYOUT);
            (registered.destructor)(registered.object);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    static ENDED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

    unsafe extern "C" fn note(object: *mut c_void) {
        ENDED.lock().unwrap().push(object.addr());
        if object.addr() == 2 {
            let nine = ptr::without_provenance_mut(9);
            // SAFETY: the destructor takes any pointer.
            let registered = unsafe { register(note, nine, ptr::null_mut()) };
            assert_eq!(registered, 0);
        }
    }

    #[test]
    fn destructors_run_at_the_end_of_the_thread_in_reverse_order() {
        std::thread::spawn(|| {
            for number in 1..4 {
                let object = ptr::without_provenance_mut(number);
                // SAFETY: the destructor takes any pointer.
                assert_eq!(unsafe { register(note, object, ptr::null_mut()) }, 0);
            }
            assert!(ENDED.lock().unwrap().is_empty());
        })
        .join()
        .unwrap();
        // The key's destructors run after the standard library's own, before the thread can be
        // joined.
        assert_eq!(*ENDED.lock().unwrap(), [3, 2, 9, 1]);
    }
}
