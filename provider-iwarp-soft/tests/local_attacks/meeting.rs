//! A peer that violates the protocol during the move to shared memory: offers, hellos, descriptors,
//! moves. The connection stays on TCP, or ends as the specification says. Another connection of the
//! same adapter keeps working. No mapping and no descriptor is left.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::support::scripted::{
    Half, RING_LEN, SEALED, Scripted, Shared, answer, dial, hello, listen, send_with,
};
use crate::support::testbed::{Testbed, with_testbed, works};
use crate::support::*;
use rnic::*;
use rustix::fs::{MemfdFlags, SealFlags};

/// Attacks a connection during its move to shared memory. The connection must stay on TCP.
fn attack_hello(testbed: &Testbed<'_>, name: &str, attack: impl FnOnce(&[u8; 16], u64)) {
    let victim = testbed.victim();
    let mut peer = Scripted::initiator(&victim);
    let (address, token) = peer.provoke_offer(&victim);
    attack(&address, token);
    works(&mut peer, &victim, name);
    drop(peer);
    victim.expect_end(name);
    drop(victim);
    testbed.check(name);
}

fn expect_refused(address: &[u8; 16], bytes: &[u8], memory: Option<&OwnedFd>) {
    let mut unix = dial(address);
    let descriptors: Vec<_> = memory.iter().map(|fd| fd.as_fd()).collect();
    send_with(&unix, bytes, &descriptors);
    unix.shutdown(std::net::Shutdown::Write).unwrap();
    assert_ne!(answer(&mut unix), Some(0));
}

#[test]
fn an_invalid_hello_leaves_the_connection_on_tcp() {
    with_testbed(|testbed| {
        type Change = fn(&mut Vec<u8>);
        let changes: [(&str, Change); 8] = [
            ("magic", |hello| hello[0] ^= 1),
            ("version", |hello| hello[8] = 2),
            ("no length", |hello| hello[12..16].fill(0)),
            ("odd length", |hello| hello[12] = 1),
            ("long ring", |hello| hello[12..16].fill(0xFF)),
            ("another length", |hello| hello[14] = 8),
            ("token", |hello| hello[16] ^= 1),
            ("truncated", |hello| hello.truncate(23)),
        ];
        for (name, change) in changes {
            attack_hello(testbed, name, |address, token| {
                let memory = Shared::new();
                let mut bytes = hello(token, RING_LEN);
                change(&mut bytes);
                expect_refused(address, &bytes, Some(&memory.fd));
            });
        }
    });
}

#[test]
fn invalid_shared_memory_leaves_the_connection_on_tcp() {
    with_testbed(|testbed| {
        let seals = [
            SealFlags::empty(),
            SealFlags::SHRINK,
            SealFlags::GROW | SealFlags::SEAL,
            SealFlags::SHRINK | SealFlags::SEAL,
            SealFlags::SHRINK | SealFlags::GROW,
            SEALED | SealFlags::FUTURE_WRITE,
        ];
        for seals in seals {
            attack_hello(testbed, &format!("{seals:?}"), |address, token| {
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
                let fd = rustix::fs::memfd_create("script", flags).unwrap();
                rustix::fs::ftruncate(&fd, 8192 + 2 * RING_LEN as u64).unwrap();
                rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
                expect_refused(address, &hello(token, RING_LEN), Some(&fd));
            });
        }
        type Make = fn() -> Option<OwnedFd>;
        let others: [(&str, Make); 5] = [
            ("no descriptor", || None),
            ("a pipe", || Some(rustix::pipe::pipe().unwrap().0)),
            ("a file", || {
                Some(std::fs::File::open("/proc/self/exe").unwrap().into())
            }),
            ("a directory", || {
                Some(std::fs::File::open("/").unwrap().into())
            }),
            ("a huge page", || {
                let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
                let fd = rustix::fs::memfd_create("script", flags).ok()?;
                rustix::fs::ftruncate(&fd, 2 << 20).ok()?;
                rustix::fs::fcntl_add_seals(&fd, SEALED).ok()?;
                Some(fd)
            }),
        ];
        for (name, make) in others {
            attack_hello(testbed, name, |address, token| {
                expect_refused(address, &hello(token, RING_LEN), make().as_ref());
            });
        }
    });
}

