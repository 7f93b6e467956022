//! SDP streams in tasks of tokio, by tokio's own traits.
//!
//! ```text
//! async_stream [adapter]
//! ```

use std::env;
use std::io;
use std::thread;

use sdp_over_dat::{AsyncSdpStream, SdpListener, SdpStream, Stack};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

const CLIENTS: usize = 4;
/// The length of a stream in each direction. It is longer than all buffers together, so that
/// writers have to wait.
const LEN: usize = 8 << 20;

fn main() -> io::Result<()> {
    let adapter = env::args().nth(1).unwrap_or_else(|| "iwarp-lo".to_owned());
    let stack = Stack::open(&adapter)?;
    let listener = SdpListener::bind(&stack, ([127, 0, 0, 1], 0).into())?;
    let address = listener.local_addr();
    // Connections are made by calls that wait, on a thread of their own.
    let connecting = thread::spawn(move || -> io::Result<Vec<SdpStream>> {
        (0..CLIENTS)
            .map(|_| SdpStream::connect(&stack, address))
            .collect()
    });
    let accepted: io::Result<Vec<_>> = (0..CLIENTS).map(|_| listener.accept()).collect();
    let connected = connecting.join().expect("the clients panicked")?;

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let bytes = runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for (stream, _) in accepted? {
            tasks.spawn(echo(stream));
        }
        for (number, stream) in connected.into_iter().enumerate() {
            tasks.spawn(exchange_and_check(stream, number));
        }
        let mut bytes = 0;
        while let Some(task) = tasks.join_next().await {
            bytes += task??;
        }
        Ok::<_, io::Error>(bytes)
    })?;
    println!("{CLIENTS} streams returned {bytes} bytes, every byte as it was sent");
    Ok(())
}

/// Returns every byte until the peer has ended its direction.
async fn echo(stream: SdpStream) -> io::Result<usize> {
    let (mut reader, mut writer) = tokio::io::split(AsyncSdpStream::new(stream)?);
    tokio::io::copy(&mut reader, &mut writer).await?;
    writer.shutdown().await?;
    Ok(0)
}

/// Writes and reads at the same time. Returns the number of bytes that were received.
async fn exchange_and_check(stream: SdpStream, number: usize) -> io::Result<usize> {
    let (mut reader, mut writer) = tokio::io::split(AsyncSdpStream::new(stream)?);
    let pattern = move || (0..LEN).map(move |at| (at * 7 + number + at / 251) as u8);
    let writing = tokio::spawn(async move {
        let sent: Vec<u8> = pattern().collect();
        writer.write_all(&sent).await?;
        writer.shutdown().await
    });
    let mut received = Vec::with_capacity(LEN);
    reader.read_to_end(&mut received).await?;
    writing.await??;
    if !received.into_iter().eq(pattern()) {
        return Err(io::Error::other("the bytes are not those that were sent"));
    }
    Ok(LEN)
}
