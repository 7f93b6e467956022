//! Byte-exact messages, and the fields that the dissector must show.

use super::pcap::Sender::{self, Client, Server};

/// A message: its sender, its bytes as hexadecimal digits, and its fields as words. Fields of the
/// base header that are not named have the values of the first four words of the message.
pub(crate) struct Sample {
    pub(crate) by: Sender,
    pub(crate) bytes: &'static str,
    pub(crate) fields: &'static str,
}

const fn sample(by: Sender, bytes: &'static str, fields: &'static str) -> Sample {
    Sample { by, bytes, fields }
}

/// Declares samples: the sender, the bytes and the fields of each.
macro_rules! samples {
    ($($by:ident $bytes:literal => $fields:literal,)+) => {
        [$(sample($by, $bytes, $fields)),+]
    };
}

/// A Hello from 192.0.2.1, port 40000, to 192.0.2.2.
pub(crate) const HELLO: Sample = sample(
    Client,
    "00000040 0000005c 00000000 00000000 22400001 00008010 00008010 9c400000
     00000000 00000000 00000000 c0000201 00000000 00000000 00000000 c0000202",
    "hello.majv=2 hello.minv=2 hello.ipv=4 hello.cap=0x00 hello.cap.invalidate=0
     hello.cap.ext_max_adverts=0 hello.max_adverts=1 hello.des_rem_rcv_sz=32784
     hello.local_rcv_sz=32784 hello.local_port=40000 hello.src_ip=192.0.2.1
     hello.dst_ip=192.0.2.2",
);

/// A Hello over IPv6 with both bits of Cap, and with another version.
pub(crate) const HELLO6: Sample = sample(
    Client,
    "00000040 0000005c 00000000 00000000 216300ff 00008010 00008020 9c400000
     20010db8 00000000 00000000 00000001 20010db8 00000000 00000000 00000002 00000200",
    "hello.majv=2 hello.minv=1 hello.ipv=6 hello.cap=0x03 hello.cap.invalidate=1
     hello.cap.ext_max_adverts=1 hello.max_adverts=255 hello.des_rem_rcv_sz=32784
     hello.local_rcv_sz=32800 hello.local_port=40000 hello.src_ip6=2001:db8::1
     hello.dst_ip6=2001:db8::2 hello.ext_max_adverts=512",
);

/// The HelloAck that answers either Hello.
pub(crate) const HELLO_ACK: Sample = sample(
    Server,
    "01000040 000000c4 00000000 00000000 22000001 00008010",
    "hello.majv=2 hello.minv=2 hello.cap=0x00 hello.cap.invalidate=0
     hello.cap.ext_max_adverts=0 hello.max_adverts=1 hello_ack.act_rcv_sz=32784",
);

/// A conversation, then single messages of the other kinds.
pub(crate) const MESSAGES: [Sample; 21] = samples! {
    Client "ff000040 00000015 00000001 00000000 68656c6c 6f" => "payload_len=5 payload=68656c6c6f",
    Server "ff000040 00000010 00000001 00000001" => "",
    Client "fe000040 00000021 00000002 00000001 00020000 12345678 00007f00 deadb000 41"
        => "src_avail.len=131072 src_avail.stag=0x12345678 src_avail.to=0x00007f00deadb000
         payload_len=1 payload=41",
    Server "0600003f 00000014 00000002 00000002 0001ffff" => "rdma_rd_compl.bytes=131071",
    Client "02000040 00000010 00000003 00000002" => "",
    Server "02000040 00000010 00000003 00000003" => "",
    Client "0400003f 00000010 00000003 00000002" => "",
    Client "08000040 00000010 00000003 00000002" => "",
    Server "fd00003f 00000024 00000003 00000002 00010000 0a0b0c0d 00007f00 c0de0000 00000002"
        => "sink_avail.len=65536 sink_avail.stag=0x0a0b0c0d sink_avail.to=0x00007f00c0de0000
         sink_avail.non_discards=2",
    Client "05000040 00000014 00000003 00000003 00010000" => "rdma_wr_compl.bytes=65536",
    Server "09000040 00000010 00000003 00000003" => "",
    Client "0a000040 00000010 00000004 00000003" => "",
    Client "07000040 00000014 00000004 00000003 20000000"
        => "mode_change.half=0 mode_change.mode=2 mode_change.reserved=0x00000000",
    Client "07000040 00000014 00000004 00000003 90000000"
        => "mode_change.half=1 mode_change.mode=1 mode_change.reserved=0x00000000",
    Client "0b000040 00000014 00000005 00000003 00020010" => "ch_rcv_buf.size=131088",
    Server "0c00003f 00000014 00000004 00000005 00008010" => "ch_rcv_buf_ack.size=32784",
    Client "0d000040 00000018 00000005 00000004 00000000 00011390"
        => "susp_comm.service_id=0x0000000000011390",
    Server "0e000040 00000010 00000005 00000005" => "",
    Client "ff030040 00000011 00000006 00000004 21"
        => "flags.oob_pres=1 flags.oob_pend=1 payload_len=1 payload=21 urgent=0x21",
    Client "03000040 00000010 00000008 00000004" => "",
    // A request that advertises the memory for its answer (Transaction mechanism).
    Server "fd000040 00000026 ffffffff 80000000 ffffffff ffffffff ffffffff ffffffff ffffffff 6869"
        => "sink_avail.len=4294967295 sink_avail.stag=0xffffffff sink_avail.to=0xffffffffffffffff
         sink_avail.non_discards=4294967295 payload_len=2 payload=6869",
};

/// Malformed messages, with the fault that the dissector must report.
pub(crate) const FAULTS: [Sample; 9] = samples! {
    Client "ff000040 00000016 00000001 00000000 68656c6c 6f"
        => "payload_len=6 payload=68656c6c6f expert.length",
    Client "0600003f 00000010 00000001 00000000" => "expert.cut",
    Client "0f000040 00000010 00000001 00000000" => "expert.mid",
    Client "00000040 00000010 00000001 00000000" => "expert.mid",
    Client "04000040 00000011 00000001 00000000 68" => "payload_len=1 payload=68 expert.payload",
    Client "02080040 00000010 00000001 00000000" => "flags.reserved=0x01 expert.flags",
    Client "02040040 00000010 00000001 00000000" => "flags.req_pipe=1 expert.flags",
    Client "07000040 00000014 00000001 00000000 30000000"
        => "mode_change.half=0 mode_change.mode=3 mode_change.reserved=0x00000000 expert.mode",
    Client "07000040 00000014 00000001 00000000 20000001"
        => "mode_change.half=0 mode_change.mode=2 mode_change.reserved=0x00000001 expert.mode",
};

/// RdmaRdCompl with the hint at pipelined mode.
pub(crate) const HINT: Sample = sample(
    Server,
    "0604003f 00000014 00000001 00000000 00000001",
    "flags.req_pipe=1 rdma_rd_compl.bytes=1",
);
