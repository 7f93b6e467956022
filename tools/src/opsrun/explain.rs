//! The explanation of a decision: asks the switch and prints the steps.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ops::netlink::NetStack;
use ops::{Intent, OffloadProtocol, Program, Registry, Switch, WITHIN, Wish};
use ops_local_protocol::LocalProtocol;
use ops_sdp_protocol::SdpProtocol;
use tool_args::opsrun::{Args, Role};

use crate::start::SOFTWARE;
use crate::{launch, load_rules, reach};

/// Returns the decision for a socket of this role, one step per line.
pub(crate) fn run(args: &Args, role: Role) -> Result<String> {
    let loaded = load_rules(args)?;
    let mut text = String::new();
    let file = match &loaded.path {
        Some(path) => path.display().to_string(),
        None => "none, so every socket may leave TCP".to_owned(),
    };
    writeln!(text, "{:<8} {file}", "file")?;
    let address = address_in(&args.words)?;
    if let Some(why) = reach::reason_against(OsStr::new(&args.program)) {
        writeln!(
            text,
            "{:<8} tcp, because the library cannot be loaded: {why}",
            "verdict"
        )?;
        return Ok(text);
    }
    let program = program(&args.program);
    let stack = NetStack::open().context("asking the network stack")?;
    let registry = Arc::new(Registry::default());
    let program_file = std::env::current_exe().context("finding opsrun itself")?;
    for directory in launch::directories(&program_file) {
        ops_sdp_protocol::prefer_libraries_in(&directory);
    }
    let is_software = args.software || host::environment::variable(SOFTWARE).is_some();
    let local = Arc::new(LocalProtocol::new(is_software));
    let protocol = Arc::new(SdpProtocol::for_explanations().for_all(is_software));
    let protocols: [Arc<dyn OffloadProtocol>; 2] = [local, Arc::clone(&protocol) as _];
    let _registered = protocols
        .into_iter()
        .map(|protocol| registry.register(protocol, 0))
        .collect::<Result<Vec<_>, _>>()
        .context("registering the protocols")?;
    let switch = Switch::new(program, Some(loaded.rules), registry, Some(stack), WITHIN)
        .context("starting the switch")?;
    let role = match role {
        Role::Connect => ops::rules::Role::Connect,
        Role::Listen => ops::rules::Role::Listen,
    };
    let intent = Intent {
        role,
        address,
        from: None,
        tcp_only: None,
        receive_bound: None,
        wish: Wish::None,
    };
    for step in switch.explain(&intent).steps() {
        writeln!(text, "{:<8} {}", step.subject, step.text)?;
    }
    if let Some(advice) = protocol.advice() {
        writeln!(text, "{:<8} {advice}", "advice")?;
    }
    Ok(text)
}

/// Returns the program as the library would identify it if it were started by this name: a link is
/// resolved to its file. A program that does not exist keeps the name as its path.
fn program(named: &str) -> Program {
    let found = reach::find(OsStr::new(named));
    let file = found.and_then(|file| file.canonicalize().ok());
    let file = file.and_then(|file| file.into_os_string().into_string().ok());
    Program {
        path: file.unwrap_or_else(|| named.to_owned()),
        called: named.to_owned(),
        user: rustix::process::geteuid().as_raw(),
    }
}

