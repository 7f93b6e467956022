//! The UDP port of the iWARP port mapper, at which programs under `opsrun` are asked for services.

use super::host::Host;
use super::item::Item;

const SUBJECT: &str = "port mapper";

/// The port (IANA `iwarp-pm`).
const PORT: u16 = 3935;
/// The library of programs under `opsrun`, which share the port.
const LIBRARY: &str = "libops-preload";
/// The name that the port mapper of such a program binds, as `/proc/net/unix` prints it.
const SERVER_NAME: &str = "@dat-rs.port-mapper.";

/// A process that has the port.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    pid: String,
    program: String,
    is_ours: bool,
}

/// Checks that no other program has the port.
pub(super) fn item(host: &Host) -> Item {
    let inodes = inodes(host);
    if inodes.is_empty() {
        return Item::passed(SUBJECT, format!("UDP port {PORT} is free"));
    }
    let holders = holders(host, &inodes);
    if let Some(Holder { pid, program, .. }) = holders.iter().find(|holder| !holder.is_ours) {
        return Item::problem(
            SUBJECT,
            format!(
                "{program} (process {pid}) has UDP port {PORT}, so programs under opsrun cannot \
                 offer services to other hosts"
            ),
            match program.as_str() {
                "iwpmd" => "run `systemctl disable --now iwpmd`".to_owned(),
                _ => format!("stop {program}"),
            },
        );
    }
    let is_shared = host
        .text("proc/net/unix")
        .is_some_and(|text| text.contains(SERVER_NAME));
    if is_shared || !holders.is_empty() {
        let text = format!("programs under opsrun share UDP port {PORT}");
        return Item::passed(SUBJECT, text);
    }
    Item::problem(
        SUBJECT,
        format!("a program of another user has UDP port {PORT}"),
        format!("run `ss -ulpn sport = :{PORT}` as root, and stop the program that it names"),
    )
}

/// Returns the inodes of the sockets that have the port.
fn inodes(host: &Host) -> Vec<String> {
    let tables = ["proc/net/udp", "proc/net/udp6"].map(|path| host.text(path).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    lines
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (_, port) = words.nth(1)?.rsplit_once(':')?;
            let is_of_port = u16::from_str_radix(port, 16) == Ok(PORT);
            // The inode is the tenth word of the line (proc_net(5)).
            words.nth(7).filter(|_| is_of_port).map(str::to_owned)
        })
        .collect()
}

/// Returns the processes with these sockets whose descriptors this process may see.
fn holders(host: &Host, inodes: &[String]) -> Vec<Holder> {
    let links: Vec<String> = inodes.iter().map(|it| format!("socket:[{it}]")).collect();
    let pids = host.names("proc").into_iter();
    pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|pid| {
            let descriptors = format!("proc/{pid}/fd");
            host.names(&descriptors).iter().any(|number| {
                let link = std::fs::read_link(host.path(&descriptors).join(number));
                link.is_ok_and(|link| links.iter().any(|one| link.as_os_str() == one.as_str()))
            })
        })
        .map(|pid| Holder {
            program: host.text(format!("proc/{pid}/comm")).unwrap_or_default(),
            is_ours: host
                .text(format!("proc/{pid}/maps"))
                .is_some_and(|maps| maps.contains(LIBRARY)),
            pid,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::item::assert_says;
    use super::*;

    const SOCKETS: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
        retrnsmt   uid  timeout inode ref pointer drops\n\
        1: 0100007F:0F5F 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 4711 2 0 0\n\
        2: 0100007F:0F60 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 4712 2 0 0\n";

    /// A host on which a process has the port.
    fn taken(program: &str, maps: &str) -> (tempfile::TempDir, Host) {
        let (dir, host) = Host::of(&[
            ("proc/net/udp", SOCKETS),
            ("proc/7/comm", program),
            ("proc/7/maps", maps),
        ]);
        fs::create_dir(host.path("proc/7/fd")).unwrap();
        symlink("socket:[4711]", host.path("proc/7/fd/3")).unwrap();
        (dir, host)
    }

    #[test]
    fn a_free_port_is_no_problem() {
        let others = SOCKETS.replace(":0F5F", ":0F5E");
        let (_dir, host) = Host::of(&[("proc/net/udp", &others)]);
        assert!(!item(&host).is_problem());
    }

    #[test]
    fn another_program_with_the_port_is_named() {
        let (_dir, host) = taken("iwpmd\n", "/usr/sbin/iwpmd");
        let text = item(&host).to_string();
        assert_says(&text, "iwpmd (process 7) has UDP port 3935");
        assert!(text.ends_with("`systemctl disable --now iwpmd`"), "{text}");
        let (_dir, host) = taken("dns\n", "");
        let text = item(&host).to_string();
        assert!(text.ends_with("fix: stop dns"), "{text}");
    }

    #[test]
    fn a_program_under_opsrun_may_have_the_port() {
        let (_dir, host) = taken("redis\n", "7f00 /usr/lib/libops-preload.so\n");
        assert!(!item(&host).is_problem());
        fs::remove_dir_all(host.path("proc/7")).unwrap();
        assert!(item(&host).is_problem(), "a hidden program");
        fs::write(host.path("proc/net/unix"), "0: 1 @dat-rs.port-mapper.2\n").unwrap();
        assert!(!item(&host).is_problem());
    }

    #[test]
    fn a_socket_of_this_process_is_found() {
        let host = Host::this();
        let Ok(_socket) = std::net::UdpSocket::bind(("127.0.0.77", PORT)) else {
            assert!(!inodes(&host).is_empty(), "the port is in use");
            return;
        };
        let own = std::process::id().to_string();
        let holders = holders(&host, &inodes(&host));
        let is_found = holders.iter().any(|holder| holder.pid == own);
        assert!(is_found, "{holders:?}");
    }
}
