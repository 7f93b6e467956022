//! The parser from bytes to rules.

use std::time::Duration;

use crate::observe::ReasonText;
use crate::rules::endpoints::{Endpoints, decimal};
use crate::rules::fault::{Fault, Reason};
use crate::rules::glob::Glob;
use crate::rules::known::{self, Known};
use crate::rules::log::{Destination, Log};
use crate::rules::query::Role;
use crate::rules::rule::{Rule, Setting, Target};
use crate::rules::table::{Object, Rules};
use crate::rules::word::{Word, Words};

/// The longest time that a rule may let a program wait for an offload protocol.
const WITHIN_MAX: Duration = Duration::from_secs(60);

/// The longest name of a network device in bytes, without the terminating zero.
const INTERFACE_LEN_MAX: usize = 15;

/// Reads a file. Settings of offload protocols are not checked.
///
/// # Errors
/// Returns every fault, in file order. No rule of such a file is used.
pub fn parse(file: &[u8]) -> Result<Rules, Vec<Fault>> {
    parse_with(file, None)
}

/// Reads a file and accepts only these settings of offload protocols.
///
/// # Errors
/// As [`parse`].
pub fn parse_for(file: &[u8], known: &[Known]) -> Result<Rules, Vec<Fault>> {
    parse_with(file, Some(known))
}

fn parse_with(file: &[u8], known: Option<&[Known]>) -> Result<Rules, Vec<Fault>> {
    let mut rules = Rules::default();
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(file.split(|byte| *byte == b'\n')) {
        if let Err(fault) = parse_line(line, number, known, &mut rules) {
            faults.push(fault);
        }
    }
    if faults.is_empty() {
        Ok(rules)
    } else {
        Err(faults)
    }
}

fn parse_line(
    line: &[u8],
    number: u32,
    known: Option<&[Known]>,
    rules: &mut Rules,
) -> Result<(), Fault> {
    // Comments may be in any encoding.
    let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
    let text = std::str::from_utf8(line).map_err(|error| {
        let good = String::from_utf8_lossy(&line[..error.valid_up_to()]);
        Fault {
            line: number,
            column: u32::try_from(good.chars().count())
                .unwrap_or(u32::MAX)
                .saturating_add(1),
            reason: Reason::NotText,
        }
    })?;
    let mut words = Words::new(text, number);
    match words.next() {
        None => Ok(()),
        Some(word) if word.is("use") => {
            rules.rules.push(parse_rule(&mut words, number, known)?);
            Ok(())
        }
        Some(word) if word.is("protocol") => {
            rules.objects.push(parse_object(word, &mut words)?);
            Ok(())
        }
        Some(word) if word.is("log") => parse_log(&mut words, rules.log.get_or_insert_default()),
        Some(word) => Err(word.refuse(Reason::Directive)),
    }
}

fn parse_rule(words: &mut Words<'_>, line: u32, known: Option<&[Known]>) -> Result<Rule, Fault> {
    let target = words.need("target")?;
    let (target, protocols) = parse_target(target)?;
    let role = parse_role(words.need("role")?)?;
    let program = words.need("program")?;
    let program = Glob::new(program.text).ok_or_else(|| program.refuse(Reason::Glob))?;
    let endpoints = Endpoints::parse(words.need("address")?)?;
    let mut rule = Rule {
        line,
        target,
        role,
        program,
        endpoints,
        protocols: protocols.iter().map(|name| (*name).to_owned()).collect(),
        user: None,
        interface: None,
        within: None,
        settings: Vec::new(),
        reason: ReasonText::of(crate::Reason::Rule { line }),
    };
    words.try_for_each(|word| parse_setting(word, known, &mut rule))?;
    Ok(rule)
}

/// Parses a line that names the shared object of a protocol.
fn parse_object(directive: Word<'_>, words: &mut Words<'_>) -> Result<Object, Fault> {
    let value = |key: &str, word: Word<'_>, wanted| {
        word.fault(Reason::Value {
            key: key.to_owned(),
            value: word.text.to_owned(),
            wanted,
        })
    };
    let path = words.next().unwrap_or(directive);
    if !path.text.starts_with('/') {
        return Err(value(
            "protocol",
            path,
            "the absolute path of a shared object",
        ));
    }
    let mut priority = None;
    words.try_for_each(|word| {
        let (key, given) = word
            .split_first('=')
            .filter(|(key, _)| key.is("priority"))
            .ok_or_else(|| value("protocol", word, "a path, and priority=NUMBER"))?;
        if priority.is_some() {
            return Err(key.refuse(Reason::Twice));
        }
        let number = given.text.parse();
        priority = Some(number.map_err(|_| value("priority", given, "a whole number"))?);
        Ok(())
    })?;
    Ok(Object {
        path: path.text.into(),
        priority,
    })
}

