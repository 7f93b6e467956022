//! The registry file, and the adapters that its lines register.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::host::Host;
use super::item::Item;
use crate::lines::Registry;
use crate::text::{list, word};

const SUBJECT: &str = "registry";
const ADAPTERS: &str = "adapters";

/// The action that registers adapters of the software provider, which works on every host.
const ADD_SOFTWARE: &str = "add the line `iwarp-lo u2.0 nonthreadsafe default libdapl-iwarp.so.2 \
    dat-rs.1.0 \"lo 0\" \"\"` to the registry file, and one for each network device";

/// Checks the registry file, then the adapters as `report` found them.
pub(super) fn items(
    host: &Host,
    registry: &Registry,
    report: Result<&Value, &dat_api::Error>,
) -> Vec<Item> {
    let mut items = file(registry);
    match report {
        Ok(report) => items.extend(adapters(host, registry, list(&report["adapters"]))),
        Err(dat_api::Error::Library(_)) => items.push(Item::not_checked(
            ADAPTERS,
            "the registry library cannot be loaded, so no adapter was opened",
        )),
        Err(error) => items.push(Item::problem(
            ADAPTERS,
            format!("the registry library lists no adapters: {error}"),
            "set DAT_LOG=debug and run `datinfo`, which prints the library's log",
        )),
    }
    items
}

fn file(registry: &Registry) -> Vec<Item> {
    match registry {
        Registry::Builtin => vec![Item::passed(
            SUBJECT,
            "there is no registry file, so each network device has an adapter",
        )],
        Registry::Unusable {
            path,
            error,
            is_override,
        } => vec![Item::problem(
            SUBJECT,
            format!("{path} cannot be read: {error}"),
            if *is_override {
                "unset DAT_OVERRIDE, or set it to a file that can be read".to_owned()
            } else {
                format!("make {path} a file that every user can read")
            },
        )],
        Registry::File {
            path,
            lines,
            mistakes,
        } => {
            let used = lines.iter().filter(|line| line.is_used()).count();
            content(path, used, mistakes)
        }
    }
}

/// Checks a file of which `used` lines register adapters.
fn content(path: &str, used: usize, mistakes: &[String]) -> Vec<Item> {
    let mistakes = mistakes.iter().map(|mistake| {
        Item::problem(
            SUBJECT,
            format!("{path}:{mistake}"),
            "correct this field (dat.conf(5) describes it), or put # in front of the line",
        )
    });
    let mut items: Vec<Item> = mistakes.collect();
    if used == 0 {
        let text = format!("{path} registers no adapter");
        items.push(Item::problem(SUBJECT, text, ADD_SOFTWARE));
    } else if items.is_empty() {
        let text = format!("{path} registers adapters in {used} lines");
        items.push(Item::passed(SUBJECT, text));
    }
    items
}

/// The cause for which adapters cannot be opened, and what the adapters of one problem share.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// The provider library does not load.
    Library { library: String, reason: String },
    /// The line names no device of this host.
    Device,
    /// Any other reason, in the provider's words.
    Other { reason: String },
}

/// The adapters that cannot be opened for one cause.
#[derive(Debug, Default)]
struct Group {
    names: Vec<String>,
    devices: Vec<String>,
    lines: Vec<u32>,
}

fn adapters(host: &Host, registry: &Registry, adapters: &[Value]) -> Vec<Item> {
    let (usable, unusable): (Vec<&Value>, Vec<&Value>) = adapters
        .iter()
        .partition(|adapter| adapter["state"] == "usable");
    let mut groups: BTreeMap<Cause, Group> = BTreeMap::new();
    for adapter in &unusable {
        let device = word(&adapter["device"]);
        let group = groups.entry(cause(host, adapter, &device)).or_default();
        group.names.push(word(&adapter["ia_name"]));
        if !group.devices.contains(&device) {
            group.devices.push(device);
        }
        let line = adapter["line"].as_u64();
        group
            .lines
            .extend(line.and_then(|line| u32::try_from(line).ok()));
    }
    let file = registry.path();
    let mut items: Vec<Item> = groups
        .iter()
        .map(|(cause, group)| problem(host, &file, cause, group))
        .collect();
    if !usable.is_empty() {
        let names: Vec<String> = usable.iter().map(|one| word(&one["ia_name"])).collect();
        items.push(Item::passed(
            ADAPTERS,
            format!("usable: {}", names.join(", ")),
        ));
    } else if !unusable.is_empty() {
        items.push(Item::problem(
            ADAPTERS,
            "no adapter of the registry can be opened",
            format!("solve one of the problems above, or {ADD_SOFTWARE}"),
        ));
    } else if !matches!(registry, Registry::File { .. }) {
        items.push(Item::problem(
            ADAPTERS,
            "the registry library lists no adapter",
            "create /etc/dat.conf; dat.conf(5) describes its lines",
        ));
    }
    items
}

