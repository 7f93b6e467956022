//! Execution of a work request on the posting thread: copies, keys, completions.

use std::sync::Arc;

use super::FakeRnic;
use super::lock;
use super::network::{Denied, FakeMw, Use};
use super::qp::{FakeQp, QpInner, Reach};
use crate::rnic::{
    BindMw, Completion, ConnectionEvent, Notify, RemoteRange, RnicError, SendOp, SendWr, Sge,
    WcOpcode, WcStatus,
};

/// Resolved memory: address and length.
type Piece = (u64, usize);

impl FakeQp {
    pub(super) fn post_send(&self, wr: &SendWr<'_>) -> Result<(), RnicError> {
        let qp = &self.0;
        if wr.sgl.len() > qp.attr.send_sge_max as usize {
            return Err(RnicError::Length("too many segments"));
        }
        let (opcode, byte_len) = describe(wr);
        let status = match qp.reach() {
            Reach::NotYet => return Err(RnicError::InvalidState("not connected")),
            Reach::Ended => WcStatus::Flushed,
            Reach::Peer(peer) => {
                let order = lock(&qp.sending);
                let done = qp.perform(&peer, wr);
                drop(order);
                deliver(&peer, done.receive);
                done.status
            }
        };
        if status != WcStatus::Success || wr.completion {
            let notify = if wr.signalled {
                Notify::Always
            } else {
                Notify::Never
            };
            qp.complete_request(Completion {
                wr_id: wr.wr_id,
                qp: qp.token,
                opcode,
                status,
                byte_len,
                notify,
                ..Completion::EMPTY
            });
        }
        if !matches!(status, WcStatus::Success | WcStatus::Flushed) {
            qp.end_both(ConnectionEvent::Broken, ConnectionEvent::Broken);
        }
        Ok(())
    }

    pub(super) fn bind(&self, mw: &FakeMw, bind: &BindMw<'_, FakeRnic>) -> Result<u32, RnicError> {
        let qp = &self.0;
        let part = bind
            .mr
            .filter(|_| bind.range.len > 0)
            .map(|mr| (mr, bind.range));
        let bound = match qp.reach() {
            Reach::NotYet => return Err(RnicError::InvalidState("not connected")),
            Reach::Ended => Ok(0),
            Reach::Peer(_) => mw.bind(part, bind.access, bind.zero_based),
        };
        let status = if bound.is_ok() {
            WcStatus::Success
        } else {
            WcStatus::BindFailed
        };
        if bind.completion || bound.is_err() {
            qp.complete_request(Completion {
                wr_id: bind.wr_id,
                qp: qp.token,
                opcode: WcOpcode::BindMw,
                status,
                notify: if bind.signalled {
                    Notify::Always
                } else {
                    Notify::Never
                },
                ..Completion::EMPTY
            });
        }
        Ok(bound.unwrap_or(0))
    }
}

/// Completes a receive of the peer, after all locks were released.
type Delivery = Box<dyn FnOnce(&QpInner)>;

/// The status of a request, and the completion for the peer's receive queue.
struct Done {
    status: WcStatus,
    receive: Option<Delivery>,
}

impl Done {
    fn with(status: WcStatus) -> Self {
        Self {
            status,
            receive: None,
        }
    }
}

fn deliver(peer: &QpInner, receive: Option<Delivery>) {
    if let Some(receive) = receive {
        receive(peer);
    }
}

