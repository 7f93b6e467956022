//! The attacks that RFC 5042 names, one test each, by section. Attacks on the network between the
//! peers (section 5) must be prevented by protecting the network, because these streams are not
//! encrypted.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};
use dat_api::abi::*;
use dat_api::{
    AsyncKind, ConnectionKind, Ep, EpAttr, EpEvds, Evd, EvdFlags, Event, Privileges, Pz, Region,
    Srq,
};
use stack_tests::frame_writer::{self, Fpdu, Frame, Read};

use super::arena::{Part, library, pattern, raw_ok};
use super::attack::Verdict::Terminate;
use super::attack::{Placed, Scripted, bind_window, run_scripts, scripts};
use super::kinds::{Kind, PAYLOAD, Scene, TARGET_AT};
use super::victim::{DEADLINE, IRD, OPEN_AT, OPEN_LEN, RECEIVE_AT, RECEIVE_LEN, SINK_AT, Victim};

fn nothing() -> Placed {
    Vec::new()
}

fn read_of(part: Part, at: u64, len: u32) -> Frame {
    let read = Read {
        len,
        source_stag: part.stag,
        source_to: at,
        ..Read::default()
    };
    frame_writer::read_request(1, &read)
}

fn write_to(part: Part, at: u64, payload: &[u8]) -> Frame {
    frame_writer::write(part.stag, at, payload)
}

#[test]
fn rfc5042_6_1_1_using_an_stag_on_a_different_stream() -> Result<()> {
    run_scripts(scripts! {
        "a Write" in Idle, |t| vec![write_to(t.victim.parts.foreign, t.address(0x2400), b"mine")]
            => Terminate(1, 1, 2), nothing;
        "a Read Request" in Idle, |t| vec![read_of(t.victim.parts.foreign, t.address(0x2400), 4)]
            => Terminate(0, 1, 3), nothing;
        "an Atomic Request" in Idle, |t| {
            let stag = t.victim.parts.foreign.stag.into();
            vec![t.frame(Kind::AtomicRequest).with("remote_stag", stag)]
        } => Terminate(0, 1, 3), nothing;
        "an invalidation" in Idle, |t| {
            let stag = t.victim.parts.foreign.stag.into();
            vec![t.frame(Kind::SendInvalidate).with("rsvd_ulp", stag)]
        } => Terminate(0, 1, 3), nothing;
    })
}

#[test]
fn rfc5042_6_2_1_buffer_overrun_by_rdma_write_or_read_response() -> Result<()> {
    run_scripts(scripts! {
        "a Write that begins before the buffer" in Idle,
            |t| vec![write_to(t.victim.parts.open, t.address(OPEN_AT - 1), b"xy")]
            => Terminate(1, 1, 1), nothing;
        "a Write that ends after the buffer" in Idle,
            |t| vec![write_to(t.victim.parts.open, t.address(OPEN_AT + OPEN_LEN - 1), b"xy")]
            => Terminate(1, 1, 1), nothing;
        "a Write that is longer than the buffer" in Idle, |t| {
            let payload = vec![0xaa; OPEN_LEN + 1];
            vec![write_to(t.victim.parts.open, t.address(OPEN_AT), &payload)]
        } => Terminate(1, 1, 1), nothing;
        "a second segment that begins at the end of the buffer" in Idle, |t| {
            let (open, at) = (t.victim.parts.open, OPEN_AT + OPEN_LEN - 4);
            let first = write_to(open, t.address(at), b"good").with("l", 0);
            vec![first, write_to(open, t.address(at + 4), b"!")]
        } => Terminate(1, 1, 1), || vec![(OPEN_AT + OPEN_LEN - 4, b"good".to_vec())];
        "a Read Response that is longer than the read" in Reading,
            |t| vec![t.frame(Kind::ReadResponse).with_payload(&[0xaa; 22])]
            => Terminate(1, 1, 1), nothing;
        "a Read Response whose segments are together longer than the read" in Reading, |t| {
            let first = t.frame(Kind::ReadResponse).with("l", 0);
            let to = first.get("to") + PAYLOAD.len() as u128;
            let more = first.clone().with("to", to).with_payload(b"!");
            vec![first, more]
        } => Terminate(1, 1, 1), || vec![(SINK_AT, PAYLOAD.to_vec())];
        "a Send that is longer than its receive" in Idle,
            |t| vec![t.frame(Kind::Send).with_payload(&[0xaa; RECEIVE_LEN + 1])]
            => Terminate(1, 2, 5), nothing;
    })
}

