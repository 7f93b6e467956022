//! Several threads in the calls of one socket.

use std::{
    io,
    net::SocketAddr,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use sdp_over_dat::{Config, SdpListener, SdpStream};

use super::{DEADLINE, on_stack};

#[test]
fn two_threads_accept_at_one_listener() -> Result<()> {
    on_stack(Config::default(), |stack| {
        let local = stack.address().context("the adapter has no address")?;
        let listener = &SdpListener::bind(stack, SocketAddr::new(local.ip(), 0))?;
        thread::scope(|scope| {
            let accept = || scope.spawn(|| listener.accept_timeout(Some(DEADLINE)));
            let accepting = [accept(), accept()];
            thread::sleep(Duration::from_millis(50));
            // Whoever does not wait is not kept waiting by those who do.
            let none = listener.accept_timeout(Some(Duration::ZERO));
            let none = none.expect_err("nobody connects").kind();
            ensure!(none == io::ErrorKind::WouldBlock, "{none}");
            let some = listener.accept_timeout(Some(Duration::from_millis(50)));
            let some = some.expect_err("nobody connects").kind();
            ensure!(some == io::ErrorKind::WouldBlock, "{some}");
            let address = listener.local_addr();
            let _clients = [
                SdpStream::connect(stack, address)?,
                SdpStream::connect(stack, address)?,
            ];
            for accepted in accepting {
                accepted.join().expect("a server that does not panic")?;
            }
            Ok(())
        })
    })
}
