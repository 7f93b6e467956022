//! Data that a server sends before its client has received the event that the connection is
//! established.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use sdp_over_dat::{Config, SdpListener, SdpStream};

use super::{on_stack, timed};

/// The time between two checks of the server whether the test is over.
const INTERVAL: Duration = Duration::from_millis(100);

/// The connection event and the first message are in two queues. The stack's thread may poll the
/// message queue while the connecting thread handles the connection event.
#[test]
fn a_server_may_send_first() -> Result<()> {
    let rounds = if stack_tests::is_full() { 5_000 } else { 500 };
    on_stack(Config::default(), |stack| {
        let local = stack.address().context("the adapter has no address")?;
        let listener = SdpListener::bind(stack, SocketAddr::new(local.ip(), 0))?;
        let address = listener.local_addr();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // A client whose connect failed is reported below.
                    if let Ok((mut server, _)) = listener.accept_timeout(Some(INTERVAL)) {
                        let _ = server.write_all(b"welcome");
                    }
                }
            });
            let receive = |round: usize| -> Result<()> {
                let mut client = SdpStream::connect(stack, address)?;
                timed(&client);
                let mut received = [0; 7];
                client.read_exact(&mut received)?;
                ensure!(&received == b"welcome", "round {round}");
                Ok(())
            };
            let checked: Result<()> = (0..rounds)
                .try_for_each(|round| receive(round).with_context(|| format!("round {round}")));
            over.store(true, Ordering::Relaxed);
            checked
        })
    })
}
