//! One end of a case: which it is, and its line to the other.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use dat_api::Ia;

use crate::control::Control;

/// How long an event is waited for that must come, of the time that a case has.
const PATIENCE_SHARE: u32 = 4;

/// How long nothing must come where nothing may.
const QUIET: Duration = Duration::from_millis(60);

/// An end of a case.
#[derive(Debug)]
pub(crate) struct Side<'a> {
    pub(crate) ia_name: &'a str,
    /// Whether it is the connecting one, which leads.
    pub(crate) is_client: bool,
    /// [`Case::size`](crate::case::Case::size).
    pub(crate) size: usize,
    pub(crate) limit: Duration,
    /// How often it has opened the adapter.
    pub(crate) openings: Cell<usize>,
    pub(crate) control: Option<&'a mut Control>,
}

impl Side<'_> {
    /// Opens the adapter.
    pub(crate) fn open(&self) -> dat_api::Result<Ia> {
        self.openings.set(self.openings.get() + 1);
        Ia::open(self.ia_name)
    }

    /// What a thread of a case needs of its end: nothing but how long to wait.
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

    /// How long an event is waited for that must come.
    pub(crate) fn patience(&self) -> Duration {
        self.limit / PATIENCE_SHARE
    }

    /// How long nothing must come where nothing may.
    pub(crate) fn quiet(&self) -> Duration {
        QUIET
    }

    /// Tells the other end something.
    pub(crate) fn say(&mut self, word: &str, data: &[u8]) -> Result<()> {
        self.control()?.say(word, data)
    }

    /// Waits for what the other end says.
    pub(crate) fn hear(&mut self, word: &str) -> Result<Vec<u8>> {
        self.control()?.hear(word)
    }

    /// A point that both ends have reached when either goes on.
    pub(crate) fn meet(&mut self, word: &str) -> Result<()> {
        self.say(word, &[])?;
        self.hear(word).map(drop)
    }

    /// Where a service of the server's is.
    pub(crate) fn say_address(&mut self, address: SocketAddr, conn_qual: u64) -> Result<()> {
        self.say("at", format!("{address} {conn_qual}").as_bytes())
    }

    /// Inverse of [`say_address`](Self::say_address).
    pub(crate) fn hear_address(&mut self) -> Result<(SocketAddr, u64)> {
        let text = String::from_utf8(self.hear("at")?)?;
        let (address, conn_qual) = text.split_once(' ').context("half an address")?;
        Ok((address.parse()?, conn_qual.parse()?))
    }

    fn control(&mut self) -> Result<&mut Control> {
        let control = self.control.as_deref_mut();
        control.context("a case of one end has nobody to talk to")
    }
}
