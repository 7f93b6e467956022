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
    /// 18 kinds, and Hello and HelloAck only at set-up.
    #[error("a kind of message that does not belong on a connection")]
    Kind,
    /// Only Data and the two advertisements carry payload.
    #[error("payload on a control message")]
    PayloadOnControl,
    /// OOB_PRES stands on Data with payload.
    #[error("an urgent byte is announced as present and is not")]
    UrgentWithoutByte,
    /// REQ_PIPE stands on RdmaRdCompl.
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
    /// Hello, HelloAck, messages.
    #[error("a message before Hello and HelloAck")]
    BeforeHello,
    /// MSeq counts without gaps from 1.
    #[error("MSeq is not the number of the message")]
    Sequence,
    /// MSeqAck names a message that was received, and never goes back.
    #[error("MSeqAck names what was not received, or goes back")]
    Acknowledgement,
    /// A message fits the peer's receive buffers.
    #[error("a message longer than the peer's receive buffers")]
    TooLong,
    /// Every message takes a receive buffer that the peer has told of.
    #[error("a message without a credit")]
    NoCredit,
    /// CA4-82.
    #[error("the last credit went for payload, or for nothing new")]
    LastCredit,
    /// Nothing of the stream follows DisConn, and DisConn comes once.
    #[error("data, an advertisement or DisConn after DisConn")]
    AfterDisConn,
    /// DisConn waits for advertisements.
    #[error("DisConn while an advertisement is outstanding")]
    DisConnTooEarly,
    /// AbortConn follows DisConn, and nothing follows AbortConn.
    #[error("AbortConn before DisConn, or a message after AbortConn")]
    Abort,
    /// Buffered mode has no advertisements, combined mode such with payload and a rest, pipelined
    /// mode such without payload.
    #[error("an advertisement that the mode forbids")]
    AdvertForm,
    /// Not more advertisements than the peer allows, and none while a cancel is outstanding.
    #[error("an advertisement too many")]
    AdvertLimit,
    /// Data behind an advertisement has no place in the stream.
    #[error("data while an advertisement is outstanding")]
    DataBehindAdvert,
    /// RdmaRdCompl tells of bytes that were advertised, and of some.
    #[error("RdmaRdCompl for nothing, or for more than was advertised")]
    ReadDone,
    /// SendSm answers an advertisement.
    #[error("SendSm without an advertisement")]
    SendSm,
    /// SrcAvailCancel takes an advertisement back, once.
    #[error("SrcAvailCancel without an advertisement, or a second one")]
    Cancel,
    /// Only the changes of mode that the roles may make.
    #[error("a change of mode that is not this side's to make")]
    ModeChange,
    /// An answer follows its question.
    #[error("an answer without a question")]
    Unasked,
    /// Sink advertisements belong to pipelined mode.
    #[error("a sink advertisement outside pipelined mode")]
    SinkAvail,
    /// At rest: everything sent was received.
    #[error("frames are still under way")]
    UnderWay,
    /// At rest: every advertisement was answered.
    #[error("an advertisement was never answered")]
    Unanswered,
}