impl QpInner {
    fn perform(&self, peer: &Arc<Self>, wr: &SendWr<'_>) -> Done {
        let local_use = match wr.op {
            SendOp::Read(_) | SendOp::FetchAdd(..) | SendOp::CompareSwap { .. } => Use::LocalWrite,
            _ => Use::LocalRead,
        };
        let Ok(local) = self.node.network.resolve_all(self.pd, wr.sgl, local_use) else {
            return Done::with(WcStatus::LocalProtection);
        };
        let refused = |_| Done::with(WcStatus::RemoteAccess);
        match wr.op {
            SendOp::Send {
                solicited,
                invalidate,
            } => Self::send(peer, &local, solicited, invalidate),
            SendOp::SendImmediate { .. } | SendOp::LocalInvalidate(_) => {
                Done::with(WcStatus::LocalQpOperation)
            }
            SendOp::Write(remote) => {
                peer.remote(remote, Use::RemoteWrite)
                    .map_or_else(refused, |to| {
                        copy(&local, &[to]);
                        Done::with(WcStatus::Success)
                    })
            }
            SendOp::WriteImmediate {
                to,
                value,
                solicited,
            } => peer
                .remote(to, Use::RemoteWrite)
                .map_or_else(refused, |to| {
                    Self::write_immediate(peer, &local, to, value, solicited)
                }),
            SendOp::Read(remote) => {
                peer.remote(remote, Use::RemoteRead)
                    .map_or_else(refused, |from| {
                        copy(&[from], &local);
                        Done::with(WcStatus::Success)
                    })
            }
            SendOp::ReadToWindow { local, remote } => {
                let sink = self.remote(local, Use::RemoteWrite);
                let source = peer.remote(remote, Use::RemoteRead);
                match (sink, source) {
                    (Ok(to), Ok(from)) => {
                        copy(&[from], &[to]);
                        Done::with(WcStatus::Success)
                    }
                    _ => Done::with(WcStatus::RemoteAccess),
                }
            }
            SendOp::FetchAdd(remote, add) => {
                peer.atomic(remote, &local, |old| old.wrapping_add(add))
            }
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } => peer.atomic(
                remote,
                &local,
                |old| if old == compare { swap } else { old },
            ),
        }
    }

    /// Returns the peer's memory of a remote range.
    fn remote(&self, range: RemoteRange, wanted: Use) -> Result<Piece, Denied> {
        let addr = self
            .node
            .network
            .resolve(self.pd, range.rkey, range.addr, range.len, wanted)?;
        Ok((addr, range.len as usize))
    }

    fn send(peer: &Arc<Self>, local: &[Piece], solicited: bool, invalidate: Option<u32>) -> Done {
        let Some(receive) = peer.take_receive() else {
            return Done::with(WcStatus::ReceiverNotReady);
        };
        let room = peer
            .node
            .network
            .resolve_all(peer.pd, &receive.sgl, Use::LocalWrite);
        let (wr_status, status, len) = match room {
            Err(Denied) => (WcStatus::LocalProtection, WcStatus::RemoteOperation, 0),
            Ok(room) if total(local) > total(&room) => {
                (WcStatus::LocalLength, WcStatus::RemoteOperation, 0)
            }
            Ok(room) => {
                copy(local, &room);
                (WcStatus::Success, WcStatus::Success, total(local))
            }
        };
        let opcode = if invalidate.is_some() {
            WcOpcode::RecvInvalidate
        } else {
            WcOpcode::Recv
        };
        let receive = Box::new(move |peer: &Self| {
            peer.complete_receive(&receive, opcode, wr_status, length(len), |completion| {
                completion.invalidated = invalidate;
                if solicited && completion.notify == Notify::Always {
                    completion.notify = Notify::Solicited;
                }
            });
        });
        Done {
            status,
            receive: Some(receive),
        }
    }

    fn write_immediate(
        peer: &Arc<Self>,
        local: &[Piece],
        to: Piece,
        immediate: u32,
        solicited: bool,
    ) -> Done {
        let Some(receive) = peer.take_receive() else {
            return Done::with(WcStatus::ReceiverNotReady);
        };
        copy(local, &[to]);
        let len = length(total(local));
        let receive = Box::new(move |peer: &Self| {
            let opcode = WcOpcode::RecvImmediate;
            peer.complete_receive(&receive, opcode, WcStatus::Success, len, |completion| {
                completion.immediate = Some(immediate);
                if solicited && completion.notify == Notify::Always {
                    completion.notify = Notify::Solicited;
                }
            });
        });
        Done {
            status: WcStatus::Success,
            receive: Some(receive),
        }
    }

    fn atomic(&self, range: RemoteRange, local: &[Piece], change: impl Fn(u64) -> u64) -> Done {
        let place = self.remote(range, Use::RemoteAtomic);
        let Ok((addr, 8)) = place else {
            return Done::with(WcStatus::RemoteAccess);
        };
        if !addr.is_multiple_of(8) || total(local) < 8 {
            return Done::with(WcStatus::RemoteAccess);
        }
        let word = std::ptr::with_exposed_provenance_mut::<u64>(addr_of(addr));
        // SAFETY: the address is aligned, and inside a registered region, which the test keeps
        // alive.
        let atom = unsafe { std::sync::atomic::AtomicU64::from_ptr(word) };
        let order = std::sync::atomic::Ordering::SeqCst;
        let old = atom.fetch_update(order, order, |old| Some(change(old)));
        let old = old.unwrap_or_else(|old| old);
        copy(&[((&raw const old).expose_provenance() as u64, 8)], local);
        Done::with(WcStatus::Success)
    }
}

fn describe(wr: &SendWr<'_>) -> (WcOpcode, u32) {
    let posted = wr
        .sgl
        .iter()
        .fold(0_u32, |sum, sge: &Sge| sum.saturating_add(sge.len));
    match wr.op {
        SendOp::Send { .. } | SendOp::SendImmediate { .. } => (WcOpcode::Send, posted),
        SendOp::LocalInvalidate(_) => (WcOpcode::LocalInvalidate, 0),
        SendOp::Write(_) => (WcOpcode::RdmaWrite, posted),
        SendOp::WriteImmediate { .. } => (WcOpcode::RdmaWriteImmediate, posted),
        SendOp::Read(remote) | SendOp::ReadToWindow { remote, .. } => {
            (WcOpcode::RdmaRead, remote.len)
        }
        SendOp::FetchAdd(..) => (WcOpcode::FetchAdd, 8),
        SendOp::CompareSwap { .. } => (WcOpcode::CompareSwap, 8),
    }
}

fn total(pieces: &[Piece]) -> usize {
    pieces.iter().map(|(_, len)| len).sum()
}

fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn addr_of(addr: u64) -> usize {
    usize::try_from(addr).unwrap_or(0)
}

/// Copies the minimum of the two lengths.
fn copy(from: &[Piece], to: &[Piece]) {
    let mut bytes = Vec::with_capacity(total(from));
    for (addr, len) in from {
        let start = std::ptr::with_exposed_provenance::<u8>(addr_of(*addr));
        // SAFETY: the bytes are inside a registered region, which the test keeps alive and does not
        // write meanwhile.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, *len) });
    }
    let mut rest = bytes.as_slice();
    for (addr, len) in to {
        let (now, later) = rest.split_at(rest.len().min(*len));
        let start = std::ptr::with_exposed_provenance_mut::<u8>(addr_of(*addr));
        // SAFETY: the target is inside a registered region and cannot overlap the copy `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), start, now.len()) };
        rest = later;
    }
}
