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
    #[error("flags are set that mean nothing")]
    ReservedFlags,
    /// There are 18 kinds; Hello and HelloAck are for the set-up only.
    #[error("a kind of message that does not belong on a connection")]
    Kind,
    /// Only Data and the two advertisements carry payload.
    #[error("payload on a control message")]
    PayloadOnControl,
    /// OOB_PRES is set only on Data with payload.
    #[error("an urgent byte is announced as present and is not")]
    UrgentWithoutByte,
    /// REQ_PIPE is set only on RdmaRdCompl.
    #[error("the hint at pipelined mode stands on another message than RdmaRdCompl")]
    PipelineHint,
    /// An urgent byte is announced, at the latest by its own message.
    #[error("an urgent byte came unannounced")]
    UrgentUnannounced,
    /// The fields of ModeChange.
    #[error("a ModeChange with reserved bits")]
    ModeForm,
    /// The fields of Hello and HelloAck.
    #[error("a Hello or HelloAck that is not one")]
    Hello,
    /// The first messages are Hello and HelloAck.
    #[error("a message before Hello and HelloAck")]
    BeforeHello,
    /// MSeq counts without gaps from 1.
    #[error("MSeq is not the number of the message")]
    Sequence,
    /// MSeqAck names a message that was received, and never decreases.
    #[error("MSeqAck names what was not received, or goes back")]
    Acknowledgement,
    /// A message fits the peer's receive buffers.
    #[error("a message longer than the peer's receive buffers")]
    TooLong,
    /// Every message consumes a receive buffer that the peer has announced.
    #[error("a message without a credit")]
    NoCredit,
    /// CA4-82: the last credit is spent only on a message without payload that gives credits.
    #[error("the last credit went for payload, or for nothing new")]
    LastCredit,
    /// Nothing of the stream follows DisConn, and DisConn is sent once.
    #[error("data, an advertisement or DisConn after DisConn")]
    AfterDisConn,
    /// DisConn is sent only when no advertisement is outstanding.
    #[error("DisConn while an advertisement is outstanding")]
    DisConnTooEarly,
    /// AbortConn follows DisConn, and nothing follows AbortConn.
    #[error("AbortConn before DisConn, or a message after AbortConn")]
    Abort,
    /// Buffered mode has no advertisements. Those of combined mode carry payload and leave a rest;
    /// those of pipelined mode carry no payload.
    #[error("an advertisement that the mode forbids")]
    AdvertForm,
    /// There are no more advertisements than the peer permits, and none while a cancel is
    /// outstanding.
    #[error("an advertisement too many")]
    AdvertLimit,
    /// Data after an outstanding advertisement has no defined position in the stream.
    #[error("data while an advertisement is outstanding")]
    DataBehindAdvert,
    /// RdmaRdCompl reports at least one byte, and no more than were advertised.
    #[error("RdmaRdCompl for nothing, or for more than was advertised")]
    ReadDone,
    /// SendSm answers an advertisement.
    #[error("SendSm without an advertisement")]
    SendSm,
    /// SrcAvailCancel cancels an advertisement, once.
    #[error("SrcAvailCancel without an advertisement, or a second one")]
    Cancel,
    /// Each role may make only its own changes of mode.
    #[error("a change of mode that is not this side's to make")]
    ModeChange,
    /// An answer follows a request.
    #[error("an answer without a question")]
    Unasked,
    /// Sink advertisements belong to pipelined mode.
    #[error("a sink advertisement outside pipelined mode")]
    SinkAvail,
    /// When both ends are at rest, everything that was sent was received.
    #[error("frames are still under way")]
    UnderWay,
    /// When both ends are at rest, every advertisement was answered.
    #[error("an advertisement was never answered")]
    Unanswered,
}
