//! SDP streams in an asynchronous runtime: a stream's descriptor shows what the stream is ready
//! for, so tasks await it as they await a socket. The library needs no runtime.
//!
//! ```text
//! async_stream [adapter]
//! ```

use std::env;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::thread;

use sdp_over_dat::{SdpListener, SdpStream, Stack};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinSet;

const CLIENTS: usize = 4;
/// The length of a stream in each direction. It is longer than all buffers together, so that
/// writers have to wait.
const LEN: usize = 8 << 20;

/// A stream that does not block.
struct AsyncStream(AsyncFd<Stream>);

/// A stream as the runtime sees it. The program uses the descriptor for nothing else.
struct Stream(SdpStream);

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl AsyncStream {
    fn new(stream: SdpStream) -> io::Result<Self> {
        stream.set_nonblocking(true);
        // Made now, so that a lack of descriptors is an error here.
        stream.stand_in()?;
        // SAFETY: the descriptor that the call above made is the stream's until it is dropped.
        let registered = unsafe { AsyncFd::register(Stream(stream)) };
        Ok(Self(registered?))
    }

    /// Reads; 0 at the end of the stream.
    async fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        self.0
            .async_io(Interest::READABLE, |stream| (&stream.0).read(into))
            .await
    }

    async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self
                .0
                .async_io(Interest::WRITABLE, |stream| (&stream.0).write(bytes))
                .await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    fn end_writing(&self) -> io::Result<()> {
        self.0.get_ref().0.shutdown(std::net::Shutdown::Write)
    }
}

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
    let stream = AsyncStream::new(stream)?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            stream.end_writing()?;
            return Ok(0);
        }
        stream.write_all(&buffer[..count]).await?;
    }
}

/// Writes and reads at the same time. Returns the number of bytes that were received.
async fn exchange_and_check(stream: SdpStream, number: usize) -> io::Result<usize> {
    let stream = Arc::new(AsyncStream::new(stream)?);
    let pattern = move || (0..LEN).map(move |at| (at * 7 + number + at / 251) as u8);
    let writer = Arc::clone(&stream);
    let writing = tokio::spawn(async move {
        let sent: Vec<u8> = pattern().collect();
        writer.write_all(&sent).await?;
        writer.end_writing()
    });
    let mut received = Vec::with_capacity(LEN);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer).await? {
            0 => break,
            count => received.extend_from_slice(&buffer[..count]),
        }
    }
    writing.await??;
    if !received.into_iter().eq(pattern()) {
        return Err(io::Error::other("the bytes are not those that were sent"));
    }
    Ok(LEN)
}
