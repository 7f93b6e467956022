//! A server and a client for `std::net`, of which only the line `use sdp_over_dat::net` was
//! changed: their connections use SDP.
//!
//! ```text
//! drop_in [address]
//! ```

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use sdp_over_dat::net::{TcpListener, TcpStream};

const LINES: usize = 1000;

fn main() -> io::Result<()> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1".to_owned());
    let listener = TcpListener::bind((&*address, 0))?;
    let peer = listener.local_addr()?;
    let server = thread::spawn(move || match listener.incoming().next() {
        Some(stream) => shout(&stream?),
        None => Ok(()),
    });
    let stream = TcpStream::connect_timeout(&peer, Duration::from_secs(30))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut writer = stream.try_clone()?;
    let writing = thread::spawn(move || {
        for number in 0..LINES {
            writeln!(writer, "line {number}")?;
        }
        writer.shutdown(Shutdown::Write)
    });
    let mut answers = 0;
    for (number, line) in BufReader::new(&stream).lines().enumerate() {
        if line? != format!("LINE {number}") {
            return Err(io::Error::other("an answer is wrong"));
        }
        answers += 1;
    }
    writing.join().expect("the writer panicked")?;
    server.join().expect("the server panicked")?;
    println!("{answers} lines by std's methods over SDP");
    Ok(())
}

/// Returns each line in capital letters.
fn shout(stream: &TcpStream) -> io::Result<()> {
    for line in BufReader::new(stream).lines() {
        writeln!(&*stream, "{}", line?.to_uppercase())?;
    }
    stream.shutdown(Shutdown::Write)
}
