//! Questions for the queue pair of a datagram service, and the answers.
//!
//! On InfiniBand such a question is a datagram that is repeated until it is answered (service ID
//! resolution). Here it is a TCP connection to the port of the service, because TCP repeats what is
//! lost. It ends with the answer.
//!
//! ```text
//!  0 magic, "dRs1"          4
//!  4 kind                   1   0 question, 1 accepted, 2 rejected
//!  5 length of the data     1
//!  6 queue pair number      4   of an accepted answer
//! 10 Q_Key                  4   likewise
//! 14 private data
//! ```
//!
//! (offset, name, bytes; numbers in the byte order of the network)

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use host::threads::{Thread, spawn_quiet};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use crate::fault::Fault;

const MAGIC: [u8; 4] = *b"dRs1";
const HEADER_LEN: usize = 14;
const QUESTION: u8 = 0;
const ACCEPTED: u8 = 1;
const REJECTED: u8 = 2;

/// The time in which a peer must send its question.
const QUESTION_LIMIT: Duration = Duration::from_secs(5);
/// The time in which a program must answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// The most questions that one service reads at the same time.
const READERS_MAX: usize = 64;

/// A question or an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Message {
    kind: u8,
    number: u32,
    key: u32,
    data: Vec<u8>,
}

/// The answer to a question.
#[derive(Debug)]
pub(super) struct Answer {
    /// The queue pair number and the Q_Key; `None` if the service has rejected the question.
    pub(super) accepted: Option<(u32, u32)>,
    pub(super) private_data: Vec<u8>,
}

/// A question that was received and not answered. The drop refuses it.
#[derive(Debug)]
pub(super) struct Question {
    stream: TcpStream,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

impl Message {
    fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        let len = self.data.len().min(u8::MAX.into());
        let mut bytes = Vec::with_capacity(HEADER_LEN + len);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[self.kind, len as u8]);
        bytes.extend_from_slice(&self.number.to_be_bytes());
        bytes.extend_from_slice(&self.key.to_be_bytes());
        bytes.extend_from_slice(&self.data[..len]);
        stream.write_all(&bytes)
    }

    /// Reads a message, each part within `limit`.
    fn read(stream: &mut TcpStream, limit: Duration) -> io::Result<Self> {
        stream.set_read_timeout(Some(limit))?;
        let mut header = [0; HEADER_LEN];
        stream.read_exact(&mut header)?;
        let [a, b, c, d, kind, len, n0, n1, n2, n3, k0, k1, k2, k3] = header;
        if [a, b, c, d] != MAGIC {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut data = vec![0; len.into()];
        stream.read_exact(&mut data)?;
        Ok(Self {
            kind,
            number: u32::from_be_bytes([n0, n1, n2, n3]),
            key: u32::from_be_bytes([k0, k1, k2, k3]),
            data,
        })
    }
}

/// Asks a service for its queue pair. Blocks.
pub(super) fn ask(remote: SocketAddr, private_data: &[u8]) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&remote, ANSWER_LIMIT)?;
    let question = Message {
        kind: QUESTION,
        number: 0,
        key: 0,
        data: private_data.to_vec(),
    };
    question.write(&mut stream)?;
    let answer = Message::read(&mut stream, ANSWER_LIMIT)?;
    Ok(Answer {
        accepted: (answer.kind == ACCEPTED).then_some((answer.number, answer.key)),
        private_data: answer.data,
    })
}

impl Question {
    /// Names the queue pair of the service to the peer.
    pub(super) fn accept(mut self, number: u32, key: u32, data: &[u8]) -> Result<(), Fault> {
        let answer = Message {
            kind: ACCEPTED,
            number,
            key,
            data: data.to_vec(),
        };
        answer.write(&mut self.stream).map_err(errno_of)
    }

    pub(super) fn reject(mut self, data: &[u8]) -> Result<(), Fault> {
        let answer = Message {
            kind: REJECTED,
            number: 0,
            key: 0,
            data: data.to_vec(),
        };
        answer.write(&mut self.stream).map_err(errno_of)
    }
}

