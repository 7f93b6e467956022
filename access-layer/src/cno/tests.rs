use std::ptr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use dat_abi::*;

use crate::cno::Cno;
use crate::fake_rnic::FakeRnic;
use crate::harness::{Dat, LONG_US, Pair, SUCCESS, call, refused, software_word, succeed};

const EMPTY: u32 = 0x000D_0000;

/// A time that is longer than any call of an agent takes to begin.
const LIMIT: Duration = Duration::from_secs(60);

fn software_evd(dat: &Dat, cno: DatCnoHandle) -> DatEvdHandle {
    dat.try_evd(64, cno, DAT_EVD_SOFTWARE_FLAG).unwrap()
}

/// Two connected endpoints, a CNO, and the EVD of receives that triggers it.
fn pair_with_cno() -> (Pair, DatCnoHandle, DatEvdHandle) {
    let pair = Pair::connected("", DAT_COMPLETION_EVD_THRESHOLD_FLAG);
    let (cno, recv) = (pair.dat.cno(), pair.ends[1].recv);
    succeed!(pair.dat, evd_modify_cno, recv, cno);
    (pair, cno, recv)
}

/// Sends one message, whose receive completes.
fn transfer(pair: &Pair) {
    assert_eq!(pair.recv(1, 1, 0), SUCCESS);
    assert_eq!(pair.send(0, 1, DAT_COMPLETION_SUPPRESS_FLAG), SUCCESS);
}

/// Waits on the CNO with this address. Called on another thread.
fn wait_for_code(dat: &Dat, cno: usize) -> Result<(), u32> {
    let waited = dat.cno_wait(ptr::with_exposed_provenance_mut(cno), LONG_US);
    waited.map(drop).map_err(|(code, _)| code)
}

/// Waits until a thread waits on the CNO.
fn await_waiter(dat: &Dat, cno: DatCnoHandle) {
    while !dat.pin::<Cno<FakeRnic>>(cno).has_waiter() {
        thread::yield_now();
    }
}

#[test]
fn nothing_triggered_is_an_empty_queue_and_a_null_evd() {
    let dat = Dat::open();
    let cno = dat.cno();
    for timeout_us in [0, 1000] {
        assert_eq!(dat.cno_wait(cno, timeout_us), Err((EMPTY, ptr::null_mut())));
    }
    software_evd(&dat, cno);
    assert_eq!(dat.cno_wait(cno, 0), Err((EMPTY, ptr::null_mut())));
    assert_eq!(call!(dat, cno_wait, cno, 0, ptr::null_mut()), 0x8006_0027);
}

/// A waiter of a CNO would not drive the RNIC of another IA, and an EVD of another IA would keep
/// the CNO's IA from closing.
#[test]
fn evds_of_another_ia_are_refused() {
    let (dat, other) = (Dat::open(), Dat::open());
    let cno = other.cno();
    let created = dat.try_evd(64, cno, DAT_EVD_SOFTWARE_FLAG);
    assert_eq!(created, Err(0x8005_0013));
    let evd = software_evd(&dat, ptr::null_mut());
    assert_eq!(call!(dat, evd_modify_cno, evd, cno), 0x8005_0013);
    succeed!(other, cno_free, cno);
}

#[test]
fn creation_and_query_check_their_arguments() {
    let dat = Dat::open();
    let agent = DatOsWaitProxyAgent::zeroed();
    refused!(dat, cno_create, dat.ia, agent, ptr::null_mut() => 0x8006_0027);
    let cno = dat.cno();
    refused!(dat, cno_query, cno, DAT_CNO_FIELD_ALL, ptr::null_mut() => 0x8006_0027);
    let mut param = DatCnoParam::zeroed();
    succeed!(dat, cno_query, cno, 0xFFFF_FFFF, &raw mut param);
    assert_eq!(param.proxy_type, DAT_PROXY_TYPE_AGENT);
}

