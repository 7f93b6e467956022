//! The short form of the report: one line per adapter.

use serde_json::Value;

use crate::text::{list, word};

/// The names of the columns. The last column is printed only if an adapter has a reason.
const TITLES: [&str; 6] = ["Name", "State", "Device", "Address", "Provider", "Reason"];

/// Returns the table of the adapters, followed by the number of lines that are not used.
pub(crate) fn table(report: &Value) -> String {
    let mut lines: Vec<[String; TITLES.len()]> = vec![TITLES.map(str::to_owned)];
    lines.extend(list(&report["adapters"]).iter().map(line));
    if lines[1..]
        .iter()
        .all(|line| line[TITLES.len() - 1].is_empty())
    {
        lines[0][TITLES.len() - 1].clear();
    }
    let mut text = aligned(&lines);
    let unused = list(&report["unused_lines"]).len();
    if unused > 0 {
        let lines = if unused == 1 { "line" } else { "lines" };
        let file = word(&report["registry_file"]);
        text.push_str(&format!(
            "\n{unused} {lines} of {file} not used; `datinfo -v` prints the reasons\n"
        ));
    }
    text
}

/// The columns of the table of limits: title, part of the attributes, and attribute.
const LIMITS: [(&str, &str, &str); 9] = [
    ("EPs", "adapter", "max_eps"),
    ("Posts", "adapter", "max_dto_per_ep"),
    ("Segments", "adapter", "max_iov_segments_per_dto"),
    ("EVD", "adapter", "max_evd_qlen"),
    ("SRQs", "adapter", "max_srqs"),
    ("Message", "adapter", "max_message_size"),
    ("RDMA", "adapter", "max_rdma_size"),
    ("Reads", "adapter", "max_rdma_read_per_ep_out"),
    ("Private", "provider", "max_private_data_size"),
];

/// Returns the sizes and limits of the usable adapters.
pub(crate) fn limits(report: &Value) -> String {
    let titles = LIMITS.map(|(title, ..)| title.to_owned());
    let mut lines = vec![[vec!["Name".to_owned()], titles.into()].concat()];
    for adapter in list(&report["adapters"]) {
        if adapter["state"] == "usable" {
            let cells = LIMITS.map(|(_, part, name)| word(&adapter["opened"][part][name]));
            lines.push([vec![word(&adapter["ia_name"])], cells.into()].concat());
        }
    }
    aligned(&lines)
}

/// Returns the lines with aligned columns.
fn aligned(lines: &[impl AsRef<[String]>]) -> String {
    let mut text = String::new();
    for line in lines {
        let mut printed = String::new();
        for (column, cell) in line.as_ref().iter().enumerate() {
            let widths = lines.iter();
            let widths = widths.map(|line| line.as_ref()[column].chars().count());
            let width = widths.max().unwrap_or(0);
            printed.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(printed.trim_end());
        text.push('\n');
    }
    text
}

fn line(adapter: &Value) -> [String; TITLES.len()] {
    let opened = &adapter["opened"];
    let reason = match (&opened["reason"], &opened["error"]) {
        (Value::String(reason), _) => reason.clone(),
        (_, Value::String(error)) => error.clone(),
        _ => String::new(),
    };
    [
        word(&adapter["ia_name"]),
        word(&adapter["state"]),
        word(&adapter["device"]),
        word(&adapter["address"]),
        word(&adapter["library"]),
        // A reason with line breaks would break the table.
        reason.split_whitespace().collect::<Vec<_>>().join(" "),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn adapter(name: &str, state: &str, opened: Value) -> Value {
        json!({
            "ia_name": name, "state": state, "device": "lo", "address": "127.0.0.1",
            "library": "liba.so", "opened": opened,
        })
    }

    #[test]
    fn columns_are_aligned_and_reasons_are_last() {
        let bad = json!({ "error": "code", "reason": "no\ndevice" });
        let report = json!({
            "registry_file": "/etc/dat.conf",
            "adapters": [
                adapter("a", "usable", json!({ "adapter": {} })),
                adapter("longer", "unusable", bad),
                adapter("c", "unusable", json!({ "error": "code" })),
            ],
            "unused_lines": [{}, {}],
        });
        assert_eq!(
            table(&report),
            "Name    State     Device  Address    Provider  Reason\n\
             a       usable    lo      127.0.0.1  liba.so\n\
             longer  unusable  lo      127.0.0.1  liba.so   no device\n\
             c       unusable  lo      127.0.0.1  liba.so   code\n\
             \n\
             2 lines of /etc/dat.conf not used; `datinfo -v` prints the reasons\n"
        );
    }

    #[test]
    fn limits_are_those_of_usable_adapters() {
        let opened = json!({ "adapter": { "max_eps": 7 }, "provider": {} });
        let adapters = [
            adapter("a", "usable", opened),
            adapter("b", "unusable", json!({})),
        ];
        let text = limits(&json!({ "adapters": adapters }));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("a     7"), "{text}");
    }

    #[test]
    fn a_table_without_reasons_has_no_column_for_them() {
        let report = json!({ "adapters": [adapter("a", "not opened", Value::Null)] });
        assert_eq!(
            table(&report),
            "Name  State       Device  Address    Provider\n\
             a     not opened  lo      127.0.0.1  liba.so\n"
        );
    }
}
