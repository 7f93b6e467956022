//! Policy, route and the protocol that carries a connection.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use ops::rules::Role;
use ops::{DecisionTrace, Intent, Plan, Reason, Switch, WITHIN, Wish};
use rustix::io::Errno;
use stack_tests::{NetSpace, Veth, available, rows};

use crate::lab::{Accepted, End, LOCALHOST, Lab, exchange, intent, without_labs};
use crate::unix_protocol::UnixProtocol;

fn unix() -> [UnixProtocol; 1] {
    [UnixProtocol::default()]
}

#[test]
fn a_rule_that_says_tcp_decides_without_a_socket() -> Result<()> {
    let rules = "use both connect * *:80\nuse tcp listen * *:*\nuse tcp connect probe *:80-90";
    let lab = available!(Lab::new(rules, &unix())?);
    let line = |port| {
        let rule = lab.switch.rule_for_tcp((LOCALHOST, port).into());
        rule.map(|rule| rule.line)
    };
    ensure!(line(80).is_none(), "an earlier rule matches");
    ensure!(line(85) == Some(3));
    ensure!(line(91).is_none(), "no rule matches");
    // The device is known after the route was looked up.
    let lab = available!(Lab::new("use tcp connect * *:* interface=lo", &unix())?);
    let rule = lab.switch.rule_for_tcp((LOCALHOST, 80).into());
    ensure!(rule.is_none());
    Ok(())
}

#[test]
fn a_connection_between_two_switched_ends_is_offloaded() -> Result<()> {
    let lab = available!(Lab::new("", &unix())?);
    let (_service, mut client, server) = lab.connected()?;
    ensure!(client.outcome() == "unix");
    exchange(&mut client, &server)
}

#[test]
fn both_ends_have_the_same_addresses_as_over_tcp() -> Result<()> {
    let lab = available!(Lab::new("", &unix())?);
    let (service, client, server) = lab.connected()?;
    let to = service.address()?;
    let (End::Offloaded(_, client), Accepted::Offloaded { stream, .. }) = (client, server) else {
        anyhow::bail!("not offloaded")
    };
    let local = client.local();
    ensure!(local.ip() == LOCALHOST && local.port() != 0);
    ensure!(client.peer() == to);
    ensure!((stream.local(), stream.peer()) == (to, local));
    Ok(())
}

#[test]
fn a_rule_keeps_a_socket_on_tcp() -> Result<()> {
    let lab = available!(Lab::new("# first\nuse tcp connect probe *:*", &unix())?);
    let (_service, mut client, server) = lab.connected()?;
    ensure!(client.outcome() == "tcp: line 2 of the rule file says tcp");
    exchange(&mut client, &server)
}

#[test]
fn without_rules_netlink_or_a_route_a_connection_uses_tcp() -> Result<()> {
    let lab = available!(Lab::new("", &unix())?);
    let unreachable: SocketAddr = "198.51.100.1:80".parse()?;
    ensure!(lab.reason(unreachable)? == Reason::NoRoute(Errno::NETUNREACH));
    let without_netlink = |rules| -> Result<Plan> {
        let program = lab.switch.program().clone();
        let switch = Switch::new(program, rules, Arc::clone(&lab.registry), None, WITHIN)?;
        let to = intent(Role::Connect, (LOCALHOST, 9).into());
        Ok(switch.plan(&to, &mut DecisionTrace::default()))
    };
    let plan = without_netlink(None)?;
    ensure!(matches!(plan, Plan::Native(Reason::NoRules)), "{plan:?}");
    let plan = without_netlink(Some(ops::rules::Rules::default()))?;
    ensure!(matches!(plan, Plan::Native(Reason::NoNetlink)), "{plan:?}");
    Ok(())
}