#[test]
fn each_evd_that_triggered_is_reported_once_in_order() {
    let dat = Dat::open();
    let cno = dat.cno();
    let evds = [(); 3].map(|()| software_evd(&dat, cno));
    for evd in [evds[2], evds[0], evds[2], evds[1]] {
        assert_eq!(dat.post_software(evd, 1), SUCCESS);
    }
    for evd in [evds[2], evds[0], evds[1]] {
        assert_eq!(dat.cno_wait(cno, LONG_US), Ok(evd));
    }
    assert_eq!(dat.cno_wait(cno, 0), Err((EMPTY, ptr::null_mut())));
    // After the report the next event triggers again, whether or not the EVD was emptied.
    assert_eq!(dat.post_software(evds[2], 1), SUCCESS);
    assert_eq!(dat.cno_wait(cno, LONG_US), Ok(evds[2]));
}

#[test]
fn a_waiter_is_woken_by_any_of_its_evds() {
    let (pair, cno, recv) = pair_with_cno();
    let dat = &pair.dat;
    let software = software_evd(dat, cno);
    let word = cno.expose_provenance();
    let wait = || {
        dat.cno_wait(ptr::with_exposed_provenance_mut(word), LONG_US)
            .unwrap()
            .addr()
    };
    for round in 0..50 {
        thread::scope(|scope| {
            let waiter = scope.spawn(wait);
            if round % 3 == 0 {
                await_waiter(dat, cno);
            }
            if round % 2 == 0 {
                assert_eq!(dat.post_software(software, 1), SUCCESS);
                assert_eq!(waiter.join().unwrap(), software.addr());
                assert_eq!(software_word(&dat.dequeue(software).unwrap()), 1);
            } else {
                transfer(&pair);
                assert_eq!(waiter.join().unwrap(), recv.addr());
                assert!(dat.dequeue(recv).is_ok());
                assert_eq!(dat.dequeue_code(recv), EMPTY);
            }
        });
    }
}

#[test]
fn completions_trigger_again_after_the_evd_was_drained() {
    let (pair, cno, recv) = pair_with_cno();
    for _ in 0..5 {
        for _ in 0..3 {
            transfer(&pair);
        }
        assert_eq!(pair.dat.cno_wait(cno, LONG_US), Ok(recv));
        for _ in 0..3 {
            assert!(pair.dat.dequeue(recv).is_ok());
        }
        assert_eq!(pair.dat.dequeue_code(recv), EMPTY);
    }
}

#[test]
fn reported_completions_do_not_trigger_again_before_a_poll() {
    const AT_ONCE: u32 = 0;
    let (pair, cno, recv) = pair_with_cno();
    for _ in 0..2 {
        assert_eq!(pair.recv(1, 1, 0), SUCCESS);
    }
    assert_eq!(pair.send(0, 1, DAT_COMPLETION_SUPPRESS_FLAG), SUCCESS);
    assert_eq!(pair.dat.cno_wait(cno, LONG_US), Ok(recv));
    for _ in 0..3 {
        assert!(pair.dat.cno_wait(cno, AT_ONCE).is_err(), "nothing is new");
    }
    // A new completion triggers, whether or not the EVD was polled.
    assert_eq!(pair.send(0, 1, DAT_COMPLETION_SUPPRESS_FLAG), SUCCESS);
    assert_eq!(pair.dat.cno_wait(cno, LONG_US), Ok(recv));
    assert!(pair.dat.dequeue(recv).is_ok());
}

#[test]
fn two_waiters_get_one_evd_each() {
    let dat = Dat::open();
    let cno = dat.cno();
    let evds = [(); 2].map(|()| software_evd(&dat, cno));
    let word = cno.expose_provenance();
    thread::scope(|scope| {
        let waiters = [(); 2].map(|()| {
            scope.spawn(|| {
                let cno = ptr::with_exposed_provenance_mut(word);
                dat.cno_wait(cno, LONG_US).unwrap().addr()
            })
        });
        await_waiter(&dat, cno);
        for evd in evds {
            assert_eq!(dat.post_software(evd, 1), SUCCESS);
        }
        let mut got = waiters.map(|waiter| waiter.join().unwrap());
        let mut expected = evds.map(|evd| evd.addr());
        got.sort_unstable();
        expected.sort_unstable();
        assert_eq!(got, expected);
    });
}

