//! Terminate messages: both layouts are parsed, and the messages that we write can be parsed again.
//!
//! Input: one byte of context, a code as layer, type and number, a byte that is the length of an
//! offending segment, the segment, then a message as a peer may send it.

use iwarp_proto::{
    Config, Connection, Inbound, ProtocolError, Role, TerminateCode, TransmitFpdu,
    testing::memory::{Memory, Receives},
    wire::{
        fpdu::LENGTH_LEN,
        terminate::{self, CONTROL_LEN, Context, LEN_MAX, Offender},
    },
};

use crate::input::Input;

/// A context that leaves no ambiguity: a connection that has exchanged FPDUs.
const RUNNING: Context = Context {
    is_first_fpdu: false,
    sent_fpdu: true,
};

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.byte();
    let context = Context {
        is_first_fpdu: flags & 1 != 0,
        sent_fpdu: flags & 2 != 0,
    };
    let code = TerminateCode::from_triple(input.byte(), input.byte(), input.byte());
    let len = usize::from(input.byte());
    let segment = input.bytes(len);
    check_written(code, segment);
    check_read(input.rest(), context);
}

/// Checks that a message of a peer keeps its code when it is parsed and written in our layout.
fn check_read(message: &[u8], context: Context) {
    let received = terminate::parse(message, context);
    assert_eq!(received.is_some(), message.len() >= CONTROL_LEN);
    let Some(received) = received else { return };
    assert_eq!(received.quote, &message[CONTROL_LEN..]);
    let (layer, etype, number) = received.code.to_triple();
    assert!(layer < 16 && etype < 16);
    assert_eq!(
        TerminateCode::from_triple(layer, etype, number),
        received.code
    );
    check_written(received.code, received.quote.get(2..).unwrap_or_default());
}

/// Checks that the message for `code` about `segment` can be parsed, on its own and by a
/// connection.
fn check_written(code: TerminateCode, segment: &[u8]) {
    let offender = Offender::capture(code, segment, segment.len());
    let mut message = [0xAA; LEN_MAX];
    let len = terminate::emit(code, offender.as_ref(), &mut message);
    assert!((CONTROL_LEN..=LEN_MAX).contains(&len));
    if let Some(offender) = &offender {
        assert_eq!(usize::from(offender.segment_len()), segment.len());
        assert!(segment.starts_with(offender.headers()));
        assert!(message[..len].ends_with(offender.headers()));
    }
    let context = unambiguous(code);
    if let Some(context) = context.filter(|_| is_ours(code)) {
        let received = terminate::parse(&message[..len], context).expect("long enough");
        assert_eq!(received.code, code, "{:02x?}", &message[..len]);
        assert_eq!(received.quote, &message[CONTROL_LEN..len]);
        let mut again = [0x55; LEN_MAX];
        let len_again = terminate::emit(received.code, offender.as_ref(), &mut again);
        assert_eq!(message[..len], again[..len_again]);
    }
    if context == Some(RUNNING) && is_ours(code) {
        check_reported(ProtocolError { code, offender });
    }
}

/// True unless the error has no name; we send only errors that have one.
fn is_ours(code: TerminateCode) -> bool {
    !matches!(code, TerminateCode::Other { .. })
}

/// The context in which the layouts cannot be confused: two start-up errors and two errors of an
/// established connection have the same bytes when no segment is quoted.
fn unambiguous(code: TerminateCode) -> Option<Context> {
    match code.to_triple() {
        (2, 0, 5 | 6) => Some(Context {
            is_first_fpdu: true,
            sent_fpdu: false,
        }),
        _ => Some(RUNNING),
    }
}

/// Checks that a connection that receives the FPDU reports the code, and nothing else from then on.
fn check_reported(error: ProtocolError) {
    let fpdu = TransmitFpdu::terminate(&error);
    assert_eq!(fpdu.payload_len(), 0);
    let ulpdu = &fpdu.header()[LENGTH_LEN..];
    assert_eq!(ulpdu.len(), fpdu.ulpdu_len());
    let mut connection = Connection::new(Config {
        role: Role::Initiator,
        mulpdu: 1442,
        ird: 4,
        ord: 4,
        rtr: None,
        send_queue_len: 4,
        rfc7306: true,
        peer: iwarp_proto::Peer::Unknown,
    });
    let (memory, mut receives) = (Memory::default(), Receives::default());
    let received = connection.handle_ulpdu(ulpdu, &memory, &mut receives);
    let Ok(Inbound::Terminated(Some(received))) = received else {
        panic!("our Terminate message is {received:?}");
    };
    // The connection above has sent and received no FPDU, which decides how ambiguous bytes are
    // parsed.
    let context = Context {
        is_first_fpdu: true,
        sent_fpdu: false,
    };
    let len = ulpdu.len().min(18);
    let expected = terminate::parse(&ulpdu[len..], context).map(|received| received.code);
    assert_eq!(Some(received.code), expected);
    let later = connection.handle_ulpdu(ulpdu, &memory, &mut receives);
    assert_eq!(later, Ok(Inbound::Dropped));
    assert_eq!(connection.terminate(&error), None);
}
