//! What offload protocols let a rule set.

use crate::fault::{Fault, Reason};
use crate::word::Word;

/// A setting that an offload protocol has.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Name of the protocol.
    pub protocol: &'static str,
    /// What is set.
    pub key: &'static str,
    /// What a value is, as in "it is ...".
    pub wanted: &'static str,
    /// Whether this is one.
    pub takes: fn(&str) -> bool,
}

impl Known {
    /// Its name as rules have it.
    fn name(&self) -> String {
        format!("{}.{}", self.protocol, self.key)
    }
}

/// Refuses what none of the protocols has: it would be taken for what it says and do nothing.
pub(crate) fn check(known: &[Known], key: Word<'_>, value: Word<'_>) -> Result<(), Fault> {
    let Some(found) = known.iter().find(|known| known.name() == key.text) else {
        let names: Vec<String> = known.iter().map(Known::name).collect();
        return Err(key.fault(Reason::Setting {
            key: key.text.to_owned(),
            known: names.join(", "),
        }));
    };
    if (found.takes)(value.text) {
        return Ok(());
    }
    Err(value.fault(Reason::Value {
        key: key.text.to_owned(),
        value: value.text.to_owned(),
        wanted: found.wanted,
    }))
}
