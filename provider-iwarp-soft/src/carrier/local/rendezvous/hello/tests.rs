use std::fs::File;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use super::*;

const HELLO: Hello = Hello {
    version: 1,
    ring_len: 0x0004_0000,
    token: 0x0123_4567_89AB_CDEF,
};

/// The number of descriptors of this process for this file.
fn descriptors_of(file: &str) -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link.ends_with(file)).count()
}

#[test]
fn a_hello_carries_its_descriptor() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut receiver = HelloReceiver::default();
    assert!(matches!(receiver.receive(&ours), ReceivedHello::Incomplete));
    let file = File::open("/dev/zero").unwrap();
    send_hello(&theirs, &HELLO, file.as_fd()).unwrap();
    assert!(super::super::super::bell::ring(&theirs));
    let ReceivedHello::Complete(hello, fd) = receiver.receive(&ours) else {
        panic!("not complete")
    };
    assert_eq!(hello, HELLO);
    assert_ne!(fd.as_raw_fd(), file.as_raw_fd());
    let flags = rustix::io::fcntl_getfd(&fd).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    let device = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_rdev;
    assert_eq!(device(fd.as_fd()), device(file.as_fd()));
    // The bytes after the hello are still unread.
    let mut byte = [0];
    assert_eq!(
        crate::engine::io::receive(ours.as_fd(), &mut byte),
        Received::Bytes(1)
    );
}

#[test]
fn a_hello_with_two_descriptors_or_an_end_is_bad_and_its_descriptors_are_closed() {
    // No other test of this process opens this file.
    let file = File::open("/dev/full").unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut receiver = HelloReceiver::default();
    let bytes = HELLO.emit();
    for part in [&bytes[..8], &bytes[8..]] {
        crate::support::scripted::send_with(&theirs, part, &[file.as_fd()]);
    }
    assert!(matches!(receiver.receive(&ours), ReceivedHello::Incomplete));
    assert!(matches!(receiver.receive(&ours), ReceivedHello::Bad));
    drop(receiver);
    let mut receiver = HelloReceiver::default();
    theirs.shutdown(Shutdown::Both).unwrap();
    assert!(matches!(receiver.receive(&ours), ReceivedHello::Bad));
    assert_eq!(descriptors_of("/dev/full"), 1);
}

#[test]
fn answers_are_decoded_as_encoded() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    assert!(receive_answer(&ours).unwrap().is_none());
    let answers = [
        Answer::Yes,
        Answer::No(Refusal::Version),
        Answer::No(Refusal::Token),
        Answer::No(Refusal::Memory),
        Answer::No(Refusal::Resources),
        Answer::No(Refusal::Other(255)),
    ];
    for answer in answers {
        assert!(send_answer(&theirs, answer));
    }
    assert!(send_answer(&theirs, Answer::No(Refusal::Other(0))));
    theirs.write_all(&[0]).unwrap();
    for answer in answers {
        assert_eq!(receive_answer(&ours).unwrap(), Some(answer));
    }
    let refused = Answer::No(Refusal::Other(5));
    assert_eq!(receive_answer(&ours).unwrap(), Some(refused));
    assert_eq!(receive_answer(&ours).unwrap(), Some(Answer::Yes));
    theirs.shutdown(Shutdown::Both).unwrap();
    assert!(receive_answer(&ours).is_err());
    assert!(!send_answer(&ours, Answer::Yes));
}
