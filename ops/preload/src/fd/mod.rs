//! The program's descriptors: one slot a number, with everything that this library keeps for it.
//!
//! A slot has the kind of the object behind the descriptor, the object's entry, marks, the serial
//! numbers of `epoll` sets, and the record of a listed socket. Calls that make, duplicate, replace,
//! share or close descriptors are events of the slot. Each event has one writer here, which every
//! hook of such a call uses, so all hooks record the same:
//!
//! | Writer | Calls |
//! |---|---|
//! | [`on_made`] | `socket`; a TCP socket that replaces an ended connection |
//! | [`on_set_made`] | `epoll_create` |
//! | [`on_duplicated`] | `dup`, `F_DUPFD` |
//! | [`on_replaced`] | `dup2`, `dup3` |
//! | [`on_closed`] | `close`, `fclose` |
//! | [`on_range_closed`] | `close_range`, `closefrom` |
//! | [`on_shared`] | a descriptor that is sent to another process |
//! | [`on_forked`], [`share_sets`] | `fork`; calls that pass sets alone, such as `exec` |
//!
//! The other modules store and exchange entries, which are [`Operations`]: this module knows
//! nothing else of connections and listeners. A process with a copy of the table, or the child of a
//! `vfork`, writes nothing.
//!
//! A call on an unused number costs two loads and allocates nothing.
//!
//! | File | Contents |
//! |---|---|
//! | `mod` | the writers, and changes of the kernel object under a number |
//! | `operations` | the objects behind descriptors |
//! | `slots` | the table and its entries |
//! | `marks` | properties of descriptors besides their entries |
//! | [`sets`] | the program's `epoll` sets that watch a descriptor |
//! | [`removals`] | a removal from an `epoll` set that the kernel has not seen yet |
//! | `watch` | the registration of a connection within the host in a set |
//! | [`watches`] | all such registrations |

mod marks;
mod operations;
pub(crate) mod removals;
pub(crate) mod sets;
mod slots;
mod watch;
pub(crate) mod watches;

use std::any::Any;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use host::stand_in::Flags;
use ops::Wish;
use ops::observe::NativeRecord;
use rustix::io::{DupFlags, Errno};

pub(crate) use self::marks::{SDP, has_duplicate, is_made_as_tcp, is_shared, wish_of};
pub(crate) use self::operations::{
    AddressRoom, Answer, End, Kind, Operations, OptionRoom, OptionValue,
};
pub(crate) use self::removals::share_sets;
pub(crate) use self::slots::{
    Entry, all, end_connection, entry, exchange, forget_copied, has_connections, has_listeners,
    has_local, is_in_use, remove, unlock_after_fork, while_held,
};
use crate::fd::operations::address_of;
use crate::fd::sets::Registrations;
use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{self, guard, restrictions};

/// Records the result of a call that makes a socket.
pub(crate) fn on_made(fd: c_int, is_tcp: bool) {
    // A former object with this number was closed by a call without a hook.
    removals::on_closed(fd);
    marks::begin(fd, is_tcp);
    forget(fd);
}

/// Records the stack that the program has named for a socket that it has just made.
pub(crate) fn on_wish(fd: c_int, wish: Wish) {
    marks::record_wish(fd, wish);
}

/// Records a set that the program has just made.
pub(crate) fn on_set_made(set: c_int) {
    if !process::is_vforked() {
        removals::record_set(set);
    }
}

/// Records that the number `made`, which was free, is a duplicate of `fd`. Only the owner of the
/// table calls this.
pub(crate) fn on_duplicated(fd: c_int, made: c_int) {
    marks::duplicate(fd, made);
    slots::share_record(fd);
    while let Some(entry) = entry(fd) {
        if entry.duplicate(&mut || store(made, Arc::clone(&entry))) {
            watches::on_duplicated(fd, made);
            return;
        }
    }
}

/// Records that the number `made` is a duplicate of `fd`, instead of the object that it had. Only
/// the owner of the table calls this.
pub(crate) fn on_replaced(fd: c_int, made: c_int) {
    if is_plain(fd) {
        on_closed(made);
    } else {
        removals::on_closed(made);
        marks::end(made);
    }
    on_duplicated(fd, made);
}

