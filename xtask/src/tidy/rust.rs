//! Length of files and functions.

use proc_macro2::LineColumn;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, Expr, ImplItemFn, ItemFn, Stmt, TraitItemFn};

/// Lines of a file.
const FILE_MAX: usize = 800;

/// Lines of a function's body.
const FUNCTION_MAX: usize = 70;

/// Lines of a test's body, which may contain a table of cases.
const TEST_MAX: usize = 120;

/// Lines of one entry of a table: a `match` arm that only forwards its case, or a field.
const TABLE_ENTRY_MAX: usize = 3;

/// Reports a file or functions that are too long.
pub(super) fn check(source: &str, report: &mut impl FnMut(usize, String)) {
    let lines = source.lines().count();
    if lines > FILE_MAX {
        report(1, format!("{lines} lines, at most {FILE_MAX}"));
    }
    match syn::parse_file(source) {
        Ok(file) => Functions { report }.visit_file(&file),
        Err(e) => report(e.span().start().line, format!("not Rust: {e}")),
    }
}

struct Functions<'a, R: FnMut(usize, String)> {
    report: &'a mut R,
}

impl<R: FnMut(usize, String)> Functions<'_, R> {
    fn check_body(&mut self, name: &str, body: &Block, lines_max: usize) {
        let lines = height(body.span().start(), body.span().end());
        if lines > lines_max && !is_table(body) {
            let what = format!("fn {name}: {lines} lines, at most {lines_max}");
            (self.report)(body.span().start().line, what);
        }
    }
}

impl<'ast, R: FnMut(usize, String)> Visit<'ast> for Functions<'_, R> {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        let is_test = function
            .attrs
            .iter()
            .any(|attr| attr.path().is_ident("test"));
        let lines_max = if is_test { TEST_MAX } else { FUNCTION_MAX };
        self.check_body(&function.sig.ident.to_string(), &function.block, lines_max);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.check_body(
            &function.sig.ident.to_string(),
            &function.block,
            FUNCTION_MAX,
        );
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(body) = &function.default {
            self.check_body(&function.sig.ident.to_string(), body, FUNCTION_MAX);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// Returns true if a body is only a table, however long: one `match` whose arms only forward
/// their case, or one structure whose fields are short.
fn is_table(body: &Block) -> bool {
    let [Stmt::Expr(table, _)] = body.stmts.as_slice() else {
        return false;
    };
    match table {
        Expr::Match(dispatch) => dispatch.arms.iter().all(is_short),
        Expr::Struct(structure) => structure.fields.iter().all(is_short),
        _ => false,
    }
}

fn is_short(entry: &impl Spanned) -> bool {
    height(entry.span().start(), entry.span().end()) <= TABLE_ENTRY_MAX
}

fn height(start: LineColumn, end: LineColumn) -> usize {
    end.line - start.line + 1
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
    fn a_long_function_is_reported_wherever_it_is() {
        let body = "    let _ = 1;\n".repeat(70);
        let source = format!("struct S;\nimpl S {{\n    fn long() {{\n{body}    }}\n}}\n");
        assert_eq!(faults(&source), ["3: fn long: 72 lines, at most 70"]);
    }

    #[test]
    fn a_table_of_short_entries_may_be_long() {
        let arms: String = (0..80)
            .map(|n| format!("        {n} => call({n}),\n"))
            .collect();
        let source = format!("fn table(n: u8) {{\n    match n {{\n{arms}    }}\n}}\n");
        assert_eq!(faults(&source), Vec::<String>::new());
        let fields: String = (0..80)
            .map(|n| format!("        f{n}: entry::f{n},\n"))
            .collect();
        let source = format!("fn table() -> T {{\n    T {{\n{fields}    }}\n}}\n");
        assert_eq!(faults(&source), Vec::<String>::new());
    }

    #[test]
    fn a_long_file_is_reported() {
        assert_eq!(faults(&"\n".repeat(801)), ["1: 801 lines, at most 800"]);
    }
}
