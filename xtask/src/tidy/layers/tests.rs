use stack_tests::{rows, tree};

use super::graph::Cycle;
use super::*;

/// The graph of a crate with these files; the first one is its root.
fn graph(files: &[(&str, &str)]) -> Graph {
    let dir = tree(files).unwrap();
    let root = dir.path().join(files[0].0);
    Tree::read(dir.path(), &root).unwrap().graph()
}

/// The cycles of a crate with these files, with the places of each use.
fn cycles(files: &[(&str, &str)]) -> Vec<String> {
    let line = |place: &Place| format!("{}:{}", place.file.display(), place.line);
    let lines = |places: &Vec<Place>| places.iter().map(line).collect::<Vec<_>>().join(", ");
    let show = |cycle: &Cycle| {
        let places = cycle.uses.iter().map(|(_, _, places)| lines(places));
        format!("{cycle}: {}", places.collect::<Vec<_>>().join(" / "))
    };
    graph(files).cycles().iter().map(show).collect()
}

const NONE: [&str; 0] = [];

#[test]
fn layers_have_no_cycle() {
    let files = [
        ("lib.rs", "mod a; mod b; pub use a::A; fn f() { b::f() }"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", "pub struct B; pub fn f() {}"),
    ];
    assert_eq!(cycles(&files), NONE);
}

#[test]
fn a_cycle_is_found_in_every_form_of_a_use() {
    let forms = [
        "use crate::a::A;",
        "use super::a::A;",
        "use super::{b, a::A};",
        "use crate::{a as other};",
        "use crate::a::*;",
        "fn f() -> super::a::A { loop {} }",
        "fn f() { use crate::a; }",
        "fn f() { crate::a::f() }",
        "fn f() { assert!(1 > 0, \"{}\", crate::a::f()); }",
        "macro_rules! m { () => { $crate::a::f() } }",
        "impl Into<crate::a::A> for B { fn into(self) -> A { loop {} } }",
        "mod inner { use super::super::a::A; }",
    ];
    for form in forms {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "\nuse crate::b;"),
            ("b.rs", form),
        ];
        assert_eq!(cycles(&files), ["a -> b -> a: a.rs:2 / b.rs:1"], "{form}");
    }
}

#[test]
fn a_reexport_of_an_ancestor_is_a_use_of_the_module_that_defines_the_name() {
    let roots = [
        "mod a; mod b; pub use a::A;",
        "mod a; mod b; pub use self::a::Other as A;",
        "mod a; mod b; pub use a::*;",
        "mod a; mod b; mod c; pub use c::A;",
    ];
    for root in roots {
        let files = [
            ("lib.rs", root),
            ("a.rs", "use crate::b; pub struct A; pub struct Other;"),
            ("b.rs", "use crate::A;"),
            ("c.rs", "pub use crate::a::A;"),
        ];
        let through = if root.contains("mod c") {
            "a -> b -> c -> a: a.rs:1 / b.rs:1 / c.rs:1"
        } else {
            "a -> b -> a: a.rs:1 / b.rs:1"
        };
        assert_eq!(cycles(&files), [through], "{root}");
    }
}

#[test]
fn an_exported_macro_belongs_to_the_module_that_defines_it() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "use crate::b; #[macro_export] macro_rules! m { () => {} }",
        ),
        ("b.rs", "fn f() { crate::m!() }"),
    ];
    // A call has one segment after `crate`, like the name of a re-export.
    assert_eq!(cycles(&files), ["a -> b -> a: a.rs:1 / b.rs:1"]);
}

#[test]
fn parents_and_children_use_each_other_freely() {
    let files = rows! {
        "lib.rs", "mod a; struct S;";
        "a/mod.rs", "mod inner; use inner::Inner; use crate::S; pub struct A;";
        "a/inner.rs", "use super::A; use crate::S; pub struct Inner;";
    };
    assert_eq!(cycles(&files), NONE);
}