#[test]
fn an_option_that_only_tcp_has_keeps_a_socket_there() -> Result<()> {
    let lab = available!(Lab::new("", &unix())?);
    let option = "TCP_FASTOPEN_CONNECT";
    let intent = Intent {
        tcp_only: Some(option),
        ..intent(Role::Connect, lab.service()?.address()?)
    };
    let plan = lab.switch.plan(&intent, &mut DecisionTrace::default());
    ensure!(matches!(plan, Plan::Native(Reason::Option(name)) if name == option));
    Ok(())
}

/// A program's wish holds where no rule matches; a rule takes precedence, and TCP by the program's
/// own wish takes precedence over a rule that permits both.
#[test]
fn the_stack_that_a_program_names_is_used_unless_a_rule_names_another() -> Result<()> {
    let protocols = [UnixProtocol::named("one"), UnixProtocol::named("two")];
    for (rule, wish, expected) in rows! {
        "", Wish::None, "one two tcp";
        "", Wish::Kernel, "tcp";
        "", Wish::Offload, "one two";
        "", Wish::Protocol("two"), "two";
        "", Wish::Protocol("absent"), "refused";
        "use tcp connect * *:*", Wish::Offload, "tcp";
        "use tcp connect * *:*", Wish::Protocol("two"), "tcp";
        "use both connect * *:*", Wish::Kernel, "tcp";
        "use both connect * *:*", Wish::Offload, "one two tcp";
        "use both connect * *:*", Wish::Protocol("two"), "two tcp";
        "use both connect * *:* protocol=one", Wish::Protocol("two"), "one tcp";
        "use offload connect * *:*", Wish::None, "one two";
    } {
        let lab = available!(Lab::new(rule, &protocols)?);
        let intent = Intent {
            wish,
            ..intent(Role::Connect, lab.service()?.address()?)
        };
        let plan = match lab.switch.plan(&intent, &mut DecisionTrace::default()) {
            Plan::Native(_) => "tcp".to_owned(),
            Plan::Impossible(_) => "refused".to_owned(),
            Plan::Offload(offer) => {
                let names = offer.protocols.iter().map(|it| it.name());
                let tcp = offer.may_fall_back.then_some("tcp");
                names.chain(tcp).collect::<Vec<_>>().join(" ")
            }
        };
        ensure!(plan == expected, "{rule:?} {wish:?}: {plan}");
    }
    Ok(())
}

#[test]
fn the_device_of_the_route_decides() -> Result<()> {
    let net = NetSpace::enter()?;
    let alone = without_labs();
    let _veth = available!(
        Veth::create(&net)?,
        "no network namespaces; run as root or allow user namespaces"
    );
    drop(alone);
    let rules = "use tcp connect * *:81 interface=near\nuse both connect * *:*";
    let lab = Lab::here(rules, &unix())?;
    let far = |port| SocketAddr::from((Veth::FAR_V4, port));
    ensure!(lab.reason(far(81))? == Reason::Rule { line: 1 });
    ensure!(lab.reason(far(80))? == Reason::Refused);
    let route = || {
        let explained = lab.switch.explain(&intent(Role::Connect, far(80)));
        let texts = explained.steps().iter().map(|step| step.text.clone());
        texts
            .filter(|text| text.starts_with("device near,"))
            .collect::<String>()
    };
    ensure!(route().ends_with(", no RDMA"), "{}", route());
    // The next hop with its link-layer address, and the MTU.
    let link = fs::read_to_string("/proc/thread-self/net/arp")?;
    let link = link.lines().find(|line| line.ends_with(Veth::NEAR));
    let link = link.and_then(|line| line.split_whitespace().nth(3));
    let link = link.ok_or(anyhow!("the next hop is not resolved"))?;
    let hop = format!(", next hop {} ({link}), MTU 1500", Veth::FAR_V4);
    ensure!(route().contains(&hop), "{} and not {hop}", route());
    let stack = lab.switch.stack().ok_or(anyhow!("no stack"))?;
    stack.mark_rdma(Veth::NEAR)?;
    ensure!(route().ends_with(", RDMA"), "{}", route());
    Ok(())
}
