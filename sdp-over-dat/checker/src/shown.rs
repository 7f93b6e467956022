//! A message as text: its name and its fields, in the terms of the specification.

use std::fmt;

use crate::{
    Kind, Record,
    frame::{Body, Frame, Mode, ModeChange, Role},
    hello::HelloParams,
};

impl fmt::Display for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hello = |is_active| HelloParams::read(self.head, is_active).map(Shown::Hello);
        let message = || Frame::read(self.head, self.len).map(Shown::Message);
        let (name, shown) = match self.kind {
            Kind::Hello => ("Hello", hello(true)),
            Kind::HelloAck => ("HelloAck", hello(false)),
            Kind::Sent | Kind::Received => ("", message()),
        };
        match shown {
            Ok(Shown::Hello(params)) => write!(
                f,
                "{name:<14} Bufs {}, MaxAdverts {}, receive buffers of {} bytes",
                params.bufs, params.adverts, params.size
            ),
            Ok(Shown::Message(frame)) => write_message(f, &frame),
            Err(broken) => {
                let name = if name.is_empty() { "a message" } else { name };
                write!(f, "{name:<14} of {} bytes: {broken}", self.len)
            }
        }
    }
}

enum Shown {
    Hello(HelloParams),
    Message(Frame),
}

fn write_message(f: &mut fmt::Formatter<'_>, frame: &Frame) -> fmt::Result {
    write!(
        f,
        "{:<14} MSeq {}, MSeqAck {}, Bufs {}",
        name(frame.body),
        frame.seq,
        frame.ack,
        frame.bufs
    )?;
    write_fields(f, frame.body)?;
    if frame.payload > 0 {
        write!(f, ", {} bytes of payload", frame.payload)?;
    }
    if frame.pend {
        f.write_str(", urgent byte pending")?;
    }
    if frame.pres {
        f.write_str(", urgent byte present")?;
    }
    if frame.pipe {
        f.write_str(", pipelined mode requested")?;
    }
    Ok(())
}

fn write_fields(f: &mut fmt::Formatter<'_>, body: Body) -> fmt::Result {
    match body {
        Body::WriteDone(bytes) => write!(f, ", {bytes} bytes written"),
        Body::ReadDone(bytes) => write!(f, ", {bytes} bytes read"),
        Body::SourceAvail { len } => write!(f, ", {len} bytes advertised"),
        Body::SinkAvail { len, non_discards } => {
            write!(f, ", {len} bytes advertised, NonDiscards {non_discards}")
        }
        Body::Mode(ModeChange { by, mode }) => {
            let mode = match mode {
                Mode::Buffered => "buffered",
                Mode::Combined => "combined",
                Mode::Pipelined => "pipelined",
            };
            let role = match by {
                Role::Source => "source",
                Role::Sink => "sink",
            };
            write!(f, ", {mode} mode, by the {role}")
        }
        Body::Resize(size) => write!(f, ", receive buffers of {size} bytes requested"),
        Body::ResizeAck(size) => write!(f, ", receive buffers of {size} bytes"),
        _ => Ok(()),
    }
}

const fn name(body: Body) -> &'static str {
    match body {
        Body::DisConn => "DisConn",
        Body::AbortConn => "AbortConn",
        Body::SendSm => "SendSm",
        Body::WriteDone(_) => "RdmaWrCompl",
        Body::ReadDone(_) => "RdmaRdCompl",
        Body::Mode(_) => "ModeChange",
        Body::SourceCancel => "SrcAvailCancel",
        Body::SinkCancel => "SinkAvailCancel",
        Body::SinkCancelAck => "SinkCancelAck",
        Body::Resize(_) => "ChRcvBuf",
        Body::ResizeAck(_) => "ChRcvBufAck",
        Body::Suspend => "SuspComm",
        Body::SuspendAck => "SuspCommAck",
        Body::SinkAvail { .. } => "SinkAvail",
        Body::SourceAvail { .. } => "SrcAvail",
        Body::Data => "Data",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(head: &[u32]) -> String {
        let head: Vec<u8> = head.iter().flat_map(|word| word.to_be_bytes()).collect();
        let len = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let record = Record {
            kind: Kind::Sent,
            head: &head,
            len,
        };
        record.to_string()
    }

    #[test]
    fn each_message_is_shown_with_its_fields() {
        let check = |first: u32, extended: &[u32], payload: u32, text: &str| {
            let len = 16 + 4 * extended.len() as u32 + payload;
            let head = [&[first | 64, len, 8, 7], extended].concat();
            let (name, fields) = text.split_at(text.find(',').unwrap_or(text.len()));
            let expected = format!("{name:<14} MSeq 8, MSeqAck 7, Bufs 64{fields}");
            assert_eq!(shown(&head), expected);
        };
        macro_rules! messages {
            ($($first:literal $extended:tt $payload:literal => $text:literal,)+) => {
                $(check($first, &$extended, $payload, $text);)+
            };
        }
        messages! {
            0x0200_0000 [] 0 => "DisConn",
            0x0300_0000 [] 0 => "AbortConn",
            0x0400_0000 [] 0 => "SendSm",
            0x0500_0000 [9] 0 => "RdmaWrCompl, 9 bytes written",
            0x0604_0000 [9] 0 => "RdmaRdCompl, 9 bytes read, pipelined mode requested",
            0x0700_0000 [0xa000_0000] 0 => "ModeChange, pipelined mode, by the sink",
            0x0800_0000 [] 0 => "SrcAvailCancel",
            0x0900_0000 [] 0 => "SinkAvailCancel",
            0x0a00_0000 [] 0 => "SinkCancelAck",
            0x0b00_0000 [500] 0 => "ChRcvBuf, receive buffers of 500 bytes requested",
            0x0c00_0000 [500] 0 => "ChRcvBufAck, receive buffers of 500 bytes",
            0x0d00_0000 [0, 7] 0 => "SuspComm",
            0x0e00_0000 [] 0 => "SuspCommAck",
            0xfd00_0000 [500, 1, 0, 0, 3] 5
                => "SinkAvail, 500 bytes advertised, NonDiscards 3, 5 bytes of payload",
            0xfe00_0000 [500, 1, 0, 0] 1 => "SrcAvail, 500 bytes advertised, 1 bytes of payload",
            0xff03_0000 [] 2
                => "Data, 2 bytes of payload, urgent byte pending, urgent byte present",
        }
    }
}
