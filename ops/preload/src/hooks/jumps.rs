//! Functions that Rust code cannot define: those with a variable number of arguments, and `vfork`,
//! which returns twice into the frame that called it. These hooks have no frame of their own when
//! they jump to the C library's function, with all arguments in place.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};

use crate::fd;
use crate::lifecycle::executing;
use crate::process::{guard, memory, real};
use crate::sharing::exposing;

/// Defines a hook that calls `$before` and jumps to the function whose address it returns.
///
/// All registers that may hold an argument are saved: six for integers, eight for floating point,
/// and rax, which holds the number of floating-point registers in use. With the return address, the
/// seven integer registers (8 bytes each) and the eight vector registers (16 bytes each) align the
/// stack to 16 bytes for the call.
#[cfg(target_arch = "x86_64")]
macro_rules! jump_after {
    ($before:ident) => {
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
    };
}

/// Defines a hook that calls `$before` and jumps to the function whose address it returns.
///
/// All registers that may hold an argument are saved: eight for integers and eight for vectors,
/// with the frame and the link register.
#[cfg(target_arch = "aarch64")]
macro_rules! jump_after {
    ($before:ident) => {
        naked_asm!(
            "stp x29, x30, [sp, -208]!",
            "mov x29, sp",
            "stp x0, x1, [sp, 16]",
            "stp x2, x3, [sp, 32]",
            "stp x4, x5, [sp, 48]",
            "stp x6, x7, [sp, 64]",
            "stp q0, q1, [sp, 80]",
            "stp q2, q3, [sp, 112]",
            "stp q4, q5, [sp, 144]",
            "stp q6, q7, [sp, 176]",
            "bl {before}",
            "mov x16, x0",
            "ldp x0, x1, [sp, 16]",
            "ldp x2, x3, [sp, 32]",
            "ldp x4, x5, [sp, 48]",
            "ldp x6, x7, [sp, 64]",
            "ldp q0, q1, [sp, 80]",
            "ldp q2, q3, [sp, 112]",
            "ldp q4, q5, [sp, 144]",
            "ldp q6, q7, [sp, 176]",
            "ldp x29, x30, [sp], 208",
            "cbz x16, 2f",
            "br x16",
            "2: mov w0, -1",
            "ret",
            before = sym $before,
        )
    };
}

macro_rules! jumps {
    ($(
        $(#[$doc:meta])*
        fn $name:ident, $c_name:literal, before $before:ident = $work:expr;
    )*) => {$(
        /// Runs before the C library's function, and returns its address.
        extern "C" fn $before(first: usize) -> *const c_void {
            let work: fn(usize) = $work;
            work(first);
            real::address($c_name)
        }

        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> c_int {
            jump_after!($before)
        }
    )*};
}

jumps! {
    fn execl, c"execl", before before_execl = |_| will_execute();
    fn execlp, c"execlp", before before_execlp = |_| will_execute();
    fn execle, c"execle", before before_execle = |_| will_execute();
    /// Hook of `clone`. The child may share the memory of this process, as that of a `vfork` does.
    fn clone, c"clone", before before_clone = |_| will_clone();
    /// Hook of `__clone`, another name of `clone`.
    fn __clone, c"__clone", before before_other_clone = |_| will_clone();
    /// Hook of `dprintf`. The C library writes with internal calls.
    fn dprintf, c"dprintf", before before_dprintf = will_print;
    fn __dprintf_chk, c"__dprintf_chk", before before_dprintf_chk = will_print;
    /// Hook of `vfork`.
    fn vfork, c"vfork", before before_vfork = |_| will_vfork();
}

fn will_execute() {
    if !guard::is_inside() {
        executing::prepare_unseen();
    }
}

fn will_clone() {
    if !guard::is_inside() {
        memory::will_be_shared();
    }
}

fn will_print(fd: usize) {
    if !guard::is_inside() {
        exposing::expose(fd as c_int);
    }
}

fn will_vfork() {
    fd::share_sets();
    memory::will_be_shared();
    if !guard::is_inside() {
        exposing::share_all();
    }
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