/// Records that the program closes a descriptor. Called before the kernel closes it.
#[inline]
pub(crate) fn on_closed(fd: c_int) {
    if is_in_use(fd) {
        close_in_use(fd);
    }
}

/// Records the close of a number in use. The calling convention stops a panic.
#[inline(never)]
extern "C" fn close_in_use(fd: c_int) {
    if process::is_vforked() {
        return close_copy(fd);
    }
    removals::on_closed(fd);
    marks::end(fd);
    if !is_plain(fd) {
        forget_own(fd);
    }
}

/// Records that the program closes a range of descriptors, both ends included. Calls `and_then`
/// for each that had an entry.
pub(crate) fn on_range_closed(first: usize, last: usize, and_then: impl Fn(c_int)) {
    // The range may contain any set.
    share_sets();
    for (fd, slot) in slots::slots(first, last) {
        let had_entry = slot.has_kind();
        close_in_use(fd);
        if had_entry {
            and_then(fd);
        }
    }
}

/// Records that the program passes a descriptor to another process.
pub(crate) fn on_shared(fd: c_int) {
    removals::share(fd);
    marks::share(fd);
}

/// Records that the child of a `fork` gets a copy of all descriptors.
pub(crate) fn on_forked() {
    share_sets();
    if !process::is_vforked() {
        marks::share_all();
    }
}

/// Stores an entry for a descriptor. The entry has already counted this descriptor.
pub(crate) fn store(fd: c_int, entry: Entry) {
    process::own_table();
    removals::on_new_object(fd);
    // A former entry means that the descriptor was closed by a call without a hook. A descriptor
    // beyond the table gets no entry; the kernel gives such numbers only if an administrator
    // permits it.
    let gone = slots::replace(fd, entry).unwrap_or_else(Some);
    gone.and_then(release);
}

/// Stores an entry in the child of a `fork`. The former entry is not dropped, because its parts
/// belong to the parent.
pub(crate) fn store_in_child(fd: c_int, entry: Entry) {
    if let Ok(Some(before)) = slots::replace(fd, entry) {
        std::mem::forget(before);
    }
}

/// Lists a socket that stays on TCP, until its last descriptor in this process is closed.
pub(crate) fn list(fd: c_int, record: NativeRecord) {
    process::own_table();
    slots::list(fd, record).and_then(release);
}

/// Removes the entry of a descriptor that is about to be closed, or whose object has ended.
pub(crate) fn forget(fd: c_int) {
    if is_plain(fd) {
        return;
    }
    match process::owns_table() {
        true => forget_own(fd),
        false => close_copy(fd),
    }
}

fn forget_own(fd: c_int) {
    removals::make();
    if slots::unlist(fd) {
        return;
    }
    let lingering = {
        // A program that has restricted its system calls may not be permitted to block signals.
        let _signals_blocked = (!restrictions::is_restricted()).then(SignalsBlocked::begin);
        let removed = remove(fd);
        let is_connecting = removed.as_ref().map(|it| it.kind()) == Some(Kind::Connecting);
        let lingering = removed.and_then(release);
        if is_connecting {
            // The attempt may have ended before it was cancelled, and have made another entry.
            remove(fd).and_then(release)
        } else {
            lingering
        }
    };
    // A signal ends this wait, as it does in the kernel.
    if let Some((entry, until)) = lingering {
        let _inside = guard::enter();
        entry.await_delivery(until);
    }
}

/// Closes the object of an entry if this descriptor was its last. Returns a connection that
/// lingers, with its deadline: `close` waits for it, the end of the process does not.
pub(crate) fn release(entry: Entry) -> Option<(Entry, Instant)> {
    let _inside = guard::enter();
    if !entry.is_of_this_process() {
        // An entry from before a fork belongs to the process that made it. Closing a copy does not
        // end the connection, and the memory is not freed, because the descriptors in it belong to
        // that process.
        std::mem::forget(entry);
        return None;
    }
    let until = Arc::clone(&entry).on_closed()?;
    Some((entry, until))
}

