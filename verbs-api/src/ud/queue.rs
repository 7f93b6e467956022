//! The receives of a datagram queue pair, and its state.

use std::collections::VecDeque;
use std::sync::Arc;

use rnic::{RecvWr, Sge};
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::fault::Fault;
use crate::srq::Srq;

use super::datagram::{HEADER_LEN, PAYLOAD_MAX};

/// A posted receive.
#[derive(Debug)]
pub(super) struct Receive {
    wr_id: u64,
    pub(super) sgl: Vec<Sge>,
}

impl Receive {
    pub(super) fn of(wr: &RecvWr<'_>) -> Self {
        Self {
            wr_id: wr.wr_id,
            sgl: wr.sgl.to_vec(),
        }
    }

    /// Returns the completion without the data of a message.
    pub(super) fn failed(&self, number: u32, status: ibv_wc_status) -> ibv_wc {
        ibv_wc {
            wr_id: self.wr_id,
            status,
            opcode: IBV_WC_RECV,
            qp_num: number,
            ..ibv_wc::default()
        }
    }
}

/// The state of a queue pair, its attributes and its receives.
pub(super) struct Queue {
    pub(super) state: ibv_qp_state,
    /// The attributes that the program has set.
    pub(super) attr: ibv_qp_attr,
    receives: VecDeque<Receive>,
    /// The source of receives in place of `receives`.
    srq: Option<Arc<Srq>>,
    max: usize,
    /// Room for the longest datagram and one byte, by which a longer one is noticed.
    pub(super) buffer: Vec<u8>,
}

impl Queue {
    pub(super) fn new(max: u32, srq: Option<Arc<Srq>>) -> Self {
        Self {
            state: IBV_QPS_RESET,
            attr: ibv_qp_attr::default(),
            receives: VecDeque::new(),
            srq,
            max: max as usize,
            buffer: vec![0; HEADER_LEN + PAYLOAD_MAX + 1],
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match &self.srq {
            Some(srq) => srq.is_empty(),
            None => self.receives.is_empty(),
        }
    }

    pub(super) fn push(&mut self, receive: Receive) -> Result<(), Fault> {
        if self.srq.is_some() {
            return Err(Errno::INVAL);
        }
        if self.receives.len() >= self.max {
            return Err(Errno::NOMEM);
        }
        self.receives.push_back(receive);
        Ok(())
    }

    /// Takes the receive for a message.
    pub(super) fn pop(&mut self) -> Option<Receive> {
        match &self.srq {
            Some(srq) => srq.take().map(|(wr_id, sgl)| Receive { wr_id, sgl }),
            None => self.receives.pop_front(),
        }
    }

    /// Takes a receive to flush. Those of a shared queue stay there.
    pub(super) fn pop_own(&mut self) -> Option<Receive> {
        self.receives.pop_front()
    }

    /// Returns to the state of a new queue pair.
    pub(super) fn reset(&mut self) {
        self.state = IBV_QPS_RESET;
        self.receives.clear();
        self.attr = ibv_qp_attr::default();
    }
}
