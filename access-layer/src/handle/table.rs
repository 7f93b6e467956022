//! The range of slots, and a slot.

#[cfg(not(miri))]
pub(crate) mod forking;

use std::any::TypeId;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use dat_abi::DatProvider;
use host::forks::HeldLock;
use host::locks::IgnorePoison as _;

use super::pins::{self, Entry};
use super::state::{Phase, State};
use super::{Handle, Kind, Object, ProviderRef};

/// Number of different handles of one slot.
const ORDINALS: usize = 16;
const WORD: usize = size_of::<usize>();
/// Number of slots made usable at once: 1024 of 192 bytes are 48 pages.
pub(super) const CHUNK_SLOTS: usize = 1024;
/// No freed slot is reused while fewer freed slots than this exist and unused slots are left.
const QUARANTINE: usize = 1024;
/// Number of slots to reserve; halved until the process's address space limit allows it.
#[cfg(not(miri))]
const CAPACITY: usize = 2 * 1024 * CHUNK_SLOTS;
#[cfg(miri)]
const CAPACITY: usize = 2 * CHUNK_SLOTS;

/// Represents an unknown number of pins; more than one.
const PINS_UNKNOWN: u64 = 2;

/// A pin of a slot: announced, or else counted in the slot's state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pin(Option<Entry>);

/// A slot, which holds one object after another. All zero bytes are an empty slot in generation 0.
#[repr(C, align(64))]
pub(super) struct Slot {
    /// The words to which handles point. A registry library may load such a word at any time, with
    /// any kind of access.
    provider: [AtomicPtr<DatProvider>; ORDINALS],
    state: AtomicU64,
    context: AtomicU64,
    /// Result of `Arc::into_raw`; null in an empty slot. Written by the only owner of an empty or
    /// dropping slot, read under a pin of a live slot.
    object: UnsafeCell<*const ()>,
    type_id: UnsafeCell<MaybeUninit<TypeId>>,
    drop_object: UnsafeCell<Option<unsafe fn(*const ())>>,
}

// SAFETY: the cells are written only by the thread that owns the slot (Empty and reserved, or
// Dropping). They are read only by threads that saw the Live phase, which was stored with release
// after the writes.
unsafe impl Sync for Slot {}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot")
            .field("state", &self.load())
            .finish_non_exhaustive()
    }
}

