//! The texts that fuzzing has found to reach new code (`fuzz/corpus`), through every parser.

mod parsers;

#[test]
fn the_corpus_passes_every_parser() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/policies");
    let mut read = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        if let Ok(text) = std::str::from_utf8(&bytes) {
            parsers::all(text);
            read += 1;
        }
    }
    assert!(read > 50, "only {read} texts in {folder}");
}
