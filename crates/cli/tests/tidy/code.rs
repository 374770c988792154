//! Rust source without its comments and strings, so that rules about code see code only.
//!
//! Lines stay lines, so positions can be told. Not a parser: raw strings, nested comments,
//! characters and lifetimes are all it knows.

/// The source with comments, strings and characters blanked.
pub fn bare(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut word_before = false;
    while let Some(next) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if next == '"' {
            string(rest)
        } else if next == '\'' {
            character(rest)
        } else if !word_before && (next == 'r' || rest.starts_with("br")) {
            raw_string(rest)
        } else {
            0
        };
        if skipped == 0 {
            out.push(next);
            word_before = is_word(next);
            rest = &rest[next.len_utf8()..];
        } else {
            out.extend(rest[..skipped].chars().map(|c| if c == '\n' { c } else { ' ' }));
            word_before = false;
            rest = &rest[skipped..];
        }
    }
    out
}

/// The source before its module of tests.
pub fn before_tests(text: &str) -> &str {
    let begins = text
        .find("#[cfg(test)]\nmod tests {")
        .or(text.find("#[cfg(test)]\npub(crate) mod tests {"));
    &text[..begins.unwrap_or(text.len())]
}

/// Numbers of the lines, from 1, in which `word` stands as a word of its own.
pub fn lines_with<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let has = move |line: &str| {
        line.match_indices(word).any(|(at, _)| {
            let before = line[..at].chars().next_back().is_some_and(is_word);
            let after = line[at + word.len()..].chars().next().is_some_and(is_word);
            !(before || after && word.ends_with(is_word))
        })
    };
    code.lines().zip(1..).filter(move |(line, _)| has(line)).map(|(_, number)| number)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let here = &text.as_bytes()[at..];
        let step = match here {
            [b'/', b'*', ..] => {
                depth += 1;
                2
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// `'a'`, `'\n'` and `'\''` are characters; `'a` is a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => text[3..].find('\'').map_or(0, |at| at + 4),
        Some((at, c)) if text[at + c.len_utf8()..].starts_with('\'') => at + c.len_utf8() + 1,
        _ => 0,
    }
}

fn raw_string(text: &str) -> usize {
    let after = text.trim_start_matches('b').strip_prefix('r').unwrap_or_default();
    let hashes = after.len() - after.trim_start_matches('#').len();
    if !after[hashes..].starts_with('"') {
        return 0;
    }
    let begin = text.len() - after.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    text[begin..].find(&end).map_or(text.len(), |at| begin + at + end.len())
}

#[test]
fn comments_strings_and_characters_are_blanked_and_code_stays() {
    let bare = |text| bare(text).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(bare("a // b\nc"), "a c");
    assert_eq!(bare("a /* b /* c */ d */ e"), "a e");
    assert_eq!(bare(r#"f("x \" y", z)"#), "f( , z)");
    assert_eq!(bare(r##"f(r#"x " y"#, z)"##), "f( , z)");
    assert_eq!(bare(r"if c == '\'' || c == '\u{41}' { 'a' }"), "if c == || c == { }");
    assert_eq!(bare("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
    assert_eq!(bare("for r in b { r }"), "for r in b { r }");
}

#[test]
fn words_are_whole_and_lines_are_counted() {
    let found = |code, word| lines_with(code, word).collect::<Vec<_>>();
    assert_eq!(found("x\nunsafe {}\nunsafe_op", "unsafe"), [2]);
    assert_eq!(found("std::fs::read\nmyfs::read", "fs::"), [1]);
}
