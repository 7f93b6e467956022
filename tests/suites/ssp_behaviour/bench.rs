//! The environment of every test of this suite: the staged libraries in this process, the objects
//! of one consumer, and sockets to convert.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dat_api::abi::DatReturnType;
use dat_api::{
    ConnectError, ConnectFailure, ConnectionKind, Cr, Ep, EpAttr, EpEvds, EpState, Evd, EvdFlags,
    Ia, Pz, SocketRefused, Ssp,
};
use stack_tests::{IA_NAME, adapter_address, load_staged, scratch};

/// The time limit of every event.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Makes this process use the staged libraries, once. `Err` is the reason why they are missing.
static LIBRARIES: LazyLock<Result<(), String>> = LazyLock::new(|| {
    let file = scratch(env!("CARGO_TARGET_TMPDIR")).join("ssp_behaviour.conf");
    // SAFETY: every test opens an adapter through `Node::new` first, which waits for this. Until
    // then no thread of this process runs code that reads the environment.
    let loaded = unsafe { load_staged(dat_api::LIBRARY_ENV, &file, &[(IA_NAME, "lo 0")]) };
    loaded.map_err(|e| format!("{e:#}"))
});

/// A consumer: an adapter and the objects that it needs to connect.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) ia: Ia,
    pub(crate) pz: Pz,
    pub(crate) transfers: Evd,
    pub(crate) connections: Evd,
    pub(crate) requests: Evd,
}

impl Node {
    /// A consumer of [`IA_NAME`].
    pub(crate) fn new() -> Result<Self> {
        LIBRARIES.as_ref().map_err(|e| anyhow::anyhow!("{e}"))?;
        let ia = Ia::open(IA_NAME)?;
        Ok(Self {
            pz: Pz::create(&ia)?,
            transfers: Evd::create(&ia, 64, EvdFlags::DTO)?,
            connections: Evd::create(&ia, 16, EvdFlags::CONNECTION)?,
            requests: Evd::create(&ia, 16, EvdFlags::CONNECTION_REQUEST)?,
            ia,
        })
    }

    pub(crate) fn evds(&self) -> EpEvds<'_> {
        EpEvds {
            recv: &self.transfers,
            request: &self.transfers,
            connect: &self.connections,
        }
    }

    pub(crate) fn ep(&self) -> Result<Ep> {
        Ok(Ep::create(&self.pz, self.evds(), None)?)
    }

    pub(crate) fn ep_with(&self, attr: &EpAttr) -> Result<Ep> {
        Ok(Ep::create(&self.pz, self.evds(), Some(attr))?)
    }

    /// A service point for `ep` on `socket`.
    pub(crate) fn arm(&self, socket: impl Into<OwnedFd>, ep: &Ep) -> Result<Ssp> {
        Ok(Ssp::create(socket, ep, &self.requests, b"")?)
    }

    /// A service point, after the peer of its socket and its endpoint.
    pub(crate) fn armed(&self) -> Result<(TcpStream, Ep, Ssp)> {
        let (peer, socket) = pair()?;
        let ep = self.ep()?;
        let ssp = self.arm(socket, &ep)?;
        Ok((peer, ep, ssp))
    }

    /// A request that was received: the active endpoint, the passive one, its service point and the
    /// request.
    pub(crate) fn requested(&self, private_data: &[u8]) -> Result<(Ep, Ep, Ssp, Cr)> {
        let (active, ep, ssp) = self.armed()?;
        let asker = self.ep()?;
        asker.start_connect_socket(active, Some(DEADLINE), private_data)?;
        let request = ssp.wait_request(Some(DEADLINE))?;
        Ok((asker, ep, ssp, request))
    }

    /// Converts a pair: `asker` connects over `active` to `ep` on `passive`.
    pub(crate) fn convert(
        &self,
        (asker, active): (&Ep, TcpStream),
        (ep, passive): (&Ep, TcpStream),
    ) -> Result<()> {
        let ssp = self.arm(passive, ep)?;
        asker.start_connect_socket(active, Some(DEADLINE), b"")?;
        accept(ssp.wait_request(Some(DEADLINE))?)?;
        asker.wait_established(Some(DEADLINE))?;
        ep.wait_established(Some(DEADLINE))?;
        Ok(())
    }
}

/// Both ends of a TCP connection over the adapter's address, whose reads time out at the deadline.
pub(crate) fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((adapter_address(), 0))?;
    pair_over(&listener)
}

/// Both ends of a TCP connection through `listener`.
pub(crate) fn pair_over(listener: &TcpListener) -> Result<(TcpStream, TcpStream)> {
    let active = TcpStream::connect(listener.local_addr()?)?;
    let passive = listener.accept()?.0;
    for stream in [&active, &passive] {
        stream.set_read_timeout(Some(DEADLINE))?;
    }
    Ok((active, passive))
}

/// Converts both ends of `sockets`. Returns the active endpoint and the passive one.
pub(crate) fn connect(node: &Node, sockets: (TcpStream, TcpStream)) -> Result<(Ep, Ep)> {
    let (asker, ep) = (node.ep()?, node.ep()?);
    node.convert((&asker, sockets.0), (&ep, sockets.1))?;
    Ok((asker, ep))
}

/// Checks for a refusal with this type, which returns the socket unchanged.
pub(crate) fn refused<T>(result: Result<T, SocketRefused>, ty: DatReturnType) -> Result<TcpStream> {
    let Err(SocketRefused { socket, error }) = result else {
        anyhow::bail!("not refused");
    };
    ensure!(error.is(ty), "{error}");
    Ok(socket.into())
}

/// Accepts on the request's endpoint.
pub(crate) fn accept(request: Cr) -> Result<Ep> {
    Ok(request.accept(None, b"")?)
}

/// Waits for an attempt that must end with `expected`. Returns the socket and the private data.
pub(crate) fn failure(ep: &Ep, expected: ConnectionKind) -> Result<(TcpStream, Vec<u8>)> {
    let Err(error) = ep.wait_established(Some(DEADLINE)) else {
        anyhow::bail!("a connection was established");
    };
    let ConnectError {
        reason,
        private_data,
        socket,
    } = error;
    let ConnectFailure::Ended(kind) = reason else {
        anyhow::bail!("no outcome: {reason}");
    };
    ensure!(kind == expected, "{kind}");
    ensure!(ep.state()? == EpState::Disconnected, "{:?}", ep.state()?);
    let socket = socket.context("the socket was not returned")?;
    Ok((socket.into(), private_data))
}

/// Checks that both ends work in streaming mode.
pub(crate) fn stream_both_ways(one: &TcpStream, other: &TcpStream) -> Result<()> {
    for (mut from, mut to) in [(one, other), (other, one)] {
        from.write_all(b"a stream as before")?;
        let mut bytes = [0; 18];
        to.read_exact(&mut bytes)?;
        ensure!(&bytes == b"a stream as before", "{bytes:?}");
    }
    Ok(())
}

/// Reads bytes, which must equal `expected`.
pub(crate) fn expect_bytes(mut stream: &TcpStream, expected: &[u8]) -> Result<()> {
    let mut bytes = vec![0; expected.len()];
    stream
        .read_exact(&mut bytes)
        .with_context(|| format!("reading {}", expected.escape_ascii()))?;
    ensure!(bytes == expected, "{}", bytes.escape_ascii());
    Ok(())
}

/// The target of a descriptor number now; `None` if it is closed.
pub(crate) fn identity(number: RawFd) -> Option<String> {
    let link = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    Some(link.to_string_lossy().into_owned())
}
