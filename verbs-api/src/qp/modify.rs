//! The transitions of a queue pair.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use host::locks::lock;
use provider_iwarp_soft::SoftRequest;
use rnic::{AcceptParams, ConnectParams, ReceiveWaits, Rnic as _};
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::abi::AddressVector;
use crate::adapter::{Hello, Name};
use crate::fault::{Fault, errno_of};
use crate::states;

use super::meeting::{Action, Meeting};
use super::{Qp, READS_MAX};

/// The value of `rnr_retry` for retries without limit.
const NO_LIMIT: u8 = 7;

impl Qp {
    /// See `ibv_modify_qp(3)`. Returns the state in which the queue pair is.
    pub(crate) fn modify(
        &self,
        new: &ibv_qp_attr,
        mask: ibv_qp_attr_mask,
    ) -> Result<ibv_qp_state, Fault> {
        let mut attr = lock(&self.attr);
        let has = |bit| mask & bit != 0;
        let from = self.state();
        let to = if has(IBV_QP_STATE) {
            new.qp_state
        } else {
            from
        };
        if has(IBV_QP_CUR_STATE) && new.cur_qp_state != from {
            return Err(Errno::INVAL);
        }
        states::check(self.service, from, to, mask)?;
        check_values(new, mask)?;
        match to {
            IBV_QPS_RESET => {
                self.reset();
                *attr = ibv_qp_attr::default();
            }
            IBV_QPS_ERR => self.end(),
            IBV_QPS_RTR if from != to => self.meet(new)?,
            IBV_QPS_SQD if from != to => {
                self.stop_sends(has(IBV_QP_EN_SQD_ASYNC_NOTIFY) && new.en_sqd_async_notify != 0);
            }
            _ => {}
        }
        states::store(&mut attr, new, mask);
        if has(IBV_QP_ACCESS_FLAGS) {
            let granted = states::remote_access(attr.qp_access_flags);
            let set = self.adapter.rnic.set_remote_access(&self.hw, granted);
            set.map_err(|error| errno_of(&error))?;
        }
        if mask & (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT) != 0 {
            self.retries.set(attr.timeout, attr.retry_cnt);
        }
        if mask & (IBV_QP_MIN_RNR_TIMER | IBV_QP_RNR_RETRY) != 0 {
            self.set_receive_waits(&attr, mask);
        }
        // A failed request may have ended the queue pair meanwhile; that state is kept.
        let entered = self
            .state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        let now = entered.map_or_else(|current| current, |_| to);
        if to == IBV_QPS_RESET {
            self.state.store(to, Ordering::Release);
            return Ok(to);
        }
        if from == IBV_QPS_SQD && now == IBV_QPS_RTS && self.is_joined.load(Ordering::Acquire) {
            self.is_draining.store(false, Ordering::Release);
            self.open_sends();
        }
        Ok(now)
    }

    /// Sets the limits of waits for receives. Before RTS nothing is sent, so that
    /// there is no limit yet.
    fn set_receive_waits(&self, attr: &ibv_qp_attr, mask: ibv_qp_attr_mask) {
        let is_limited = mask & IBV_QP_RNR_RETRY != 0 || self.state() == IBV_QPS_RTS;
        let retries = Some(attr.rnr_retry).filter(|retries| is_limited && *retries < NO_LIMIT);
        let pause = states::rnr_pause(attr.min_rnr_timer);
        let waits = ReceiveWaits { retries, pause };
        for end in self.ends() {
            if let Err(error) = self.adapter.rnic.set_receive_waits(end, waits) {
                tracing::warn!(qp = self.number, %error, "waits for receives have no limit");
            }
        }
    }

    /// Names the peer to the RNIC's connection management. The peer may be ready later.
    fn meet(&self, new: &ibv_qp_attr) -> Result<(), Fault> {
        let own = Name {
            gid: self.adapter.gid,
            number: self.number,
        };
        let peer = Name {
            gid: AddressVector::of(&new.ah_attr).dgid,
            number: new.dest_qp_num,
        };
        // Such a queue pair is connected by address: see `rdma_init_qp_attr(3)`.
        if peer.number == 0 {
            self.expect_address();
            return Ok(());
        }
        if own == peer {
            self.become_own_peer()?;
        }
        let action = lock(&self.meeting).on_named(own, peer);
        self.follow(action, peer)
    }

