//! JSON as rt-app's reader (json-c, as long as nobody asks it to be strict) takes it: with comments, commas before a
//! closing bracket, and text in single quotes. The order of keys counts, and a key may come again: events of a phase are
//! gone through as they are written. A key may also stand alone (`"suspend",`), as in rt-app's own examples.
//!
//! Every value knows its line and its text, so that what is wrong is told where it stands.

use std::ops::Range;

/// How deep brackets go at the most: as json-c has it.
const MOST_DEEP: usize = 32;

/// What is wrong with a text: its line from 1, and what was expected there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub line: usize,
    pub expected: String,
}

/// A value, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node<'t> {
    pub value: Value<'t>,
    pub line: usize,
    /// As it is written.
    written: &'t str,
}

#[derive(Clone, Debug)]
pub(super) enum Value<'t> {
    /// A key that stands alone.
    Missing,
    Null,
    Bool(bool),
    Number(&'t str),
    Text(String),
    List(Vec<Node<'t>>),
    Object(Vec<(Key, Node<'t>)>),
}

/// A key, and its line.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub name: String,
    pub line: usize,
}

impl Node<'_> {
    /// As it is written, if that fits in a line, else what it is.
    pub fn found(&self) -> String {
        /// Longer ones would hide what is said of them.
        const MOST_BYTES: usize = 80;
        match self.value {
            Value::Missing => "nothing".into(),
            _ if self.written.len() <= MOST_BYTES && !self.written.contains('\n') => {
                self.written.into()
            }
            Value::Text(_) => "a longer text".into(),
            Value::List(_) => "a list".into(),
            Value::Object(_) => "an object".into(),
            _ => "a longer one".into(),
        }
    }
}

/// Reads all of a text.
pub(super) fn read(text: &str) -> Result<Node<'_>, Fault> {
    let mut reader = Reader { text, at: 0, line: 1 };
    reader.pass_space()?;
    let root = reader.value(0)?;
    reader.pass_space()?;
    match reader.peek() {
        None => Ok(root),
        Some(_) => Err(reader.expected("nothing after the file's one object")),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        self.line += usize::from(next == '\n');
        Some(next)
    }

    /// What was expected, with what is there.
    fn expected(&self, what: &str) -> Fault {
        let found = match self.peek() {
            None => "the end of the file".into(),
            Some(found) => format!("{found:?}"),
        };
        Fault { line: self.line, expected: format!("sound JSON: {what}, found {found}") }
    }

    /// White space and comments, of either kind.
    fn pass_space(&mut self) -> Result<(), Fault> {
        loop {
            if self.rest().starts_with("/*") {
                let begun = self.line;
                let Some(len) = self.rest()[2..].find("*/") else {
                    let expected = "sound JSON: */ at a comment's end".into();
                    return Err(Fault { line: begun, expected });
                };
                let end = self.at + len + 4;
                while self.at < end {
                    self.next();
                }
            } else if self.rest().starts_with("//") {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.next();
                }
            } else if self.peek().is_some_and(char::is_whitespace) {
                self.next();
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self, deep: usize) -> Result<Node<'t>, Fault> {
        let (from, line) = (self.at, self.line);
        let value = match self.peek() {
            Some('{' | '[') if deep == MOST_DEEP => {
                return Err(self.expected(&format!("at most {MOST_DEEP} brackets in each other")));
            }
            Some('{') => self.object(deep)?,
            Some('[') => self.list(deep)?,
            Some('"' | '\'') => Value::Text(self.quoted()?),
            _ => self.word()?,
        };
        let written = &self.text[from..self.at];
        Ok(Node { value, line, written })
    }

    fn object(&mut self, deep: usize) -> Result<Value<'t>, Fault> {
        self.next();
        let mut all = Vec::new();
        loop {
            self.pass_space()?;
            match self.peek() {
                Some('}') => break,
                Some('"' | '\'') => {}
                _ => return Err(self.expected("a key in quotes or }")),
            }
            let (from, line) = (self.at, self.line);
            let key = Key { name: self.quoted()?, line };
            let key_written = &self.text[from..self.at];
            self.pass_space()?;
            let node = match self.peek() {
                Some(':') => {
                    self.next();
                    self.pass_space()?;
                    self.value(deep + 1)?
                }
                Some(',' | '}') => Node { value: Value::Missing, line, written: key_written },
                _ => return Err(self.expected(&format!("a colon after {}", key_written))),
            };
            all.push((key, node));
            self.pass_space()?;
            match self.peek() {
                Some(',') => self.next(),
                Some('}') => break,
                _ => return Err(self.expected("a comma or }")),
            };
        }
        self.next();
        Ok(Value::Object(all))
    }

    fn list(&mut self, deep: usize) -> Result<Value<'t>, Fault> {
        self.next();
        let mut all = Vec::new();
        loop {
            self.pass_space()?;
            if self.peek() == Some(']') {
                break;
            }
            all.push(self.value(deep + 1)?);
            self.pass_space()?;
            match self.peek() {
                Some(',') => self.next(),
                Some(']') => break,
                _ => return Err(self.expected("a comma or ]")),
            };
        }
        self.next();
        Ok(Value::List(all))
    }

    /// The text within quotes, on one line.
    fn quoted(&mut self) -> Result<String, Fault> {
        let quote = self.next();
        let mut text = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => return Err(self.expected("a quote at the text's end")),
                found if found == quote => {
                    self.next();
                    return Ok(text);
                }
                Some('\\') => {
                    self.next();
                    text.push(self.escaped()?);
                }
                Some(other) => {
                    self.next();
                    text.push(other);
                }
            }
        }
    }

    fn escaped(&mut self) -> Result<char, Fault> {
        let known = match self.peek() {
            Some(same @ ('"' | '\'' | '\\' | '/')) => same,
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('u') => {
                let digits = self.rest().get(1..5);
                let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                // Halves of a pair are no characters: names need none.
                let Some(known) = code.and_then(char::from_u32) else {
                    return Err(self.expected("four digits of a character after \\u"));
                };
                self.at += 4;
                known
            }
            _ => return Err(self.expected("one of \" \\ / b f n r t u after \\")),
        };
        self.next();
        Ok(known)
    }

    /// A number, or one of three words, in whatever case.
    fn word(&mut self) -> Result<Value<'t>, Fault> {
        let is_part = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
        let len: usize = self.rest().chars().take_while(is_part).map(char::len_utf8).sum();
        let word: Range<usize> = self.at..self.at + len;
        let word = &self.text[word];
        let value = match word.to_ascii_lowercase().as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            number if is_number(number) => Value::Number(word),
            "" => return Err(self.expected("a value")),
            _ => {
                let line = self.line;
                let expected = format!(
                    "sound JSON: a number, text in quotes, true, false or null, found {word}"
                );
                return Err(Fault { line, expected });
            }
        };
        self.at += len;
        Ok(value)
    }
}