#[test]
fn rfc5042_6_2_2_modifying_a_buffer_after_indication() -> Result<()> {
    run_scripts(scripts! {
        "a Send that was received already" in Idle, |t| {
            let again = t.frame(Kind::Send).with_payload(b"changed afterwards...");
            vec![t.frame(Kind::Send), again]
        } => Terminate(1, 2, 3), || vec![(RECEIVE_AT, PAYLOAD.to_vec())];
        "a second Read Response to a read that is complete" in Reading, |t| {
            let again = t
                .frame(Kind::ReadResponse)
                .with_payload(b"changed afterwards...");
            vec![t.frame(Kind::ReadResponse), again]
        } => Terminate(0, 2, 6), || vec![(SINK_AT, PAYLOAD.to_vec())];
        "a Write to the sink of a read" in Reading, |t| {
            let to = t.frame(Kind::ReadResponse).get("to") as u64;
            vec![frame_writer::write(t.sink_stag(), to, PAYLOAD)]
        } => Terminate(1, 1, 0), nothing;
        "a Write to a window that a received message invalidated" in WindowBound, |t| {
            let write = t.frame(Kind::Write).with("stag", t.window.into());
            vec![t.frame(Kind::SendInvalidate), write]
        } => Terminate(1, 1, 0), || vec![(RECEIVE_AT, PAYLOAD.to_vec())];
    })
}

/// The access rights of one STag do not extend to other STags of the same bytes.
#[test]
fn rfc5042_6_2_3_multiple_stags_to_access_the_same_buffer() -> Result<()> {
    let victim = Victim::new()?;
    let read_only =
        victim
            .arena
            .register(&victim.pz, OPEN_AT, OPEN_LEN, DAT_MEM_PRIV_REMOTE_READ_FLAG)?;
    let to = victim.arena.address(TARGET_AT);
    for (frame, verdict) in [
        (write_to(read_only, to, PAYLOAD), (1, 1, 0)),
        (
            read_of(victim.parts.private, victim.arena.address(SINK_AT), 4),
            (0, 1, 2),
        ),
    ] {
        let mut stream = victim.stream()?;
        stream.send(&[frame])?;
        stream.expect_terminate(verdict)?;
        stream.end(&victim)?;
        victim.arena.compare(&[])?;
    }
    // Freeing one registration does not free the other.
    victim.arena.deregister(read_only)?;
    let mut stream = victim.stream()?;
    stream.send(&[
        write_to(victim.parts.open, to, PAYLOAD),
        frame_writer::send(frame_writer::SEND, 1, b"done"),
    ])?;
    victim.completion()?;
    ensure!(victim.arena.copy(TARGET_AT, PAYLOAD.len()) == PAYLOAD);
    Ok(())
}

#[test]
fn rfc5042_6_3_1_probing_memory_outside_of_the_buffer_bounds() -> Result<()> {
    const ROWS: &[Scripted] = scripts! {
        "a byte before the buffer" in Idle,
            |t| vec![read_of(t.victim.parts.open, t.address(OPEN_AT - 1), 1)]
            => Terminate(0, 1, 1), nothing;
        "a byte after the buffer" in Idle,
            |t| vec![read_of(t.victim.parts.open, t.address(OPEN_AT + OPEN_LEN), 1)]
            => Terminate(0, 1, 1), nothing;
        "a byte more than the buffer has" in Idle,
            |t| vec![read_of(t.victim.parts.open, t.address(OPEN_AT), OPEN_LEN as u32 + 1)]
            => Terminate(0, 1, 1), nothing;
        "four gigabytes" in Idle,
            |t| vec![read_of(t.victim.parts.open, t.address(OPEN_AT), u32::MAX)]
            => Terminate(0, 1, 1), nothing;
        "around the end of the address space" in Idle,
            |t| vec![read_of(t.victim.parts.open, u64::MAX - 7, 0x1000)]
            => Terminate(0, 1, 4), nothing;
    };
    run_scripts(ROWS)
}

/// The STag of a freed registration gives no access, even if the same bytes are registered again.
/// The consumer is responsible for the content of the memory that it exposes to peers.
#[test]
fn rfc5042_6_3_2_using_rdma_read_to_access_stale_data() -> Result<()> {
    let victim = Victim::new()?;
    let all = DAT_MEM_PRIV_ALL_FLAG;
    let at = victim.arena.address(0x2800);
    for _ in 0..20 {
        let old = victim.arena.register(&victim.pz, 0x2800, 0x200, all)?;
        victim.arena.deregister(old)?;
        let new = victim.arena.register(&victim.pz, 0x2800, 0x200, all)?;
        ensure!(old.stag != new.stag, "an STag was used again at once");
        let mut stream = victim.stream()?;
        stream.send(&[read_of(old, at, 16)])?;
        stream.expect_terminate((0, 1, 0))?;
        stream.end(&victim)?;
        victim.arena.deregister(new)?;
    }
    Ok(())
}

