//! Byte-exact frames: each rule about forms and numbers broken once, and one conversation that
//! breaks none.

use crate::{
    Broken, Checker,
    Side::{self, Active, Passive},
};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter_map(|byte| char::from(byte).to_digit(16).map(|digit| digit as u8))
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn hello(bufs: u8) -> Vec<u8> {
    let mut bytes = hex("00000040 0000005c 00000000 00000000 22400001 00008010 00008010 9c400000");
    bytes[3] = bufs;
    bytes.resize(92, 0);
    bytes
}

fn hello_ack(bufs: u8) -> Vec<u8> {
    let mut bytes = hex("01000040 000000c4 00000000 00000000 22000001 00008010");
    bytes[3] = bufs;
    bytes.resize(196, 0);
    bytes
}

fn open(bufs: u8) -> Checker {
    let mut checker = Checker::new();
    checker.hello(&hello(bufs)).expect("a good Hello");
    checker
        .hello_ack(&hello_ack(bufs))
        .expect("a good HelloAck");
    checker
}

/// Sends and delivers each message. Returns the result of the last one.
fn send_all(checker: &mut Checker, messages: &[(Side, &str)]) -> Result<(), Broken> {
    for (index, (side, text)) in messages.iter().enumerate() {
        let bytes = hex(text);
        let result = checker.sent(*side, &bytes, bytes.len());
        if index + 1 == messages.len() {
            return result;
        }
        result.unwrap_or_else(|broken| panic!("{text}: {broken}"));
        checker.received(side.other());
    }
    Ok(())
}