#[test]
fn a_disabled_evd_does_not_trigger_until_it_is_enabled() {
    let dat = Dat::open();
    let cno = dat.cno();
    let evd = software_evd(&dat, cno);
    succeed!(dat, evd_disable, evd);
    assert_eq!(dat.post_software(evd, 1), SUCCESS);
    assert_eq!(dat.cno_wait(cno, 0), Err((EMPTY, ptr::null_mut())));
    let mut param = DatEvdParam::zeroed();
    succeed!(dat, evd_query, evd, DAT_EVD_FIELD_ALL, &raw mut param);
    let waitable = DAT_EVD_STATE_DISABLED | DAT_EVD_STATE_WAITABLE;
    assert_eq!(param.evd_state, waitable);
    assert_eq!(param.cno_handle, cno);
    assert!(dat.wait(evd, 0, 1).is_ok());
    assert_eq!(dat.post_software(evd, 1), SUCCESS);
    succeed!(dat, evd_enable, evd);
    assert_eq!(dat.cno_wait(cno, 0), Ok(evd));
}

#[test]
fn an_evd_can_change_its_cno() {
    let dat = Dat::open();
    let (first, second) = (dat.cno(), dat.cno());
    let evd = software_evd(&dat, first);
    succeed!(dat, evd_modify_cno, evd, second);
    succeed!(dat, cno_free, first);
    assert_eq!(dat.post_software(evd, 1), SUCCESS);
    assert_eq!(dat.cno_wait(second, 0), Ok(evd));
    succeed!(dat, evd_modify_cno, evd, second);
    let again = dat.cno_wait(second, 0);
    assert_eq!(again, Ok(evd), "queued events trigger a new CNO");
    assert_eq!(call!(dat, cno_free, second), 0x8007_0043);
    succeed!(dat, evd_modify_cno, evd, ptr::null_mut());
    succeed!(dat, cno_free, second);
    assert_eq!(call!(dat, cno_free, second), 0x8005_0013);
    assert_eq!(call!(dat, evd_modify_cno, evd, second), 0x8005_0013);
}

#[test]
fn triggers_of_a_freed_evd_are_discarded() {
    let dat = Dat::open();
    let cno = dat.cno();
    let evd = software_evd(&dat, cno);
    assert_eq!(dat.post_software(evd, 1), SUCCESS);
    succeed!(dat, evd_free, evd);
    assert_eq!(dat.cno_wait(cno, 0), Err((EMPTY, ptr::null_mut())));
    succeed!(dat, cno_free, cno);
}

#[test]
fn freeing_a_cno_fails_its_waits_and_its_evds_are_kept_during_a_wait() {
    let dat = Dat::open();
    let cno = dat.cno();
    let evd = software_evd(&dat, cno);
    let word = cno.expose_provenance();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_for_code(&dat, word));
        await_waiter(&dat, cno);
        assert_eq!(call!(dat, evd_free, evd), 0x8007_004A);
        succeed!(dat, evd_modify_cno, evd, ptr::null_mut());
        succeed!(dat, cno_free, cno);
        assert_eq!(waiter.join().unwrap(), Err(0x8007_0044));
    });
    let untouched = ptr::without_provenance_mut(0xBAD);
    assert_eq!(dat.cno_wait(cno, 0), Err((0x0005_0013, untouched)));
}

/// Calls `dat_cno_fd_create`.
fn fd_cno(dat: &Dat) -> (DatCnoHandle, DatFd) {
    let (mut fd, mut cno) = (-1, ptr::null_mut());
    succeed!(dat, cno_fd_create, dat.ia, &raw mut fd, &raw mut cno);
    (cno, fd)
}

