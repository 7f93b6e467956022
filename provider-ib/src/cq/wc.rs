//! Translates the device's completions into those of the access layer.

use rnic::{Completion, WcOpcode, WcStatus};
use verbs_dl::types::*;

use crate::work::{Posted, Work};

/// Translates the status of a completion. A status that DAT does not have is a transport error.
pub(super) fn status_of(status: ibv_wc_status) -> WcStatus {
    match status {
        IBV_WC_SUCCESS => WcStatus::Success,
        IBV_WC_WR_FLUSH_ERR => WcStatus::Flushed,
        IBV_WC_LOC_LEN_ERR => WcStatus::LocalLength,
        IBV_WC_LOC_QP_OP_ERR | IBV_WC_LOC_EEC_OP_ERR => WcStatus::LocalQpOperation,
        IBV_WC_LOC_PROT_ERR | IBV_WC_LOC_ACCESS_ERR | IBV_WC_LOC_RDD_VIOL_ERR => {
            WcStatus::LocalProtection
        }
        IBV_WC_MW_BIND_ERR => WcStatus::BindFailed,
        IBV_WC_BAD_RESP_ERR => WcStatus::BadResponse,
        IBV_WC_REM_ACCESS_ERR => WcStatus::RemoteAccess,
        IBV_WC_REM_INV_REQ_ERR => WcStatus::RemoteInvalidRequest,
        IBV_WC_REM_OP_ERR | IBV_WC_REM_INV_RD_REQ_ERR | IBV_WC_REM_ABORT_ERR => {
            WcStatus::RemoteOperation
        }
        IBV_WC_RNR_RETRY_EXC_ERR | IBV_WC_RESP_TIMEOUT_ERR => WcStatus::ReceiverNotReady,
        _ => WcStatus::Transport,
    }
}

/// Returns the completion of a receive that a message consumed.
pub(super) fn received(work: &Work, posted: &Posted, wc: &ibv_wc) -> Completion {
    let mut completion = work.completion(posted, WcStatus::Success);
    completion.byte_len = wc.byte_len;
    // SAFETY: both members are words of 32 bits at the same offset, and every value of a word is
    // valid. Every device writes this word of an entry whose flags say that the word is valid.
    let word = unsafe { wc.__bindgen_anon_1.imm_data };
    if wc.wc_flags & IBV_WC_WITH_INV != 0 {
        completion.opcode = WcOpcode::RecvInvalidate;
        completion.invalidated = Some(word);
    } else if wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM || wc.wc_flags & IBV_WC_WITH_IMM != 0 {
        // The value is passed on unchanged. DAT does not swap immediate data, and neither does OFA.
        completion.opcode = match wc.opcode {
            IBV_WC_RECV_RDMA_WITH_IMM => WcOpcode::RecvImmediate,
            _ => WcOpcode::RecvSendImmediate,
        };
        completion.immediate = Some(word);
    }
    completion
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic::QpToken;

    fn posted() -> Posted {
        Posted::receive(5, 100, true)
    }

    fn entry(opcode: ibv_wc_opcode, flags: ibv_wc_flags) -> ibv_wc {
        let mut wc = ibv_wc {
            opcode,
            wc_flags: flags,
            byte_len: 42,
            ..Default::default()
        };
        wc.__bindgen_anon_1.imm_data = 0x1234;
        wc
    }

    #[test]
    fn every_status_is_translated() {
        let statuses: Vec<WcStatus> = (0..24).map(status_of).collect();
        use WcStatus::*;
        let expected = [
            Success,
            LocalLength,
            LocalQpOperation,
            LocalQpOperation,
            LocalProtection,
            Flushed,
            BindFailed,
            BadResponse,
            LocalProtection,
            RemoteInvalidRequest,
            RemoteAccess,
            RemoteOperation,
            Transport,
            ReceiverNotReady,
            LocalProtection,
            RemoteOperation,
            RemoteOperation,
            Transport,
            Transport,
            Transport,
            ReceiverNotReady,
            Transport,
            Transport,
            Transport,
        ];
        assert_eq!(statuses, expected);
    }

    #[test]
    fn a_received_message_reports_invalidation_and_immediate_data() {
        let work = Work::new(QpToken(9), 1, 1, None).unwrap();
        let plain = received(&work, &posted(), &entry(IBV_WC_RECV, 0));
        assert_eq!(
            (plain.opcode, plain.byte_len, plain.wr_id),
            (WcOpcode::Recv, 42, 5)
        );
        assert_eq!((plain.invalidated, plain.immediate), (None, None));
        let taken = received(&work, &posted(), &entry(IBV_WC_RECV, IBV_WC_WITH_INV));
        assert_eq!(
            (taken.opcode, taken.invalidated),
            (WcOpcode::RecvInvalidate, Some(0x1234))
        );
        for (opcode, expected) in [
            (IBV_WC_RECV_RDMA_WITH_IMM, WcOpcode::RecvImmediate),
            (IBV_WC_RECV, WcOpcode::RecvSendImmediate),
        ] {
            let completion = received(&work, &posted(), &entry(opcode, IBV_WC_WITH_IMM));
            assert_eq!(
                (completion.opcode, completion.immediate),
                (expected, Some(0x1234))
            );
        }
    }
}
