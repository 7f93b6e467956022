//! Tables of modules. They must be complete, because readers rely on them.

use syn::{Attribute, Item};

/// The beginning of the head of a table.
const HEADS: [&str; 2] = ["//! | File |", "//! | Module |"];

/// A module that needs no row.
const TESTS: &str = "tests";

/// Reports modules that a file declares and that are missing in its table.
pub(super) fn check(source: &str, report: &mut impl FnMut(usize, String)) {
    let is_head = |line: &str| HEADS.iter().any(|head| line.starts_with(head));
    let docs: Vec<&str> = source
        .lines()
        .filter(|line| line.starts_with("//!"))
        .collect();
    if !docs.iter().any(|line| is_head(line)) {
        return;
    }
    // A file that does not parse is reported by its own check.
    let Ok(file) = syn::parse_file(source) else {
        return;
    };
    for item in &file.items {
        let Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        let is_file = module.content.is_none() && !module.attrs.iter().any(is_path);
        let forms = ["`", ".rs`", "/`"].map(|end| format!("`{name}{end}"));
        let is_named = |line: &&str| forms.iter().any(|form| line.contains(form));
        if is_file && name != TESTS && !docs.iter().any(is_named) {
            let line = module.ident.span().start().line;
            report(line, format!("mod {name} is not in the table of modules"));
        }
    }
}

/// True for a module with a `path` attribute, which belongs to another directory.
fn is_path(attribute: &Attribute) -> bool {
    attribute.path().is_ident("path")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(source: &str) -> Vec<String> {
        let mut found = Vec::new();
        check(source, &mut |line, what| {
            found.push(format!("{line}: {what}"))
        });
        found
    }

    #[test]
    fn a_module_that_is_not_in_the_table_is_reported() {
        let table =
            "//! | File | What |\n//! |---|---|\n//! | `a`, [`b`] | x |\n//! | `c.rs` | y |\n";
        let modules =
            "mod a;\npub mod b;\nmod c;\nmod tests;\n#[path = \"e.rs\"]\nmod e;\nmod f {}\n";
        assert_eq!(faults(&format!("{table}{modules}")), Vec::<String>::new());
        assert_eq!(
            faults(&format!("{table}{modules}mod d;\n")),
            ["12: mod d is not in the table of modules"]
        );
    }

    #[test]
    fn a_file_without_a_table_is_accepted() {
        assert_eq!(
            faults("//! About `a`.\nmod a;\nmod b;\n"),
            Vec::<String>::new()
        );
    }
}
