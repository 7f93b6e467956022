use super::*;

const GOOD: &str = "ia u2.0 nonthreadsafe default lib.so dapl.2.0 \"p 0\" \"\"";

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

fn one(line: &str) -> Entry {
    let parsed = parse(line.as_bytes());
    assert_eq!(parsed.diagnostics, [], "{line}");
    assert_eq!(parsed.entries.len(), 1, "{line}");
    parsed.entries.into_iter().next().expect("one entry")
}

fn rejected(line: &str) -> Diagnostic {
    // A good line follows, to show that a bad line does not affect other lines.
    let parsed = parse(format!("{line}\n{GOOD}\n").as_bytes());
    assert_eq!(parsed.entries.len(), 1, "{line}: {:?}", parsed.entries);
    assert_eq!(parsed.entries[0].ia_name.as_c_str(), c"ia");
    let one = <[_; 1]>::try_from(parsed.diagnostics);
    let [diagnostic] = one.unwrap_or_else(|found| panic!("{line}: {found:?}"));
    diagnostic
}

fn with_field(index: usize, value: &str) -> String {
    let mut fields = words("ia u2.0 nonthreadsafe default lib.so dapl.2.0 p \"\"");
    fields[index] = value;
    fields.join(" ")
}

#[test]
fn a_good_line_gives_all_fields() {
    let entry = one(GOOD);
    assert_eq!(entry.ia_name.as_c_str(), c"ia");
    assert_eq!((entry.api, entry.major, entry.minor), (Api::User, 2, 0));
    assert!(!entry.thread_safe && entry.default);
    assert_eq!(entry.lib_path.as_c_str(), c"lib.so");
    assert_eq!(entry.ia_params.as_c_str(), c"p 0");
    assert_eq!(entry.line, 1);
    assert!(entry.is_registered());
}

#[test]
fn kernel_and_nondefault_entries_are_parsed_but_not_registered() {
    assert!(!one(&with_field(1, "k2.0")).is_registered());
    assert!(!one(&with_field(3, "nondefault")).is_registered());
}

#[test]
fn api_versions() {
    for (text, version) in [
        ("u2", (2, 0)),
        ("u2.", (2, 0)),
        ("u2.0", (2, 0)),
        ("u002.010", (2, 10)),
        ("u1.2", (1, 2)),
    ] {
        let entry = one(&with_field(1, text));
        assert_eq!((entry.major, entry.minor), version, "{text}");
    }
    let bad = "U2.0 2.0 u u.0 u0x2.0 u+2.0 u-2.0 u2.0.0 u2.0a u2a \"\" u99999999999.0";
    for text in words(bad) {
        let diagnostic = rejected(&with_field(1, text));
        assert_eq!(diagnostic.field, Field::ApiVersion, "{text}");
        assert_eq!(diagnostic.reason, Reason::ApiVersion, "{text}");
        assert_eq!((diagnostic.line, diagnostic.column), (1, 4));
    }
}

#[test]
fn thread_safety_and_default_match_by_prefix() {
    assert!(one(&with_field(2, "threadsafeX")).thread_safe);
    assert!(!one(&with_field(2, "nonthreadsafeX")).thread_safe);
    assert!(one(&with_field(3, "defaulty")).default);
    assert!(!one(&with_field(3, "nondefaulty")).default);
    for text in ["thread", "ThreadSafe", "nonthreadsaf", "non", "\"\""] {
        let field = rejected(&with_field(2, text)).field;
        assert_eq!(field, Field::ThreadSafety, "{text}");
    }
    for text in ["defaul", "DEFAULT", "nondefaul"] {
        let field = rejected(&with_field(3, text)).field;
        assert_eq!(field, Field::Default, "{text}");
    }
}

#[test]
fn provider_versions_have_three_parts() {
    one(&with_field(5, "dat-rs.1.0"));
    for text in words("dapl dapl.2 dapl.2. dapl.x.0 dapl.2.0x dapl..0 .2.0") {
        let diagnostic = rejected(&with_field(5, text));
        assert_eq!(diagnostic.reason, Reason::ProviderVersion, "{text}");
    }
}

#[test]
fn missing_and_extra_fields_are_reported() {
    let fields = [
        Field::ApiVersion,
        Field::ThreadSafety,
        Field::Default,
        Field::LibPath,
        Field::ProviderVersion,
        Field::IaParams,
        Field::PlatformParams,
    ];
    let words = words("ia u2.0 nonthreadsafe default lib.so dapl.2.0 p ''");
    for (count, field) in (1..).zip(fields) {
        let line = words[..count].join(" ");
        let diagnostic = rejected(&line);
        assert_eq!(diagnostic.field, field, "{line}");
        assert_eq!(diagnostic.reason, Reason::Missing, "{line}");
    }
    let diagnostic = rejected(&format!("{GOOD} extra"));
    assert_eq!(diagnostic.field, Field::LineEnd);
    assert_eq!(diagnostic.reason, Reason::ExtraText);
}