/// Calls `dat_cno_trigger`.
fn take_trigger(dat: &Dat, cno: DatCnoHandle) -> Result<DatEvdHandle, (u32, DatEvdHandle)> {
    let mut evd = ptr::without_provenance_mut(0xBAD);
    match call!(dat, cno_trigger, cno, &raw mut evd) {
        SUCCESS => Ok(evd),
        code => Err((code, evd)),
    }
}

fn is_readable(fd: DatFd) -> bool {
    let mut set = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, in this frame.
    unsafe { libc::poll(&raw mut set, 1, 0) == 1 }
}

#[test]
fn a_descriptor_is_readable_while_the_cno_has_triggered() {
    let dat = Dat::open();
    let (cno, fd) = fd_cno(&dat);
    let nothing = Err((0x000D_0000, ptr::null_mut()));
    assert!(!is_readable(fd));
    assert_eq!(take_trigger(&dat, cno), nothing);
    let evds = [(); 2].map(|()| dat.try_evd(8, cno, DAT_EVD_SOFTWARE_FLAG).unwrap());
    for evd in evds {
        assert_eq!(dat.post_software(evd, 1), SUCCESS);
    }
    assert!(is_readable(fd));
    assert_eq!(take_trigger(&dat, cno), Ok(evds[0]));
    assert!(is_readable(fd));
    assert_eq!(take_trigger(&dat, cno), Ok(evds[1]));
    assert!(!is_readable(fd));
    assert_eq!(take_trigger(&dat, cno), nothing);
}

#[test]
fn a_wait_or_a_removed_evd_clears_the_descriptor() {
    let dat = Dat::open();
    let (cno, fd) = fd_cno(&dat);
    let evd = dat.try_evd(8, cno, DAT_EVD_SOFTWARE_FLAG).unwrap();
    assert_eq!(dat.post_software(evd, 1), SUCCESS);
    assert_eq!(dat.cno_wait(cno, 0), Ok(evd));
    assert!(!is_readable(fd));
    assert_eq!(dat.post_software(evd, 2), SUCCESS);
    assert!(is_readable(fd));
    succeed!(dat, evd_free, evd);
    assert!(!is_readable(fd));
}

#[test]
fn a_cno_with_a_descriptor_reports_it_and_has_no_agent() {
    let dat = Dat::open();
    let (cno, fd) = fd_cno(&dat);
    let mut param = DatCnoParam::zeroed();
    succeed!(dat, cno_query, cno, 0, &raw mut param);
    assert_eq!(param.proxy_type, DAT_PROXY_TYPE_FD);
    // SAFETY: the proxy type selects this member.
    assert_eq!(unsafe { param.proxy.fd }, fd);
    let agent = DatOsWaitProxyAgent::zeroed();
    assert_eq!(call!(dat, cno_modify_agent, cno, agent), 0x8007_0000);
}

#[test]
fn descriptor_calls_check_their_out_pointers() {
    let dat = Dat::open();
    let (mut fd, mut cno) = (-1, ptr::null_mut());
    let none = ptr::null_mut();
    refused!(dat, cno_fd_create, dat.ia, none, &raw mut cno => 0x8006_0026);
    let none = ptr::null_mut();
    refused!(dat, cno_fd_create, dat.ia, &raw mut fd, none => 0x8006_0027);
    let none = ptr::null_mut();
    assert_eq!(call!(dat, cno_trigger, dat.cno(), none), 0x8006_0026);
}

/// An agent that sends to the test the EVD for which it was called.
unsafe extern "C" fn report(instance_data: DatPvoid, evd: DatEvdHandle) {
    // SAFETY: the tests below pass the address of a sender that lives until the IA is closed.
    let reports = unsafe { &*instance_data.cast::<Sender<usize>>() };
    reports.send(evd.addr()).unwrap();
}

