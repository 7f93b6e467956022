//! An SDP end, a user that makes any call, and a peer that sends any message.
//!
//! Input: one byte of configuration, then steps: a byte for the kind, and its arguments. A message
//! of the peer is a length and bytes. Its length, numbers and acknowledgement are corrected if the
//! kind's byte says so, because hardly any other message would pass the first checks.
//!
//! The following must hold. Messages to a peer that counts its receive buffers never overrun them.
//! Memory is asked for only while it is registered. An end that has ended sends nothing and
//! refuses work. The first cause is the one that is reported.

use std::collections::BTreeMap;

use sdp_proto::{
    Advert, AdvertId, Config, Connection, Event, Failure, OnCancel, Payload, SinkAdvert,
    wire::Hello,
};

use crate::{
    input::Input,
    sdp_message::{HELLO, MESSAGES},
    seed::{Seed, hex, seed},
};

struct End {
    connection: Connection,
    /// Bytes written and not sent.
    queued: u64,
    /// Memory that the peer may read, with its length.
    registered: BTreeMap<u64, u32>,
    /// Memory of readers that the peer may write, with its length.
    sinks: BTreeMap<u64, u32>,
    adverts: u64,
    /// Messages that the connection has received and sent.
    received: u32,
    sent: u32,
    reading: Vec<u32>,
    failure: Option<Failure>,
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let first = input.byte();
    let config = Config {
        buffers: 3 + u16::from(first) % 62,
        buffer_size: 1_024,
        send_size_max: 256,
        adverts_max: 1 + first % 4,
        write_min: 1 + u32::from(first),
    };
    let mut hello = Hello::parse(&hex(HELLO)).expect("a good Hello");
    hello.adverts_max = 4;
    let (connection, _) = Connection::accept(config, &hello);
    let mut end = End {
        connection,
        queued: 0,
        registered: BTreeMap::new(),
        sinks: BTreeMap::new(),
        adverts: 0,
        received: 0,
        sent: 0,
        reading: Vec::new(),
        failure: None,
    };
    while !input.is_empty() {
        end.step(&mut input);
        end.transmit();
        end.take_events();
    }
    end.connection.handle_disconnected();
    if end.connection.continues_at().is_some() {
        // The peer has suspended the connection, and nobody answers at its service.
        let local = ([192, 0, 2, 2], 1).into();
        let peer = [192, 0, 2, 1].into();
        assert!(end.connection.resume(8, 8, local, peer).is_some());
        end.connection.handle_disconnected();
    }
    end.take_events();
    assert!(end.connection.state().has_ended());
    assert_eq!(end.connection.poll_transmit(), None);
    assert!(!end.connection.write(1) && end.connection.begin_read(1).is_none());
}

