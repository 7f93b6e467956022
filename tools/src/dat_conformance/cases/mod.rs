//! All cases, by DAT object.
//!
//! | File | Object |
//! |---|---|
//! | `ia`, `pz`, `lmr` | adapters, zones, regions |
//! | `evd`, `evd_transfers`, `cno` | EVDs, CNOs |
//! | `ep`, `ep_state` | endpoints without a connection; the calls that are allowed in each state |
//! | `connect`, `disconnect` | the beginning and the end of connections |
//! | `sp` | service points |
//! | `send`, `rdma`, `flags` | Send and Receive; RDMA Write and Read; completion flags |
//! | `protection` | operations that are not permitted, and their effects |
//! | `rmr`, `invalidate` | windows, and peers that invalidate their keys |
//! | `srq` | shared receive queues |
//! | `ib`, `ssp` | the extensions |
//! | `many` | many objects at the same time, and many one after another |

mod cno;
mod connect;
mod disconnect;
mod ep;
mod ep_state;
mod evd;
mod evd_transfers;
mod flags;
mod ia;
mod ib;
mod invalidate;
mod lmr;
mod many;
mod protection;
mod pz;
mod rdma;
mod rmr;
mod send;
mod sp;
mod srq;
mod ssp;

use crate::case::Case;

/// All cases, in the order in which they run.
pub(crate) fn all() -> Vec<Case> {
    [
        ia::cases(),
        pz::cases(),
        lmr::cases(),
        evd::cases(),
        evd_transfers::cases(),
        cno::cases(),
        ep::cases(),
        ep_state::cases(),
        sp::cases(),
        connect::cases(),
        disconnect::cases(),
        send::cases(),
        rdma::cases(),
        flags::cases(),
        protection::cases(),
        rmr::cases(),
        invalidate::cases(),
        srq::cases(),
        ib::cases(),
        ssp::cases(),
        many::cases(),
    ]
    .concat()
}
