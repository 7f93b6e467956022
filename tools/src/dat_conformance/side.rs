//! An end of a case: its role, and its control connection to the other end.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use dat_api::Ia;

use crate::control::Control;

/// The divisor of a case's time limit that gives the time to wait for an event that must be
/// received.
const PATIENCE_SHARE: u32 = 4;

/// The time to wait where no event must be received.
const QUIET: Duration = Duration::from_millis(60);

/// An end of a case.
#[derive(Debug)]
pub(crate) struct Side<'a> {
    pub(crate) ia_name: &'a str,
    /// True for the connecting end, which leads.
    pub(crate) is_client: bool,
    /// [`Case::size`](crate::case::Case::size).
    pub(crate) size: usize,
    pub(crate) limit: Duration,
    /// The number of times that this end has opened the adapter.
    pub(crate) openings: Cell<usize>,
    pub(crate) control: Option<&'a mut Control>,
}

impl Side<'_> {
    pub(crate) fn open(&self) -> dat_api::Result<Ia> {
        self.openings.set(self.openings.get() + 1);
        Ia::open(self.ia_name)
    }

    /// The `Side` for a thread of a case, which needs only the time limit.
    pub(crate) fn of_thread(patience: Duration) -> Self {
        Side {
            ia_name: "",
            is_client: true,
            size: 0,
            limit: patience * PATIENCE_SHARE,
            openings: Cell::new(0),
            control: None,
        }
    }

    /// The time to wait for an event that must be received.
    pub(crate) fn patience(&self) -> Duration {
        self.limit / PATIENCE_SHARE
    }

    /// The time to wait where no event must be received.
    pub(crate) fn quiet(&self) -> Duration {
        QUIET
    }

    /// Sends data to the other end under a name.
    pub(crate) fn send(&mut self, word: &str, data: &[u8]) -> Result<()> {
        self.control()?.send(word, data)
    }

    /// Waits for data that the other end sends under a name.
    pub(crate) fn receive(&mut self, word: &str) -> Result<Vec<u8>> {
        self.control()?.receive(word)
    }

    /// Waits until both ends have reached this point.
    pub(crate) fn barrier(&mut self, word: &str) -> Result<()> {
        self.send(word, &[])?;
        self.receive(word).map(drop)
    }

    /// Sends the address of a service of the server.
    pub(crate) fn send_address(&mut self, address: SocketAddr, conn_qual: u64) -> Result<()> {
        self.send("at", format!("{address} {conn_qual}").as_bytes())
    }

    /// Inverse of [`send_address`](Self::send_address).
    pub(crate) fn receive_address(&mut self) -> Result<(SocketAddr, u64)> {
        let text = String::from_utf8(self.receive("at")?)?;
        let (address, conn_qual) = text.split_once(' ').context("an address is incomplete")?;
        Ok((address.parse()?, conn_qual.parse()?))
    }

    fn control(&mut self) -> Result<&mut Control> {
        let control = self.control.as_deref_mut();
        control.context("a case without a peer has no control connection")
    }
}
