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

const GOLDEN: &[u8; HELLO_LEN] = b"dat-ring\x01\0\0\0\0\0\x04\0\xEF\xCD\xAB\x89\x67\x45\x23\x01";

/// The number of descriptors of this process for this file.
fn descriptors_of(file: &str) -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link.ends_with(file)).count()
}

/// Sends bytes with descriptors, as a peer might.
fn send(conn: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let pieces = [IoSlice::new(bytes)];
    let sent = rustix::net::sendmsg(conn, &pieces, &mut control, SendFlags::empty());
    assert_eq!(sent, Ok(bytes.len()));
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
fn a_hello_has_this_layout_in_any_pieces() {
    assert_eq!(&HELLO.emit(), GOLDEN);
    let file = File::open("/dev/zero").unwrap();
    for cut in 1..HELLO_LEN {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut receiver = HelloReceiver::default();
        // The descriptor may be sent with either piece.
        let with: [&[BorrowedFd<'_>]; 2] = [&[file.as_fd()], &[]];
        send(&theirs, &GOLDEN[..cut], with[cut % 2]);
        assert!(matches!(receiver.receive(&ours), ReceivedHello::Incomplete));
        send(&theirs, &GOLDEN[cut..], with[1 - cut % 2]);
        let received = receiver.receive(&ours);
        assert!(
            matches!(received, ReceivedHello::Complete(HELLO, _)),
            "{cut}"
        );
    }
}

#[test]
fn any_other_message_is_bad_and_its_descriptors_are_closed() {
    // No other test of this process opens this file.
    let file = File::open("/dev/full").unwrap();
    let fds = [file.as_fd(); 8];
    let mut wrong = *GOLDEN;
    wrong[0] = b'D';
    for (name, bytes, count) in [
        ("no descriptor", GOLDEN, 0),
        ("two descriptors", GOLDEN, 2),
        ("three descriptors", GOLDEN, 3),
        ("eight descriptors", GOLDEN, 8),
        ("other bytes", &wrong, 1),
    ] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        send(&theirs, bytes, &fds[..count]);
        let received = HelloReceiver::default().receive(&ours);
        assert!(matches!(received, ReceivedHello::Bad), "{name}");
        assert_eq!(descriptors_of("/dev/full"), 1, "{name}");
    }
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut receiver = HelloReceiver::default();
    for part in [&GOLDEN[..8], &GOLDEN[8..]] {
        send(&theirs, part, &fds[..1]);
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