fn agent(reports: &Sender<usize>) -> DatOsWaitProxyAgent {
    DatOsWaitProxyAgent {
        instance_data: ptr::from_ref(reports).cast_mut().cast(),
        proxy_agent_func: Some(report),
    }
}

fn with_agent(test: impl FnOnce(&Dat, DatCnoHandle, DatOsWaitProxyAgent, &Receiver<usize>)) {
    let (reports, reported) = channel();
    let dat = Dat::open();
    let mut cno = ptr::null_mut();
    let agent = agent(&reports);
    succeed!(dat, cno_create, dat.ia, agent, &raw mut cno);
    test(&dat, cno, agent, &reported);
    succeed!(dat, ia_close, dat.ia, DAT_CLOSE_ABRUPT_FLAG);
    // Every due call has been made or dropped, so the sender is no longer used.
    drop(reports);
}

#[test]
fn an_agent_is_called_once_and_has_to_be_set_again() {
    with_agent(|dat, cno, agent, reported| {
        let evd = software_evd(dat, cno);
        let mut param = DatCnoParam::zeroed();
        succeed!(dat, cno_query, cno, 0, &raw mut param);
        // SAFETY: the proxy type of this CNO selects the agent.
        let queried = unsafe { param.proxy.agent };
        assert_eq!(queried.instance_data, agent.instance_data);
        assert_eq!(dat.post_software(evd, 1), SUCCESS);
        assert_eq!(reported.recv_timeout(LIMIT), Ok(evd.addr()));
        let triggered = dat.cno_wait(cno, 0);
        assert_eq!(triggered, Ok(evd), "the trigger stays for a waiter");
        assert_eq!(dat.post_software(evd, 1), SUCCESS);
        assert_eq!(dat.cno_wait(cno, 0), Ok(evd));
        assert!(reported.try_recv().is_err());
        succeed!(dat, cno_modify_agent, cno, agent);
        assert_eq!(dat.post_software(evd, 1), SUCCESS);
        assert_eq!(reported.recv_timeout(LIMIT), Ok(evd.addr()));
    });
}

#[test]
fn no_agent_is_called_after_it_was_replaced() {
    with_agent(|dat, cno, _, reported| {
        let evd = software_evd(dat, cno);
        for _ in 0..100 {
            assert_eq!(dat.post_software(evd, 1), SUCCESS);
            succeed!(dat, cno_modify_agent, cno, DatOsWaitProxyAgent::zeroed());
            let calls = reported.try_iter().count();
            assert!(calls <= 1);
            assert!(dat.dequeue(evd).is_ok());
            let _ = dat.cno_wait(cno, 0);
        }
        assert!(reported.try_recv().is_err());
    });
}

/// An agent may use the objects for which it is called, and free them.
unsafe extern "C" fn free_everything(instance_data: DatPvoid, evd: DatEvdHandle) {
    // SAFETY: the test below passes this tuple and keeps it until it has received from this agent.
    let (dat, cno, reports) = unsafe { &*instance_data.cast::<(Dat, usize, Sender<u32>)>() };
    let cno = ptr::with_exposed_provenance_mut(*cno);
    reports
        .send(dat.dequeue(evd).map_or_else(|code| code, |_| SUCCESS))
        .unwrap();
    reports.send(call!(dat, evd_free, evd)).unwrap();
    reports.send(call!(dat, cno_free, cno)).unwrap();
    reports
        .send(call!(dat, ia_close, dat.ia, DAT_CLOSE_GRACEFUL_FLAG))
        .unwrap();
}

#[test]
fn an_agent_may_free_its_evd_its_cno_and_close_the_ia() {
    let (reports, reported) = channel();
    let mut shared = (Dat::open(), 0, reports);
    let cno = shared.0.cno();
    shared.1 = cno.expose_provenance();
    let evd = software_evd(&shared.0, cno);
    let agent = DatOsWaitProxyAgent {
        instance_data: (&raw mut shared).cast(),
        proxy_agent_func: Some(free_everything),
    };
    succeed!(shared.0, cno_modify_agent, cno, agent);
    assert_eq!(shared.0.post_software(evd, 1), SUCCESS);
    for call in ["dequeue", "evd_free", "cno_free", "ia_close"] {
        assert_eq!(reported.recv_timeout(LIMIT), Ok(SUCCESS), "{call}");
    }
}