#[test]
fn too_many_descriptors_leave_none_and_the_connection_on_tcp() {
    with_testbed(|testbed| {
        for count in [2, 3, 8] {
            attack_hello(
                testbed,
                &format!("{count} descriptors"),
                |address, token| {
                    let memory = Shared::new();
                    let mut unix = dial(address);
                    let descriptors = vec![memory.fd.as_fd(); count];
                    send_with(&unix, &hello(token, RING_LEN), &descriptors);
                    assert_ne!(answer(&mut unix), Some(0));
                },
            );
        }
    });
}

#[test]
fn a_hello_in_pieces_is_one_hello() {
    with_testbed(|testbed| {
        for with in [0, 11, 23] {
            let victim = testbed.victim();
            let mut peer = Scripted::initiator(&victim);
            let (address, token) = peer.provoke_offer(&victim);
            let shared = Shared::new();
            let mut unix = dial(&address);
            for (at, byte) in hello(token, RING_LEN).iter().enumerate() {
                let fd = [shared.fd.as_fd()];
                let descriptors = if at == with { &fd[..] } else { &[] };
                send_with(&unix, &[*byte], descriptors);
                testbed.exchange(1);
            }
            assert_eq!(answer(&mut unix), Some(0), "{with}");
            // The token has been used.
            expect_refused(&address, &hello(token, RING_LEN), Some(&shared.fd));
            works(&mut peer, &victim, "pieces");
            drop((peer, unix, shared, victim));
            testbed.check("pieces");
        }
    });
}

#[test]
fn silent_processes_are_refused() {
    with_testbed(|testbed| {
        attack_hello(testbed, "silence", |address, _| {
            let pending_peers: Vec<UnixStream> = (0..400).map(|_| dial(address)).collect();
            testbed.exchange(5);
            for mut pending_peer in pending_peers {
                assert_eq!(pending_peer.read(&mut [0]).unwrap_or(0), 0);
            }
        });
    });
}

#[test]
fn an_end_between_offer_and_move_leaves_nothing() {
    with_testbed(|testbed| {
        for way in ["victim", "victim gracefully", "peer", "hello after the end"] {
            let victim = testbed.victim();
            let mut peer = Scripted::initiator(&victim);
            let (address, token) = peer.provoke_offer(&victim);
            match way {
                "victim" => testbed.node().rnic.disconnect(&victim.qp, true),
                "victim gracefully" => {
                    testbed.node().rnic.disconnect(&victim.qp, false);
                    peer.tcp.shutdown(std::net::Shutdown::Both).unwrap();
                }
                _ => peer.tcp.shutdown(std::net::Shutdown::Both).unwrap(),
            }
            let event = victim.event();
            assert!(matches!(event, Event::Disconnected), "{way}: {event:?}");
            let memory = Shared::new();
            expect_refused(&address, &hello(token, RING_LEN), Some(&memory.fd));
            drop((peer, memory, victim));
            testbed.check(way);
        }
    });
}

#[test]
fn an_offer_of_an_initiator_is_ignored() {
    with_testbed(|testbed| {
        let listener = listen(&unused_address());
        listener.set_nonblocking(true).unwrap();
        let victim = testbed.victim();
        let mut peer = Scripted::initiator(&victim);
        peer.send_offer(&unused_address(), 1);
        works(&mut peer, &victim, "an offer to a responder");
        let accepted = listener.accept();
        assert!(accepted.is_err(), "the victim used the offered address");
        drop((listener, peer));
        victim.expect_end("");
        drop(victim);
        testbed.check("an offer to a responder");
    });
}

