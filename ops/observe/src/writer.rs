//! What this process tells of its sockets.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::description::{Carrier, Description, Kind};
use crate::listing;
use crate::page::Page;
use crate::place::Place;
use crate::record::Record;
use crate::state::State;

/// Pages of dead processes that are looked for when a page is made, at most.
const SWEPT: usize = 32;

/// What this process tells of its sockets: a page that is made with the first of them.
#[derive(Debug)]
pub struct Writer {
    /// Null until there is one. Pages are leaked, so whoever has seen one may go on using it.
    page: AtomicPtr<Page>,
    place: OnceLock<Place>,
}

impl Writer {
    /// One without a page, for a `static`.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            page: AtomicPtr::new(ptr::null_mut()),
            place: OnceLock::new(),
        }
    }

    /// Where the page will lie. Without it there is none.
    pub fn begin(&self, place: Place) {
        // The first caller decides.
        let _ = self.place.set(place);
    }

    /// Lists a socket until its record is dropped.
    pub fn list(&'static self, description: &Description, state: State) -> Record {
        let page = self.make();
        if description.kind == Kind::Connection
            && let Some(header) = page.header()
        {
            match &description.carrier {
                Carrier::Offload { .. } => header.offloaded.fetch_add(1, Ordering::Relaxed),
                Carrier::Tcp { reason } => {
                    if !reason.is_empty() {
                        page.count_reason(reason);
                    }
                    header.tcp.fetch_add(1, Ordering::Relaxed)
                }
            };
        }
        Record::new(self, page, description.encode(), state)
    }

    /// In the child of a `fork`, before anything else is called: the parent's page is not the
    /// child's. The child makes its own when it has something to tell, which may be a socket of the
    /// parent that it goes on using.
    pub fn forked(&self) {
        self.page.store(ptr::null_mut(), Ordering::Release);
    }

    /// The process ends: takes its page away.
    pub fn end(&self) {
        let none = Box::into_raw(Box::new(Page::none()));
        let page = self.page.swap(none, Ordering::AcqRel);
        // SAFETY: null, or a page that is never freed.
        if let Some(page) = unsafe { page.as_ref() } {
            page.withdraw();
        }
    }

    /// The page, if there is one.
    pub(crate) fn page(&self) -> Option<&'static Page> {
        // SAFETY: null, or a page that is never freed.
        unsafe { self.page.load(Ordering::Acquire).as_ref() }
    }

    /// The page, made if there is none.
    pub(crate) fn make(&self) -> &'static Page {
        if let Some(page) = self.page() {
            return page;
        }
        let page = match self.place.get() {
            Some(place) => {
                listing::sweep(place, SWEPT);
                Page::make(place)
            }
            None => Page::none(),
        };
        let fresh = Box::into_raw(Box::new(page));
        let stored =
            self.page
                .compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
        match stored {
            // SAFETY: leaked a moment ago.
            Ok(_) => unsafe { &*fresh },
            Err(others) => {
                // SAFETY: nobody has seen ours, which stays mapped because pages do; the other
                // thread's is not null.
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