impl Slot {
    #[inline]
    fn load(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    /// Changes the state, while concurrent look-ups may change the pins. Returns true if changed.
    fn update(&self, change: impl Fn(State) -> Option<State>) -> bool {
        self.state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                change(State(old)).map(|new| new.0)
            })
            .is_ok()
    }

    /// Pins the slot in a life of this kind and ordinal.
    #[inline]
    pub(super) fn try_pin(&self, kind: Kind, ordinal: usize) -> Option<Pin> {
        let pin = Pin(pins::announce(self.address()));
        let state = match pin.0 {
            Some(_) => self.load(),
            None => State(self.state.fetch_add(1, Ordering::Acquire)),
        };
        if state.is_live(kind, ordinal) {
            return Some(pin);
        }
        self.unpin(pin);
        None
    }

    #[inline]
    pub(super) fn unpin(&self, pin: Pin) {
        match pin.0 {
            None => self.end_count(),
            Some(entry) => {
                entry.withdraw();
                if self.load().phase() == Phase::Retired {
                    self.reclaim();
                }
            }
        }
    }

    /// Ends a pin that was counted in the state.
    #[inline]
    fn end_count(&self) {
        let old = State(self.state.fetch_sub(1, Ordering::AcqRel));
        if old.pins() == 1 && old.phase() == Phase::Retired {
            self.reclaim();
        }
    }

    /// Returns the word by which pins of this slot are announced.
    #[inline]
    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Calls `read` with the slot pinned in a life of this ordinal.
    pub(super) fn with_pin<V>(&self, ordinal: usize, read: impl FnOnce(&Self) -> V) -> Option<V> {
        let old = State(self.state.fetch_add(1, Ordering::Acquire));
        let is_valid = old.phase() == Phase::Live && old.ordinal() == ordinal;
        let value = is_valid.then(|| read(self));
        self.end_count();
        value
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        self.load().kind()
    }

    pub(super) fn pin_count(&self) -> u64 {
        // If the kernel refuses the barrier, another thread may hold a pin.
        let announced = pins::announced(self.address()).unwrap_or(PINS_UNKNOWN);
        announced + self.load().pins()
    }

    pub(super) fn context(&self) -> u64 {
        self.context.load(Ordering::Acquire)
    }

    pub(super) fn set_context(&self, context: u64) {
        self.context.store(context, Ordering::Release);
    }

    /// Returns the object of a pinned live slot, if it is of this type.
    #[inline]
    pub(super) fn object(&self, wanted: TypeId) -> Option<NonNull<()>> {
        // SAFETY: the caller holds a pin that was taken in the Live phase. `publish` wrote both
        // cells before that phase was stored with release, and no thread writes them while a pin is
        // held.
        let (type_id, object) =
            unsafe { ((*self.type_id.get()).assume_init(), *self.object.get()) };
        if type_id == wanted {
            NonNull::new(object.cast_mut())
        } else {
            None
        }
    }

    /// Fills a reserved slot and makes its handle valid.
    pub(super) fn publish<T: Object>(&self, object: Arc<T>) {
        // SAFETY: the slot is Empty and not in the free list, so the reservation is its only owner.
        unsafe {
            *self.object.get() = Arc::into_raw(object).cast();
            (*self.type_id.get()).write(TypeId::of::<T>());
            *self.drop_object.get() = Some(drop_arc::<T>);
        }
        let published = self.update(|state| state.on_publish(T::KIND));
        debug_assert!(published, "the slot is reserved");
    }

    pub(super) fn retire(&self) -> bool {
        self.update(State::on_retire)
    }

    /// Ends a pin of a retired slot, and returns after the object was dropped. If the pin of
    /// another thread lasts longer, that thread drops the object; the wait for it ends after
    /// `limit`.
    pub(super) fn unpin_and_wait(&self, pin: Pin, limit: Duration) {
        let life = self.load();
        self.unpin(pin);
        let mut pause = Duration::from_micros(20);
        let deadline = Instant::now() + limit;
        while self.load().is_life_of(life) {
            if Instant::now() >= deadline {
                tracing::error!("calls of other threads use an object that was freed");
                return;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
    }

    /// Drops the object of a retired slot, unless another thread has pinned it or drops it.
    #[cold]
    fn reclaim(&self) {
        let seen = self.load();
        // A thread that has an announced pin calls this function when its pin ends.
        if seen.phase() == Phase::Retired && pins::announced(self.address()) == Some(0) {
            self.reclaim_life(seen);
        }
    }

    /// Drops the object once no announced pin was found in the life of `seen`. If the slot was
    /// reused since, `seen` does not describe the current life, and nothing is dropped.
    fn reclaim_life(&self, seen: State) {
        if !self.update(|state| state.on_reclaim(seen)) {
            return;
        }
        // SAFETY: the Dropping phase makes this thread the slot's only owner; `publish` filled the
        // cells.
        let (object, drop_object) = unsafe {
            let object = std::mem::replace(&mut *self.object.get(), ptr::null());
            (object, (*self.drop_object.get()).take())
        };
        release_after(self, || {
            if let Some(drop_object) = drop_object {
                // SAFETY: `publish` stored the two together, and they were removed from the slot,
                // so this runs once.
                unsafe { drop_object(object) }
            }
        });
    }
}

/// # Safety
/// `object` is the result of `Arc::<T>::into_raw`, and its reference is released here.
unsafe fn drop_arc<T: Object>(object: *const ()) {
    // SAFETY: guaranteed by the caller, as documented above.
    drop(unsafe { Arc::from_raw(object.cast::<T>()) });
}

/// Runs `end` and releases the slot even if `end` panics.
fn release_after(slot: &Slot, end: impl FnOnce()) {
    struct Release<'a>(&'a Slot);
    impl Drop for Release<'_> {
        fn drop(&mut self) {
            release(self.0);
        }
    }
    let _guard = Release(slot);
    end();
}

struct Table {
    base: NonNull<Slot>,
    capacity: usize,
    /// Number of slots in readable memory; only grows.
    usable: AtomicUsize,
    free: Mutex<Free>,
}

// SAFETY: the pointer is to memory that is never unmapped and whose contents are `Sync`.
unsafe impl Send for Table {}
// SAFETY: as for Send.
unsafe impl Sync for Table {}

#[derive(Default)]
struct Free {
    /// Freed slots, oldest first.
    quarantined: VecDeque<usize>,
    /// Index of the first slot that was never used.
    fresh: usize,
}

static TABLE: OnceLock<Option<Table>> = OnceLock::new();

/// Held while the table is made.
static MAKING: HeldLock<()> = HeldLock::new(());

/// Returns the table, which the first call makes.
fn made() -> Option<&'static Table> {
    if let Some(table) = TABLE.get() {
        return table.as_ref();
    }
    let _making = MAKING.lock();
    TABLE.get_or_init(Table::reserve).as_ref()
}

/// Returns the slot whose provider words contain `addr`, and the index of the word.
#[inline]
pub(super) fn find(addr: usize) -> Option<(&'static Slot, usize)> {
    let table = TABLE.get()?.as_ref()?;
    let offset = addr.wrapping_sub(table.base.addr().get());
    let (index, rest) = (offset / size_of::<Slot>(), offset % size_of::<Slot>());
    if index >= table.usable.load(Ordering::Acquire) || !rest.is_multiple_of(WORD) {
        return None;
    }
    let ordinal = rest / WORD;
    (ordinal < ORDINALS).then(|| (table.slot(index), ordinal))
}