/// Handles a close in a process that shares or copied the memory of the table's owner but has its
/// own descriptors. The kernel listener next to a listening socket is closed as well, because its
/// name would otherwise stay in use. The entry of a copy is forgotten, because the program may get
/// the number again for any file.
fn close_copy(fd: c_int) {
    if let Some(entry) = entry(fd)
        // Only the table and this function hold a reference: no other descriptor names the object.
        && Arc::strong_count(&entry) == 2
    {
        entry.on_copies_closed();
    }
    if process::memory::is_copied() {
        forget_copied(fd);
    }
}

/// Gives a descriptor of the program another kernel object, in its `epoll` sets too. `insert` makes
/// the entry of the object, before a set reports the number: a thread that finds the number ready
/// uses it at once.
pub(crate) fn change_object(
    with: impl AsFd,
    fd: c_int,
    flags: Flags,
    insert: impl FnOnce(),
) -> Result<(), Errno> {
    // The former object is removed from the sets before the number is reused, because it may stay
    // open and could not be removed afterwards.
    let registrations = Registrations::of(fd);
    registrations.withdraw();
    let replaced = replace_object(with, fd, flags);
    if replaced.is_ok() {
        insert();
    }
    registrations.renew();
    replaced
}

/// Makes a descriptor number of the program refer to the kernel object of `with`.
pub(crate) fn replace_object(with: impl AsFd, fd: c_int, flags: Flags) -> Result<(), Errno> {
    let mut dup = DupFlags::empty();
    dup.set(DupFlags::CLOEXEC, flags.close_on_exec);
    // SAFETY: the number belongs to the program, and `ManuallyDrop` prevents that it is closed
    // here.
    let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
    rustix::io::dup3(with, &mut target, dup)
}

/// Returns the object of a descriptor, if it is of this type.
pub(crate) fn find<T: Operations>(fd: c_int) -> Option<Arc<T>> {
    let entry: Arc<dyn Any + Send + Sync> = entry(fd)?;
    entry.downcast().ok()
}

/// Returns all descriptors of an object.
pub(crate) fn numbers_of<T: Operations>(object: &T) -> impl Iterator<Item = c_int> {
    let address = address_of(object);
    all().filter(move |fd| entry(*fd).is_some_and(|it| address_of(&*it) == address))
}

/// Returns true for a descriptor without an entry. A listed TCP socket has an entry, though the
/// kernel moves its bytes; calls that move bytes use [`contains`] instead.
#[inline]
pub(crate) fn is_plain(fd: c_int) -> bool {
    slots::kind(fd) == Kind::Native
}

/// Returns true for a descriptor of a kernel object that the program made, without another object
/// next to it.
pub(crate) fn is_with_kernel(fd: c_int) -> bool {
    matches!(slots::kind(fd), Kind::Native | Kind::Listed)
}

/// Returns true for a TCP socket that is listed.
pub(crate) fn is_listed(fd: c_int) -> bool {
    slots::kind(fd) == Kind::Listed
}

/// Returns true if a descriptor is a listener with an offload protocol next to it.
#[inline]
pub(crate) fn is_listener(fd: c_int) -> bool {
    slots::kind(fd) == Kind::Listener
}

/// Returns true for a socket that connects without blocking.
#[inline]
pub(crate) fn is_connecting(fd: c_int) -> bool {
    slots::kind(fd) == Kind::Connecting
}

/// Returns true for a descriptor whose events depend on kernel objects other than its own, or whose
/// kernel object is not final, so that a change to its registrations takes more than the kernel's
/// call.
#[inline]
pub(crate) fn needs_library(fd: c_int) -> bool {
    matches!(slots::kind(fd), Kind::Listener | Kind::Connecting)
}

/// Waits until a socket that connects without blocking has its final kernel object and entry. Calls
/// that would pass the present object on to other descriptors or processes wait here first.
#[inline]
pub(crate) fn settle(fd: c_int) {
    if is_connecting(fd)
        && let Some(entry) = entry(fd)
    {
        entry.settle();
    }
}