impl End {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(12) {
            0..4 => self.receive(input),
            4 => {
                let len = u32::from(input.short());
                self.queued += u64::from(if self.connection.write(len) { len } else { 0 });
            }
            5 => self.queued += u64::from(self.connection.write_urgent()),
            6 => self.advertise(input),
            7 => {
                let id = AdvertId(u64::from(input.byte()));
                let then = input.pick(&[OnCancel::Send, OnCancel::TakeBack]);
                self.connection.cancel(id, then);
            }
            8 => {
                let read = self.connection.begin_read(u32::from(input.short()));
                self.reading.extend(read.map(|read| read.len));
            }
            9 => {
                if !self.reading.is_empty() {
                    let len = self.reading.remove(0);
                    self.connection.finish_read(len);
                }
            }
            10 => match input.below(16) {
                0 => self.connection.refuse_advert(),
                1 => self.connection.go_buffered(),
                2 => self.connection.go_combined(),
                3 => self.connection.shut_send(),
                4 => self.connection.shut_receive(),
                5 => self.connection.abort(),
                6 => self.connection.handle_tick(),
                7 => self.connection.go_pipelined(),
                8 => self.connection.leave_pipelined(),
                9 => self.connection.ask_pipelined(),
                10 => self.connection.cancel_sinks(),
                11 => drop(self.connection.ask_buffers(u32::from(input.short()))),
                12 => self.connection.answer_buffers(u32::from(input.short())),
                13 => self.advertise_sink(input),
                14 => drop(self.connection.suspend(input.short().into())),
                _ => self.connection.handle_fin_completed(),
            },
            _ => self.connection.handle_posted(),
        }
    }

    fn receive(&mut self, input: &mut Input<'_>) {
        let flags = input.byte();
        let mut message = match usize::from(flags & 0x1f) {
            known if known < MESSAGES.len() => hex(MESSAGES[known].1),
            _ => {
                let len = usize::from(input.byte());
                input.bytes(len).to_vec()
            }
        };
        if flags & 0x20 == 0 && message.len() >= 16 {
            let len = message.len() as u32;
            message[4..8].copy_from_slice(&len.to_be_bytes());
            message[8..12].copy_from_slice(&(self.received + 1).to_be_bytes());
            message[12..16].copy_from_slice(&self.sent.to_be_bytes());
        }
        let before = self.connection.state();
        let result = self.connection.handle_message(&message, message.len());
        if let Ok(inbound) = result {
            let end = inbound.payload_at as usize + inbound.payload_len as usize;
            assert!(end <= message.len());
            self.received += u32::from(!before.has_ended());
            if inbound.payload_len == 0 {
                self.connection.handle_posted();
            }
        } else {
            assert!(self.connection.state().has_ended());
        }
    }

    fn advertise(&mut self, input: &mut Input<'_>) {
        self.adverts += 1;
        let len = u32::from(input.short());
        let advert = Advert {
            id: AdvertId(self.adverts),
            len,
            stag: 1,
            address: 0,
            inline: u32::from(input.byte()),
        };
        if self.connection.advertise(advert) {
            self.registered.insert(self.adverts, len);
        }
    }

    fn advertise_sink(&mut self, input: &mut Input<'_>) {
        self.adverts += 1;
        let len = u32::from(input.short());
        let advert = SinkAdvert {
            id: AdvertId(self.adverts),
            len,
            stag: 1,
            address: 0,
        };
        if self.connection.advertise_sink(advert) {
            self.sinks.insert(self.adverts, len);
        }
    }

    fn transmit(&mut self) {
        for _ in 0..64 {
            let has_ended = self.connection.state().has_ended();
            let Some(transmit) = self.connection.poll_transmit() else {
                return;
            };
            assert!(!has_ended, "an end that has ended sends nothing");
            self.sent += 1;
            match transmit.payload {
                Payload::Nothing => (),
                Payload::Stream(len) => {
                    self.queued = self.queued.checked_sub(u64::from(len)).expect("written");
                }
                Payload::Advert { id, offset, len } => {
                    let whole = self.registered.get(&id.0).expect("registered memory");
                    assert!(offset + len <= *whole);
                }
            }
            let carried = match transmit.into {
                Some(_) => 0,
                None => transmit.payload.len() as usize,
            };
            assert!(transmit.header.as_bytes().len() + carried <= 256);
            self.take_events();
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::AdvertDone { id, taken } => {
                    let len = self.registered.remove(&id.0).expect("let go once");
                    assert!(taken <= len);
                }
                Event::SinkDone { id, written } => {
                    let len = self.sinks.remove(&id.0).expect("let go once");
                    assert!(written <= len);
                }
                Event::Failed(failure) => {
                    assert!(self.failure.is_none(), "the first cause counts");
                    self.failure = Some(failure);
                }
                _ => (),
            }
        }
    }
}

/// The initial inputs of the corpus: each message alone, and a few conversations.
pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds: Vec<Seed> = (0..MESSAGES.len())
        .map(|index| seed("sdp_sequence", MESSAGES[index].0, vec![13, 0, index as u8]))
        .collect();
    let conversations: [(&str, &[u8]); 7] = [
        ("write-and-receive", &[13, 4, 0, 9, 0, 1, 11, 0, 0, 0, 5]),
        ("be-read", &[13, 6, 0, 9, 5, 0, 4, 0, 7, 7, 1, 0, 0, 7]),
        ("reading", &[0, 0, 3, 8, 255, 255, 9, 0, 0, 0, 1]),
        ("cancelled-read", &[0, 0, 3, 8, 9, 0, 0, 8, 9, 0, 1, 0, 5]),
        ("invite", &[13, 0, 14, 10, 13, 255, 255, 0, 10]),
        ("be-invited", &[13, 10, 7, 0, 9, 4, 255, 0, 0, 11]),
        ("modes", &[61, 10, 1, 0, 13, 0, 3, 10, 2, 0, 3]),
    ];
    for (name, bytes) in conversations {
        seeds.push(seed("sdp_sequence", name, bytes.to_vec()));
    }
    seeds
}