#[test]
fn an_agent_is_called_for_an_evd_whose_trigger_no_thread_has_taken() {
    with_agent(|dat, cno, agent, reported| {
        let evd = software_evd(dat, cno);
        for _ in 0..3 {
            assert_eq!(dat.post_software(evd, 1), SUCCESS);
            assert_eq!(reported.recv_timeout(LIMIT), Ok(evd.addr()));
            assert!(dat.dequeue(evd).is_ok());
            succeed!(dat, cno_modify_agent, cno, agent);
        }
        assert_eq!(dat.cno_wait(cno, 0), Ok(evd));
        assert_eq!(dat.cno_wait(cno, 0), Err((EMPTY, ptr::null_mut())), "once");
    });
}

#[test]
fn a_poller_that_keeps_events_queued_is_triggered_by_more() {
    let (pair, cno, recv) = pair_with_cno();
    for timeout_us in [0, 1000] {
        transfer(&pair);
        assert_eq!(pair.dat.cno_wait(cno, timeout_us), Ok(recv));
        // The EVD was not armed again before, because it was not empty.
        assert!(pair.dat.dequeue(recv).is_ok());
        transfer(&pair);
        assert_eq!(pair.dat.cno_wait(cno, timeout_us), Ok(recv), "{timeout_us}");
        assert!(pair.dat.dequeue(recv).is_ok());
        assert_eq!(pair.dat.dequeue_code(recv), EMPTY);
    }
}

#[test]
fn an_enabled_evd_triggers_for_earlier_events() {
    let pair = Pair::connected("", DAT_COMPLETION_EVD_THRESHOLD_FLAG);
    let (cno, fd) = fd_cno(&pair.dat);
    let recv = pair.ends[1].recv;
    succeed!(pair.dat, evd_modify_cno, recv, cno);
    succeed!(pair.dat, evd_disable, recv);
    for taken in [true, false] {
        transfer(&pair);
        assert!(!taken || pair.dat.dequeue(recv).is_ok());
    }
    assert!(!is_readable(fd));
    succeed!(pair.dat, evd_enable, recv);
    assert!(is_readable(fd));
    assert_eq!(take_trigger(&pair.dat, cno), Ok(recv));
}

/// An agent that reports its start, and returns when the test lets it.
struct Slow {
    begun: Sender<()>,
    go: std::sync::Mutex<Receiver<()>>,
}

unsafe extern "C" fn be_slow(instance_data: DatPvoid, _evd: DatEvdHandle) {
    // SAFETY: the test below passes this value and keeps it until the agent has returned.
    let slow = unsafe { &*instance_data.cast::<Slow>() };
    slow.begun.send(()).unwrap();
    let _ = slow.go.lock().unwrap().recv();
}

/// A slow agent, the receiver of its starts and the sender that lets it return.
fn slow() -> (Box<Slow>, DatOsWaitProxyAgent, Receiver<()>, Sender<()>) {
    let ((begun, has_begun), (go, may_go)) = (channel(), channel());
    let slow = Box::new(Slow {
        begun,
        go: std::sync::Mutex::new(may_go),
    });
    let agent = DatOsWaitProxyAgent {
        instance_data: ptr::from_ref(&*slow).cast_mut().cast(),
        proxy_agent_func: Some(be_slow),
    };
    (slow, agent, has_begun, go)
}

