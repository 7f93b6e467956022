//! The options of sockets.

use std::ffi::c_int;

use rustix::io::Errno;

use crate::fault::Fault;

use super::stream::Sizes;

/// The level of the options of RDMA, and their names.
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;
const RDMA_ROUTE: c_int = 4;

/// The limits of the lengths of buffers and queues. A longer or a shorter one is not an error, as
/// for `SO_RCVBUF`.
const BUFFER: (u32, u32) = (1 << 10, 1 << 26);
const QUEUE: (u16, u16) = (4, 4096);
const INLINE_MAX: u32 = 256;
const IOMAPS_MAX: c_int = 127;

/// The options of a socket.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) sizes: Sizes,
    pub(super) is_nonblocking: bool,
    /// The values that have no effect, by level and name.
    stored: Vec<((c_int, c_int), Vec<u8>)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sizes: Sizes {
                send_buffer: 1 << 17,
                receive_buffer: 1 << 17,
                send_queue: 384,
                receive_queue: 384,
                inline: 64,
                iomaps: 0,
            },
            is_nonblocking: false,
            stored: Vec::new(),
        }
    }
}

/// Options whose value is stored and has no effect: connections end when they end, and every
/// message is sent at once.
const WITHOUT_EFFECT: &[(c_int, c_int)] = &[
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_MAXSEG),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (SOL_RDMA, RDMA_ROUTE),
];

impl Options {
    pub(super) fn may_wait(&self) -> bool {
        !self.is_nonblocking
    }

    /// The options of a socket that a listener with these options accepts.
    pub(super) fn of_accepted(&self) -> Self {
        Self {
            is_nonblocking: false,
            ..self.clone()
        }
    }

    /// Sets an option of a socket; `is_made` says that its buffers have their sizes.
    pub(super) fn set(
        &mut self,
        level: c_int,
        name: c_int,
        value: &[u8],
        is_made: bool,
    ) -> Result<(), Fault> {
        if WITHOUT_EFFECT.contains(&(level, name)) {
            self.stored.retain(|(of, _)| *of != (level, name));
            self.stored.push(((level, name), value.to_vec()));
            return Ok(());
        }
        let number = value
            .first_chunk()
            .map(|bytes| c_int::from_ne_bytes(*bytes));
        let number = number.filter(|number| *number >= 0).ok_or(Errno::INVAL)?;
        let length = number.cast_unsigned().clamp(BUFFER.0, BUFFER.1) & !1;
        let queue = u16::try_from(number)
            .unwrap_or(u16::MAX)
            .clamp(QUEUE.0, QUEUE.1);
        let sizes = &mut self.sizes;
        let mut unused = *sizes;
        // The sizes of a connection do not change, which is no error: they are hints.
        let sizes = if is_made { &mut unused } else { sizes };
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => sizes.send_buffer = length,
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => sizes.receive_buffer = length,
            (SOL_RDMA, RDMA_SQSIZE) => sizes.send_queue = queue,
            (SOL_RDMA, RDMA_RQSIZE) => sizes.receive_queue = queue,
            (SOL_RDMA, RDMA_INLINE) => sizes.inline = number.cast_unsigned().min(INLINE_MAX),
            (SOL_RDMA, RDMA_IOMAPSIZE) => sizes.iomaps = number.min(IOMAPS_MAX) as u8,
            _ => return Err(Errno::NOPROTOOPT),
        }
        Ok(())
    }

    /// Returns the value of an option; `error` is that of the socket.
    pub(super) fn get(&self, level: c_int, name: c_int, error: c_int) -> Result<Vec<u8>, Fault> {
        let sizes = &self.sizes;
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => error,
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => sizes.send_buffer.cast_signed(),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => sizes.receive_buffer.cast_signed(),
            (SOL_RDMA, RDMA_SQSIZE) => sizes.send_queue.into(),
            (SOL_RDMA, RDMA_RQSIZE) => sizes.receive_queue.into(),
            (SOL_RDMA, RDMA_INLINE) => sizes.inline.cast_signed(),
            (SOL_RDMA, RDMA_IOMAPSIZE) => sizes.iomaps.into(),
            _ if WITHOUT_EFFECT.contains(&(level, name)) => {
                let set = self.stored.iter().find(|(of, _)| *of == (level, name));
                return Ok(set.map_or_else(|| vec![0; 8], |(_, value)| value.clone()));
            }
            _ => return Err(Errno::NOPROTOOPT),
        };
        Ok(number.to_ne_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_kept_within_their_limits() {
        let mut options = Options::default();
        let mut set = |level, name, value: c_int, is_made| {
            options.set(level, name, &value.to_ne_bytes(), is_made)
        };
        assert_eq!(set(libc::SOL_SOCKET, libc::SO_SNDBUF, 1, false), Ok(()));
        assert_eq!(set(libc::SOL_SOCKET, libc::SO_RCVBUF, 5001, false), Ok(()));
        assert_eq!(set(SOL_RDMA, RDMA_IOMAPSIZE, c_int::MAX, false), Ok(()));
        assert_eq!(set(SOL_RDMA, RDMA_SQSIZE, c_int::MAX, false), Ok(()));
        assert_eq!(set(SOL_RDMA, RDMA_RQSIZE, 9, true), Ok(()));
        assert_eq!(set(SOL_RDMA, RDMA_RQSIZE, -1, false), Err(Errno::INVAL));
        assert_eq!(
            set(libc::SOL_SOCKET, 9999, 1, false),
            Err(Errno::NOPROTOOPT)
        );
        let sizes = options.sizes;
        assert_eq!((sizes.send_buffer, sizes.receive_buffer), (1024, 5000));
        assert_eq!(
            (sizes.iomaps, sizes.send_queue, sizes.receive_queue),
            (127, 4096, 384)
        );
    }

    #[test]
    fn values_without_effect_are_returned() {
        let mut options = Options::default();
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_NODELAY);
        assert_eq!(options.get(level, name, 0).unwrap()[..4], [0; 4]);
        options
            .set(level, name, &1_i32.to_ne_bytes(), false)
            .unwrap();
        assert_eq!(options.get(level, name, 0).unwrap(), 1_i32.to_ne_bytes());
        let error = options.get(libc::SOL_SOCKET, libc::SO_ERROR, 111).unwrap();
        assert_eq!(error, 111_i32.to_ne_bytes());
    }
}
