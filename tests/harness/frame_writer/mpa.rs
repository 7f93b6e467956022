//! Start-up frames (RFC 5044 section 7.1, RFC 6581 section 9).

use super::Frame;

const REQUEST_KEY: u128 = u128::from_be_bytes(*b"MPA ID Req Frame");
const REPLY_KEY: u128 = u128::from_be_bytes(*b"MPA ID Rep Frame");

fn startup(key: u128, rev: u8, private_data: &[u8]) -> Frame {
    Frame::new(
        &[
            ("key", 128, key),
            ("m", 1, 0),
            ("c", 1, 1),
            ("r", 1, 0),
            ("s", 1, 0),
            ("mpa_reserved", 4, 0),
            ("rev", 8, rev.into()),
            ("pd_length", 16, private_data.len() as u128),
        ],
        private_data,
    )
}

fn enhanced(key: u128, ird: u16, ord: u16, private_data: &[u8]) -> Frame {
    let mut frame = startup(key, 2, private_data)
        .with("s", 1)
        .with("pd_length", 4 + private_data.len() as u128);
    frame.append(&[
        ("peer_to_peer", 1, 0),
        ("rtr_send", 1, 0),
        ("ird", 14, ird.into()),
        ("rtr_write", 1, 0),
        ("rtr_read", 1, 0),
        ("ord", 14, ord.into()),
    ]);
    frame
}

/// A Request of revision 1 with CRC.
pub fn request(private_data: &[u8]) -> Frame {
    startup(REQUEST_KEY, 1, private_data)
}

/// A Request of revision 2 with CRC and depths.
pub fn enhanced_request(ird: u16, ord: u16, private_data: &[u8]) -> Frame {
    enhanced(REQUEST_KEY, ird, ord, private_data)
}

/// A Reply of revision 1 with CRC.
pub fn reply(private_data: &[u8]) -> Frame {
    startup(REPLY_KEY, 1, private_data)
}

/// A Reply of revision 2 with CRC and depths.
pub fn enhanced_reply(ird: u16, ord: u16, private_data: &[u8]) -> Frame {
    enhanced(REPLY_KEY, ird, ord, private_data)
}

#[cfg(test)]
mod tests {
    use crate::raw::{REPLY, REQUEST};

    #[test]
    fn frames_equal_the_golden_frames() {
        assert_eq!(super::request(&[]).bytes(), REQUEST);
        assert_eq!(super::reply(&[]).bytes(), REPLY);
        let enhanced = super::enhanced_reply(4, 4, &[]).with("peer_to_peer", 1);
        let words = enhanced.with("rtr_write", 1).bytes();
        assert_eq!(words[16..], [0x50, 2, 0, 4, 0x80, 4, 0x80, 4]);
    }
}
