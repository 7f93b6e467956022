//! Enums and flags of a provider's attributes, and events, by their C names.

use dat_api::abi::*;

/// Values and their names.
type Names = &'static [(u32, &'static str)];

/// Pairs the values of constants with their names.
macro_rules! names {
    ($($name:ident),+ $(,)?) => { &[$(($name, stringify!($name))),+] };
}

/// Attributes that are one value of an enum.
const ENUMS: &[(&str, Names)] = &[
    (
        "iov_ownership_on_return",
        names![
            DAT_IOV_CONSUMER,
            DAT_IOV_PROVIDER_NOMOD,
            DAT_IOV_PROVIDER_MOD
        ],
    ),
    (
        "ep_creator",
        names![
            DAT_PSP_CREATES_EP_NEVER,
            DAT_PSP_CREATES_EP_IFASKED,
            DAT_PSP_CREATES_EP_ALWAYS
        ],
    ),
    ("pz_support", names![DAT_PZ_UNIQUE, DAT_PZ_SHAREABLE]),
    (
        "rmr_scope_supported",
        names![DAT_RMR_SCOPE_EP, DAT_RMR_SCOPE_PZ, DAT_RMR_SCOPE_ANY],
    ),
];

/// Attributes that are sets of values, one bit for each. A value of zero belongs to every set.
const MASKS: &[(&str, Names)] = &[
    (
        "lmr_mem_types_supported",
        names![
            DAT_MEM_TYPE_VIRTUAL,
            DAT_MEM_TYPE_LMR,
            DAT_MEM_TYPE_SHARED_VIRTUAL
        ],
    ),
    (
        "qos_supported",
        names![
            DAT_QOS_BEST_EFFORT,
            DAT_QOS_HIGH_THROUGHPUT,
            DAT_QOS_LOW_LATENCY,
            DAT_QOS_ECONOMY,
            DAT_QOS_PREMIUM
        ],
    ),
    (
        "completion_flags_supported",
        names![
            DAT_COMPLETION_DEFAULT_FLAG,
            DAT_COMPLETION_SUPPRESS_FLAG,
            DAT_COMPLETION_SOLICITED_WAIT_FLAG,
            DAT_COMPLETION_UNSIGNALLED_FLAG,
            DAT_COMPLETION_BARRIER_FENCE_FLAG,
            DAT_COMPLETION_EVD_THRESHOLD_FLAG,
            DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG
        ],
    ),
    (
        "ha_loadbalancing",
        names![DAT_HA_LB_NONE, DAT_HA_LB_INTERCOMM, DAT_HA_LB_INTRACOMM],
    ),
];

/// Returns a line with number and name for each event.
pub(crate) fn events() -> String {
    let lines = EVENT_NAMES
        .iter()
        .map(|(number, name)| format!("{number:#07x}  {name}\n"));
    lines.collect()
}

/// Returns the names of an attribute's value, separated by blanks. Returns `None` for an attribute
/// that is a number.
pub(crate) fn of(attribute: &str, value: u32) -> Option<String> {
    let find = |list: &[(&str, Names)]| {
        let found = list.iter().find(|(name, _)| *name == attribute);
        found.map(|(_, names)| *names)
    };
    if let Some(names) = find(ENUMS) {
        let found = names.iter().find(|(known, _)| *known == value);
        return Some(found.map_or_else(|| value.to_string(), |(_, name)| (*name).to_owned()));
    }
    let names = find(MASKS)?;
    let set = names.iter().filter(|(bit, _)| value & bit == *bit);
    let mut words: Vec<String> = set.map(|(_, name)| (*name).to_owned()).collect();
    let unknown = names.iter().fold(value, |rest, (bit, _)| rest & !bit);
    if unknown != 0 {
        words.push(format!("{unknown:#x}"));
    }
    // A name for zero adds no information if other bits are set.
    if words.len() > 1 && words[0].ends_with("_NONE") {
        words.remove(0);
    }
    Some(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_sorted_by_number() {
        assert!(EVENT_NAMES.is_sorted_by(|one, next| one.0 < next.0));
        assert!(events().contains("0x04006  DAT_CONNECTION_EVENT_BROKEN\n"));
    }

    #[test]
    fn known_values_have_names_and_others_their_number() {
        let of = |attribute, value| of(attribute, value).unwrap();
        assert_eq!(of("ep_creator", 1), "DAT_PSP_CREATES_EP_IFASKED");
        assert_eq!(of("rmr_scope_supported", 9), "9");
        assert_eq!(of("qos_supported", 0), "DAT_QOS_BEST_EFFORT");
        assert_eq!(
            of("lmr_mem_types_supported", 0x41),
            "DAT_MEM_TYPE_VIRTUAL DAT_MEM_TYPE_LMR 0x40"
        );
        assert_eq!(of("ha_loadbalancing", 0), "DAT_HA_LB_NONE");
        assert_eq!(of("ha_loadbalancing", 1), "DAT_HA_LB_INTERCOMM");
        assert_eq!(super::of("max_private_data_size", 512), None);
    }
}