#[test]
fn siblings_below_one_parent_are_checked_for_themselves() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a/mod.rs", "mod one; mod two; use crate::b;"),
        ("a/one.rs", "use super::two;"),
        ("a/two.rs", "use crate::a::one; use crate::b::deep;"),
        ("b/mod.rs", "pub mod deep;"),
        ("b/deep.rs", ""),
    ];
    assert_eq!(
        cycles(&files),
        ["a::one -> a::two -> a::one: a/one.rs:1 / a/two.rs:1"]
    );
}

#[test]
fn a_use_between_descendants_is_one_between_their_ancestors() {
    let files = [
        ("lib.rs", "mod a { mod one; } mod b;"),
        ("a/one.rs", "use crate::b::two::T;"),
        ("b/mod.rs", "mod two; mod three;"),
        ("b/two.rs", ""),
        ("b/three.rs", "use crate::a::X;"),
    ];
    assert_eq!(cycles(&files), ["a -> b -> a: a/one.rs:1 / b/three.rs:1"]);
}

#[test]
fn tests_and_documentation_use_nothing() {
    let code = "//! See [`crate::a::A`].\n\
        /// See [`A`](crate::a::A).\n\
        struct B {\n    #[cfg(test)] a: crate::a::A,\n}\n\
        #[cfg(all(test, unix))]\nuse crate::a::A;\n\
        impl B {\n    #[cfg(test)] fn f() { crate::a::f() }\n}\n\
        fn f() { #[cfg(test)] let x = crate::a::f(); }\n\
        #[test]\nfn g() { crate::a::f() }\n\
        #[cfg(test)]\nmod tests { use crate::a::A; }\n";
    let files = [
        ("lib.rs", "mod a; mod b; #[cfg(test)] mod support;"),
        ("a.rs", "use crate::b;"),
        ("b.rs", code),
        ("support.rs", "use crate::a; use crate::b;"),
    ];
    assert_eq!(cycles(&files), NONE);
    let features = "#[cfg(any(test, feature = \"x\"))]\nuse crate::a::A;";
    let files = [files[0], files[1], ("b.rs", features), files[3]];
    assert_eq!(cycles(&files), ["a -> b -> a: a.rs:1 / b.rs:2"]);
}

#[test]
fn the_shortest_cycles_are_shown_and_their_weakest_uses_cut_them() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b;\nuse crate::b::x;"),
        ("b.rs", "use crate::c;\nuse crate::a;"),
        ("c.rs", "use crate::d;\nfn f() { crate::d::f() }"),
        ("d.rs", "use crate::a;\nuse crate::a::x;"),
    ];
    assert_eq!(
        cycles(&files),
        [
            "a -> b -> a: a.rs:1, a.rs:2 / b.rs:2",
            "a -> b -> c -> d -> a: a.rs:1, a.rs:2 / b.rs:1 / c.rs:1, c.rs:2 / d.rs:1, d.rs:2"
        ]
    );
}

#[test]
fn a_fault_names_the_cycle_and_its_weakest_use() {
    let graph = graph(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b;"),
        ("b.rs", "use crate::a;\nuse crate::a::x;"),
        ("c.rs", "use crate::a;"),
    ]);
    let faults = faults_of(&[graph]);
    let whats: Vec<&str> = faults.iter().map(|fault| fault.what.as_str()).collect();
    assert_eq!(
        whats,
        ["a cycle of modules, a -> b -> a; its weakest use is `a` of `b`: a.rs:1 (`b`)"]
    );
}

#[test]
fn long_lists_of_places_are_truncated() {
    let place = |line| Place {
        file: "a.rs".into(),
        line,
        name: "B".into(),
    };
    let places: Vec<_> = (1..=PLACES_MAX + 2).map(place).collect();
    assert!(list(&places).starts_with("a.rs:1 (`B`), a.rs:2 (`B`), "));
    assert!(list(&places).ends_with(" and 2 more"));
    assert!(!list(&places[2..]).contains("more"));
}
