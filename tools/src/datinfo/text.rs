//! The long form of the report: all attributes of each adapter.

use serde_json::{Map, Value};

/// The column at which values begin.
const VALUE_COLUMN: usize = 42;

pub(crate) fn print(report: &Value) {
    println!("registry library  {}", word(&report["registry_library"]));
    println!("registry file     {}", word(&report["registry_file"]));
    let adapters = list(&report["adapters"]);
    println!("adapters          {}", adapters.len());
    adapters.iter().for_each(print_adapter);
    let unused = list(&report["unused_lines"]);
    if !unused.is_empty() {
        println!("\nlines of the registry file that are not used:");
    }
    for line in unused {
        let (number, name) = (&line["line"], word(&line["ia_name"]));
        println!("  line {number:<4} {name:<16} {}", word(&line["reason"]));
    }
}

fn print_adapter(adapter: &Value) {
    let safety = if adapter["thread_safe"] == true {
        "threadsafe"
    } else {
        "nonthreadsafe"
    };
    println!(
        "\n{}  u{} {safety}",
        word(&adapter["ia_name"]),
        word(&adapter["version"])
    );
    match &adapter["line"] {
        Value::Null => println!("  in no line of the registry file"),
        line => println!(
            "  line {line}: {} with parameters \"{}\"",
            word(&adapter["library"]),
            word(&adapter["params"])
        ),
    }
    match &adapter["opened"] {
        Value::Object(opened) => print_opened(opened),
        _ => println!("  not opened"),
    }
}

fn print_opened(opened: &Map<String, Value>) {
    if let Some(error) = opened.get("error") {
        match opened.get("reason") {
            Some(reason) => println!("  cannot be opened: {} ({})", word(reason), word(error)),
            None => println!("  cannot be opened: {}", word(error)),
        }
        return;
    }
    for (part, attributes) in opened {
        println!("  {part}");
        for (name, value) in attributes.as_object().into_iter().flatten() {
            print_attribute(name, value);
        }
    }
}

fn print_attribute(name: &str, value: &Value) {
    match value {
        Value::Object(named) if named.is_empty() => line(4, name, "none"),
        Value::Object(named) => {
            println!("    {name}");
            named
                .iter()
                .for_each(|(name, value)| line(6, name, &word(value)));
        }
        Value::Array(rows) => {
            println!("    {name} (software, request, DTO, connection, bind, async)");
            for row in rows {
                let cells = list(row)
                    .iter()
                    .map(|cell| if *cell == true { "yes " } else { "no  " });
                println!("      {}", cells.collect::<String>().trim_end());
            }
        }
        value => line(4, name, &word(value)),
    }
}

fn line(indent: usize, name: &str, value: &str) {
    println!(
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