/// Deregisters `part` once the first byte of the flood is in it, and checks that no later byte is
/// placed.
fn deregister_during_writes(victim: &Victim, part: Part) -> Result<()> {
    while victim.arena.copy(part.at, 1) != [0xff] {
        std::hint::spin_loop();
    }
    victim.arena.deregister(part)?;
    victim.arena.refill();
    for _ in 0..50 {
        victim.arena.compare(&[])?;
    }
    Ok(())
}

/// A peer writes without pause while the region is freed: no byte is placed afterwards.
#[test]
fn rfc5042_6_3_3_accessing_a_buffer_after_the_transfer() -> Result<()> {
    let victim = Victim::new()?;
    for round in 0..30 {
        let all = DAT_MEM_PRIV_ALL_FLAG;
        let part = victim.arena.register(&victim.pz, 0x2800, 0x400, all)?;
        let mut stream = victim.stream()?;
        let stop = AtomicBool::new(false);
        let write = Fpdu::new(&write_to(
            part,
            victim.arena.address(0x2800),
            &[0xff; 0x400],
        ));
        let flood = write.bytes().repeat(16);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut is_up = true;
                while is_up && !stop.load(Ordering::Relaxed) {
                    is_up = stream.peer.send(&flood).is_ok();
                }
            });
            let result = deregister_during_writes(&victim, part);
            stop.store(true, Ordering::Relaxed);
            result
        })?;
        // The last frame of the flood may have been received before the free. This frame is
        // received after the free, or by a closed stream.
        let _ = stream.peer.send(&write.bytes());
        victim
            .arena
            .compare(&[])
            .with_context(|| format!("round {round}"))?;
        let ending = stream.ep.wait_disconnected(Some(DEADLINE))?;
        ensure!(ending == ConnectionKind::Broken, "{ending:?}");
        stream.end(&victim)?;
    }
    victim.bystander_is_fine()
}

/// A window exposes its part and no byte next to it, although the region is larger.
#[test]
fn rfc5042_6_3_4_accessing_unintended_data_with_a_valid_stag() -> Result<()> {
    let victim = Victim::new()?;
    let at = victim.arena.address(TARGET_AT);
    for (to, len) in [(at - 1, 1), (at + 64, 1), (at, 65), (at + 63, 2)] {
        let mut stream = victim.stream()?;
        let stag = bind_window(&victim, &stream.ep)?;
        let window = Part {
            stag,
            ..victim.parts.open
        };
        stream.send(&[read_of(window, to, len)])?;
        stream.expect_terminate((0, 1, 1))?;
        stream.end(&victim)?;
    }
    Ok(())
}

#[test]
fn rfc5042_6_3_5_rdma_read_into_an_rdma_write_buffer() -> Result<()> {
    run_scripts(&[(
        "a read of memory without the right to read",
        Scene::Idle,
        |t| vec![read_of(t.victim.parts.writable, t.address(0x1400), 16)],
        Terminate(0, 1, 2),
        nothing,
    )])
}

#[test]
fn rfc5042_6_3_6_using_multiple_stags_that_alias_to_the_same_buffer() -> Result<()> {
    let victim = Victim::new()?;
    let to = victim.arena.address(TARGET_AT);
    let other_zone = Pz::create(victim.pz.ia())?;
    let write_only = DAT_MEM_PRIV_LOCAL_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG;
    let alias = victim
        .arena
        .register(&victim.pz, OPEN_AT, OPEN_LEN, write_only)?;
    let foreign = victim
        .arena
        .register(&other_zone, OPEN_AT, OPEN_LEN, DAT_MEM_PRIV_ALL_FLAG)?;
    for (part, verdict) in [(alias, (0, 1, 2)), (foreign, (0, 1, 3))] {
        let mut stream = victim.stream()?;
        stream.send(&[read_of(part, to, 16)])?;
        stream.expect_terminate(verdict)?;
        stream.end(&victim)?;
        victim.arena.deregister(part)?;
    }
    Ok(())
}