/// Takes a slot for an object of `provider`, and returns it with the handle of its next life.
pub(super) fn take(provider: ProviderRef) -> Option<(&'static Slot, Handle)> {
    let table = made()?;
    let index = table.take_index()?;
    let slot = table.slot(index);
    let word = ptr::from_ref(provider.get()).cast_mut();
    for place in &slot.provider {
        place.store(word, Ordering::Release);
    }
    slot.set_context(0);
    let place = &raw const slot.provider[slot.load().ordinal()];
    Handle::from_dat(place.cast_mut().cast::<c_void>()).map(|handle| (slot, handle))
}

/// Ends a slot's life (or a reservation) and appends the slot to the free list.
pub(super) fn release(slot: &Slot) {
    let is_released = slot.update(State::on_release);
    debug_assert!(is_released, "the slot is the caller's");
    let Some(Some(table)) = TABLE.get() else {
        return;
    };
    let offset = (&raw const *slot).addr() - table.base.addr().get();
    let mut free = table.free.lock().ignore_poison();
    free.quarantined.push_back(offset / size_of::<Slot>());
}

/// Makes every handle invalid, in the child of a fork. Its objects stay in memory: most of them are
/// in use by threads, sockets and shared memory that the child does not have.
#[cfg(not(miri))]
fn abandon(free: &Free) {
    if let Some(Some(table)) = TABLE.get() {
        for index in 0..free.fresh {
            table.slot(index).update(State::on_fork);
        }
    }
}

/// Locks the free list, if there is a table.
#[cfg(not(miri))]
fn lock() -> Option<MutexGuard<'static, Free>> {
    let table = TABLE.get()?.as_ref()?;
    Some(table.free.lock().ignore_poison())
}

/// Takes and releases the lock, as a thread that creates an object does.
#[cfg(all(test, not(miri)))]
fn pass_lock() {
    made();
    drop(lock());
}

impl Table {
    fn reserve() -> Option<Self> {
        pins::prepare();
        let mut capacity = CAPACITY;
        while capacity >= CHUNK_SLOTS {
            if let Some(base) = memory::reserve(capacity * size_of::<Slot>()) {
                // C receives addresses inside the range and passes them back as integers.
                base.expose_provenance();
                return Some(Self {
                    base: base.cast(),
                    capacity,
                    usable: AtomicUsize::new(0),
                    free: Mutex::default(),
                });
            }
            capacity /= 2;
        }
        tracing::error!("no address space is left for handles");
        None
    }

    fn slot(&self, index: usize) -> &'static Slot {
        debug_assert!(index < self.usable.load(Ordering::Relaxed));
        // SAFETY: the index is below `usable`, so the memory is readable and writable, zero or a
        // Slot, and stays so for the rest of the process; all shared access uses atomics and cells.
        unsafe { self.base.add(index).as_ref() }
    }

    fn take_index(&self) -> Option<usize> {
        let mut free = self.free.lock().ignore_poison();
        let fresh_left = free.fresh < self.capacity;
        if free.quarantined.len() >= QUARANTINE || !fresh_left {
            return free.quarantined.pop_front();
        }
        if free.fresh == self.usable.load(Ordering::Relaxed) {
            let byte = free.fresh * size_of::<Slot>();
            if !memory::commit(self.base.cast(), byte, CHUNK_SLOTS * size_of::<Slot>()) {
                return free.quarantined.pop_front();
            }
            self.usable
                .store(free.fresh + CHUNK_SLOTS, Ordering::Release);
        }
        free.fresh += 1;
        Some(free.fresh - 1)
    }
}

#[cfg(not(miri))]
mod memory {
    //! Address space that uses no memory until it is committed.

    use std::ptr::{self, NonNull};

    pub(super) fn reserve(len: usize) -> Option<NonNull<u8>> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice changes no existing
        // memory.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            None
        } else {
            NonNull::new(base.cast())
        }
    }

    pub(super) fn commit(base: NonNull<u8>, byte: usize, len: usize) -> bool {
        // SAFETY: the bytes are inside the reservation, which no other code maps over.
        let start = unsafe { base.add(byte) };
        // SAFETY: the bytes are inside the reservation; access to them invalidates no reference.
        unsafe {
            libc::mprotect(
                start.as_ptr().cast(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
            ) == 0
        }
    }
}

#[cfg(miri)]
mod memory {
    //! Miri has no `mprotect`: all memory is committed at once, in its own allocator.

    use std::alloc::{Layout, alloc_zeroed};
    use std::ptr::NonNull;

    pub(super) fn reserve(len: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(len, 4096).ok()?;
        // SAFETY: the length is not zero.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    }

    pub(super) fn commit(_base: NonNull<u8>, _byte: usize, _len: usize) -> bool {
        true
    }
}

const _: () =
    assert!(size_of::<Slot>() == 192 && (CHUNK_SLOTS * size_of::<Slot>()).is_multiple_of(4096));
