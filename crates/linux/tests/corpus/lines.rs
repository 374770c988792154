//! The corpus as one text file: a text a line, bytes that are not printable ASCII as `\n`, `\t`,
//! `\r`, `\\`, `\'`, `\"` or `\xNN`.

/// A text as a line.
#[allow(dead_code)] // the test only reads
pub fn line(text: &[u8]) -> String {
    text.escape_ascii().to_string()
}

/// The text of a line; None if it is none of ours.
pub fn text(line: &str) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut rest = line.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            text.push(byte);
            continue;
        }
        text.push(match rest.next()? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'x' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            plain @ (b'\\' | b'\'' | b'"') => plain,
            _ => return None,
        });
    }
    Some(text)
}
