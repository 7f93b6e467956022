//! The two sides of a connection.

/// The side of the start-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The side that sent the Request and sends the first FPDU.
    Initiator,
    /// The side that sent the Reply and sends nothing before it has received the first FPDU.
    Responder,
}