fn parse_target(word: Word<'_>) -> Result<(Target, &'static [&'static str]), Fault> {
    Ok(match word.text.to_ascii_lowercase().as_str() {
        "tcp" => (Target::Tcp, &[]),
        "both" => (Target::Both, &[]),
        "offload" => (Target::Offload, &[]),
        "sdp" => (Target::Offload, &["sdp"]),
        "local" => (Target::Offload, &["local"]),
        _ => return Err(word.refuse(Reason::Target)),
    })
}

fn parse_role(word: Word<'_>) -> Result<Role, Fault> {
    Ok(match word.text.to_ascii_lowercase().as_str() {
        "listen" | "server" => Role::Listen,
        "connect" | "client" => Role::Connect,
        _ => return Err(word.refuse(Reason::Role)),
    })
}

fn parse_setting(word: Word<'_>, known: Option<&[Known]>, rule: &mut Rule) -> Result<(), Fault> {
    let (key, value) = word
        .split_first('=')
        .ok_or_else(|| word.refuse(Reason::NoSetting))?;
    match key.text {
        "protocol" if rule.target == Target::Tcp => {
            Err(word.fault(Reason::ProtocolOf(rule.target.word())))
        }
        "protocol" if !rule.protocols.is_empty() => Err(key.refuse(Reason::Twice)),
        "protocol" => {
            let names = value.text.split(',');
            if !names.clone().all(is_name) {
                let wanted = "names of letters, digits, `-` and `_`, with commas between them";
                return Err(wrong(key, value, wanted));
            }
            rule.protocols = names.map(str::to_owned).collect();
            Ok(())
        }
        "user" => set(
            &mut rule.user,
            key,
            value,
            decimal(value.text),
            "a numeric user id",
        ),
        "interface" => {
            let fits = (1..=INTERFACE_LEN_MAX).contains(&value.text.len());
            let name = (fits && !value.text.contains('/')).then(|| value.text.to_owned());
            set(
                &mut rule.interface,
                key,
                value,
                name,
                "the name of a network device",
            )
        }
        "within" => {
            let time = parse_time(value.text).filter(|time| *time <= WITHIN_MAX);
            set(
                &mut rule.within,
                key,
                value,
                time,
                "a time up to 60s, such as 100ms or 2s",
            )
        }
        _ => parse_protocol_setting(key, value, known, rule),
    }
}

/// Stores a value. Fails if the key was set before or the value has the wrong form.
fn set<T>(
    into: &mut Option<T>,
    key: Word<'_>,
    value: Word<'_>,
    parsed: Option<T>,
    wanted: &'static str,
) -> Result<(), Fault> {
    if into.is_some() {
        return Err(key.refuse(Reason::Twice));
    }
    *into = Some(parsed.ok_or_else(|| wrong(key, value, wanted))?);
    Ok(())
}

fn wrong(key: Word<'_>, value: Word<'_>, wanted: &'static str) -> Fault {
    value.fault(Reason::Value {
        key: key.text.to_owned(),
        value: value.text.to_owned(),
        wanted,
    })
}

fn parse_protocol_setting(
    key: Word<'_>,
    value: Word<'_>,
    known: Option<&[Known]>,
    rule: &mut Rule,
) -> Result<(), Fault> {
    let (protocol, own) = key
        .split_first('.')
        .filter(|(protocol, own)| is_name(protocol.text) && is_name(own.text))
        .ok_or_else(|| key.refuse(Reason::Key))?;
    if value.text.is_empty() {
        return Err(wrong(
            key,
            value,
            "what the offload protocol asks for, not nothing",
        ));
    }
    known.map_or(Ok(()), |known| known::check(known, key, value))?;
    let setting = Setting {
        protocol: protocol.text.to_owned(),
        key: own.text.to_owned(),
        value: value.text.to_owned(),
    };
    let same = |other: &Setting| other.protocol == setting.protocol && other.key == setting.key;
    if rule.settings.iter().any(same) {
        return Err(key.refuse(Reason::Twice));
    }
    rule.settings.push(setting);
    Ok(())
}

fn is_name(text: &str) -> bool {
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !text.is_empty() && text.bytes().all(of_name)
}

fn parse_time(text: &str) -> Option<Duration> {
    if let Some(millis) = text.strip_suffix("ms") {
        return decimal(millis).map(Duration::from_millis);
    }
    decimal(text.strip_suffix('s')?).map(Duration::from_secs)
}

fn parse_log(words: &mut Words<'_>, log: &mut Log) -> Result<(), Fault> {
    while let Some(word) = words.next() {
        if word.is("destination") {
            log.destination = parse_destination(words)?;
        } else if word.is("min-level") {
            let level = words.need("level")?;
            log.level_min = decimal(level.text)
                .filter(|level| (1..=9).contains(level))
                .ok_or_else(|| level.refuse(Reason::Level))?;
        } else {
            return Err(word.refuse(Reason::Log));
        }
    }
    Ok(())
}

fn parse_destination(words: &mut Words<'_>) -> Result<Destination, Fault> {
    let word = words.need("destination")?;
    if word.is("stderr") {
        Ok(Destination::Stderr)
    } else if word.is("syslog") {
        Ok(Destination::Syslog)
    } else if word.is("file") {
        Ok(Destination::File(words.need("path")?.text.to_owned()))
    } else {
        Err(word.refuse(Reason::Log))
    }
}

#[cfg(test)]
mod tests {
    use stack_tests::rows;

    use super::*;

    fn only(line: &str) -> Rule {
        parse(line.as_bytes()).unwrap().rules.pop().unwrap()
    }

    #[test]
    fn a_file_for_libsdp_is_parsed() {
        let file = b"# header\n\
            log min-level 8 destination file /var/log/sdp.log\n\
            \n\
            use sdp server * *:5001\n\
            use tcp client ssh* *:22 # never\n\
            USE Both LISTEN nginx 192.168.0.0/16:80-443\r\n\
            use both connect * *:*";
        let rules = parse(file).unwrap();
        let lines: Vec<String> = rules.rules.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "use offload listen * *:5001 protocol=sdp",
                "use tcp connect ssh* *:22",
                "use both listen nginx 192.168.0.0/16:80-443",
                "use both connect * *:*",
            ]
        );
        assert_eq!(
            rules.log(),
            Some(&Log {
                destination: Destination::File("/var/log/sdp.log".to_owned()),
                level_min: 8,
            })
        );
    }

    #[test]
    fn objects_of_protocols_are_named_with_their_priorities() {
        let file = "protocol /lib/a.so\nPROTOCOL /lib/b.so priority=-5 # second";
        let rules = parse(file.as_bytes()).unwrap();
        let objects = [("/lib/a.so", None), ("/lib/b.so", Some(-5))];
        let objects = objects.map(|(path, priority)| Object {
            path: path.into(),
            priority,
        });
        assert_eq!(rules.objects(), objects);
        for (line, column) in rows! {
            "protocol", 1;
            "protocol a.so", 10;
            "protocol /a.so 5", 16;
            "protocol /a.so priority=", 25;
            "protocol /a.so priority=high", 25;
            "protocol /a.so priority=1 priority=2", 27;
            "protocol /a.so name=b", 16;
        } {
            let faults = parse(line.as_bytes()).unwrap_err();
            assert_eq!(faults[0].column, column, "{line}: {}", faults[0].reason);
        }
    }

    #[test]
    fn comments_may_be_in_any_encoding() {
        let file = b"# f\xfcr redis\nuse tcp client * *:* # f\xfcr alle\n";
        assert_eq!(parse(file).unwrap().rules.len(), 1);
        let faults = parse(b"use tcp client \xfc *:* # f\xfcr alle").unwrap_err();
        assert_eq!(
            (faults[0].column, &faults[0].reason),
            (16, &Reason::NotText)
        );
    }

    #[test]
    fn the_last_log_line_wins_word_by_word() {
        let log = |file: &str| parse(file.as_bytes()).unwrap().log().cloned();
        assert_eq!(log("use both client * *:*"), None);
        assert_eq!(log("log"), Some(Log::default()));
        let both = log("log min-level 3 destination syslog\nlog min-level 5").unwrap();
        assert_eq!((both.level_min, both.destination), (5, Destination::Syslog));
    }

    #[test]
    fn settings_follow_the_address() {
        let rule = only(
            "use both client * *:* protocol=local,sdp user=33 interface=e0 within=2s sdp.zcopy=64K",
        );
        assert_eq!(rule.protocols, ["local", "sdp"]);
        assert_eq!(rule.user, Some(33));
        assert_eq!(rule.interface.as_deref(), Some("e0"));
        assert_eq!(rule.within, Some(Duration::from_secs(2)));
        assert_eq!(rule.settings.len(), 1);
        assert_eq!(only(&rule.to_string()), rule);
    }

    #[test]
    fn every_fault_has_line_and_column_and_a_correction() {
        for (line, column, words) in rows! {
            "match both", 1, "`use`, `log`, `protocol` or `#`";
            "use", 4, "the target is missing";
            "use udp client * *:*", 5, "tcp, both, offload, sdp, local";
            "use both", 9, "the role is missing";
            "use both peer * *:*", 10, "one of listen, server, connect, client";
            "use both client", 16, "the program is missing";
            "use both client [a *:*", 17, "a `[` needs a `]`";
            "use both client *", 18, "the address is missing";
            "use both client * 10.0.0.1", 19, "ADDRESS:PORT";
            "use both client * 10.0.0.x:80", 19, "is not an address";
            "use both client * 10.0.0.1/40:80", 28, "from 0 to 32";
            "use both client * *:http", 21, "is not a port";
            "use both client * *:9-1", 21, "smaller port first";
            "use both client * *:* fast", 23, "not KEY=VALUE";
            "use both client * *:* speed=9", 23, "unknown setting `speed`";
            "use both client * *:* .x=9", 23, "unknown setting `.x`";
            "use both client * *:* a.b=", 27, "not nothing";
            "use both client * *:* user=root", 28, "numeric user id";
            "use both client * *:* user=1 user=2", 30, "is given twice";
            "use both client * *:* a.b=1 a.b=2", 29, "is given twice";
            "use both client * *:* within=5", 30, "such as 100ms";
            "use both client * *:* within=61s", 30, "up to 60s";
            "use both client * *:* interface=", 33, "network device";
            "use tcp client * *:* protocol=sdp", 22, "no meaning for target `tcp`";
            "use sdp client * *:* protocol=tcp", 22, "is given twice";
            "log loudly", 5, "min-level 1-9";
            "log destination paper", 17, "stderr|syslog|file";
            "log destination file", 21, "the path is missing";
            "log min-level 10", 15, "only errors";
        } {
            let file = format!("# first\n{line}\n");
            let faults = parse(file.as_bytes()).unwrap_err();
            assert_eq!(faults.len(), 1, "{line}");
            let text = faults[0].to_string();
            assert!(text.starts_with(&format!("2:{column}: ")), "{line}: {text}");
            assert!(text.contains(words), "{line}: {text}");
        }
    }

    #[test]
    fn what_no_protocol_has_is_refused_with_what_they_have() {
        let size = |value: &str| value.parse::<u32>().is_ok();
        let known = ["zcopy", "ring"].map(|key| Known {
            protocol: "sdp",
            key,
            wanted: "a number",
            takes: size,
        });
        let faults = |file: &str| match parse_for(file.as_bytes(), &known) {
            Ok(_) => Vec::new(),
            Err(faults) => faults.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(faults("use both client * *:* sdp.zcopy=64"), [""; 0]);
        assert_eq!(
            faults(
                "use sdp client * *:* sdp.zcopi=1\n\
                 use sdp client * *:* spd.ring=1\n\
                 use sdp client * *:* sdp.ring=x"
            ),
            [
                "1:22: unknown setting `sdp.zcopi`; offload protocols have sdp.zcopy, sdp.ring",
                "2:22: unknown setting `spd.ring`; offload protocols have sdp.zcopy, sdp.ring",
                "3:31: `x` cannot be the value of `sdp.ring`; it is a number",
            ]
        );
        assert!(parse(b"use sdp client * *:* sdp.zcopi=1").is_ok());
    }

    #[test]
    fn one_bad_line_refuses_the_file_and_every_bad_line_is_reported() {
        let file = b"use both client * *:*\nuse nothing\nuse \xff\nlog min-level 0\n";
        let lines: Vec<u32> = parse(file)
            .unwrap_err()
            .iter()
            .map(|fault| fault.line)
            .collect();
        assert_eq!(lines, [2, 3, 4]);
    }
}