#[test]
fn a_carriage_return_is_an_extra_token() {
    let diagnostic = rejected(&format!("{GOOD}\r"));
    assert_eq!(diagnostic.reason, Reason::ExtraText);
}

#[test]
fn names_have_at_most_255_characters_and_may_be_empty() {
    let longest = one(&with_field(0, &"n".repeat(255)));
    assert_eq!(longest.ia_name.count_bytes(), 255);
    let diagnostic = rejected(&with_field(0, &"n".repeat(256)));
    assert_eq!(diagnostic.reason, Reason::NameTooLong { len: 256 });
    assert_eq!(one(&with_field(0, "\"\"")).ia_name.as_c_str(), c"");
}

#[test]
fn comments_start_only_where_a_token_could() {
    one(&format!("{GOOD} # a comment"));
    one(&format!("{GOOD}# a comment"));
    assert_eq!(one(&with_field(0, "a#b")).ia_name.as_c_str(), c"a#b");
    let comments = parse(b"# only a comment\n  # another\n\t\n\n");
    assert!(comments.entries.is_empty());
    assert_eq!(rejected("ia # u2.0 nonthreadsafe").reason, Reason::Missing);
}

#[test]
fn quotes_may_contain_blanks_and_escapes() {
    assert_eq!(one(&with_field(0, r#""a b""#)).ia_name.as_c_str(), c"a b");
    let entry = one(&with_field(0, r#""a\"b\\\c""#));
    assert_eq!(entry.ia_name.as_c_str(), c"a\"b\\c");
    assert_eq!(one(&with_field(0, r"a\b")).ia_name.as_c_str(), c"a\\b");
    // The quote ends the word: the version field is then `u2.0` in quotes.
    let entry = one(r#"ia"u2.0"nonthreadsafe default lib.so dapl.2.0"p 0""""#);
    assert_eq!(entry.ia_name.as_c_str(), c"ia");
}

#[test]
fn an_open_quote_ends_at_the_end_of_its_line() {
    let diagnostic = rejected(&with_field(6, "\"p 0"));
    assert_eq!(diagnostic.field, Field::PlatformParams);
    assert_eq!(diagnostic.reason, Reason::OpenQuote);
    let diagnostic = rejected("ia u2.0 nonthreadsafe default lib.so dapl.2.0 \"p 0 ");
    assert_eq!(diagnostic.field, Field::IaParams);
    assert_eq!(diagnostic.reason, Reason::OpenQuote);
    assert_eq!(parse(b"ia \"").diagnostics.len(), 1);
    assert_eq!(parse(b"ia \"\\").diagnostics.len(), 1);
}

#[test]
fn white_space_and_a_missing_final_newline_do_not_matter() {
    one(&format!(" \t{}\t ", GOOD.replace(' ', "\t ")).replace("\"p\t 0\"", "\"p 0\""));
    let both = parse(format!("\n\n{GOOD}\n\n{GOOD}").as_bytes());
    assert_eq!(both.entries.len(), 2);
}

#[test]
fn lines_and_columns_are_counted_from_one() {
    let diagnostic = parse(b"\n# c\n   ia  bad\n").diagnostics.remove(0);
    assert_eq!((diagnostic.line, diagnostic.column), (3, 8));
    assert_eq!(
        diagnostic.to_string(),
        "3:8: api_version: expected u<major>.<minor> or k<major>.<minor> in decimal, such as u2.0"
    );
}

#[test]
fn a_nul_byte_is_refused() {
    let parsed = parse(b"i\0a u2.0 nonthreadsafe default lib.so dapl.2.0 p p\n");
    assert_eq!(parsed.diagnostics[0].reason, Reason::NulByte);
}

#[test]
fn the_parser_ends_without_a_panic_on_arbitrary_bytes() {
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    let alphabet = b"iu2.0 \t\n\"\\#\rknondefaultthreadsafe\0\xff";
    for _ in 0..2000 {
        let mut input = Vec::new();
        for _ in 0..64 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            input.push(alphabet[usize::try_from(state % alphabet.len() as u64).expect("small")]);
        }
        let _ = parse(&input);
    }
}
