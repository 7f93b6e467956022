//! The settings of the protocol in the rule file.

use std::fs;

use ops::{Known, Reason, Setting};

/// The settings that a rule may contain.
pub const SETTINGS: &[Known] = &[Known {
    protocol: crate::NAME,
    key: "peers",
    wanted: "`host` or `pid-namespace`",
    takes: |value| ["host", PID_NAMESPACE].contains(&value),
}];

const PID_NAMESPACE: &str = "pid-namespace";

/// Returns the inode of this process's PID namespace, if the rule demands that peers are in it.
pub(crate) fn pid_space(settings: &[Setting]) -> Result<Option<u64>, Reason> {
    let is_demanded = |it: &Setting| {
        (it.protocol.as_str(), it.key.as_str()) == (crate::NAME, "peers")
            && it.value == PID_NAMESPACE
    };
    if !settings.iter().any(is_demanded) {
        return Ok(None);
    }
    let link = fs::read_link("/proc/self/ns/pid").ok();
    let number = link.as_ref().and_then(|link| {
        let text = link.to_str()?.strip_prefix("pid:[")?;
        text.strip_suffix(']')?.parse().ok()
    });
    let unknown = || Reason::Protocol("the PID namespace is not known".to_owned());
    number.map(Some).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_read_only_if_the_rule_demands_it() {
        let setting = |protocol: &str, value: &str| Setting {
            protocol: protocol.to_owned(),
            key: "peers".to_owned(),
            value: value.to_owned(),
        };
        for settings in [
            vec![],
            vec![setting("local", "host")],
            vec![setting("sdp", PID_NAMESPACE)],
        ] {
            assert_eq!(pid_space(&settings), Ok(None), "{settings:?}");
        }
        let found = pid_space(&[setting("local", PID_NAMESPACE)]);
        assert!(matches!(found, Ok(Some(1..))), "{found:?}");
        assert!((SETTINGS[0].takes)("host") && !(SETTINGS[0].takes)("hosts"));
    }
}
