//! The netlink queries of the switch. Each test has network namespaces of its own.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use host::netlink::Error;
use ops::netlink::{Change, LinkAddress, NetStack, Reach, RouteQuery};
use rustix::io::Errno;
use stack_tests::{NetSpace, Program, Veth, available, not_run};

const DEADLINE: Duration = Duration::from_secs(60);

/// The network stack of the test's namespace, and a cable to a second namespace.
struct Lab {
    stack: NetStack,
    veth: Veth,
}

/// Makes a lab. Returns `None` if this machine does not permit new network namespaces.
fn lab() -> Result<Option<Lab>> {
    let net = NetSpace::enter()?;
    let Some(veth) = Veth::create(&net)? else {
        not_run("no network namespaces; run as root or allow user namespaces");
        return Ok(None);
    };
    let stack = NetStack::open()?;
    Ok(Some(Lab { stack, veth }))
}

/// Runs `ip` in the test's namespace.
fn ip(args: &str) -> Result<()> {
    let running = Program::new("ip")
        .args_line(args)
        .named(&format!("ip {args}"))
        .spawn()?;
    running.finish(DEADLINE)?.success().map(drop)
}

fn parsed(ip: &str) -> IpAddr {
    ip.parse().expect("an address")
}

fn index_of(stack: &NetStack, name: &str) -> Result<u32> {
    let devices = stack.devices()?;
    let device = devices.iter().find(|device| device.name == name);
    device.map(|device| device.index).context("no such device")
}

fn sources(stack: &NetStack, to: &str) -> Result<Vec<String>> {
    let sources = stack.sources_to(parsed(to))?;
    Ok(sources.iter().map(|source| source.ip.to_string()).collect())
}

#[test]
fn local_addresses_that_reach_a_destination_are_in_order_of_preference() -> Result<()> {
    let Lab { stack, veth: _veth } = available!(lab()?);
    ip("address add 192.0.2.7/24 dev near")?;
    for name in ["other", "third"] {
        ip(&format!("link add {name} type veth peer name {name}-end"))?;
        ip(&format!("link set {name}-end up"))?;
        ip(&format!("link set {name} up"))?;
    }
    ip("address add 198.51.100.1/24 dev other")?;
    ip("address add 203.0.113.1/24 dev third")?;
    // First the kernel's choice, then the other address of the same device, then those of other
    // devices. No address is of the loopback device.
    let near = ["192.0.2.1", "192.0.2.7"];
    ensure!(
        sources(&stack, "192.0.2.2")? == [&near[..], &["198.51.100.1", "203.0.113.1"]].concat()
    );
    // An address whose packets are sent by an RDMA device precedes one whose packets are not.
    ip("route add default via 192.0.2.2 table 7")?;
    ip("route add 192.0.2.0/24 dev third table 7")?;
    ip("rule add from 203.0.113.1 table 7")?;
    stack.mark_rdma("third")?;
    let all = sources(&stack, "192.0.2.2")?;
    ensure!(all == [&near[..], &["203.0.113.1", "198.51.100.1"]].concat());
    let rdma = stack.sources_to(parsed("192.0.2.2"))?;
    ensure!(
        rdma.iter()
            .map(|source| source.rdma)
            .eq([false, false, true, false])
    );
    Ok(())
}

#[test]
fn ipv6_sources_are_wide_enough_for_their_destination() -> Result<()> {
    let Lab { stack, veth: _veth } = available!(lab()?);
    ip("address add 2001:db8::7/64 dev near nodad preferred_lft 0")?;
    ensure!(sources(&stack, "2001:db8::2")? == ["2001:db8::1", "fe80::1"]);
    let local = sources(&stack, "::1")?;
    ensure!(local.contains(&"::1".to_owned()), "{local:?}");
    Ok(())
}

#[test]
fn the_next_hop_is_the_destination_or_its_router() -> Result<()> {
    let Lab { stack, veth: _veth } = available!(lab()?);
    ip("route add 198.51.100.0/24 via 192.0.2.2")?;
    ip("route add 203.0.113.0/24 via inet6 fe80::2 dev near")?;
    let near = index_of(&stack, Veth::NEAR)?;
    for (to, hop, reach) in [
        ("192.0.2.2", "192.0.2.2", Reach::Remote),
        ("::ffff:192.0.2.2", "192.0.2.2", Reach::Remote),
        ("198.51.100.9", "192.0.2.2", Reach::Remote),
        ("203.0.113.9", "fe80::2", Reach::Remote),
        ("2001:db8::2", "2001:db8::2", Reach::Remote),
        ("192.0.2.255", "192.0.2.255", Reach::Other),
    ] {
        let route = stack.route(&RouteQuery::to(parsed(to)))?;
        ensure!(
            route.next_hop() == parsed(hop) && route.device == near,
            "{route:?}"
        );
        ensure!(route.reach == reach, "{route:?}");
    }
    let own = stack.route(&RouteQuery::to(parsed("192.0.2.1")))?;
    ensure!(own.reach == Reach::Local, "{own:?}");
    Ok(())
}

#[test]
fn destinations_without_a_route_fail_as_connect_does() -> Result<()> {
    let Lab { stack, veth: _veth } = available!(lab()?);
    ip("route add unreachable 198.51.100.0/24")?;
    ip("route add prohibit 198.51.101.0/24")?;
    for (to, errno) in [
        ("203.0.113.1", Errno::NETUNREACH),
        ("198.51.100.1", Errno::HOSTUNREACH),
        ("198.51.101.1", Errno::ACCESS),
    ] {
        let error = stack.route(&RouteQuery::to(parsed(to)));
        ensure!(error == Err(Error::Refused(errno)), "{to}: {error:?}");
    }
    let foreign = RouteQuery::to(parsed("192.0.2.2")).from(Some(parsed("203.0.113.5")));
    ensure!(stack.route(&foreign).is_err());
    Ok(())
}

