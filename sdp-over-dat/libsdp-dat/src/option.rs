//! Options of a socket.

use std::ffi::c_int;
use std::time::Duration;

use libc::{SOL_SOCKET, socklen_t};
use sdp_over_dat::{Config, Options};

use crate::address::IPPROTO_SDP;
use crate::errno::{Errno, Outcome};
use crate::memory::{In, Len, Out};
use crate::socket::Socket;

/// OFED's option for the threshold of zero copies, at the level of TCP.
const SDP_ZCOPY_THRESH: c_int = 80;

/// The level and the number of an option.
type Name = (c_int, c_int);

/// An option that a socket stores.
enum Stored<'a> {
    Truth(&'a mut bool),
    Low(&'a mut usize),
    /// A number of bytes, and its default.
    Bytes(&'a mut Option<usize>, usize),
    Time(&'a mut Option<Duration>),
    Linger(&'a mut Option<Duration>),
}

/// `None`: there is no such option.
fn stored(options: &mut Options, name: Name) -> Option<Stored<'_>> {
    let defaults = Config::default();
    Some(match name {
        (SOL_SOCKET, libc::SO_RCVTIMEO) => Stored::Time(&mut options.read_timeout),
        (SOL_SOCKET, libc::SO_SNDTIMEO) => Stored::Time(&mut options.write_timeout),
        (SOL_SOCKET, libc::SO_LINGER) => Stored::Linger(&mut options.linger),
        (SOL_SOCKET, libc::SO_SNDBUF) => Stored::Bytes(&mut options.send_bound, defaults.send_ring),
        (SOL_SOCKET, libc::SO_RCVLOWAT) => Stored::Low(&mut options.receive_low),
        (SOL_SOCKET, libc::SO_OOBINLINE) => Stored::Truth(&mut options.oob_inline),
        (SOL_SOCKET, libc::SO_KEEPALIVE) => Stored::Truth(&mut options.keepalive),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => Stored::Truth(&mut options.nodelay),
        (libc::IPPROTO_TCP, SDP_ZCOPY_THRESH) => {
            Stored::Bytes(&mut options.sink_threshold, defaults.sink_threshold)
        }
        _ => return None,
    })
}

/// Reads a number of bytes. A negative one is refused.
fn size(from: In, len: socklen_t) -> Outcome<usize> {
    usize::try_from(from.read::<c_int>(len)?).map_err(|_| Errno(libc::EINVAL))
}

fn number(size: usize) -> c_int {
    size.try_into().unwrap_or(c_int::MAX)
}

fn time_of(time: libc::timeval) -> Outcome<Option<Duration>> {
    let (seconds, micros) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_usec));
    match (seconds, micros) {
        (Ok(0), Ok(0)) => Ok(None),
        (Ok(seconds), Ok(micros @ ..1_000_000)) => Ok(Some(Duration::new(seconds, micros * 1000))),
        _ => Err(Errno(libc::EDOM)),
    }
}

/// `setsockopt`.
pub(crate) fn set(options: &mut Options, name: Name, from: In, len: socklen_t) -> Outcome {
    match stored(options, name) {
        Some(Stored::Truth(is_set)) => *is_set = from.read::<c_int>(len)? != 0,
        Some(Stored::Low(low)) => *low = size(from, len)?,
        Some(Stored::Bytes(bytes, _)) => *bytes = Some(size(from, len)?),
        Some(Stored::Time(time)) => *time = time_of(from.read(len)?)?,
        Some(Stored::Linger(linger)) => {
            let new: libc::linger = from.read(len)?;
            let seconds = u64::try_from(new.l_linger).unwrap_or(0);
            *linger = (new.l_onoff != 0).then_some(Duration::from_secs(seconds));
        }
        // A closed connection does not keep its port, so there is nothing to reuse.
        None if name == (SOL_SOCKET, libc::SO_REUSEADDR) => {}
        None => return Err(Errno(libc::ENOPROTOOPT)),
    }
    Ok(())
}

/// `getsockopt` of a stored option.
pub(crate) fn get(options: &mut Options, name: Name, to: Out, len: Len) -> Outcome {
    let number = match stored(options, name).ok_or(Errno(libc::ENOPROTOOPT))? {
        Stored::Truth(is_set) => c_int::from(*is_set),
        Stored::Low(low) => number(*low).max(1),
        Stored::Bytes(bytes, default) => number(bytes.unwrap_or(default)),
        Stored::Time(time) => {
            let time = time.unwrap_or_default();
            let tv_sec = time.as_secs().try_into().unwrap_or(libc::time_t::MAX);
            let tv_usec = time.subsec_micros().into();
            return to.write_plain(libc::timeval { tv_sec, tv_usec }, len);
        }
        Stored::Linger(linger) => {
            let seconds = linger.unwrap_or_default().as_secs();
            let l_linger = seconds.try_into().unwrap_or(c_int::MAX);
            let l_onoff = linger.is_some().into();
            return to.write_plain(libc::linger { l_onoff, l_linger }, len);
        }
    };
    to.write_plain(number, len)
}

/// `getsockopt` of a socket.
pub(crate) fn of_socket(socket: &Socket, name: Name, to: Out, len: Len) -> Outcome {
    let number = match name {
        (SOL_SOCKET, libc::SO_ERROR) => socket.take_error(),
        (SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (SOL_SOCKET, libc::SO_DOMAIN) => socket.family.number(),
        (SOL_SOCKET, libc::SO_PROTOCOL) => IPPROTO_SDP,
        (SOL_SOCKET, libc::SO_ACCEPTCONN) => socket.is_listening().into(),
        (SOL_SOCKET, libc::SO_REUSEADDR) => 1,
        _ => return get(&mut socket.options(), name, to, len),
    };
    to.write_plain(number, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::of_test;

    fn pass<T>(options: &mut Options, name: Name, value: &mut T) -> Outcome {
        let mut len = size_of::<T>() as socklen_t;
        let (from, to, room) = of_test(value, &mut len);
        let size = size_of::<T>() as socklen_t;
        set(options, name, from, size)?;
        get(options, name, to, room)
    }

    #[test]
    fn every_option_is_read_as_it_was_set() {
        for name in [
            (SOL_SOCKET, libc::SO_SNDBUF),
            (SOL_SOCKET, libc::SO_RCVLOWAT),
            (SOL_SOCKET, libc::SO_OOBINLINE),
            (SOL_SOCKET, libc::SO_KEEPALIVE),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY),
            (libc::IPPROTO_TCP, SDP_ZCOPY_THRESH),
        ] {
            let (mut options, mut value) = (Options::default(), 1);
            pass(&mut options, name, &mut value).unwrap();
            assert_eq!(value, 1, "{name:?}");
            assert_ne!(options, Options::default(), "{name:?}");
        }
        for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, libc::SO_LINGER] {
            let (mut options, mut value) = (Options::default(), [0_i64; 2]);
            value[0] = 1 | (3 << (32 * i64::from(name == libc::SO_LINGER)));
            let before = value;
            let len = if name == libc::SO_LINGER { 1 } else { 2 };
            let (value, name) = (&mut value, (SOL_SOCKET, name));
            if len == 1 {
                pass(&mut options, name, &mut value[0]).unwrap();
            } else {
                pass(&mut options, name, value).unwrap();
            }
            assert_eq!(*value, before);
            assert_ne!(options, Options::default());
        }
    }

    #[test]
    fn bad_options_and_values_are_refused() {
        let options = &mut Options::default();
        let refused = pass(options, (SOL_SOCKET, libc::SO_SNDBUF), &mut -1);
        assert_eq!(refused, Err(Errno(libc::EINVAL)));
        let refused = pass(options, (SOL_SOCKET, libc::SO_BROADCAST), &mut 1);
        assert_eq!(refused, Err(Errno(libc::ENOPROTOOPT)));
        for (tv_sec, tv_usec) in [(-1, 0), (0, -1), (0, 1_000_000)] {
            let time = libc::timeval { tv_sec, tv_usec };
            assert_eq!(time_of(time), Err(Errno(libc::EDOM)));
        }
        assert_eq!(*options, Options::default());
    }
}