/// A peer that uses more than its share of a shared receive queue is disconnected. The other peers
/// still receive.
#[test]
fn rfc5042_6_4_3_1_multiple_streams_sharing_receive_buffers() -> Result<()> {
    const SHARE: i32 = 2;
    const DEPTH: usize = 6;
    let victim = Victim::new()?;
    let memory = Region::create(&victim.pz, RECEIVE_LEN, Privileges::LOCAL)?;
    let queue = Srq::create(&victim.pz, DEPTH as u32, 1)?;
    for _ in 0..DEPTH {
        queue.post_recv(&[memory.segment(0, RECEIVE_LEN)?], 0)?;
    }
    let ep = || Ep::create_with_srq(&victim.pz, victim.evds(), &queue, None);
    let greedy = ep()?;
    // SAFETY: the endpoint is live.
    raw_ok("dat_ep_set_watermark", unsafe {
        (library().dat_ep_set_watermark)(greedy.as_raw(), DAT_WATERMARK_INFINITE, SHARE)
    })?;
    let mut greedy = victim.stream_to(greedy)?;
    let mut modest = victim.stream_to(ep()?)?;
    let sends: Vec<Frame> = (1..=DEPTH as u32)
        .map(|msn| frame_writer::send(frame_writer::SEND, msn, b"mine"))
        .collect();
    greedy.send(&sends)?;
    let ending = greedy.ep.wait_disconnected(Some(DEADLINE))?;
    ensure!(ending == ConnectionKind::Broken, "{ending:?}");
    modest.send(&[frame_writer::send(frame_writer::SEND, 1, b"please")])?;
    loop {
        let done = victim.completion().context("the modest peer is starved")?;
        if done.len == b"please".len() {
            break;
        }
    }
    Ok(())
}

/// An event queue with too many completions overflows and reports the overflow. The other event
/// queues work.
#[test]
fn rfc5042_6_4_3_2_remote_peer_attacking_a_shared_completion_queue() -> Result<()> {
    overflow(2)
}

#[test]
fn rfc5042_6_4_6_remote_peer_attacking_an_unshared_completion_queue() -> Result<()> {
    overflow(1)
}

/// Makes `streams` endpoints share a short event queue, which their peers fill.
fn overflow(streams: usize) -> Result<()> {
    let victim = Victim::new()?;
    let short = Evd::create(victim.pz.ia(), 1, EvdFlags::DTO)?;
    let room = short.qlen()? as usize;
    let evds = EpEvds {
        recv: &short,
        request: &victim.transfers,
        connect: &victim.connections,
    };
    let receives = room.div_ceil(streams) + 1;
    let attr = EpAttr {
        max_recv_dtos: receives as i32,
        ..EpAttr::default()
    };
    let mut attackers = Vec::new();
    for _ in 0..streams {
        let ep = Ep::create(&victim.pz, evds, Some(&attr))?;
        for _ in 0..receives {
            victim.post_recv(&ep, RECEIVE_AT, 0)?;
        }
        attackers.push(victim.stream_to(ep)?);
    }
    let sends: Vec<Frame> = (1..=receives as u32)
        .map(|msn| frame_writer::send(frame_writer::SEND, msn, b""))
        .collect();
    for attacker in &mut attackers {
        attacker.send(&sends)?;
    }
    match victim.pz.ia().async_evd().wait(Some(DEADLINE))? {
        Some(Event::Async(error)) => ensure!(error.kind == AsyncKind::EvdOverflow, "{error:?}"),
        other => bail!("no overflow but {other:?}"),
    }
    victim.bystander_is_fine()
}

/// Sends more reads than the victim announced.
#[test]
fn rfc5042_6_4_3_3_attacking_the_rdma_read_request_queue() -> Result<()> {
    let victim = Victim::new()?;
    let read = |msn: u32| {
        let read = Read {
            len: 16,
            source_stag: victim.parts.open.stag,
            source_to: victim.arena.address(TARGET_AT),
            ..Read::default()
        };
        frame_writer::read_request(msn, &read)
    };
    // The reads are in one TCP segment, so that all are received before the first is answered.
    let mut stream = victim.stream()?;
    let flood: Vec<Frame> = (1..=4 * IRD as u32).map(read).collect();
    stream.send(&flood)?;
    stream.expect_terminate((0, 2, 7))?;
    stream.end(&victim)?;
    // As many reads as announced are served, in order.
    let mut stream = victim.stream()?;
    let fair: Vec<Frame> = (1..=IRD as u32).map(read).collect();
    stream.send(&fair)?;
    let expected: Vec<u8> = (TARGET_AT..TARGET_AT + 16).map(pattern).collect();
    for _ in &fair {
        let answer = stream.peer.read_segment()?.context("no answer")?;
        ensure!(answer[..2] == [0xc1, 0x42] && answer[14..] == expected);
    }
    stream.end(&victim)?;
    victim.bystander_is_fine()
}

