//! Gives every parser of memory policies the same text, and asks what it read to read back.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/linux/tests/corpus/parsers.rs"]
mod parsers;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        parsers::all(text);
    }
});