fn cause(host: &Host, adapter: &Value, device: &str) -> Cause {
    let opened = &adapter["opened"];
    let reason = opened["reason"]
        .as_str()
        .or_else(|| opened["error"].as_str());
    let reason = reason.unwrap_or("no reason is known").to_owned();
    let library = word(&adapter["library"]);
    if reason.contains("does not load") {
        return Cause::Library { library, reason };
    }
    let is_bad_setting = reason.contains("ia_params") && reason.contains('=');
    if is_bad_setting || exists(host, device) {
        return Cause::Other { reason };
    }
    Cause::Device
}

/// Returns true if a network device, an RDMA device or an address of the host has this name. Host
/// names are left to the provider, whose reason then says more.
fn exists(host: &Host, device: &str) -> bool {
    let is_in = |class: &str| host.names(class).iter().any(|name| name == device);
    // A link-local address may name its device.
    let address = device.split('%').next().unwrap_or(device);
    is_in("sys/class/net")
        || is_in("sys/class/infiniband")
        || device.contains('.')
        || address.parse::<IpAddr>().is_ok()
}

fn problem(host: &Host, file: &str, cause: &Cause, group: &Group) -> Item {
    let place = place(file, group);
    match cause {
        Cause::Library { library, reason } => Item::problem(
            ADAPTERS,
            format!("{place}: {reason}"),
            format!(
                "install {library}, add its directory to LD_LIBRARY_PATH, or remove {}",
                group.as_lines()
            ),
        ),
        Cause::Device => Item::problem(
            ADAPTERS,
            format!(
                "{place}: this host has no device {}",
                shortened(&group.devices)
            ),
            format!(
                "remove {}, or name a device of this host ({})",
                group.as_lines(),
                shortened(&devices(host))
            ),
        ),
        Cause::Other { reason } => Item::problem(
            ADAPTERS,
            format!("{place}: {reason}"),
            "correct the line; dat.conf(5) describes the settings of each provider",
        ),
    }
}

impl Group {
    /// The object of an action.
    fn as_lines(&self) -> &'static str {
        match self.lines.len() {
            1 => "the line",
            _ => "the lines",
        }
    }
}

/// The longest list of names that is printed as a whole.
const NAMES_MAX: usize = 8;

/// A list of names, of which the last ones are a number if there are many.
fn shortened(names: &[String]) -> String {
    match names.get(NAMES_MAX..) {
        None | Some([]) => names.join(", "),
        Some(rest) => format!("{} and {} more", names[..NAMES_MAX].join(", "), rest.len()),
    }
}

/// The lines of a problem, or the names of its adapters where no line is known.
fn place(file: &str, group: &Group) -> String {
    match group.lines.as_slice() {
        [] => group.names.join(", "),
        [line] => format!("{file}:{line} ({})", group.names.join(", ")),
        lines => format!("{file}, lines {}", ranges(lines)),
    }
}

fn devices(host: &Host) -> Vec<String> {
    let mut devices = host.names("sys/class/net");
    devices.extend(host.names("sys/class/infiniband"));
    devices
}

