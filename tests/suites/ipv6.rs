//! DAT over IPv6: the addresses that a program receives and passes, and transfers of data.

use anyhow::{Result, ensure};
use stack_tests::{
    DEADLINE, Finished, Peers, Registry, SOFTWARE, Veth, adapter_line, available, not_run, orderly,
};

/// Peers in a network whose loopback device is adapter `v6`; `None` if the machine has no IPv6.
fn on_loopback() -> Result<Option<Peers>> {
    let mut peers = Peers::new()?;
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        not_run("this machine has no IPv6");
        return Ok(None);
    }
    peers.env.registry = Registry::with_text(&adapter_line("v6", SOFTWARE, "::1 0"))?;
    Ok(Some(peers))
}

fn check_output(finished: Finished, wanted: &[&str]) -> Result<()> {
    wanted
        .iter()
        .try_fold(finished, |finished, wanted| finished.prints(wanted))
        .map(drop)
}

#[test]
fn connections_over_the_loopback_device() -> Result<()> {
    let peers = available!(on_loopback()?);
    let listener = peers.start_ready("listen ia=v6")?;
    let client = orderly(peers.start("connect ia=v6 host=::1")?)?;
    check_output(client, &["DATA", "LOCAL ::1\n", "REMOTE ::1\n"])?;
    let wanted = ["DATA", "CALLER ::1\n", "LOCAL ::1\n", "REMOTE ::1\n"];
    check_output(orderly(listener)?, &wanted)
}

#[test]
fn sockets_that_were_streams_before() -> Result<()> {
    let peers = available!(on_loopback()?);
    let passive = peers.start("ssp ia=v6 host=::1 socket=accept greet=1")?;
    peers.env.net.wait_for_listener(7471, DEADLINE)?;
    let active = peers.start("upgrade ia=v6 host=::1 socket=connect greet=1")?;
    check_output(orderly(active)?, &["DATA", "LOCAL ::1\n", "REMOTE ::1\n"])?;
    check_output(orderly(passive)?, &["DATA", "CALLER ::1\n", "LOCAL ::1\n"])
}

#[test]
fn adapters_named_by_a_device_without_ipv4() -> Result<()> {
    exchange_over_ethernet(
        [Veth::NEAR, Veth::FAR],
        &Veth::FAR_V6.to_string(),
        [&Veth::NEAR_V6.to_string(), &Veth::FAR_V6.to_string()],
    )
}

#[test]
fn addresses_that_are_valid_on_one_link_only() -> Result<()> {
    let near = format!("{}%{}", Veth::NEAR_LINK, Veth::NEAR);
    let far = format!("{}%{}", Veth::FAR_LINK, Veth::FAR);
    let far_from_here = format!("{}%{}", Veth::FAR_LINK, Veth::NEAR);
    // The address with its scope, and without it: the adapter's link is then the scope.
    for host in [&far_from_here, &Veth::FAR_LINK.to_string()] {
        exchange_over_ethernet([&near, &far], host, [&near, &far_from_here])?;
    }
    Ok(())
}

/// Exchanges data between the two ends of an Ethernet without IPv4, whose adapters have these
/// parameters. `sees` are the addresses of both ends that the connecting end receives.
fn exchange_over_ethernet(adapters: [&str; 2], host: &str, sees: [&str; 2]) -> Result<()> {
    let mut peers = Peers::new()?;
    let veth = available!(Veth::create_ipv6(&peers.env.net)?, "no network namespaces");
    let lines = [("near", adapters[0]), ("far", adapters[1])]
        .map(|(name, params)| adapter_line(name, SOFTWARE, params));
    peers.env.registry = Registry::with_text(&lines.concat())?;
    let listener = peers
        .prepare("listen ia=far")
        .in_network_of(&veth)?
        .spawn()?;
    listener.wait_for("READY", DEADLINE)?;
    let client = orderly(peers.start(&format!("connect ia=near host={host}"))?)?;
    ensure!(client.text.contains("DATA"), "{}", client.text);
    let local = format!("LOCAL {}\n", sees[0]);
    let remote = format!("REMOTE {}\n", sees[1]);
    check_output(client, &[&local, &remote])?;
    check_output(orderly(listener)?, &["DATA"])
}
