//! Sends a few MiB in pieces that are submitted, without a wait between them.
//!
//! ```text
//! submit [adapter]
//! ```

use std::env;
use std::io::{self, Read};
use std::thread;

use sdp_over_dat::{SdpListener, SdpStream, Stack};

const PIECE: usize = 1 << 20;
const PIECES: u8 = 8;

fn main() -> io::Result<()> {
    let adapter = env::args().nth(1).unwrap_or_else(|| "iwarp-lo".to_owned());
    let stack = Stack::open(&adapter)?;
    let listener = SdpListener::bind(&stack, ([127, 0, 0, 1], 0).into())?;
    let peer = listener.local_addr();
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        let mut piece = vec![0; PIECE];
        for number in 0..PIECES {
            stream.read_exact(&mut piece)?;
            if piece.iter().any(|byte| *byte != number) {
                return Err(io::Error::other("another byte was received"));
            }
        }
        Ok(())
    });
    let stream = SdpStream::connect(&stack, peer)?;
    // The bytes are sent from this memory, which the submissions own until they complete.
    let pieces = (0..PIECES).map(|number| stream.submit(vec![number; PIECE]));
    let submitted = pieces.collect::<io::Result<Vec<_>>>()?;
    let mut sent = 0;
    for submission in submitted {
        let (written, _memory) = submission.wait();
        sent += written;
    }
    receiver.join().expect("the receiver panicked")?;
    let copied = stream.statistics().bytes_copied;
    println!("{sent} bytes were sent, {copied} of them were copied here");
    Ok(())
}
