//! Tests with unread requests: in whatever order objects are dropped, all of them are freed.

use super::*;

/// A service point whose request is queued and unread.
enum Unread {
    Socket(Ssp, UnixStream),
    Reserved(Rsp),
}

fn with_unread(mock: &Mock, all: &Objects, requests: &Evd, over_socket: bool) -> Unread {
    let unread = if over_socket {
        let (ours, peer) = UnixStream::pair().unwrap();
        let ssp = Ssp::create(ours, &all.ep, requests, b"").unwrap();
        Unread::Socket(ssp, peer)
    } else {
        Unread::Reserved(Rsp::create(&all.ep, 5, requests).unwrap())
    };
    let last = [all.ep.as_raw(), requests.as_raw()].into_iter().max();
    let service_point = last.unwrap().map_addr(|address| address + 0x10);
    put_ssp_event(mock, service_point, DAT_CONNECTION_REQUEST_EVENT);
    mock.set(|state| state.ep_state = DAT_EP_STATE_PASSIVE_CONNECTION_PENDING);
    unread
}

/// Checks that the request was rejected before its endpoint was freed, and that no object is left.
fn check_all_freed(mock: &Mock, unread_peer: Option<UnixStream>) {
    let log = mock.log();
    let words: Vec<_> = log.split(' ').collect();
    let at = |word| words.iter().rposition(|known| *known == word);
    assert!(at("reject").is_some() && at("reject") < at("ep"), "{log}");
    assert_eq!(words.last(), Some(&"ia"), "{log}");
    if let Some(mut peer) = unread_peer {
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the socket is closed");
    }
}

fn dropped(unread: Unread) -> Option<UnixStream> {
    match unread {
        Unread::Socket(ssp, peer) => {
            drop(ssp);
            Some(peer)
        }
        Unread::Reserved(rsp) => {
            drop(rsp);
            None
        }
    }
}

#[test]
fn an_unread_request_leaves_nothing_behind_whatever_is_dropped_first() {
    for over_socket in [true, false] {
        for service_point_first in [true, false] {
            let (mock, all) = start();
            let unread = with_unread(&mock, &all, &all.requests.clone(), over_socket);
            let peer = if service_point_first {
                let peer = dropped(unread);
                drop(all);
                peer
            } else {
                drop(all);
                dropped(unread)
            };
            check_all_freed(&mock, peer);
        }
    }
}

/// The endpoint holds the dispatcher in which its own request is queued.
#[test]
fn an_unread_request_in_the_endpoints_own_dispatcher_keeps_nothing_open() {
    for over_socket in [true, false] {
        for read_past in [true, false] {
            let mock = Mock::new();
            let mut all = objects();
            let both = EvdFlags::CONNECTION | EvdFlags::CONNECTION_REQUEST;
            all.connections = Evd::create(&all.ia, 8, both).unwrap();
            all.ep = ep(&all.pz, &all.transfers, &all.connections);
            let unread = with_unread(&mock, &all, &all.connections.clone(), over_socket);
            if read_past {
                // A wait for another event moves the request to the events that were skipped.
                assert!(all.ep.wait_disconnected(SOON).is_err());
            }
            let peer = dropped(unread);
            drop(all);
            check_all_freed(&mock, peer);
        }
    }
}

#[test]
fn a_request_of_a_reserved_endpoint_outlives_its_service_point_unread() {
    let (mock, all) = start();
    let unread = with_unread(&mock, &all, &all.requests, false);
    dropped(unread);
    unread_request(&all).accept(None, b"").unwrap();
    assert_eq!(mock.log(), "rsp accept-reserved");
    mock.set(|state| state.ep_state = DAT_EP_STATE_CONNECTED);
}

#[test]
fn a_request_kept_for_later_still_has_its_endpoint() {
    let (mock, all) = start();
    let unread = with_unread(&mock, &all, &all.requests, true);
    let other = all.ep.id();
    assert!(all.requests.wait_completion(other, 0, SOON).is_err());
    let Unread::Socket(ssp, mut peer) = unread else {
        panic!("no socket");
    };
    let request = ssp.wait_request(SOON).unwrap();
    assert_eq!(request.reserved_ep().map(Ep::id), Some(all.ep.id()));
    let socket = request.reject(b"").unwrap().unwrap();
    assert!(is_connected(socket, &mut peer));
}