/// Formats numbers as ranges, such as `1-3, 7`.
fn ranges(numbers: &[u32]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in sorted {
        match ranges.last_mut() {
            Some((_, last)) if number <= last.saturating_add(1) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let texts = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::item::assert_says;
    use super::*;
    use crate::lines::lines_of;

    fn registry(content: &str) -> Registry {
        Registry::of_file("/etc/dat.conf".into(), content.as_bytes())
    }

    fn texts(items: &[Item]) -> Vec<String> {
        items.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_bad_line_is_a_problem() {
        let bad = "a u2.0 nonthreadsafe default liba.so x.1.0 \"lo\" \"\"\n\
            b v2.0 nonthreadsafe default liba.so x.1.0 \"lo\" \"\"\nc\n";
        let found = texts(&file(&registry(bad)));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("problem: registry: /etc/dat.conf:2:3: api_version: "));
        assert!(found[1].starts_with("problem: registry: /etc/dat.conf:3:"));
        assert_eq!(lines_of(bad.as_bytes()).len(), 3);
        let good = bad.lines().next().unwrap();
        assert!(!file(&registry(good))[0].is_problem());
    }

    #[test]
    fn a_file_without_adapters_is_a_problem_and_the_fix_is_a_good_line() {
        let found = texts(&file(&registry("# nothing\n")));
        assert_says(&found[0], "registers no adapter");
        let line = found[0].split('`').nth(1).unwrap();
        assert_eq!(dat_conf::parse(line.as_bytes()).entries.len(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_problem() {
        let unusable = |is_override| Registry::Unusable {
            path: "/x".into(),
            error: "denied".into(),
            is_override,
        };
        assert!(texts(&file(&unusable(true)))[0].contains("fix: unset DAT_OVERRIDE"));
        assert!(texts(&file(&unusable(false)))[0].contains("fix: make /x a file"));
        assert!(!file(&Registry::Builtin)[0].is_problem());
    }

    fn unusable(line: u32, device: &str, reason: &str) -> Value {
        json!({
            "ia_name": format!("ia{line}"), "line": line, "library": "liba.so", "device": device,
            "state": "unusable", "opened": { "error": "code", "reason": reason },
        })
    }

    #[test]
    fn adapters_that_fail_for_one_cause_are_one_problem() {
        let (_dir, host) = Host::of(&[("sys/class/net/lo/mtu", "")]);
        let no_library = "provider library does not load: libx.so: no such file";
        let failed = [
            unusable(1, "mlx4_0", "no device: mlx4_0"),
            unusable(2, "mlx4_0", "no device: mlx4_0"),
            unusable(4, "ib0", "no device: ib0"),
            unusable(5, "lo", "bad ia_params: crc=maybe: on or off"),
            unusable(6, "lo", no_library),
            unusable(7, "lo", no_library),
            json!({ "ia_name": "good", "state": "usable" }),
        ];
        let found = texts(&adapters(&host, &registry(""), &failed));
        assert_eq!(found.len(), 4, "{found:?}");
        assert_says(&found[0], "lines 6-7: provider library does not load: ");
        assert_says(&found[0], "fix: install liba.so");
        let device = "lines 1-2, 4: this host has no device mlx4_0, ib0; fix: remove the lines";
        assert_says(&found[1], device);
        let is_listed = found[1].ends_with("name a device of this host (lo)");
        assert!(is_listed, "{found:?}");
        assert_says(&found[2], "/etc/dat.conf:5 (ia5): bad ia_params: crc=maybe");
        assert_eq!(found[3], "ok: adapters: usable: good");
    }

    #[test]
    fn a_registry_without_a_usable_adapter_is_a_problem() {
        let host = Host::at("/nonexistent");
        let builtin = adapters(&host, &Registry::Builtin, &[]);
        assert!(texts(&builtin)[0].contains("lists no adapter"));
        let failed = [
            unusable(1, "eth9", "no device"),
            unusable(2, "a:b", "no device"),
        ];
        let found = texts(&adapters(&host, &registry(""), &failed));
        assert_eq!(found.len(), 2, "{found:?}");
        assert_says(&found[1], "no adapter of the registry can be opened");
        for (device, is_device) in [("192.0.2.1", false), ("fe80::1%eth9", false), ("x", true)] {
            let failed = [unusable(1, device, "reason")];
            let found = texts(&adapters(&host, &registry(""), &failed));
            let says_so = found[0].contains("this host has no device");
            assert_eq!(says_so, is_device, "{found:?}");
        }
    }

    #[test]
    fn a_long_list_is_shortened() {
        let names: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        assert_eq!(shortened(&names), "0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
        assert_eq!(shortened(&names[..8]), "0, 1, 2, 3, 4, 5, 6, 7");
    }

    #[test]
    fn numbers_are_printed_as_ranges() {
        assert_eq!(ranges(&[3, 1, 2, 7, 9, 10]), "1-3, 7, 9-10");
        assert_eq!(ranges(&[u32::MAX]), u32::MAX.to_string());
    }
}
