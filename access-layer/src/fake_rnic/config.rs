//! Configuration of the in-memory RNIC from `ia_params`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::rnic::{NamedAttr, RnicAttr, RnicConfig, RnicError};

/// Parsed parameters.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) net: String,
    /// True if events wait until the test delivers them.
    pub(super) held: bool,
    ip: IpAddr,
    srq_max: u32,
    mw_max: u32,
    cqe_max: u32,
    qp_max: u32,
    mr_len_max: u64,
}

impl Config {
    pub(super) fn parse(config: &RnicConfig) -> Result<Self, RnicError> {
        let mut parsed = Self {
            net: "default".to_owned(),
            held: false,
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            srq_max: 0,
            mw_max: 0,
            cqe_max: 65_535,
            qp_max: 1024,
            mr_len_max: u64::MAX,
        };
        for word in config.ia_params.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, "1"));
            let number = || value.parse().map_err(|_| bad(word));
            match key {
                "net" => parsed.net = value.to_owned(),
                "held" => parsed.held = true,
                "ip" => parsed.ip = value.parse().map_err(|_| bad(word))?,
                "srq" => parsed.srq_max = number()?,
                "mw" => parsed.mw_max = number()?,
                "cqe_max" => parsed.cqe_max = number()?,
                "qp_max" => parsed.qp_max = number()?,
                "mr_len" => parsed.mr_len_max = number()?.into(),
                "fail" => return Err(RnicError::NoDevice(value.to_owned())),
                _ => return Err(bad(word)),
            }
        }
        Ok(parsed)
    }

    pub(super) fn attr(&self) -> RnicAttr {
        RnicAttr {
            adapter_name: "fake0".to_owned(),
            vendor_name: "memory".to_owned(),
            address: SocketAddr::new(self.ip, 0),
            private_data_len_max: 508,
            qp_max: self.qp_max,
            wr_max: 1024,
            sge_max: 8,
            read_sge_max: 8,
            cq_max: 65_536,
            cqe_max: self.cqe_max,
            mr_max: 65_536,
            mr_len_max: self.mr_len_max,
            mw_max: self.mw_max,
            pd_max: 65_536,
            srq_max: self.srq_max,
            srq_wr_max: 1024,
            ird_max: 16,
            ord_max: 16,
            message_len_max: 1 << 30,
            immediate_and_atomics: true,
            zero_based_regions: true,
            recv_watermarks: true,
            named: vec![NamedAttr {
                name: "DAT_IB_TRANSPORT_MTU",
                value: "4096".to_owned(),
            }],
        }
    }
}

fn bad(word: &str) -> RnicError {
    RnicError::BadConfig(word.to_owned())
}
