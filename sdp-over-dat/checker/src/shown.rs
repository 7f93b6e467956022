//! A message as text: its name and its fields, in the terms of the specification.

use std::fmt;

use crate::{
    Kind, Record,
    frame::{Body, Frame, HelloParams},
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
    match frame.body {
        Body::ReadDone(len) => write!(f, ", {len} bytes read")?,
        Body::SourceAvail { advertised } => write!(f, ", {advertised} bytes advertised")?,
        Body::Mode(mode) => write!(f, ", mode {mode:#04x}")?,
        _ => (),
    }
    if frame.payload > 0 {
        write!(f, ", {} bytes of payload", frame.payload)?;
    }
    if frame.pend {
        f.write_str(", urgent byte pending")?;
    }
    if frame.pres {
        f.write_str(", urgent byte present")?;
    }
    Ok(())
}

const fn name(body: Body) -> &'static str {
    match body {
        Body::DisConn => "DisConn",
        Body::AbortConn => "AbortConn",
        Body::SendSm => "SendSm",
        Body::WriteDone => "RdmaWrCompl",
        Body::ReadDone(_) => "RdmaRdCompl",
        Body::Mode(_) => "ModeChange",
        Body::SourceCancel => "SrcAvailCancel",
        Body::SinkCancel => "SinkAvailCancel",
        Body::SinkCancelAck => "SinkCancelAck",
        Body::Resize => "ChRcvBuf",
        Body::ResizeAck => "ChRcvBufAck",
        Body::Suspend => "SuspComm",
        Body::SuspendAck => "SuspCommAck",
        Body::SinkAvail => "SinkAvail",
        Body::SourceAvail { .. } => "SrcAvail",
        Body::Data => "Data",
    }
}
