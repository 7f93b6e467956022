//! The settings of offload protocols that a rule may contain.

use crate::rules::fault::{Fault, Reason};
use crate::rules::word::Word;

/// A setting of an offload protocol.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Name of the protocol.
    pub protocol: &'static str,
    /// The key, without the protocol's name.
    pub key: &'static str,
    /// A description of valid values, which completes "it is ...".
    pub wanted: &'static str,
    /// Returns true for a valid value.
    pub takes: fn(&str) -> bool,
}

impl Known {
    /// Returns the name in the form that rules use.
    fn name(&self) -> String {
        format!("{}.{}", self.protocol, self.key)
    }
}

/// Refuses a setting that no protocol has, because the user would expect an effect that it cannot
/// have.
pub(super) fn check(known: &[Known], key: Word<'_>, value: Word<'_>) -> Result<(), Fault> {
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
