//! Interface adapters (DAT 2.0 section 6.2).

use std::ffi::CString;
use std::ptr;
use std::sync::Arc;

use dat_abi::*;

use crate::attr::{IaAttr, ProviderAttr};
use crate::counters;
use crate::error::{Error, Result, check};
use crate::handle::Handle;
use crate::library::Library;

/// Length of the asynchronous event queue that [`Ia::open`] requests.
const ASYNC_QLEN: DatCount = 64;

/// An open interface adapter: the root of every other object.
///
/// Clones share one opened adapter. The adapter is closed when the last clone and the last object
/// created on it are dropped.
#[derive(Clone)]
pub struct Ia {
    pub(crate) inner: Arc<IaInner>,
}

pub(crate) struct IaInner {
    pub(crate) library: &'static Library,
    pub(crate) handle: Handle,
    pub(crate) async_evd: Handle,
    name: String,
}

impl Ia {
    /// Opens the interface adapter that `dat.conf` lists under `name`.
    ///
    /// # Errors
    /// [`Error::Library`] when no registry library can be loaded, `DAT_PROVIDER_NOT_FOUND` when no
    /// entry has this name or its provider cannot be loaded, `DAT_INVALID_PARAMETER` when the
    /// provider has no such device or cannot parse the `ia_params` of the entry.
    pub fn open(name: &str) -> Result<Self> {
        let library = Library::get()?;
        let c_name = CString::new(name).map_err(|_| Error::Unrepresentable {
            what: "an IA name with a NUL",
        })?;
        let (mut async_evd, mut handle) = (DAT_HANDLE_NULL, DAT_HANDLE_NULL);
        // SAFETY: the name is terminated, both out-pointers are writable, and a null asynchronous
        // EVD makes the provider create one.
        let code = unsafe {
            (library.dat_ia_openv)(
                c_name.as_ptr().cast_mut(),
                ASYNC_QLEN,
                &mut async_evd,
                &mut handle,
                DAT_VERSION_MAJOR,
                DAT_VERSION_MINOR,
                DAT_FALSE,
            )
        };
        check("dat_ia_open", code)?;
        let inner = IaInner {
            library,
            handle: Handle(handle),
            async_evd: Handle(async_evd),
            name: name.to_owned(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The name under which the adapter was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the attributes of the adapter.
    pub fn attr(&self) -> Result<IaAttr> {
        let mut raw = DatIaAttr::zeroed();
        // SAFETY: the handle is live and `raw` writable; null is allowed for results that are not
        // requested.
        let code = unsafe {
            (self.library().dat_ia_query)(
                self.as_raw(),
                ptr::null_mut(),
                DAT_IA_FIELD_ALL,
                &mut raw,
                0,
                ptr::null_mut(),
            )
        };
        check("dat_ia_query", code)?;
        // SAFETY: the call filled `raw`, and the IA is open as long as `self` lives.
        Ok(unsafe { IaAttr::from_raw(&raw) })
    }

    /// Returns the attributes of the adapter's provider.
    pub fn provider_attr(&self) -> Result<ProviderAttr> {
        let mut raw = DatProviderAttr::zeroed();
        // SAFETY: as in `attr`.
        let code = unsafe {
            (self.library().dat_ia_query)(
                self.as_raw(),
                ptr::null_mut(),
                0,
                ptr::null_mut(),
                DAT_PROVIDER_FIELD_ALL,
                &mut raw,
            )
        };
        check("dat_ia_query", code)?;
        // SAFETY: the call filled `raw`, and the IA is open as long as `self` lives.
        Ok(unsafe { ProviderAttr::from_raw(&raw) })
    }

    /// Returns the counters of the adapter, indexed by `DCNT_IA_*`; `reset` sets them to 0.
    /// Providers without counters return an error for which
    /// [`is_unsupported`](crate::Error::is_unsupported) is true.
    pub fn counters(&self, reset: bool) -> Result<Vec<u64>> {
        counters::query(
            self.library(),
            self.as_raw(),
            0,
            DCNT_IA_ALL_COUNTERS,
            reset,
        )
    }

    /// Returns the counters of the payload of all connections by transport, in the form of
    /// [`Ep::traffic`](crate::Ep::traffic).
    pub fn traffic(&self, reset: bool) -> Result<Vec<u64>> {
        let (first, all) = (DCNT_RS_TCP_SENT, DCNT_RS_ALL_COUNTERS);
        counters::query(self.library(), self.as_raw(), first, all, reset)
    }

    /// The handle, for calls through [`Library`]. Valid as long as `self` or a clone lives.
    #[must_use]
    pub fn as_raw(&self) -> DatIaHandle {
        self.inner.handle.0
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.inner.library
    }
}

impl Drop for IaInner {
    fn drop(&mut self) {
        // SAFETY: every object created on this IA holds it, so none exists any more; the handle is
        // used for the last time. The close is abrupt, because no work is left that could finish
        // gracefully.
        let code = unsafe { (self.library.dat_ia_close)(self.handle.0, DAT_CLOSE_ABRUPT_FLAG) };
        if let Err(error) = check("dat_ia_close", code) {
            tracing::debug!(ia = %self.name, %error, "closing an interface adapter");
        }
    }
}

opaque_debug!(Ia, |it| [name: it.inner.name]);