/// Segments of one byte, in TCP and in DDP, are processed correctly, and other streams continue.
#[test]
fn rfc5042_6_4_4_exercise_of_non_optimal_code_paths() -> Result<()> {
    let victim = Victim::new()?;
    let mut stream = victim.stream()?;
    let to = victim.arena.address(TARGET_AT);
    for (at, byte) in PAYLOAD.iter().enumerate().rev() {
        let write = write_to(victim.parts.open, to + at as u64, &[*byte]);
        for byte in Fpdu::new(&write.with("l", 0)).bytes() {
            stream.peer.send(&[byte])?;
        }
    }
    victim.bystander_is_fine()?;
    for (at, byte) in PAYLOAD.iter().enumerate() {
        let is_last = at == PAYLOAD.len() - 1;
        let send = frame_writer::send(frame_writer::SEND, 1, &[*byte]);
        let send = send.with("mo", at as u128).with("l", is_last.into());
        stream.send(&[send])?;
    }
    let done = victim.completion()?;
    ensure!(done.len == PAYLOAD.len(), "{} bytes", done.len);
    ensure!(victim.arena.copy(TARGET_AT, PAYLOAD.len()) == PAYLOAD);
    ensure!(victim.arena.copy(RECEIVE_AT, PAYLOAD.len()) == PAYLOAD);
    Ok(())
}

/// A region belongs to all streams of its zone, so no peer may invalidate it. The other users of
/// the region continue.
#[test]
fn rfc5042_6_4_5_remote_invalidate_an_stag_shared_on_multiple_streams() -> Result<()> {
    let victim = Victim::new()?;
    let mut innocent = victim.stream()?;
    let mut attacker = victim.stream()?;
    let open = victim.parts.open;
    let invalidate = frame_writer::send(frame_writer::SEND_INVALIDATE, 1, b"");
    attacker.send(&[invalidate.with("rsvd_ulp", open.stag.into())])?;
    attacker.expect_terminate((0, 1, 9))?;
    attacker.end(&victim)?;
    innocent.send(&[
        write_to(open, victim.arena.address(TARGET_AT), PAYLOAD),
        frame_writer::send(frame_writer::SEND, 1, b"done"),
    ])?;
    ensure!(victim.completion()?.len == b"done".len());
    ensure!(victim.arena.copy(TARGET_AT, PAYLOAD.len()) == PAYLOAD);
    Ok(())
}

/// A peer that had a window's STag cannot derive the STag of the window's next bind.
#[test]
fn rfc5042_6_1_1_the_next_stag_of_a_window_cannot_be_guessed_from_the_former() -> Result<()> {
    const COUNT: usize = 256;
    let victim = Victim::new()?;
    let stream = victim.stream()?;
    let mut stags = Vec::new();
    for _ in 0..COUNT {
        stags.push(bind_window(&victim, &stream.ep)?);
    }
    let steps: std::collections::BTreeSet<u32> = stags
        .windows(2)
        .map(|pair| pair[1].wrapping_sub(pair[0]))
        .collect();
    ensure!(steps.len() > COUNT * 9 / 10, "only {} steps", steps.len());
    let near = steps.iter().filter(|step| !(256..=!256).contains(*step));
    ensure!(near.count() <= 1, "an STag is close to the former STag");
    stream.end(&victim)
}

/// STags cannot be computed from other STags that a peer has received.
#[test]
fn rfc5042_6_1_1_an_stag_cannot_be_guessed_from_others() -> Result<()> {
    const COUNT: usize = 256;
    let victim = Victim::new()?;
    let mut parts = Vec::new();
    for _ in 0..COUNT {
        let all = DAT_MEM_PRIV_ALL_FLAG;
        parts.push(victim.arena.register(&victim.pz, 0x2800, 0x40, all)?);
    }
    let steps: std::collections::BTreeSet<u32> = parts
        .windows(2)
        .map(|pair| pair[1].stag.wrapping_sub(pair[0].stag))
        .collect();
    ensure!(steps.len() > COUNT * 9 / 10, "only {} steps", steps.len());
    let near = parts.iter().filter(|part| {
        let near = |other: &Part| (1..=256).contains(&other.stag.abs_diff(part.stag));
        parts.iter().any(near)
    });
    // Of 256 random STags, 0.008 on average are this close to another.
    ensure!(near.count() <= 4, "STags are close to each other");
    for part in parts {
        victim.arena.deregister(part)?;
    }
    Ok(())
}
