//! An attack, its required effect, and the checks of that effect.

use anyhow::{Context, Result, bail, ensure};
use dat_api::abi::*;
use dat_api::{ConnectionKind, Ep};
use stack_tests::frame_writer::{self, Fpdu, Frame};
use stack_tests::raw::RawPeer;

use super::arena::{library, raw_ok};
use super::kinds::{PAYLOAD, Scene, TARGET_AT, Target};
use super::victim::{DEADLINE, RECEIVE_AT, RECEIVE_LEN, RECEIVES, SINK_AT, Stream, Victim};

/// The payload of the Send that shows that a stream still works.
const PROBE: &[u8] = b"still here?";

const TERMINATE: u8 = 7;

const READ_REQUEST: u8 = 1;

/// The required end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The victim sends a Terminate of this layer, type and code.
    Terminate(u8, u8, u8),
    /// The victim closes without a Terminate, because it may not send one.
    Close,
    /// The victim does not end the stream. The attacker closes it, and receives no Terminate.
    Cut,
    /// The stream does not end: the Send with this number is received.
    Continues(u32),
}

/// The bytes that an attacker sends.
#[derive(Debug)]
pub(crate) struct Shot {
    pub(crate) wire: Vec<u8>,
    /// The segment that a Terminate would quote.
    offender: Vec<u8>,
}

impl Shot {
    /// Frames of which the last one is invalid.
    pub(crate) fn of(frames: &[Fpdu]) -> Self {
        Self {
            wire: frames.iter().flat_map(Fpdu::bytes).collect(),
            offender: frames.last().map_or(&[][..], Fpdu::ulpdu).to_vec(),
        }
    }

    /// Keeps only the first bytes.
    pub(crate) fn cut(mut self, len: usize) -> Self {
        self.wire.truncate(len);
        self
    }
}

