//! The paths that the code of one module names, read from its tokens.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::punctuated::Punctuated;
use syn::{Attribute, Item, Meta, Token};

/// A path, in segments, and the line that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
    /// The name in the module that imports the path; none for `*`.
    pub(super) name: Option<String>,
}

/// Returns the paths that `item` names from a place in this crate, outside of code for tests.
pub(super) fn of_item(item: &Item) -> Vec<Named> {
    let is_anchored = |named: &Named| ["crate", "self", "super"].contains(&&*named.path[0]);
    let mut named = all(item);
    named.retain(|named| named.path.len() > 1 && is_anchored(named));
    named
}

/// Returns all paths that `item` names outside of code for tests.
pub(super) fn all(item: &Item) -> Vec<Named> {
    let mut paths = Paths::default();
    paths.add_tokens(item.to_token_stream(), &[]);
    paths.named
}

/// True if code with these attributes is compiled for unit tests only.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|attribute| is_test_meta(&attribute.meta))
}

fn is_test_meta(meta: &Meta) -> bool {
    match meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.parse_args::<Meta>();
            condition.is_ok_and(|condition| implies_test(&condition))
        }
        meta => meta.path().is_ident("test"),
    }
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

#[derive(Default)]
struct Paths {
    named: Vec<Named>,
}

impl Paths {
    /// Adds the paths among the tokens. `prefix` precedes each of them: in the braces of a `use`.
    fn add_tokens(&mut self, tokens: TokenStream, prefix: &[String]) {
        let mut tokens = tokens.into_iter().peekable();
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons) = (0, 0);
        while let Some(token) = tokens.next() {
            let is_continued = colons == 2 && !path.is_empty();
            match token {
                TokenTree::Punct(mark) if mark.as_char() == ':' && colons < 2 => {
                    colons += 1;
                    continue;
                }
                TokenTree::Punct(mark) if mark.as_char() == '*' && is_continued => {
                    self.add(&mut path, line, None);
                }
                TokenTree::Punct(mark) => {
                    self.end(&mut path, line);
                    let attribute = tokens.next_if(|next| mark.as_char() == '#' && is_list(next));
                    if let Some(TokenTree::Group(attribute)) = attribute
                        && is_of_test(&attribute)
                    {
                        skip_item(&mut tokens);
                    }
                }
                TokenTree::Ident(ident) if ident == "as" => {
                    let name = tokens.next().map(|name| name.to_string());
                    self.add(&mut path, line, name);
                }
                TokenTree::Ident(ident) => {
                    if !is_continued {
                        self.end(&mut path, line);
                        path = prefix.to_vec();
                    }
                    line = ident.span().start().line;
                    // `use a::{self}` imports `a`.
                    if ident != "self" || path.is_empty() {
                        path.push(ident.to_string());
                    }
                }
                TokenTree::Group(group)
                    if group.delimiter() == Delimiter::Brace && is_continued =>
                {
                    self.add_tokens(group.stream(), &path);
                    path.clear();
                }
                TokenTree::Group(group) => {
                    self.end(&mut path, line);
                    self.add_tokens(group.stream(), &[]);
                }
                TokenTree::Literal(_) => self.end(&mut path, line),
            }
            colons = 0;
        }
        self.end(&mut path, line);
    }

    fn end(&mut self, path: &mut Vec<String>, line: usize) {
        let name = path.last().cloned();
        self.add(path, line, name);
    }

    fn add(&mut self, path: &mut Vec<String>, line: usize, name: Option<String>) {
        let path = std::mem::take(path);
        if !path.is_empty() {
            self.named.push(Named { path, line, name });
        }
    }
}

fn is_list(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket)
}

fn is_of_test(attribute: &Group) -> bool {
    syn::parse2(attribute.stream()).is_ok_and(|meta| is_test_meta(&meta))
}

/// Skips the rest of the item, statement or field behind an attribute.
fn skip_item(tokens: &mut impl Iterator<Item = TokenTree>) {
    let mut is_field = true;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                let word = ident.to_string();
                is_field &= !["fn", "impl", "let", "mod", "use"].contains(&&*word);
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => return,
            // Elsewhere, commas separate generic parameters.
            TokenTree::Punct(mark) if mark.as_char() == ',' && is_field => return,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            _ => (),
        }
    }
}
