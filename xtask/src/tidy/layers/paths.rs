//! The paths that the code of one module names.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Field, ImplItem, Item, ItemMod, ItemUse, Local, Macro, Meta, TraitItem};
use syn::{Token, UseTree, Visibility, punctuated::Punctuated};

/// A path, in segments, and the line that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Import {
    /// The name in the importing module, none for `*`.
    pub(super) name: Option<String>,
    /// The imported item; the module itself for `*`.
    pub(super) named: Named,
}

/// Returns the paths that `item` names outside of code for tests, without those of nested
/// modules.
pub(super) fn of_item(item: &Item) -> Vec<Named> {
    let mut paths = Paths { named: Vec::new() };
    paths.visit_item(item);
    paths.named
}

pub(super) fn imports(item: &ItemUse) -> Vec<Import> {
    let mut imports = Vec::new();
    flatten(&item.tree, &mut Vec::new(), &mut imports);
    imports
}

/// True if code with these attributes is compiled for unit tests only.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        let condition = attribute.parse_args::<Meta>();
        is_cfg && condition.is_ok_and(|meta| implies_test(&meta))
            || attribute.path().is_ident("test")
    })
}

fn implies_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            parts.is_ok_and(|parts| parts.iter().any(implies_test))
        }
        _ => false,
    }
}

fn flatten(tree: &UseTree, prefix: &mut Vec<String>, imports: &mut Vec<Import>) {
    let mut add = |name: Option<String>, last: Option<&syn::Ident>, line: usize| {
        let mut path = prefix.clone();
        // `use a::{self}` imports `a`.
        path.extend(
            last.filter(|ident| *ident != "self" || prefix.is_empty())
                .map(ToString::to_string),
        );
        let named = Named { path, line };
        imports.push(Import { name, named });
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, imports);
            prefix.pop();
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, prefix, imports);
            }
        }
        UseTree::Name(name) if name.ident == "self" => {
            let line = name.ident.span().start().line;
            let module = prefix.last().cloned();
            add(module, Some(&name.ident), line);
        }
        UseTree::Name(name) => {
            let line = name.ident.span().start().line;
            add(Some(name.ident.to_string()), Some(&name.ident), line);
        }
        UseTree::Rename(rename) => {
            let line = rename.ident.span().start().line;
            add(Some(rename.rename.to_string()), Some(&rename.ident), line);
        }
        UseTree::Glob(star) => add(None, None, star.star_token.spans[0].start().line),
    }
}

/// True for the first segment of a path that is resolved from a place in this crate.
fn is_anchor(segment: &str) -> bool {
    ["crate", "self", "super"].contains(&segment)
}

struct Paths {
    named: Vec<Named>,
}

impl Paths {
    fn add(&mut self, path: Vec<String>, line: usize) {
        if path.len() > 1 && is_anchor(&path[0]) {
            self.named.push(Named { path, line });
        }
    }

    /// Adds the paths among the tokens of a macro, whose grammar is the macro's own.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if colons == 2 => path.push(ident.to_string()),
                TokenTree::Ident(ident) => {
                    self.add(std::mem::take(&mut path), line);
                    line = ident.span().start().line;
                    path.push(ident.to_string());
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' && colons < 2 => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => {
                    self.add(std::mem::take(&mut path), line);
                    self.add_tokens(group.stream());
                }
                _ => self.add(std::mem::take(&mut path), line),
            }
            colons = 0;
        }
        self.add(path, line);
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        let attributes: &[Attribute] = match item {
            TraitItem::Const(item) => &item.attrs,
            TraitItem::Fn(item) => &item.attrs,
            TraitItem::Type(item) => &item.attrs,
            TraitItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast Field) {
        if !is_test(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if !is_test(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        for import in imports(item) {
            self.add(import.named.path, import.named.line);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|one| one.ident.to_string());
        let line = path
            .segments
            .first()
            .map(|one| one.ident.span().start().line);
        if path.leading_colon.is_none() {
            self.add(segments.collect(), line.unwrap_or_default());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.add_tokens(call.tokens.clone());
    }

    /// Skips documentation and other attributes, which use no module.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    /// Skips `pub(in path)`, because the path names an ancestor.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    /// Skips nested modules, which are in the tree of modules.
    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
