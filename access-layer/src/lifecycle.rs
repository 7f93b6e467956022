//! `dat_ia_open` and `dat_ia_close`: an interface adapter and all its children.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dat_abi::*;

use crate::cno::Cno;
use crate::cr::Cr;
use crate::dispatch::Dispatch;
use crate::ep::Ep;
use crate::error::{DatError, DatResult};
use crate::evd::Evd;
use crate::handle::{self, Handle, Pinned, ProviderRef, QUIESCENCE_LIMIT};
use crate::ia::{Ia, OUT_OF_HANDLES};
use crate::lmr::Lmr;
use crate::open_error;
use crate::pz::Pz;
use crate::rmr::Rmr;
use crate::rnic::{Rnic, RnicConfig, RnicError};
use crate::sp::{Csp, Psp, Rsp, Ssp};
use crate::srq::Srq;

/// EVD of an IA's asynchronous events.
#[derive(Debug)]
pub enum AsyncEvd<R: Rnic> {
    /// An EVD for at least this many events, which the open creates.
    New(DatCount),
    /// An EVD of another instance of the same device.
    Given(Arc<Evd<R>>),
    /// No EVD of this instance, because another instance has one (`DAT_EVD_ASYNC_EXISTS`).
    Elsewhere,
}

/// Reports why an RNIC was not opened: in the log, or to the registry library if the log is off, so
/// that a user reads the reason once.
fn report_failure(ia_name: &str, error: &RnicError) {
    if tracing::enabled!(tracing::Level::WARN) {
        tracing::warn!(ia = %ia_name, %error, "open failed");
    } else {
        open_error::store(error);
    }
}

impl<R: Rnic> Ia<R> {
    /// Opens the RNIC that `config` names. Returns the IA and its asynchronous EVD, if it has one.
    pub fn open(
        provider: ProviderRef,
        config: &RnicConfig,
        async_evd: AsyncEvd<R>,
    ) -> DatResult<(Handle, Option<Handle>)> {
        let reservation = handle::reserve(provider).ok_or(OUT_OF_HANDLES)?;
        let handle = reservation.handle();
        let rnic = R::open(config, Dispatch::<R>::new(handle))
            .inspect_err(|error| report_failure(&config.ia_name, error))?;
        tracing::debug!(ia = %config.ia_name, params = %config.ia_params, "opened");
        let ia = Arc::new(Self::new(handle, provider, &config.ia_name, rnic));
        // A failure from here on drops the Arc, which shuts the RNIC down.
        let evd = match async_evd {
            AsyncEvd::New(qlen) => Some(Evd::create_async(&ia, qlen)?),
            AsyncEvd::Given(evd) => Some(evd),
            AsyncEvd::Elsewhere => None,
        };
        let evd_handle = evd.as_ref().map(|evd| evd.handle());
        if let Some(evd) = evd {
            ia.set_async_evd(evd.handle(), evd.add_user()?);
        }
        Ok((reservation.publish(ia), evd_handle))
    }

    /// Implements `dat_ia_close`.
    pub fn close(this: Pinned<Self>, flags: DatCloseFlags) -> DatResult {
        match flags {
            DAT_CLOSE_GRACEFUL_FLAG if this.is_in_use() => {
                return Err(DatError::invalid_state(DAT_INVALID_STATE_IA_IN_USE));
            }
            DAT_CLOSE_GRACEFUL_FLAG | DAT_CLOSE_ABRUPT_FLAG => {}
            _ => return Err(DatError::invalid_arg(2)),
        }
        if !this.retire() {
            return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_IA));
        }
        this.begin_close();
        let evds = this.consumers_evds();
        this.abandon_children();
        let ia = this.to_arc();
        // EVDs may serve endpoints of other instances. This instance is then dropped together with
        // the last of those endpoints.
        let has_used_evd = || {
            evds.iter()
                .any(|evd| evd.upgrade().is_some_and(|evd| evd.is_used()))
        };
        let alone = || this.pin_count() == 1 && (Arc::strong_count(&ia) == 2 || has_used_evd());
        if !wait_until(alone) {
            tracing::error!(
                ia = %ia.name(),
                "calls of other threads have not returned; closing anyway"
            );
        }
        tracing::debug!(ia = %ia.name(), "closed");
        Ok(())
    }

    /// Returns all EVDs except the IA's own asynchronous EVD.
    fn consumers_evds(&self) -> Vec<Weak<Evd<R>>> {
        let own = self.own_async_evd();
        self.children::<Evd<R>>()
            .filter(|evd| Some(evd.handle()) != own)
            .map(|evd| Arc::downgrade(&evd.to_arc()))
            .collect()
    }

    /// Ends all children. An object is ended before the objects that it uses.
    fn abandon_children(&self) {
        self.abandon_all::<Rmr<R>>();
        self.abandon_all::<Rsp<R>>();
        self.abandon_all::<Ssp<R>>();
        self.abandon_all::<Ep<R>>();
        self.abandon_all::<Lmr<R>>();
        self.abandon_all::<Psp<R>>();
        self.abandon_all::<Csp<R>>();
        self.abandon_all::<Cr<R>>();
        self.abandon_all::<Srq<R>>();
        self.abandon_all::<Pz<R>>();
        self.abandon_all::<Evd<R>>();
        self.abandon_all::<Cno<R>>();
    }
}

/// Waits until `condition` is true. Returns false if it is not true within [`QUIESCENCE_LIMIT`].
fn wait_until(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + QUIESCENCE_LIMIT;
    let mut pause = Duration::from_micros(20);
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
    true
}
