//! A server and its clients, and the checks that the expected transport carried their bytes and
//! that the rules of the protocol were kept.

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use stack_tests::{NetSpace, OffloadProtocol, Running, TcpData, not_run};

use crate::arrangement::{Arrangement, Side};
use crate::scene::Scene;

/// A use of a server.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The port on which the server listens.
    pub(crate) port: u16,
    pub(crate) start: fn(&Scene) -> Result<Running>,
    /// Runs clients of this side, and verifies the data that they receive.
    pub(crate) run_clients: fn(&Scene, Side) -> Result<()>,
    pub(crate) end: Signal,
    /// True if a connection that both sides may offload may also use TCP.
    pub(crate) may_use_tcp: bool,
    /// False if no listener of the server stays offered to peers.
    pub(crate) is_offered: bool,
}

impl Case {
    /// A use whose server ends at a request to terminate.
    pub(crate) const fn new(
        name: &'static str,
        port: u16,
        start: fn(&Scene) -> Result<Running>,
        run_clients: fn(&Scene, Side) -> Result<()>,
    ) -> Self {
        Self {
            name,
            port,
            start,
            run_clients,
            end: Signal::SIGTERM,
            may_use_tcp: false,
            is_offered: true,
        }
    }

    pub(crate) const fn ended_by(self, end: Signal) -> Self {
        Self { end, ..self }
    }

    /// Runs the case.
    pub(crate) fn run(
        &self,
        protocol: &'static OffloadProtocol,
        arrangement: Arrangement,
    ) -> Result<()> {
        let scene = Scene::new(protocol, arrangement.server())?;
        if !matches!(scene.net, NetSpace::Own) {
            not_run("network namespaces are not permitted");
            return Ok(());
        }
        let server = (self.start)(&scene).context("starting the server")?;
        let served = self.serve(&scene, &server, arrangement);
        // A server that has started others ends them.
        let is_ended = server.has_ended() || server.signal(self.end).is_err();
        let finished = server.finish(scene.deadline());
        served?;
        let finished = finished?;
        ensure!(!is_ended, "the server ended by itself\n{}", finished.text);
        finished.never_prints("panicked")?;
        let messages = scene.messages()?;
        ensure!(
            messages > 0 || !(protocol.is_sdp && arrangement.may_offload()),
            "no SDP message was recorded"
        );
        Ok(())
    }

    /// Runs the clients one side after the other, and checks the transport of each.
    fn serve(&self, scene: &Scene, server: &Running, arrangement: Arrangement) -> Result<()> {
        let ready = scene
            .net
            .wait_for_listener_of(server, self.port, scene.deadline());
        ready.with_context(|| format!("starting {}", self.name))?;
        let is_offloading = arrangement.server() == Side::Offloading;
        if scene.is_sdp() && is_offloading && self.is_offered {
            scene.await_offer(self.port)?;
        }
        let data = TcpData::at(self.port)?;
        for side in arrangement.clients() {
            let context = || {
                format!(
                    "clients: {side:?}; output of the server:\n{}",
                    server.text()
                )
            };
            (self.run_clients)(scene, *side).with_context(context)?;
            let over_tcp = data.since_last_call()?;
            if is_offloading && *side == Side::Offloading {
                ensure!(
                    over_tcp == 0 || self.may_use_tcp,
                    "{over_tcp} segments of data went over TCP\n{}\n{}",
                    scene.reasons_for_tcp(),
                    context()
                );
                if over_tcp > 0 {
                    println!("{}: {over_tcp} segments of data went over TCP", self.name);
                }
            } else {
                ensure!(over_tcp > 0, "no data went over TCP\n{}", context());
            }
        }
        Ok(())
    }
}
