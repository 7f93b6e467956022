//! The rules.

/// A rule that a frame broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Broken {
    /// A frame ends inside its headers.
    #[error("a frame ends inside its headers")]
    Cut,
    /// Len is the length of the message.
    #[error("Len is not the length of the message")]
    Length,
    /// Undefined flags are zero.
    #[error("undefined flags are set")]
    ReservedFlags,
    /// There are 18 kinds; Hello and HelloAck are for the set-up only.
    #[error("a kind of message that does not belong on a connection")]
    Kind,
    /// Only Data and the two advertisements carry payload.
    #[error("payload on a control message")]
    PayloadOnControl,
    /// OOB_PRES is set only on Data with payload.
    #[error("OOB_PRES on a message without an urgent byte")]
    UrgentWithoutByte,
    /// REQ_PIPE is set only on RdmaRdCompl.
    #[error("REQ_PIPE on a message other than RdmaRdCompl")]
    PipelineHint,
    /// An urgent byte is announced by OOB_PEND, at the latest in its own message.
    #[error("an urgent byte that was not announced")]
    UrgentUnannounced,
    /// An announced urgent byte is sent before DisConn.
    #[error("DisConn, or OOB_PEND after DisConn, although an announced urgent byte was never sent")]
    UrgentMissing,
    /// The reserved bits of ModeChange are zero, and there are three modes.
    #[error("a ModeChange with reserved bits or an unknown mode")]
    ModeForm,
    /// The fields of Hello and HelloAck.
    #[error("a malformed Hello or HelloAck")]
    Hello,
    /// The first messages are Hello and HelloAck.
    #[error("a message before Hello and HelloAck")]
    BeforeHello,
    /// MSeq counts without gaps from 1.
    #[error("MSeq is not the number of the message")]
    Sequence,
    /// MSeqAck names a message that was received, and never decreases.
    #[error("MSeqAck names a message that was not received, or decreases")]
    Acknowledgement,
    /// A message fits the peer's receive buffers. A larger size counts from its ChRcvBufAck on.
    #[error("a message longer than the peer's receive buffers")]
    TooLong,
    /// Every message consumes a receive buffer that the peer has announced.
    #[error("a message without a credit")]
    NoCredit,
    /// CA4-82: the last credit is spent only on a message without payload that gives credits.
    #[error("the last credit was spent on payload, or on a message that gives no credit")]
    LastCredit,
    /// No data follows DisConn, and DisConn is sent once.
    #[error("data, a source advertisement, RdmaWrCompl or DisConn after DisConn")]
    AfterDisConn,
    /// DisConn is sent only when no source advertisement is outstanding.
    #[error("DisConn while a source advertisement is outstanding")]
    DisConnTooEarly,
    /// AbortConn follows DisConn, and nothing follows AbortConn.
    #[error("AbortConn before DisConn, or a message after AbortConn")]
    Abort,
    /// Buffered mode has no source advertisements. Those of combined mode carry payload and leave
    /// bytes to read; those of pipelined mode carry no payload.
    #[error("a source advertisement that the mode forbids")]
    AdvertForm,
    /// The advertisements of both kinds together stay within the peer's MaxAdverts. Combined mode
    /// has one source advertisement at a time. No advertisement is made while a cancel is
    /// outstanding.
    #[error("an advertisement that exceeds a limit, or that follows an unanswered cancel")]
    AdvertLimit,
    /// Data after an outstanding source advertisement has no defined position in the stream.
    #[error("data while a source advertisement is outstanding")]
    DataBehindAdvert,
    /// The sink drops source advertisements while its own memory is advertised.
    #[error("a source advertisement while the peer's memory is advertised")]
    SourceBehindSink,
    /// RdmaRdCompl reports at least one byte of the oldest source advertisement, and no more
    /// bytes than that advertisement has left.
    #[error("RdmaRdCompl for nothing, or for more than the oldest source advertisement has")]
    ReadDone,
    /// The bytes of a refused advertisement precede those of an advertisement that crossed SendSm.
    #[error("RdmaRdCompl for a source advertisement that crossed SendSm")]
    ReadOfCrossed,
    /// SendSm answers a source advertisement.
    #[error("SendSm without a source advertisement")]
    SendSm,
    /// SendSm that answers SrcAvailCancel acknowledges it: MSeqAck is at least its MSeq.
    #[error("SendSm that does not acknowledge the SrcAvailCancel that it answers")]
    CancelAck,
    /// SrcAvailCancel and SinkAvailCancel cancel an advertisement, once.
    #[error("a cancel without an advertisement, or a second one")]
    Cancel,
    /// Each role may make only its own changes of mode, and some only without advertisements.
    #[error("a change of mode that the sender may not make")]
    ModeChange,
    /// An answer follows a request.
    #[error("an answer without a request")]
    Unasked,
    /// Sink advertisements belong to pipelined mode, and end with the peer's DisConn.
    #[error("a sink advertisement outside pipelined mode or after the peer's DisConn")]
    SinkAvail,
    /// The memory of a sink advertisement is at least as long as the payload of a receive buffer.
    #[error("a sink advertisement shorter than the payload of the sender's receive buffers")]
    SinkLength,
    /// NonDiscards is the number of messages with payload that the sink has received and not
    /// discarded; payload in SinkAvail does not count.
    #[error("NonDiscards is not the number of data messages received and not discarded")]
    NonDiscards,
    /// A sink answers source advertisements before it advertises its own memory.
    #[error("a sink advertisement while a source advertisement of the peer is unanswered")]
    SinkBehindSource,
    /// RdmaWrCompl reports at least one byte, and no more bytes than the oldest valid sink
    /// advertisement has.
    #[error("RdmaWrCompl for nothing, or for more than the oldest sink advertisement has")]
    WriteDone,
    /// SinkCancelAck is sent only if the cancel dropped at least one sink advertisement.
    #[error("SinkCancelAck although no sink advertisement was dropped")]
    SinkCancelAck,
    /// A buffer has room for a header and a byte. ChRcvBufAck names a size between the present and
    /// the requested one, or a larger one if a larger one was requested.
    #[error("a size of receive buffers that is too small or was not requested")]
    Resize,
    /// SuspComm is answered before it is sent again.
    #[error("SuspComm while one is unanswered, or after SuspCommAck")]
    Suspend,
    /// SuspCommAck confirms that both ends have stopped the traffic.
    #[error("data, an advertisement or RdmaWrCompl after SuspCommAck")]
    AfterSuspend,
    /// When both ends are at rest, everything that was sent was received.
    #[error("frames are still under way")]
    UnderWay,
    /// When both ends are at rest, every source advertisement, cancel and request was answered.
    #[error("an advertisement or a request was never answered")]
    Unanswered,
}
