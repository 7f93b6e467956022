//! Functions with a variable number of arguments. Rust code cannot define them, so these hooks
//! read the first argument and jump to the C library's function with all arguments in place.

#[cfg(target_arch = "x86_64")]
use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};

#[cfg(target_arch = "x86_64")]
use crate::lifecycle::executing;
#[cfg(target_arch = "x86_64")]
use crate::process::{guard, memory, real};
use crate::sharing::exposing;

macro_rules! with_list {
    ($(
        $(#[$doc:meta])*
        fn $name:ident, $c_name:literal, before $before:ident = $work:expr;
    )*) => {$(
        /// Runs before the C library's function, and returns its address.
        #[cfg(target_arch = "x86_64")]
        extern "C" fn $before(first: usize) -> *const c_void {
            if !guard::is_inside() {
                let work: fn(usize) = $work;
                work(first);
            }
            real::address($c_name)
        }

        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> c_int {
            // All registers that may hold an argument are saved: six for integers, eight for
            // floating point, and rax, which holds the number of floating-point registers in use.
            // With the return address, the seven integer registers (8 bytes each) and the eight
            // vector registers (16 bytes each) align the stack to 16 bytes for the call.
            naked_asm!(
                "push rax",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "sub rsp, 128",
                "movups [rsp], xmm0",
                "movups [rsp + 16], xmm1",
                "movups [rsp + 32], xmm2",
                "movups [rsp + 48], xmm3",
                "movups [rsp + 64], xmm4",
                "movups [rsp + 80], xmm5",
                "movups [rsp + 96], xmm6",
                "movups [rsp + 112], xmm7",
                "call {before}",
                "mov r11, rax",
                "movups xmm0, [rsp]",
                "movups xmm1, [rsp + 16]",
                "movups xmm2, [rsp + 32]",
                "movups xmm3, [rsp + 48]",
                "movups xmm4, [rsp + 64]",
                "movups xmm5, [rsp + 80]",
                "movups xmm6, [rsp + 96]",
                "movups xmm7, [rsp + 112]",
                "add rsp, 128",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "pop rax",
                "test r11, r11",
                "jz 2f",
                "jmp r11",
                "2: mov eax, -1",
                "ret",
                before = sym $before,
            )
        }
    )*};
}

with_list! {
    fn execl, c"execl", before before_execl = |_| executing::prepare_unseen();
    fn execlp, c"execlp", before before_execlp = |_| executing::prepare_unseen();
    fn execle, c"execle", before before_execle = |_| executing::prepare_unseen();
    /// Hook of `clone`. The child may share the memory of this process, as that of a `vfork` does.
    fn clone, c"clone", before before_clone = |_| memory::will_be_shared();
    /// Hook of `__clone`, another name of `clone`.
    fn __clone, c"__clone", before before_other_clone = |_| memory::will_be_shared();
    /// Hook of `dprintf`. The C library writes with internal calls.
    fn dprintf, c"dprintf", before before_dprintf = |fd| exposing::expose(fd as c_int);
    fn __dprintf_chk, c"__dprintf_chk", before before_dprintf_chk =
        |fd| exposing::expose(fd as c_int);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vdprintf(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int {
    exposing::expose(fd);
    // SAFETY: the caller's arguments, passed on unchanged; a `va_list` is passed as a pointer.
    unsafe { real::vdprintf(fd, format, list) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    list: *mut c_void,
) -> c_int {
    exposing::expose(fd);
    // SAFETY: the caller's arguments, passed on unchanged; a `va_list` is passed as a pointer.
    unsafe { real::__vdprintf_chk(fd, flag, format, list) }
}
