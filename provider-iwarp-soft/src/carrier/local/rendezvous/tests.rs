use std::os::unix::net::UnixStream;

use super::super::bell::{self, Drained};
use super::*;

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(file_name(&random_name().unwrap()));
        std::fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// A socket without a listener that is this number of seconds old.
    fn stale(&self, name: &str, age: i64) -> PathBuf {
        let path = self.0.join(name);
        let socket = socket().unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        make_old(&path, age);
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn make_old(path: &Path, age: i64) {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let time = rustix::time::Timespec {
        tv_sec: i64::try_from(now.as_secs()).unwrap() - age,
        tv_nsec: 0,
    };
    let times = rustix::fs::Timestamps {
        last_access: time,
        last_modification: time,
    };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
}

/// Checks that both ends of a connection reach each other.
fn check_connected(connected: &UnixConn, accepted: &UnixConn) {
    assert!(bell::ring(connected) && bell::ring(accepted));
    assert_eq!(bell::drain(connected), Drained::Rung);
    assert_eq!(bell::drain(accepted), Drained::Rung);
}

#[test]
fn peers_of_one_namespace_connect_by_name() {
    rnic::socket::prepare();
    let (first, second) = (Rendezvous::open().unwrap(), Rendezvous::open().unwrap());
    assert_ne!(first.name(), second.name());
    assert!(first.accept().unwrap().is_none());
    let connected = dial(&first.name()).unwrap();
    assert!(second.accept().unwrap().is_none());
    let accepted = first.accept().unwrap().unwrap();
    check_connected(&connected, &accepted);
    drop(connected);
    assert_eq!(bell::drain(&accepted), Drained::Gone);
}

#[test]
fn descriptors_are_not_low_and_do_not_block() {
    let rendezvous = Rendezvous::open().unwrap();
    let connected = dial(&rendezvous.name()).unwrap();
    let accepted = rendezvous.accept().unwrap().unwrap();
    for fd in [rendezvous.as_fd(), connected.as_fd(), accepted.as_fd()] {
        assert!(fd.as_raw_fd() >= host::descriptors::lowest());
        let flags = rustix::fs::fcntl_getfl(fd).unwrap();
        assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
        let flags = rustix::io::fcntl_getfd(fd).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}

#[test]
fn an_unknown_name_is_not_an_address_of_this_host() {
    rnic::socket::prepare();
    let name = Rendezvous::open().unwrap().name();
    assert_eq!(dial(&name).unwrap_err(), DialError::NotHere);
    let scratch = Scratch::new();
    assert_eq!(dial_in(&scratch.0, &name).unwrap_err(), DialError::NotHere);
    let dir = scratch.0.join("missing");
    assert_eq!(dial_in(&dir, &name).unwrap_err(), DialError::NotHere);
    let long = PathBuf::from("/x".repeat(100));
    let failed = DialError::Failed(Errno::NAMETOOLONG);
    assert_eq!(dial_in(&long, &name).unwrap_err(), failed);
}

#[test]
fn a_full_backlog_is_busy() {
    let listener = socket().unwrap();
    let name = random_name().unwrap();
    rustix::net::bind(&listener, &abstract_address(&name).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _waiting = dial(&name).unwrap();
    assert_eq!(dial(&name).unwrap_err(), DialError::Busy);
}

#[test]
fn peers_connect_in_a_directory() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let rendezvous = Rendezvous::open_in(&scratch.0).unwrap();
    let [path] = &scratch.files()[..] else {
        panic!("one file")
    };
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o666);
    let connected = dial_in(&scratch.0, &rendezvous.name()).unwrap();
    let accepted = rendezvous.accept().unwrap().unwrap();
    check_connected(&connected, &accepted);
    drop(rendezvous);
    assert!(scratch.files().is_empty());
    assert!(Rendezvous::open_in(&scratch.0.join("missing")).is_err());
}

#[test]
fn only_sockets_without_a_listener_are_removed() {
    let scratch = Scratch::new();
    let abandoned = scratch.stale(&file_name(&[1; 16]), 3600);
    let alive = Rendezvous::open_in(&scratch.0).unwrap();
    assert!(!abandoned.exists());
    make_old(&directory::path(&scratch.0, &alive.name()), 3600);
    let young = scratch.stale(&file_name(&[2; 16]), 0);
    let others = scratch.stale("dat-rs-00", 3600);
    let no_socket = scratch.0.join(file_name(&[3; 16]));
    std::fs::write(&no_socket, "").unwrap();
    let link = scratch.0.join(file_name(&[4; 16]));
    std::os::unix::fs::symlink(&others, &link).unwrap();
    for path in [&no_socket, &link] {
        make_old(path, 3600);
    }
    drop(Rendezvous::open_in(&scratch.0).unwrap());
    for path in [&young, &others, &no_socket] {
        assert!(path.exists(), "{}", path.display());
    }
    assert!(link.symlink_metadata().is_ok());
    assert!(dial_in(&scratch.0, &alive.name()).is_ok());
}

#[test]
fn the_kernel_reports_the_peer() {
    let rendezvous = Rendezvous::open().unwrap();
    let connected = dial(&rendezvous.name()).unwrap();
    let accepted = rendezvous.accept().unwrap().unwrap();
    let this = Credentials {
        pid: std::process::id().cast_signed(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    assert_eq!(peer_credentials(&connected).unwrap(), this);
    assert_eq!(peer_credentials(&accepted).unwrap(), this);
    let (file, _) = std::io::pipe().unwrap();
    assert!(peer_credentials(&file).is_err());
    let (one, _other) = UnixStream::pair().unwrap();
    assert_eq!(peer_credentials(&one).unwrap(), this);
}
