//! A server and its clients, and the checks that the expected transport carried their bytes and
//! that the rules of the protocol were kept.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use stack_tests::{NetSpace, OffloadProtocol, Running, TcpMade, not_run};

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
        }
    }

    pub(crate) const fn ended_by(self, end: Signal) -> Self {
        Self { end, ..self }
    }

    /// Runs the case; `limit` as for [`Scene::new`].
    pub(crate) fn run(
        &self,
        protocol: &'static OffloadProtocol,
        arrangement: Arrangement,
        limit: Option<Duration>,
    ) -> Result<()> {
        let scene = Scene::new(protocol, arrangement.server(), limit)?;
        if !matches!(scene.net, NetSpace::Own) {
            not_run("network namespaces are not permitted");
            return Ok(());
        }
        let server = (self.start)(&scene).context("starting the server")?;
        let ready = scene
            .net
            .wait_for_listener_of(&server, self.port, scene.deadline());
        ready.with_context(|| format!("starting {}", self.name))?;
        if protocol.is_sdp && arrangement.server() == Side::Offloading {
            scene.await_offer(self.port)?;
        }
        let made = TcpMade::at(self.port)?;
        for side in arrangement.clients() {
            let context = || {
                format!(
                    "clients: {side:?}; output of the server:\n{}",
                    server.text()
                )
            };
            (self.run_clients)(&scene, *side).with_context(context)?;
            let over_tcp = made.since_last_call()?;
            if arrangement.server() == Side::Offloading && *side == Side::Offloading {
                ensure!(
                    over_tcp == 0,
                    "{over_tcp} connections stayed on TCP\n{}",
                    context()
                );
            } else {
                ensure!(over_tcp > 0, "no connection used TCP\n{}", context());
            }
        }
        ensure!(
            !server.has_ended(),
            "the server ended by itself\n{}",
            server.text()
        );
        server.signal(self.end)?;
        let finished = server.finish(scene.deadline())?;
        finished.never_prints("panicked")?;
        let messages = scene.messages()?;
        ensure!(
            messages > 0 || !(protocol.is_sdp && arrangement.may_offload()),
            "no SDP message was recorded"
        );
        Ok(())
    }
}
