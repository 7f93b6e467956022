//! Name resolution: peers find this host by its name.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::ifaddrs::getifaddrs;

use super::host::Host;
use super::item::Item;

const SUBJECT: &str = "names";

/// The time that the resolver may take. A resolver whose server is silent takes longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Checks that the name of this host resolves to an address of this host.
pub(super) fn item(host: &Host) -> Item {
    let Some(name) = host.text("proc/sys/kernel/hostname") else {
        return Item::not_checked(SUBJECT, "the name of this host cannot be read");
    };
    judge(&name, resolve(name.clone()), &own_addresses())
}

/// Resolves a name on another thread, because the resolver has no time limit.
fn resolve(name: String) -> io::Result<Vec<IpAddr>> {
    let (answer, answers) = mpsc::channel();
    thread::spawn(move || {
        let found = (name, 0).to_socket_addrs();
        // The receiver is gone if the time is over.
        let _ = answer.send(found.map(|all| all.map(|address| address.ip()).collect()));
    });
    let silent = io::Error::new(
        io::ErrorKind::TimedOut,
        format!("no answer within {} s", PATIENCE.as_secs()),
    );
    answers.recv_timeout(PATIENCE).unwrap_or(Err(silent))
}

fn own_addresses() -> Vec<IpAddr> {
    let all = getifaddrs().into_iter().flatten();
    all.filter_map(|entry| {
        let address = entry.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| Some(IpAddr::V6(address.as_sockaddr_in6()?.ip())))
    })
    .collect()
}

fn judge(name: &str, resolved: io::Result<Vec<IpAddr>>, own: &[IpAddr]) -> Item {
    let address = own.iter().find(|address| !address.is_loopback());
    let example = address.map_or_else(|| "127.0.1.1".to_owned(), ToString::to_string);
    let fix = format!("add the line `{example} {name}` to /etc/hosts");
    match resolved {
        Err(error) => Item::problem(
            SUBJECT,
            format!("the name of this host, {name}, cannot be resolved: {error}"),
            fix,
        ),
        Ok(found) if found.iter().any(|ip| ip.is_loopback() || own.contains(ip)) => {
            Item::passed(SUBJECT, format!("{name} is {}", list(&found)))
        }
        Ok(found) => Item::problem(
            SUBJECT,
            format!(
                "the name of this host, {name}, resolves to {}, which no network device \
                 of this host has",
                list(&found)
            ),
            fix,
        ),
    }
}

fn list(addresses: &[IpAddr]) -> String {
    let mut texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.dedup();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::item::assert_says;
    use super::*;

    #[test]
    fn a_name_resolves_to_an_address_of_this_host() {
        let own: Vec<IpAddr> = ["127.0.0.1", "192.0.2.7"]
            .map(|ip| ip.parse().unwrap())
            .into();
        let judge = |found: &str| judge("node7", Ok(vec![found.parse().unwrap()]), &own);
        assert!(!judge("192.0.2.7").is_problem());
        assert!(!judge("127.0.1.1").is_problem());
        let wrong = judge("192.0.2.8").to_string();
        assert_says(&wrong, "resolves to 192.0.2.8, which no");
        let is_named = wrong.ends_with("add the line `192.0.2.7 node7` to /etc/hosts");
        assert!(is_named, "{wrong}");
    }

    #[test]
    fn a_name_that_does_not_resolve_is_a_problem() {
        let unknown = || Err(io::Error::other("Name or service not known"));
        let item = judge("node7", unknown(), &[]).to_string();
        assert_says(&item, "cannot be resolved: Name or service");
        assert!(item.ends_with("`127.0.1.1 node7` to /etc/hosts"), "{item}");
        // The name is longer than a host name may be, so no server is asked.
        assert!(resolve("x".repeat(300)).is_err());
        assert!(!own_addresses().is_empty());
    }
}
