//! The long form of the report: all attributes of each adapter.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// The column at which values begin.
const VALUE_COLUMN: usize = 42;

/// Appends a line. Writing to a string does not fail.
macro_rules! line {
    ($text:ident, $($arguments:tt)+) => {
        let _ = writeln!($text, $($arguments)+);
    };
}

/// Returns the long form.
pub(crate) fn text(report: &Value) -> String {
    let mut text = String::new();
    print(&mut text, report);
    text
}

fn print(text: &mut String, report: &Value) {
    line!(
        text,
        "registry library  {}",
        word(&report["registry_library"])
    );
    line!(text, "registry file     {}", word(&report["registry_file"]));
    let adapters = list(&report["adapters"]);
    line!(text, "adapters          {}", adapters.len());
    for adapter in adapters {
        print_adapter(text, adapter);
    }
    let unused = list(&report["unused_lines"]);
    if !unused.is_empty() {
        line!(text, "\nlines of the registry file that are not used:");
    }
    for line in unused {
        let (number, name) = (&line["line"], word(&line["ia_name"]));
        line!(
            text,
            "  line {number:<4} {name:<16} {}",
            word(&line["reason"])
        );
    }
}

fn print_adapter(text: &mut String, adapter: &Value) {
    let safety = if adapter["thread_safe"] == true {
        "threadsafe"
    } else {
        "nonthreadsafe"
    };
    line!(
        text,
        "\n{}  u{} {safety}",
        word(&adapter["ia_name"]),
        word(&adapter["version"])
    );
    match &adapter["line"] {
        Value::Null => {
            line!(text, "  in no line of the registry file");
        }
        line => {
            line!(
                text,
                "  line {line}: {} with parameters \"{}\"",
                word(&adapter["library"]),
                word(&adapter["params"])
            );
        }
    }
    match &adapter["opened"] {
        Value::Object(opened) => print_opened(text, opened),
        _ => {
            line!(text, "  not opened");
        }
    }
}

fn print_opened(text: &mut String, opened: &Map<String, Value>) {
    if let Some(error) = opened.get("error") {
        match opened.get("reason") {
            Some(reason) => {
                line!(
                    text,
                    "  cannot be opened: {} ({})",
                    word(reason),
                    word(error)
                );
            }
            None => {
                line!(text, "  cannot be opened: {}", word(error));
            }
        }
        return;
    }
    for (part, attributes) in opened {
        line!(text, "  {part}");
        for (name, value) in attributes.as_object().into_iter().flatten() {
            print_attribute(text, name, value);
        }
    }
}

fn print_attribute(text: &mut String, name: &str, value: &Value) {
    match value {
        Value::Object(named) if named.is_empty() => pair(text, 4, name, "none"),
        Value::Object(named) => {
            line!(text, "    {name}");
            named
                .iter()
                .for_each(|(name, value)| pair(text, 6, name, &word(value)));
        }
        Value::Array(rows) => {
            line!(
                text,
                "    {name} (software, request, DTO, connection, bind, async)"
            );
            for row in rows {
                let cells = list(row)
                    .iter()
                    .map(|cell| if *cell == true { "yes " } else { "no  " });
                line!(text, "      {}", cells.collect::<String>().trim_end());
            }
        }
        value => pair(text, 4, name, &word(value)),
    }
}

fn pair(text: &mut String, indent: usize, name: &str, value: &str) {
    line!(
        text,
        "{:indent$}{name:<width$} {value}",
        "",
        width = VALUE_COLUMN - indent
    );
}

/// The elements of an array; none if the value is no array.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A value without the quotes of JSON.
pub(crate) fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        other => other.to_string(),
    }
}