/// A service. The drop ends it.
pub(super) struct Point {
    end: Arc<OwnedFd>,
    thread: Option<Thread>,
}

impl Point {
    /// Listens at an address, or at a port that the kernel chooses for port 0. `on_question` is
    /// called with each question and its private data. Returns the port.
    pub(super) fn open(
        local: SocketAddr,
        on_question: impl Fn(Question, Vec<u8>) + Send + Sync + 'static,
    ) -> Result<(Self, u16), Fault> {
        let listener = TcpListener::bind(local).map_err(errno_of)?;
        listener.set_nonblocking(true).map_err(errno_of)?;
        let port = listener.local_addr().map_err(errno_of)?.port();
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (ended, on_question) = (end.clone(), Arc::new(on_question));
        let readers = Arc::new(AtomicUsize::new(0));
        let run = move || {
            while wait(&listener, &ended) {
                let Ok((stream, remote)) = listener.accept() else {
                    continue;
                };
                if readers.fetch_add(1, Ordering::AcqRel) >= READERS_MAX {
                    readers.fetch_sub(1, Ordering::AcqRel);
                    continue;
                }
                let (on_question, left) = (on_question.clone(), readers.clone());
                let read = move || {
                    read_question(stream, remote, &*on_question);
                    left.fetch_sub(1, Ordering::AcqRel);
                };
                if spawn_quiet("verbs-question", read).is_err() {
                    readers.fetch_sub(1, Ordering::AcqRel);
                }
            }
        };
        let thread = spawn_quiet("verbs-service", run).map_err(errno_of)?;
        let thread = Some(thread);
        Ok((Self { end, thread }, port))
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take().filter(|thread| !thread.is_current()) {
            thread.join();
        }
    }
}

/// Waits for a peer. Returns false if the service has ended.
fn wait(listener: &TcpListener, end: &OwnedFd) -> bool {
    let mut set = [
        PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN),
    ];
    match poll(&mut set, None) {
        Ok(_) | Err(Errno::INTR) => set[1].revents().is_empty(),
        Err(_) => false,
    }
}

fn read_question(
    mut stream: TcpStream,
    remote: SocketAddr,
    on_question: &dyn Fn(Question, Vec<u8>),
) {
    let is_blocking = stream.set_nonblocking(false);
    let read = is_blocking.and_then(|()| Message::read(&mut stream, QUESTION_LIMIT));
    let (Ok(message), Ok(local)) = (read, stream.local_addr()) else {
        return;
    };
    if message.kind == QUESTION {
        let question = Question {
            stream,
            local,
            remote,
        };
        on_question(question, message.data);
    }
}

fn errno_of(error: io::Error) -> Fault {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::*;

    fn any() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    #[test]
    fn a_service_answers_and_rejects() {
        let (sender, receiver) = channel();
        let sender = Mutex::new(sender);
        let on_question = move |question: Question, data: Vec<u8>| {
            sender.lock().unwrap().send(data.clone()).unwrap();
            match data.as_slice() {
                b"yes" => question.accept(7, 9, b"welcome").unwrap(),
                _ => question.reject(b"no").unwrap(),
            }
        };
        let (point, port) = Point::open(any(), on_question).unwrap();
        let remote = SocketAddr::new(any().ip(), port);
        let answer = ask(remote, b"yes").unwrap();
        assert_eq!(answer.accepted, Some((7, 9)));
        assert_eq!(answer.private_data, b"welcome");
        assert_eq!(ask(remote, b"?").unwrap().accepted, None);
        assert_eq!(receiver.recv().unwrap(), b"yes");
        drop(point);
        assert!(ask(remote, b"yes").is_err());
    }

    #[test]
    fn a_peer_that_sends_something_else_is_ignored() {
        let on_question = |_: Question, _: Vec<u8>| panic!("no question");
        let (_point, port) = Point::open(any(), on_question).unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(&[0; 64]).unwrap();
        assert!(matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_)));
    }
}