/// Returns true for a connection within the host.
#[inline]
pub(crate) fn is_local(fd: c_int) -> bool {
    slots::kind(fd) == Kind::Local
}

/// Returns true if a descriptor is an offloaded connection.
#[inline]
pub(crate) fn contains(fd: c_int) -> bool {
    slots::kind(fd).is_offloaded()
}

/// Returns true for a connection that the end of the process has closed.
pub(crate) fn has_ended(fd: c_int) -> bool {
    // The kind is read last, because another thread may close the descriptor.
    slots::has_no_entry(fd) && contains(fd)
}

/// Returns true for a descriptor that is an offloaded connection or one within the host.
#[inline]
pub(crate) fn is_connection(fd: c_int) -> bool {
    let kind = slots::kind(fd);
    kind.is_offloaded() || kind == Kind::Local
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// An object that counts its descriptors.
    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Operations for Counted {
        fn kind(&self) -> Kind {
            Kind::Local
        }

        fn duplicate(&self, insert: &mut dyn FnMut()) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            insert();
            true
        }

        fn on_closed(self: Arc<Self>) -> Option<Instant> {
            self.0.fetch_sub(1, Ordering::Relaxed);
            None
        }
    }

    impl Counted {
        fn at(fd: c_int) -> Arc<Self> {
            let object = Arc::new(Self(AtomicUsize::new(1)));
            store(fd, Arc::clone(&object) as Entry);
            object
        }

        fn descriptors(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// Gives a number everything that a slot can have.
    fn fill(fd: c_int) -> Arc<Counted> {
        on_made(fd, true);
        on_shared(fd);
        on_set_made(fd);
        sets::record_addition(fd, fd);
        Counted::at(fd)
    }

    // The numbers in these tests are those of no open descriptor.

    #[test]
    fn every_close_clears_all_of_a_slot() {
        const PLAIN: c_int = 1_000_300;
        let closes: [fn(c_int); 4] = [
            on_closed,
            |fd| on_range_closed(fd as usize, fd as usize, |_| ()),
            |fd| on_replaced(PLAIN, fd),
            |fd| on_made(fd, false),
        ];
        for (fd, close) in (1_000_301..).zip(closes) {
            let object = fill(fd);
            assert!(is_in_use(fd) && is_local(fd));
            close(fd);
            assert_eq!(object.descriptors(), 0, "{fd}");
            assert!(find::<Counted>(fd).is_none(), "{fd}");
            assert!(!is_shared(fd) && !is_made_as_tcp(fd), "{fd}");
            // A new socket may be watched already.
            on_closed(fd);
            assert!(!is_in_use(fd), "{fd}");
        }
    }

    #[test]
    fn an_object_counts_its_descriptors() {
        let (fd, other, third) = (1_000_310, 1_000_311, 1_000_312);
        let object = Counted::at(fd);
        on_duplicated(fd, other);
        on_replaced(other, third);
        assert_eq!(object.descriptors(), 3);
        let mut numbers: Vec<c_int> = numbers_of(&*object).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [fd, other, third]);
        let replaced = fill(fd);
        assert_eq!((object.descriptors(), replaced.descriptors()), (2, 1));
        on_replaced(other, fd);
        assert_eq!((object.descriptors(), replaced.descriptors()), (3, 0));
        [fd, other, third].into_iter().for_each(on_closed);
        assert_eq!(object.descriptors(), 0);
    }

    #[test]
    fn an_entry_is_exchanged_only_for_its_object() {
        let fd = 1_000_320;
        let object = Counted::at(fd);
        let other = Arc::new(Counted::default());
        exchange(fd, &*other, || unreachable!("the entry is another object"));
        assert!(while_held(fd, &*other, || ()).is_none());
        exchange(fd, &*object, || Arc::clone(&other) as Entry);
        assert!(while_held(fd, &*other, || ()).is_some());
        assert!(numbers_of(&*object).next().is_none());
        drop(remove(fd));
        assert!(!is_in_use(fd));
    }
}
