//! The writer of this process's page.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use host::forks::HeldLock;

use crate::observe::directory::PageRoot;
use crate::observe::listing;
use crate::observe::page::Page;

/// The maximum number of pages of ended processes that are removed when a page is made.
const SWEPT: usize = 32;

/// Held while the directory of a writer is set.
pub(crate) static BEGINNING: HeldLock<()> = HeldLock::new(());

/// The writer of this process's page, which is made with the first socket.
#[derive(Debug)]
pub struct Writer {
    /// Null until there is a page. Pages are leaked, so a reference to one is always valid.
    page: AtomicPtr<Page>,
    /// The page before that, so that leak checkers find the memory.
    former: AtomicPtr<Page>,
    /// The number of calls of [`Writer::forked`], in the ancestors of this process as well.
    forks: AtomicU32,
    root: OnceLock<PageRoot>,
}

impl Writer {
    /// Returns a writer without a page, for a `static`.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            page: AtomicPtr::new(ptr::null_mut()),
            former: AtomicPtr::new(ptr::null_mut()),
            forks: AtomicU32::new(0),
            root: OnceLock::new(),
        }
    }

    /// Sets the directory for the page. Without a directory no page is made.
    pub fn begin(&self, root: PageRoot) {
        // The first call decides; later calls have no effect.
        let _beginning = BEGINNING.lock();
        let _ = self.root.set(root);
    }

    /// Detaches the child of a `fork` from its parent's page; the child calls this before anything
    /// else of this crate. The child makes its own page with its first count or listing, which may
    /// be for a socket of the parent that it still uses.
    pub fn forked(&self) {
        self.replace(ptr::null_mut());
        self.forks.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of calls of [`Writer::forked`], which distinguishes the page of a child
    /// from that of its parent.
    pub(super) fn forks(&self) -> u32 {
        self.forks.load(Ordering::Relaxed)
    }

    /// Removes the page at the end of the process.
    pub fn end(&self) {
        let none = Box::into_raw(Box::new(Page::none()));
        if let Some(page) = self.replace(none) {
            page.withdraw();
        }
    }

    /// Stores another page or null, and returns the former page.
    fn replace(&self, page: *mut Page) -> Option<&'static Page> {
        let former = self.page.swap(page, Ordering::AcqRel);
        self.former.store(former, Ordering::Relaxed);
        // SAFETY: the pointer is null, or points to a page that is never freed.
        unsafe { former.as_ref() }
    }

    pub(super) fn page(&self) -> Option<&'static Page> {
        // SAFETY: the pointer is null, or points to a page that is never freed.
        unsafe { self.page.load(Ordering::Acquire).as_ref() }
    }

    /// Returns true if this process has its page, so that listing a socket makes no file.
    #[must_use]
    pub fn has_page(&self) -> bool {
        !self.page.load(Ordering::Relaxed).is_null()
    }

    /// Returns the page, and makes it if there is none.
    pub(super) fn make(&self) -> &'static Page {
        if let Some(page) = self.page() {
            return page;
        }
        let page = match self.root.get() {
            Some(root) => {
                listing::sweep(root, SWEPT);
                Page::make(root)
            }
            None => Page::none(),
        };
        let fresh = Box::into_raw(Box::new(page));
        let stored =
            self.page
                .compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
        match stored {
            // SAFETY: `fresh` was leaked above and is never freed.
            Ok(_) => unsafe { &*fresh },
            Err(others) => {
                // SAFETY: no other thread has seen our page, and it is never freed. The other
                // thread's page is not null, because the exchange failed.
                unsafe {
                    (*fresh).withdraw();
                    &*others
                }
            }
        }
    }
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}
