//! Between `fuzz/corpus.txt` and the folder of files that a fuzzer wants:
//! `corpus unpack FILE DIR` and `corpus pack DIR FILE`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

#[path = "../tests/corpus/lines.rs"]
mod lines;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["unpack", file, folder] => unpack(Path::new(file), Path::new(folder)),
        ["pack", folder, file] => pack(Path::new(folder), Path::new(file)),
        _ => {
            eprintln!("usage: corpus unpack FILE DIR | corpus pack DIR FILE");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(count) => {
            println!("{count} texts");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("corpus: {error}");
            ExitCode::from(1)
        }
    }
}

fn unpack(file: &Path, folder: &Path) -> std::io::Result<usize> {
    std::fs::create_dir_all(folder)?;
    let corpus = std::fs::read_to_string(file)?;
    for (number, line) in corpus.lines().enumerate() {
        let wrong = || std::io::Error::other(format!("not a text: {line}"));
        std::fs::write(folder.join(format!("{number:04}")), lines::text(line).ok_or_else(wrong)?)?;
    }
    Ok(corpus.lines().count())
}

/// Texts that are not UTF-8 reach no parser and are left out. Short ones come first.
fn pack(folder: &Path, file: &Path) -> std::io::Result<usize> {
    let mut texts = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        let bytes = std::fs::read(entry?.path())?;
        if std::str::from_utf8(&bytes).is_ok() {
            let line = lines::line(&bytes);
            texts.insert((line.len(), line));
        }
    }
    let corpus: String = texts.iter().map(|(_, line)| format!("{line}\n")).collect();
    std::fs::write(file, corpus)?;
    Ok(texts.len())
}