/// The code of an attacker, which uses the attacker's knowledge of the victim.
pub(crate) type Act = Box<dyn Fn(&Target<'_>) -> Shot>;

/// An attack on a fresh connection.
pub(crate) struct Attack {
    pub(crate) name: String,
    pub(crate) scene: Scene,
    pub(crate) act: Act,
    pub(crate) verdict: Verdict,
    pub(crate) placed: Placed,
}

/// The bytes that have changed when a stream has ended: offset in the arena, bytes.
pub(crate) type Placed = Vec<(usize, Vec<u8>)>;

/// An attack by frames alone: its name, the scene before it, the frames that are sent given the
/// attacker's knowledge, the verdict on the stream, and the bytes that are placed.
pub(crate) type Scripted = (
    &'static str,
    Scene,
    fn(&Target<'_>) -> Vec<Frame>,
    Verdict,
    fn() -> Placed,
);

/// A table of attacks: the name and the scene, the frames, the verdict, and the bytes that are
/// placed.
macro_rules! scripts {
    ($($name:literal in $scene:ident, $frames:expr => $verdict:expr, $placed:expr;)+) => {
        &[$(($name, $crate::kinds::Scene::$scene, $frames, $verdict, $placed)),+]
    };
}
pub(crate) use scripts;

/// Runs the attacks of a table against a new victim.
pub(crate) fn run_scripts(rows: &[Scripted]) -> Result<()> {
    let attacks: Vec<Attack> = rows
        .iter()
        .map(|&(name, scene, script, verdict, placed)| Attack {
            name: name.to_owned(),
            scene,
            act: Box::new(move |target| {
                let fpdus: Vec<Fpdu> = script(target).iter().map(Fpdu::new).collect();
                Shot::of(&fpdus)
            }),
            verdict,
            placed: placed(),
        })
        .collect();
    run(&Victim::new()?, &attacks)
}

/// Runs attacks one after the other and reports all failures.
pub(crate) fn run(victim: &Victim, attacks: &[Attack]) -> Result<()> {
    ensure!(!attacks.is_empty(), "no attacks");
    let mut faults = Vec::new();
    for attack in attacks {
        if let Err(fault) = attack.run(victim) {
            faults.push(format!("{}: {fault:#}", attack.name));
            victim.settle()?;
            victim.arena.refill();
        }
    }
    ensure!(
        faults.is_empty(),
        "{} of {} attacks\n{}",
        faults.len(),
        attacks.len(),
        faults.join("\n")
    );
    victim.no_descriptor_is_left()
}

impl Attack {
    fn run(&self, victim: &Victim) -> Result<()> {
        victim.bystander_is_fine()?;
        let mut stream = victim.stream()?;
        let (target, posted) = set_scene(self.scene, victim, &mut stream)?;
        let shot = (self.act)(&target);
        let Stream { ep, mut peer } = stream;
        // If the victim has closed the stream, it may refuse the remaining bytes.
        let _ = peer.send(&shot.wire);
        let mut outstanding = RECEIVES + posted;
        let mut placed = self.placed.clone();
        match self.verdict {
            Verdict::Terminate(layer, etype, code) => {
                expect_terminate(&mut peer, (layer, etype, code), &shot.offender)?;
            }
            Verdict::Close => {}
            Verdict::Cut => peer.finish_sending()?,
            Verdict::Continues(msn) => {
                let probe = frame_writer::send(frame_writer::SEND, msn, PROBE);
                peer.send(&Fpdu::new(&probe).bytes())?;
                placed.push(wait_for_probe(victim, msn, &mut outstanding)?);
                peer.finish_sending()?;
            }
        }
        expect_end(&mut peer)?;
        let ending = ep
            .wait_disconnected(Some(DEADLINE))
            .context("the end of the stream")?;
        let is_fault = matches!(self.verdict, Verdict::Terminate(..));
        ensure!(
            !is_fault || ending == ConnectionKind::Broken,
            "the consumer received {ending:?}"
        );
        for left in (0..outstanding).rev() {
            victim
                .completion()
                .with_context(|| format!("{} completions are missing", left + 1))?;
        }
        if let Some(event) = victim.transfers.dequeue()? {
            bail!("one completion too many: {event:?}");
        }
        victim.arena.compare(&placed)?;
        victim.arena.refill();
        drop(ep);
        victim.bystander_is_fine()
    }
}

/// Sets the scene of an attack. Returns the attacker's knowledge and the number of requests that
/// the victim has posted.
fn set_scene<'v>(
    scene: Scene,
    victim: &'v Victim,
    stream: &mut Stream,
) -> Result<(Target<'v>, usize)> {
    let mut target = Target {
        victim,
        window: 0,
        request: Vec::new(),
    };
    match scene {
        Scene::Idle => return Ok((target, 0)),
        Scene::WindowBound => {
            target.window = bind_window(victim, &stream.ep)?;
            return Ok((target, 0));
        }
        Scene::Reading => {
            wake(&mut stream.peer)?;
            post_read(victim, &stream.ep)?;
        }
        Scene::Adding => {
            wake(&mut stream.peer)?;
            post_add(victim, &stream.ep)?;
        }
    }
    let segment = stream.peer.read_segment()?;
    let segment = segment.context("no request was received")?;
    target.request = segment
        .get(18..)
        .context("a request without header")?
        .to_vec();
    Ok((target, 1))
}

/// Sends the first frame, because the victim sends nothing before it has received a frame (RFC 5044
/// section 7.1).
fn wake(peer: &mut RawPeer) -> Result<()> {
    peer.send(&Fpdu::new(&frame_writer::write(1, 0, b"")).bytes())
}

/// Binds the victim's window to 64 bytes for an endpoint, and returns its STag.
pub(crate) fn bind_window(victim: &Victim, ep: &Ep) -> Result<u32> {
    let window = victim.window;
    let open = &victim.parts.open;
    let mut triplet = victim.triplet(TARGET_AT, 64);
    triplet.lmr_context = open.lmr_context;
    let mut context = 0;
    // SAFETY: all handles are alive, the triplet is readable, the out-pointer writable.
    let code = unsafe {
        (library().dat_rmr_bind)(
            window,
            open.lmr,
            &triplet,
            DAT_MEM_PRIV_REMOTE_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG,
            DAT_VA_TYPE_VA,
            ep.as_raw(),
            DatContext::from_u64(0),
            0,
            &mut context,
        )
    };
    raw_ok("dat_rmr_bind", code)?;
    victim.completion().context("the bind")?;
    Ok(context)
}

/// The attacker's memory in the victim's requests. The attacker has no such memory.
fn remote() -> DatRmrTriplet {
    let mut remote = DatRmrTriplet::zeroed();
    remote.virtual_address = 0x1000;
    remote.segment_length = PAYLOAD.len() as DatSegLength;
    remote.rmr_context = 0x0a0b_0c0d;
    remote
}

fn post_read(victim: &Victim, ep: &Ep) -> Result<()> {
    let mut sink = victim.triplet(SINK_AT, PAYLOAD.len());
    let (cookie, remote) = (DatContext::from_u64(100), remote());
    // SAFETY: endpoint and memory are alive; both triplets are readable for the call.
    let code =
        unsafe { (library().dat_ep_post_rdma_read)(ep.as_raw(), 1, &mut sink, cookie, &remote, 0) };
    raw_ok("dat_ep_post_rdma_read", code)
}

fn post_add(victim: &Victim, ep: &Ep) -> Result<()> {
    let mut sink = victim.triplet(SINK_AT, size_of::<u64>());
    let mut remote = remote();
    remote.segment_length = size_of::<u64>() as DatSegLength;
    // SAFETY: the variadic arguments are those of the operation: u64, local triplet, cookie,
    // remote triplet, flags; both triplets are alive for the call.
    let code = unsafe {
        (library().dat_extension_op)(
            ep.as_raw(),
            DAT_IB_FETCH_AND_ADD_OP,
            1_u64,
            &raw mut sink,
            DatContext::from_u64(100),
            &raw const remote,
            0_u32,
        )
    };
    raw_ok("fetch and add", code)
}

/// Reads up to the Terminate, which must have this code and the quotes of RFC 5040 section 4.8.
fn expect_terminate(
    peer: &mut RawPeer,
    (layer, etype, code): (u8, u8, u8),
    offender: &[u8],
) -> Result<()> {
    let found = peer.read_terminate()?;
    let wanted = [layer << 4 | etype, code];
    ensure!(
        found.starts_with(&wanted),
        "Terminate {found:02x?} instead of {wanted:02x?}"
    );
    let mut quote = Vec::new();
    let mut bits = 0;
    let is_tagged = offender.first().is_some_and(|control| control & 0x80 != 0);
    let header_len = if is_tagged { 14 } else { 18 };
    if layer != 2 && offender.len() >= header_len {
        bits = 0xc0;
        quote.extend_from_slice(&(offender.len() as u16).to_be_bytes());
        quote.extend_from_slice(&offender[..header_len]);
        let is_read = !is_tagged && offender[1] & 0x0f == READ_REQUEST;
        if (layer, etype) == (0, 1) && is_read {
            bits |= 0x20;
            quote.extend_from_slice(&offender[header_len..header_len + 28]);
        }
    }
    ensure!(
        found[2..4] == [bits, 0] && found[4..] == quote,
        "the Terminate quotes {:02x?} instead of {bits:02x}, {quote:02x?}",
        &found[2..]
    );
    Ok(())
}

/// Checks that no Terminate is received and that the victim closes the stream.
fn expect_end(peer: &mut RawPeer) -> Result<()> {
    while let Some(segment) = peer.read_segment()? {
        let opcode = segment.get(1).map(|control| control & 0x0f);
        ensure!(opcode != Some(TERMINATE), "a Terminate {segment:02x?}");
    }
    Ok(())
}

impl Stream {
    pub(crate) fn send(&mut self, frames: &[Frame]) -> Result<()> {
        let bytes: Vec<u8> = frames.iter().flat_map(|f| Fpdu::new(f).bytes()).collect();
        self.peer.send(&bytes)
    }

    /// Reads up to a Terminate, which must have this layer, type and code.
    pub(crate) fn expect_terminate(&mut self, (layer, etype, code): (u8, u8, u8)) -> Result<()> {
        let found = self.peer.read_terminate()?;
        let wanted = [layer << 4 | etype, code];
        ensure!(
            found.starts_with(&wanted),
            "Terminate {found:02x?} instead of {wanted:02x?}"
        );
        Ok(())
    }

    /// Closes the connection and discards its completions.
    pub(crate) fn end(self, victim: &Victim) -> Result<()> {
        drop(self.peer);
        drop(self.ep);
        victim.settle()
    }
}

/// Waits for the probe, which is the Send with this number. Returns the offset at which it was
/// placed.
fn wait_for_probe(victim: &Victim, msn: u32, outstanding: &mut usize) -> Result<(usize, Vec<u8>)> {
    let receive = msn as usize - 1;
    loop {
        let done = victim
            .completion()
            .context("the stream does not continue")?;
        *outstanding -= 1;
        ensure!(
            done.status.is_none_or(|status| status.is_success()),
            "{:?} instead of the probe",
            done.status
        );
        if done.cookie == receive as u64 {
            ensure!(done.len == PROBE.len(), "{} bytes of the probe", done.len);
            return Ok((RECEIVE_AT + receive * RECEIVE_LEN, PROBE.to_vec()));
        }
    }
}