fn address_in(words: &[OsString]) -> Result<SocketAddr> {
    let [word] = words else {
        bail!("--explain takes one ADDRESS:PORT, not {}", words.len());
    };
    let word = word.to_string_lossy();
    word.parse().with_context(|| {
        format!("`{word}` is not an address and port; write 192.0.2.1:6379 or [2001:db8::1]:6379")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// The output for a line of arguments without blanks in them.
    fn explained(rules: &str, line: &str) -> Result<String> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("rules");
        std::fs::write(&path, rules)?;
        let rules = path.display().to_string();
        let line = ["opsrun", "--rules", &rules]
            .into_iter()
            .chain(line.split(' '));
        let args = Args::try_parse_from(line)?;
        let role = args.explain.context("no role")?;
        run(&args, role)
    }

    #[test]
    fn rule_route_and_verdict_are_printed() {
        let rules = "# none\nuse tcp connect redis* 127.0.0.0/8:6379\n";
        let line = "--explain connect --program /usr/bin/redis-cli 127.0.0.1:6379";
        let text = explained(rules, line).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let rule = "rule     line 2: use tcp connect redis* 127.0.0.0/8:6379";
        let verdict = "verdict  tcp, because line 2 of the rule file says tcp";
        assert_eq!(lines, [rule, verdict]);
    }

    #[test]
    fn rules_match_a_link_and_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let [file, link] = ["redis-check-rdb", "redis-server"].map(|name| dir.path().join(name));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let link = link.display().to_string();
        let line = format!("--explain listen --program {link} 0.0.0.0:6379");
        let (name, own_name) = ("redis-server", "redis-check-rdb");
        for (pattern, is_for) in [(name, true), (own_name, true), (&*link, false)] {
            let text = explained(&format!("use tcp listen {pattern} *:6379"), &line).unwrap();
            let matches = text.contains("rule     line 1");
            assert_eq!(matches, is_for, "{pattern}: {text}");
        }
    }

    #[test]
    fn a_listener_is_explained_too() {
        let rules = "use tcp listen * *:81";
        let text = explained(rules, "--explain listen 0.0.0.0:80").unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let is_route = |line: &&str| line.starts_with("route    every device, ");
        let (route, lines): (Vec<&str>, Vec<&str>) = lines.into_iter().partition(is_route);
        assert_eq!(route.len(), 1, "{text}");
        assert_eq!(lines[0], "rule     none matches, so both", "{text}");
        let is_possible = lines[1].starts_with("local    can carry it, unless SO_REUSEPORT");
        assert!(is_possible, "{text}");
        // A machine with an RDMA device offers the service over that as well.
        let verdict = if route[0].ends_with(", no RDMA") {
            assert!(lines[2].starts_with("sdp      no: "), "{text}");
            "verdict  local and tcp"
        } else {
            "verdict  local, sdp and tcp"
        };
        assert_eq!(lines[3], verdict, "{text}");
        let text = explained(rules, "--software --explain listen 0.0.0.0:80").unwrap();
        let mut lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines[0], "rule     none matches, so both", "{text}");
        assert_eq!(lines.remove(1), "local    no: no rule names the protocol");
        assert!(lines[1].starts_with("route    every device, "), "{text}");
        // The DAT registry library and its contents depend on the machine.
        match lines[2].strip_prefix("sdp      no: ") {
            Some(why) => {
                assert_eq!(lines[3], format!("verdict  tcp, because {why}"));
                assert!(lines[4].starts_with("advice   add to "), "{text}");
            }
            None => {
                assert!(lines[2].starts_with("sdp      can carry it, by "), "{text}");
                assert_eq!(lines[3], "verdict  sdp and tcp", "{text}");
                assert_eq!(lines.len(), 4, "{text}");
            }
        }
        for (address, route) in [
            ("192.0.2.1:80", "no device has this address"),
            ("127.0.0.1:80", "device lo"),
            ("127.9.9.9:80", "this host"),
        ] {
            let line = format!("--software --explain listen {address}");
            let text = explained(rules, &line).unwrap();
            let route = format!("route    {route}, no RDMA");
            assert!(text.lines().any(|line| line == route), "{text}");
        }
        let text = explained(rules, "--explain listen 0.0.0.0:81").unwrap();
        let last = text.lines().last().unwrap_or_default();
        let verdict = "verdict  tcp, because line 1 of the rule file says tcp";
        assert_eq!(last, verdict);
    }

    #[test]
    fn a_connection_within_the_host_needs_a_listener_there() {
        let text = explained("", "--explain connect 127.0.0.1:9").unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let expected = [
            "rule     none matches, so both",
            "local    can carry it",
            "sdp      no: no rule names the protocol",
            "local    no: no program under opsrun listens there on this host",
            "verdict  tcp, because no program under opsrun listens there on this host",
        ];
        assert_eq!(lines.len(), expected.len(), "{text}");
        // The fourth line also names the listeners that stay on TCP.
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{text}");
        }
    }

    #[test]
    fn each_mistake_of_a_rule_file_is_reported() {
        let line = "--explain connect 192.0.2.1:80";
        let error = explained("use\nuse both\n", line).unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().collect();
        let are_named = lines[0].contains(":1:4: ") && lines[1].contains(":2:9: ");
        assert!(are_named, "{error}");
    }

    #[test]
    fn a_line_without_an_address_is_refused() {
        assert!(Args::try_parse_from(["opsrun"]).is_err());
        assert!(Args::try_parse_from(["opsrun", "--explain", "connect"]).is_err());
        assert!(Args::try_parse_from(["opsrun", "--program", "x", "true"]).is_err());
        for words in ["host:80", "192.0.2.1", "192.0.2.1:80 192.0.2.2:80"] {
            let line = format!("--explain connect {words}");
            assert!(explained("", &line).is_err(), "{words}");
        }
    }

    #[test]
    fn options_of_the_program_are_its_own() {
        let args = Args::try_parse_from(["opsrun", "curl", "--rules", "-v", "x"]).unwrap();
        assert!(args.rules.is_none() && args.words.len() == 4);
    }
}