/// Rust takes more than JSON has: `inf`, `nan`, a plus in front.
fn is_number(word: &str) -> bool {
    let first = word.trim_start_matches('-').chars().next();
    first.is_some_and(|c| c.is_ascii_digit()) && word.parse::<f64>().is_ok_and(f64::is_finite)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(text: &str) -> (usize, String) {
        let fault = read(text).unwrap_err();
        (fault.line, fault.expected)
    }

    #[test]
    fn what_json_c_takes_is_taken_in_order_and_with_its_lines() {
        let text = "// one\n{ /* two\n */ \"b\": [1, -2.5e1,], 'a': 'x\\u0041\\'',\n\"b\": TRUE, \"alone\",\n}\n";
        let Value::Object(all) = read(text).unwrap().value else { panic!() };
        let keys: Vec<_> = all.iter().map(|(key, node)| (key.name.as_str(), node.line)).collect();
        assert_eq!(keys, [("b", 3), ("a", 3), ("b", 4), ("alone", 4)]);
        assert_eq!(all[0].1.found(), "[1, -2.5e1,]");
        assert!(matches!(&all[1].1.value, Value::Text(text) if text == "xA'"));
        assert!(matches!(all[2].1.value, Value::Bool(true)));
        assert_eq!((all[3].1.found(), all[3].0.line), ("nothing".into(), 4));
        let long = format!("[\"{}\"]", "x".repeat(100));
        assert_eq!(read(&long).unwrap().found(), "a list");
    }

    #[test]
    fn what_is_no_json_is_told_at_its_line() {
        for (text, line, expected) in [
            ("", 1, "a value, found the end of the file"),
            ("{\n\"a\": 1\n\"b\": 2}", 3, "a comma or }, found '\"'"),
            ("{\n\"a\" 1}", 2, "a colon after \"a\", found '1'"),
            ("{a: 1}", 1, "a key in quotes or }"),
            ("[1\n2]", 2, "a comma or ]"),
            ("[\n1x]", 2, "found 1x"),
            ("[nan]", 1, "found nan"),
            ("[+1]", 1, "found +1"),
            ("[\n\n\"a\nb\"]", 3, "a quote at the text's end"),
            ("[\"\\q\"]", 1, "after \\, found 'q'"),
            ("[\"\\ud800\"]", 1, "four digits"),
            ("{}\n{}", 2, "nothing after"),
            ("\n/* {}", 2, "*/ at a comment's end"),
            (&"[".repeat(40), 1, "at most 32 brackets"),
            ("[1", 1, "the end of the file"),
        ] {
            let told = says(text);
            assert!(told.0 == line && told.1.contains(expected), "{text}: {told:?}");
            assert!(told.1.starts_with("sound JSON: "), "{told:?}");
        }
    }
}
