//! The listening machine: starts a process for each client process.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use tool_args::say;

use crate::process::{self, Ended};

/// The text that a server prints before the address, once it listens.
pub(crate) const LISTENING: &str = "listening at ";

/// Serves clients, one at a time, until the process is ended.
pub(crate) fn serve(ia_name: &str, listen: SocketAddr, limit: u32) -> Result<()> {
    let listener = TcpListener::bind(listen)
        .with_context(|| format!("cannot listen at {listen}; --listen selects another address"))?;
    say!("{LISTENING}{}", listener.local_addr()?);
    loop {
        let (connection, from) = listener.accept().context("accepting a client")?;
        let mut worker = worker(ia_name, limit, connection)?;
        let ended = Ended::of(worker.wait()?);
        if ended != Ended::Normally {
            eprintln!("dat-conformance: the server's process for {from} {ended}");
        }
    }
}

fn worker(ia_name: &str, limit: u32, connection: TcpStream) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["--worker", "-", "--ia", ia_name])
        .args(["--limit", &limit.to_string()])
        .stdin(Stdio::from(OwnedFd::from(connection)))
        // The child's standard output carries only what libraries print. It goes to standard error,
        // because no process reads the standard output of this process any more.
        .stdout(std::io::stderr());
    process::kill_with_parent(&mut command);
    command.spawn().context("starting a process")
}