    /// Connects to a peer or accepts its request.
    pub(super) fn follow(&self, action: Action<SoftRequest>, peer: Name) -> Result<(), Fault> {
        let rnic = &self.adapter.rnic;
        match action {
            Action::Wait => Ok(()),
            Action::Accept(request) => {
                let params = AcceptParams { private_data: &[] };
                let accepted = rnic.accept(request, &self.hw, &params);
                accepted.map_err(|error| errno_of(&error))
            }
            Action::Connect => {
                let hello = Hello {
                    from: self.number,
                    to: peer.number,
                };
                let params = ConnectParams {
                    remote: SocketAddr::new(peer.gid.address(), peer.port()),
                    timeout: None,
                    private_data: &hello.bytes(),
                };
                // A peer that cannot be reached is noticed by the first send.
                if let Err(error) = rnic.connect(self.sender(), &params) {
                    tracing::info!(qp = self.number, ?peer, %error, "no connection");
                    self.lose();
                }
                Ok(())
            }
        }
    }

    /// Makes the RNIC flush everything that is posted, now and later.
    fn lose(&self) {
        let rnic = &self.adapter.rnic;
        for end in self.ends() {
            rnic.disconnect(end, true);
            if let Err(error) = rnic.flush_idle(end) {
                tracing::warn!(qp = self.number, %error, "a queue pair was not flushed");
            }
        }
        self.open_sends();
    }

    /// Enters the error state: all work is flushed, and peers are refused.
    pub(crate) fn end(&self) {
        self.enter_error(IBV_WC_WR_FLUSH_ERR);
        *lock(&self.meeting) = Meeting::Met;
        self.lose();
    }

    /// Returns to the state of a new queue pair: work and completions vanish.
    fn reset(&self) {
        *lock(&self.meeting) = Meeting::Met;
        self.retries.stop(self.number);
        self.lose();
        self.forget_completions();
        self.early.close();
        self.is_joined.store(false, Ordering::Release);
        self.is_draining.store(false, Ordering::Release);
        for end in self.ends() {
            if let Err(error) = self.adapter.rnic.reset_qp(end) {
                tracing::warn!(qp = self.number, %error, "a queue pair was not reset");
            }
        }
        self.is_own_peer.store(false, Ordering::Release);
        self.ending.on_reset();
        *lock(&self.meeting) = Meeting::default();
    }

    /// Ends the queue pair before its destruction.
    pub(crate) fn destroy(&self, object: *mut ibv_qp) {
        self.adapter.remove_qp(self.number, object);
        *lock(&self.meeting) = Meeting::Met;
        self.retries.stop(self.number);
        self.lose();
        self.forget_completions();
        self.adapter.return_number(self.number);
    }
}

/// Checks the values of the attributes in `mask`.
fn check_values(new: &ibv_qp_attr, mask: ibv_qp_attr_mask) -> Result<(), Fault> {
    states::check_port(new, mask)?;
    if mask & IBV_QP_AV != 0 {
        states::check_path(&AddressVector::of(&new.ah_attr))?;
    }
    let is_bad_mtu = !(IBV_MTU_256..=IBV_MTU_4096).contains(&new.path_mtu);
    let is_bad = [
        (IBV_QP_PATH_MTU, is_bad_mtu),
        (
            IBV_QP_MAX_QP_RD_ATOMIC,
            u32::from(new.max_rd_atomic) > READS_MAX,
        ),
        (
            IBV_QP_MAX_DEST_RD_ATOMIC,
            u32::from(new.max_dest_rd_atomic) > READS_MAX,
        ),
        (IBV_QP_DEST_QPN, new.dest_qp_num > 0xff_ffff),
    ];
    match is_bad
        .iter()
        .any(|(bit, is_bad)| mask & bit != 0 && *is_bad)
    {
        true => Err(Errno::INVAL),
        false => Ok(()),
    }
}