/// A side, and the message that it sends.
type Said = (Side, &'static str);

const DATA: Said = (Active, "ff000040 00000015 00000001 00000000 68656c6c 6f");
const UPDATE: Said = (Passive, "ff000040 00000010 00000001 00000001");
const SRC_AVAIL: Said = (
    Active,
    "fe000040 00000021 00000002 00000001 00020000 12345678 00007f00 deadb000 41",
);
const READ: Said = (Passive, "0600003f 00000014 00000002 00000002 0001ffff");
const DIS_CONN: Said = (Active, "02000040 00000010 00000003 00000002");

/// Checks that a first message breaks a rule.
macro_rules! breaks {
    ($($side:ident $text:literal => $broken:ident,)+) => {$(
        let result = send_all(&mut open(64), &[($side, $text)]);
        assert_eq!(result, Err(Broken::$broken), "{}", $text);
    )+};
}

#[test]
fn a_whole_conversation_breaks_nothing() {
    let mut checker = open(64);
    let fin = (Passive, "02000040 00000010 00000003 00000003");
    send_all(
        &mut checker,
        &[DATA, UPDATE, SRC_AVAIL, READ, DIS_CONN, fin],
    )
    .expect("no rule is broken");
    assert_eq!(checker.check_complete(), Err(Broken::UnderWay));
    checker.received(Active);
    assert_eq!(checker.check_complete(), Ok(()));
    assert_eq!(checker.streamed(Active), 5 + 131_072);
    assert_eq!(checker.frames(), 6);
}

#[test]
fn forms_are_checked() {
    breaks! {
        Active "ff0000400000001000000001000000" => Cut,
        Active "ff000040 00000011 00000001 00000000" => Length,
        Active "ff080040 00000010 00000001 00000000" => ReservedFlags,
        Active "0f000040 00000010 00000001 00000000" => Kind,
        Active "00000040 00000010 00000001 00000000" => Kind,
        Active "02000040 00000011 00000001 00000000 00" => PayloadOnControl,
        Active "ff010040 00000010 00000001 00000000" => UrgentWithoutByte,
        Active "ff040040 00000011 00000001 00000000 00" => PipelineHint,
        Active "ff010040 00000011 00000001 00000000 00" => UrgentUnannounced,
        Active "07000040 00000014 00000001 00000000 01000000" => ModeForm,
        Active "fe000040 00000014 00000001 00000000 00010000" => Cut,
    }
}

#[test]
fn numbers_and_lengths_are_checked() {
    breaks! {
        Active "ff000040 00000011 00000002 00000000 00" => Sequence,
        Active "ff000040 00000011 00000001 00000001 00" => Acknowledgement,
    }
    let long = hex("ff000040 00008011 00000001 00000000");
    let result = open(64).sent(Active, &long, 0x8011);
    assert_eq!(result, Err(Broken::TooLong));
}

#[test]
fn the_last_credit_is_guarded() {
    let data = |seq| format!("ff000003 00000011 0000000{seq} 00000000 00");
    let mut checker = open(3);
    for seq in 1..=2 {
        let bytes = hex(&data(seq));
        checker.sent(Active, &bytes, 17).expect("two credits");
    }
    let bytes = hex(&data(3));
    assert_eq!(checker.sent(Active, &bytes, 17), Err(Broken::LastCredit));

    let mut checker = open(3);
    let peer = hex("ff000003 00000011 00000001 00000000 00");
    checker.sent(Passive, &peer, 17).expect("a credit");
    checker.received(Active);
    for seq in 1..=2 {
        let bytes = hex(&format!("ff000002 00000011 0000000{seq} 00000001 00"));
        checker.sent(Active, &bytes, 17).expect("two credits");
    }
    let nothing_new = hex("ff000002 00000010 00000003 00000001");
    let result = checker.sent(Active, &nothing_new, 16);
    assert_eq!(result, Err(Broken::LastCredit));

    let mut checker = open(3);
    for seq in 1..=2 {
        let bytes = hex(&data(seq));
        checker.sent(Active, &bytes, 17).expect("two credits");
    }
    checker.sent(Passive, &peer, 17).expect("a credit");
    checker.received(Active);
    let update = hex("ff000003 00000010 00000003 00000001");
    checker
        .sent(Active, &update, 16)
        .expect("the last one, for an update");
    let none = hex("ff000003 00000010 00000004 00000001");
    assert_eq!(checker.sent(Active, &none, 16), Err(Broken::NoCredit));
}

#[test]
fn hello_and_hello_ack_are_checked() {
    for (at, byte) in [
        (0, 1),
        (7, 0x5d),
        (11, 1),
        (16, 0x32),
        (17, 0x50),
        (19, 0),
        (3, 2),
        (91, 1),
    ] {
        let mut bytes = hello(64);
        bytes[at] = byte;
        let result = Checker::new().hello(&bytes);
        assert_eq!(result, Err(Broken::Hello), "byte {at}");
    }
    for (at, byte) in [(7, 0x5d), (16, 0x32), (17, 0x40), (19, 0), (3, 2), (24, 1)] {
        let mut checker = Checker::new();
        checker.hello(&hello(64)).expect("a good Hello");
        let mut bytes = hello_ack(64);
        bytes[at] = byte;
        let result = checker.hello_ack(&bytes);
        assert_eq!(result, Err(Broken::Hello), "byte {at}");
    }
    assert_eq!(Checker::new().hello(&hello(64)[..64]), Ok(()), "trimmed");
    assert_eq!(Checker::new().hello(&hello(64)[..63]), Err(Broken::Hello));
    let early = Checker::new().sent(Active, &hex(DATA.1), 21);
    assert_eq!(early, Err(Broken::BeforeHello));
}

#[test]
fn hello_may_carry_extended_adverts() {
    let with = |cap: u8, extended: u8| {
        let mut bytes = hello(64);
        (bytes[17], bytes[19], bytes[67]) = (0x40 | cap, 1, extended);
        bytes
    };
    let mut checker = Checker::new();
    assert_eq!(checker.hello(&with(2, 2)), Ok(()));
    assert_eq!(checker.hello_ack(&hello_ack(64)), Ok(()));
    let pipelined = (Passive, "07000040 00000014 00000001 00000000 20000000");
    let advert = |seq: u32| {
        let head = hex("fe000040 00000020 00000000 00000000 00020000 12345678 00000000 00000000");
        let mut head = head;
        head[8..12].copy_from_slice(&seq.to_be_bytes());
        head
    };
    assert_eq!(send_all(&mut checker, &[pipelined]), Ok(()));
    assert_eq!(checker.sent(Passive, &advert(2), 32), Ok(()));
    assert_eq!(checker.sent(Passive, &advert(3), 32), Ok(()));
    let result = checker.sent(Passive, &advert(4), 32);
    assert_eq!(result, Err(Broken::AdvertLimit));
    assert_eq!(Checker::new().hello(&with(2, 0)), Err(Broken::Hello));
    assert_eq!(Checker::new().hello(&with(0, 2)), Err(Broken::Hello));
}