#[test]
fn an_agent_that_blocks_does_not_delay_the_agents_of_other_cnos() {
    with_agent(|dat, cno, _, reported| {
        let (_slow, agent, has_begun, go) = slow();
        let blocked = dat.cno();
        succeed!(dat, cno_modify_agent, blocked, agent);
        let evd = software_evd(dat, blocked);
        assert_eq!(dat.post_software(evd, 1), SUCCESS);
        has_begun.recv().unwrap();
        let other = software_evd(dat, cno);
        assert_eq!(dat.post_software(other, 1), SUCCESS);
        assert_eq!(reported.recv_timeout(LIMIT), Ok(other.addr()));
        drop(go);
        // Waits for the slow agent.
        succeed!(
            dat,
            cno_modify_agent,
            blocked,
            DatOsWaitProxyAgent::zeroed()
        );
    });
}

/// The data of two agents that wait for each other.
struct Mutual {
    dat: Dat,
    both: std::sync::Barrier,
    modified: Sender<u32>,
}

/// An agent that waits, once both run, until the agent of the other CNO returns.
unsafe extern "C" fn await_the_other(instance_data: DatPvoid, _evd: DatEvdHandle) {
    // SAFETY: the test below passes this pair and keeps it until both agents have reported.
    let (mutual, other) = unsafe { &*instance_data.cast::<(&Mutual, usize)>() };
    let other = ptr::with_exposed_provenance_mut(*other);
    mutual.both.wait();
    let none = DatOsWaitProxyAgent::zeroed();
    let code = call!(mutual.dat, cno_modify_agent, other, none);
    mutual.modified.send(code).unwrap();
}

#[test]
fn agents_that_wait_for_each_other_return() {
    let (modified, results) = channel();
    let mutual = Mutual {
        dat: Dat::open(),
        both: std::sync::Barrier::new(2),
        modified,
    };
    let cnos = [(); 2].map(|()| mutual.dat.cno());
    let mut data = [1, 0].map(|other: usize| (&mutual, cnos[other].expose_provenance()));
    for (cno, data) in cnos.into_iter().zip(&mut data) {
        let agent = DatOsWaitProxyAgent {
            instance_data: ptr::from_mut(data).cast(),
            proxy_agent_func: Some(await_the_other),
        };
        succeed!(mutual.dat, cno_modify_agent, cno, agent);
        let evd = software_evd(&mutual.dat, cno);
        assert_eq!(mutual.dat.post_software(evd, 1), SUCCESS);
    }
    for _ in cnos {
        assert_eq!(results.recv_timeout(LIMIT), Ok(SUCCESS));
    }
    succeed!(mutual.dat, ia_close, mutual.dat.ia, DAT_CLOSE_ABRUPT_FLAG);
}

#[test]
fn threads_that_wait_for_the_agent_do_not_delay_waiters() {
    let dat = Dat::open();
    let cno = dat.cno();
    let evds = [(); 2].map(|()| software_evd(&dat, cno));
    let (_slow, agent, has_begun, go) = slow();
    succeed!(dat, cno_modify_agent, cno, agent);
    assert_eq!(dat.post_software(evds[0], 1), SUCCESS);
    has_begun.recv().unwrap();
    assert_eq!(dat.cno_wait(cno, 0), Ok(evds[0]));
    let word = cno.expose_provenance();
    let brief = Duration::from_millis(20);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (cno, none) = (
                    ptr::with_exposed_provenance_mut(word),
                    DatOsWaitProxyAgent::zeroed(),
                );
                succeed!(dat, cno_modify_agent, cno, none);
            });
        }
        // Nothing shows that the threads wait. If they begin later, this test checks nothing.
        thread::sleep(brief);
        let waiters = [(); 2].map(|()| scope.spawn(|| wait_for_code(&dat, word)));
        await_waiter(&dat, cno);
        thread::sleep(brief);
        let begin = Instant::now();
        for evd in evds {
            assert_eq!(dat.post_software(evd, 1), SUCCESS);
            thread::sleep(brief);
        }
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
        assert!(begin.elapsed() < Duration::from_micros(u64::from(LONG_US)) / 2);
        drop(go);
    });
}
