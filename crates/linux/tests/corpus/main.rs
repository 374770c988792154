//! The texts that fuzzing has found to reach new code (`fuzz/corpus.txt`), through every parser.

mod lines;
mod parsers;

#[test]
fn the_corpus_passes_every_parser() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus.txt");
    let corpus = std::fs::read_to_string(path).unwrap();
    for line in corpus.lines() {
        let text = lines::text(line).unwrap_or_else(|| panic!("{path}: not a text: {line}"));
        parsers::all(std::str::from_utf8(&text).unwrap());
    }
    assert!(corpus.lines().count() > 50, "{path} has lost its texts");
}

#[test]
fn every_text_is_one_line_and_reads_back() {
    for bytes in [&b"-m\n0"[..], b"\\x41'\"\r\t", "ü\u{0}".as_bytes(), b""] {
        let line = lines::line(bytes);
        assert!(line.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{line}");
        assert_eq!(lines::text(&line).as_deref(), Some(bytes), "{line}");
    }
    assert_eq!(lines::text("\\x4"), None);
    assert_eq!(lines::text("\\q"), None);
}