#[test]
fn a_victim_that_has_begun_to_disconnect_does_not_move() {
    with_testbed(|testbed| {
        for step in ["offer", "hello", "moved"] {
            let victim = testbed.victim();
            let mut peer = Scripted::initiator(&victim);
            for round in 0..40 {
                victim.recv(round, &[]);
            }
            let count = if step == "offer" { 3 } else { 20 };
            for _ in 0..count {
                peer.send(b"");
                victim.received();
            }
            let mut kept = None;
            if step != "offer" {
                let offer = peer.read_segment();
                let token = u64::from_be_bytes(offer[38..46].try_into().unwrap());
                let address: [u8; 16] = offer[22..38].try_into().unwrap();
                if step == "hello" {
                    testbed.node().rnic.disconnect(&victim.qp, false);
                    assert_eq!(peer.tcp.read(&mut [0]).unwrap(), 0, "a FIN");
                }
                let (shared, mut unix) = (Shared::new(), dial(&address));
                send_with(&unix, &hello(token, RING_LEN), &[shared.fd.as_fd()]);
                let is_accepted = answer(&mut unix) == Some(0);
                if step == "moved" {
                    assert!(is_accepted);
                    testbed.node().rnic.disconnect(&victim.qp, false);
                    assert_eq!(peer.tcp.read(&mut [0]).unwrap(), 0, "a FIN");
                }
                if is_accepted {
                    peer.send_moved();
                }
                kept = Some((shared, unix));
            } else {
                testbed.node().rnic.disconnect(&victim.qp, false);
                assert_eq!(peer.tcp.read(&mut [0]).unwrap(), 0, "a FIN");
                for _ in 0..20 {
                    peer.send(b"");
                    assert_eq!(victim.received().status, WcStatus::Success);
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            peer.tcp.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(victim.event(), Event::Disconnected, "{step}");
            drop((peer, kept, victim));
            testbed.check(step);
        }
    });
}

// ---- a responder that violates the protocol ----

/// An abstract address that no other process of the host uses.
fn unused_address() -> [u8; 16] {
    let mut address = *b"a scripted name!";
    address[..4].copy_from_slice(&std::process::id().to_ne_bytes());
    address
}

/// Runs `attack` as the responder of a connection whose initiator is the victim. Returns the event
/// with which the connection ended.
fn attack_initiator(
    testbed: &Testbed<'_>,
    name: &str,
    attack: impl FnOnce(&mut Scripted, &Side<'_>) -> Vec<OwnedFd>,
) -> Event {
    let victim = testbed.victim();
    let mut peer = Scripted::responder(&victim);
    let kept = attack(&mut peer, &victim);
    drop((peer, kept));
    let event = victim.event();
    drop(victim);
    testbed.check(name);
    event
}

#[test]
fn invalid_offers_leave_the_connection_on_tcp() {
    with_testbed(|testbed| {
        let event = attack_initiator(testbed, "no listener", |peer, victim| {
            for _ in 0..3 {
                peer.send_offer(&unused_address(), 1);
                works(peer, victim, "no listener");
            }
            Vec::new()
        });
        assert!(matches!(event, Event::Disconnected | Event::Broken));
        for reply in [None, Some(1), Some(2), Some(3), Some(4), Some(5), Some(255)] {
            let listener = listen(&unused_address());
            attack_initiator(testbed, &format!("{reply:?}"), |peer, victim| {
                peer.send_offer(&unused_address(), 1);
                let (mut unix, _) = listener.accept().unwrap();
                if let Some(reply) = reply {
                    unix.write_all(&[reply; 100]).unwrap();
                }
                drop((unix, listener));
                works(peer, victim, &format!("{reply:?}"));
                Vec::new()
            });
        }
    });
}

#[test]
fn an_offer_without_an_answer_leaves_the_connection_on_tcp() {
    with_testbed(|testbed| {
        let listener = listen(&unused_address());
        attack_initiator(testbed, "no answer", |peer, victim| {
            peer.send_offer(&unused_address(), 1);
            let (unix, _) = listener.accept().unwrap();
            works(peer, victim, "no answer");
            peer.send_offer(&unused_address(), 2);
            works(peer, victim, "a second offer");
            drop(listener);
            vec![unix.into()]
        });
    });
}

#[test]
fn a_move_without_agreement_ends_the_connection() {
    with_testbed(|testbed| {
        let event = attack_initiator(testbed, "moved without an offer", |peer, _| {
            peer.send_moved();
            peer.rest();
            Vec::new()
        });
        assert_eq!(event, Event::Broken);
        let listener = listen(&unused_address());
        let event = attack_initiator(testbed, "moved before the answer", |peer, _| {
            peer.send_offer(&unused_address(), 1);
            let (unix, _) = listener.accept().unwrap();
            peer.send_moved();
            peer.rest();
            drop(listener);
            vec![unix.into()]
        });
        assert_eq!(event, Event::Broken);
    });
}

/// Makes a victim that connects move to shared memory, and returns the memory.
fn take_memory(peer: &mut Scripted) -> (UnixStream, Shared) {
    let listener = listen(&unused_address());
    peer.send_offer(&unused_address(), 7);
    let (mut unix, _) = listener.accept().unwrap();
    unix.set_read_timeout(Some(DEADLINE)).unwrap();
    let (bytes, fd) = receive_with(&unix);
    assert_eq!(bytes, hello(7, RING_LEN));
    unix.write_all(&[0]).unwrap();
    peer.await_moved();
    (unix, Shared::of(fd, RING_LEN))
}

fn receive_with(unix: &UnixStream) -> (Vec<u8>, OwnedFd) {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 24];
    let mut pieces = [std::io::IoSliceMut::new(&mut bytes)];
    rustix::net::recvmsg(unix, &mut pieces, &mut control, RecvFlags::empty()).unwrap();
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    (bytes.to_vec(), fd.unwrap())
}

#[test]
fn segments_on_tcp_after_a_move_are_a_violation() {
    with_testbed(|testbed| {
        type Act = fn(&mut Scripted);
        let acts: [(&str, Act); 3] = [
            ("a message", |peer| peer.send(b"")),
            ("moved twice", Scripted::send_moved),
            ("an offer", |peer| peer.send_offer(&unused_address(), 1)),
        ];
        for (name, act) in acts {
            let event = attack_initiator(testbed, name, |peer, victim| {
                let (unix, shared) = take_memory(peer);
                peer.send_moved();
                victim.recv(1, &[]);
                let header = peer.send_header();
                shared.push(Half::Adopter, 0, &header, &[]);
                (&unix).write_all(&[1]).unwrap();
                assert_eq!(victim.received().status, WcStatus::Success, "{name}");
                act(peer);
                peer.rest();
                vec![unix.into()]
            });
            assert_eq!(event, Event::Broken, "{name}");
        }
    });
}

#[test]
fn a_responder_that_moves_one_direction_only_is_served_by_both_carriers() {
    with_testbed(|testbed| {
        attack_initiator(testbed, "one direction", |peer, victim| {
            let (unix, shared) = take_memory(peer);
            for round in 0..20 {
                victim.recv(round, &[]);
                peer.send(b"");
                assert_eq!(victim.received().wr_id, round);
                victim.send(round, &[]);
                assert_eq!(victim.sent().status, WcStatus::Success);
            }
            shared.await_word(Half::Creator, 0);
            vec![unix.into()]
        });
    });
}

/// The processes that have connected and have sent nothing are replaced by new ones, so they hold a
/// bounded number of descriptors and delay no other process.
#[test]
fn silent_processes_make_room_for_others() {
    const LIMIT: usize = 64;
    with_testbed(|testbed| {
        attack_hello(testbed, "silent processes", |address, token| {
            let silent: Vec<UnixStream> = (0..4 * LIMIT).map(|_| dial(address)).collect();
            // It is accepted after all of them.
            let memory = Shared::new();
            expect_refused(address, &hello(!token, RING_LEN), Some(&memory.fd));
            let is_open = |mut unix: &UnixStream| {
                unix.set_nonblocking(true).unwrap();
                let read = unix.read(&mut [0]);
                read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
            };
            let open = silent.iter().filter(|unix| is_open(unix)).count();
            assert!(open <= LIMIT, "{open} silent processes");
        });
    });
}