#[test]
fn the_link_layer_address_of_the_next_hop_is_resolved() -> Result<()> {
    let Lab { stack, veth: _veth } = available!(lab()?);
    for to in ["192.0.2.2", "fe80::2"] {
        let mut query = RouteQuery::to(parsed(to));
        query.device = Some(index_of(&stack, Veth::NEAR)?);
        let route = stack.route(&query)?;
        ensure!(stack.link_address(&route, Duration::ZERO)? == LinkAddress::Unknown);
        let found = stack.link_address(&route, DEADLINE)?;
        let LinkAddress::Known(bytes) = &found else {
            anyhow::bail!("{found:?}")
        };
        ensure!(bytes.len() == 6 && bytes[0] & 1 == 0, "{bytes:?}");
        ensure!(stack.link_address(&route, Duration::ZERO)? == found);
    }
    let own = stack.route(&RouteQuery::to(parsed("127.0.0.1")))?;
    ensure!(stack.link_address(&own, DEADLINE)? == LinkAddress::NotNeeded);
    Ok(())
}

#[test]
fn a_next_hop_that_never_answers_costs_no_more_than_the_bound() -> Result<()> {
    let Lab { stack, veth: _veth } = available!(lab()?);
    let route = stack.route(&RouteQuery::to(parsed("192.0.2.99")))?;
    let begin = Instant::now();
    let found = stack.link_address(&route, Duration::from_millis(50))?;
    ensure!(found == LinkAddress::Unknown, "{found:?}");
    ensure!(begin.elapsed() < DEADLINE);
    Ok(())
}

#[test]
fn a_change_of_the_mtu_is_reported() -> Result<()> {
    let Lab { stack, veth: _veth } = available!(lab()?);
    ensure!(stack.mtu_to(Veth::FAR_V4)? == 1500);
    stack.changes()?;
    ip("link set near mtu 1400")?;
    let changes = stack.changes()?;
    let name = Veth::NEAR.to_owned();
    let device = index_of(&stack, Veth::NEAR)?;
    ensure!(
        changes.contains(&Change::Mtu {
            device,
            name,
            mtu: 1400
        }),
        "{changes:?}"
    );
    ensure!(stack.mtu_to(Veth::FAR_V4)? == 1400);
    ip("route replace 192.0.2.2/32 dev near mtu 1300")?;
    ensure!(stack.changes()?.contains(&Change::Routing));
    ensure!(stack.mtu_to(Veth::FAR_V4)? == 1300);
    Ok(())
}

#[test]
fn changes_drop_cached_routes() -> Result<()> {
    let Lab { stack, veth: _veth } = available!(lab()?);
    let query = RouteQuery::to(parsed("198.51.100.1"));
    ensure!(stack.route(&query).is_err());
    let before = stack.generation()?;
    ensure!(stack.generation()? == before, "nothing has happened");
    ip("route add 198.51.100.0/24 via 192.0.2.2")?;
    ensure!(stack.generation()? > before);
    ensure!(stack.route(&query)?.gateway == Some(Veth::FAR_V4));
    // The kernel removes IPv4 routes with their link without a notification.
    ip("link set near down")?;
    let error = stack.route(&query);
    ensure!(error == Err(Error::Refused(Errno::NETUNREACH)), "{error:?}");
    Ok(())
}

#[test]
fn added_and_removed_addresses_are_reported() -> Result<()> {
    let Lab { stack, veth: _veth } = available!(lab()?);
    let device = index_of(&stack, Veth::NEAR)?;
    let ip_added = parsed("192.0.2.9");
    for (command, present) in [("add", true), ("del", false)] {
        stack.changes()?;
        ip(&format!("address {command} 192.0.2.9/24 dev near"))?;
        let expected = Change::Address {
            ip: ip_added,
            device,
            present,
        };
        let changes = stack.changes()?;
        ensure!(changes.contains(&expected), "{changes:?}");
    }
    Ok(())
}

#[test]
fn changes_beyond_the_limit_are_reported_as_lost() -> Result<()> {
    let Lab { stack, veth: _veth } = available!(lab()?);
    stack.changes()?;
    let commands: String = (0..1500)
        .map(|n| format!("route add 10.{}.{}.0/24 dev near\n", n / 250, n % 250))
        .collect();
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), commands)?;
    ip(&format!("-batch {}", file.path().display()))?;
    let changes = stack.changes()?;
    ensure!(changes.contains(&Change::Lost), "{} changes", changes.len());
    ensure!(stack.route(&RouteQuery::to(parsed("10.5.249.1"))).is_ok());
    Ok(())
}

#[test]
fn marked_devices_are_known_as_rdma_devices() -> Result<()> {
    let Lab { stack, veth: _veth } = available!(lab()?);
    ensure!(!stack.rdma()?.can(Veth::NEAR));
    let before = stack.generation()?;
    stack.mark_rdma(Veth::NEAR)?;
    ensure!(stack.rdma()?.can(Veth::NEAR));
    ensure!(stack.generation()? > before, "decisions are made again");
    // The mark stays after changes of devices.
    ip("link set near down")?;
    ensure!(stack.rdma()?.can(Veth::NEAR));
    Ok(())
}
