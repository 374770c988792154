//! Where a field stands in a TOML file: what is wrong with a machine or workload is told at its line.
//!
//! Places come from the TOML reader, not from a search of the text: `[[node]]`, `[[ node ]]`, `node = [{ … }]` and
//! `"node"` are the same to it. Of a file with a mistake in its grammar it tells what it made of the rest.
//!
//! ```
//! use numaherd_model::places::Places;
//! let text = "[[node]]\nid = 0\n[[ node ]]\n\"id\" = 0\n";
//! assert_eq!(Places::of(text).line("node.id", &[1]), 4);
//! ```

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::marker::PhantomData;
use std::ops::Range;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Two figures, and no more: a tuple takes the first two of a longer list without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<T>(pub T, pub T);

/// Checked while the list is read: what is wrong with it later is told at the line of the list that it is in.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pair<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Pair<T>, D::Error> {
        struct Two<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Two<T> {
            type Value = Pair<T>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a list of length 2")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Pair<T>, A::Error> {
                let list: Vec<T> = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                Pair::try_from(list).map_err(A::Error::custom)
            }
        }
        from.deserialize_seq(Two(PhantomData))
    }
}

impl<T> TryFrom<Vec<T>> for Pair<T> {
    type Error = String;

    fn try_from(list: Vec<T>) -> Result<Pair<T>, String> {
        let pair = <[T; 2]>::try_from(list);
        let [a, b] = pair.map_err(|list| format!("a list of length 2, found {}", list.len()))?;
        Ok(Pair(a, b))
    }
}

/// What a text's first byte that is no UTF-8 is, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("text in UTF-8, found the byte 0x{byte:02x}")]
pub struct NotText {
    /// From 1.
    pub line: usize,
    /// The byte.
    pub byte: u8,
}

/// A file's bytes as text.
///
/// # Errors
/// They are not UTF-8.
pub fn text(bytes: Vec<u8>) -> Result<String, NotText> {
    String::from_utf8(bytes).map_err(|error| {
        let (at, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
        let line = 1 + bytes[..at].iter().filter(|&&byte| byte == b'\n').count();
        NotText { line, byte: bytes.get(at).copied().unwrap_or_default() }
    })
}

/// What came from a file as one line that does nothing to a terminal: control characters are written as TOML escapes
/// them, and so are those that turn the direction of what follows.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    let acts = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if acts(c) {
            // Writing to a text does not fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Where everything in a TOML text is.
pub struct Places<'t> {
    text: &'t str,
    root: Spanned<DeTable<'t>>,
}

/// One thing that a text tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Names of the tables that it is in, and its own, without those of which number in a list it is.
    pub field: String,
    /// Of its key, if it has one of its own.
    key: Option<Range<usize>>,
    /// Of its value: of a table its head.
    value: Range<usize>,
    /// Whether a head says that it is there, or the names before a dotted key, not a value of its own.
    is_head: bool,
}

impl Place {
    fn of(
        field: &str,
        key: Option<Range<usize>>,
        value: &Spanned<DeValue<'_>>,
        text: &str,
    ) -> Place {
        let span = value.span();
        let is_head = match value.get_ref() {
            DeValue::Table(_) => text.as_bytes().get(span.start) != Some(&b'{'),
            DeValue::Array(_) => key.as_ref().is_some_and(|key| key.end > span.start),
            _ => false,
        };
        Place { field: field.into(), key, value: span, is_head }
    }

    fn is_at(&self, span: &Range<usize>) -> bool {
        self.value == *span || self.key.as_ref() == Some(span)
    }
}

impl<'t> Places<'t> {
    /// Of a text, as far as it can be read.
    #[must_use]
    pub fn of(text: &'t str) -> Places<'t> {
        Places { text, root: DeTable::parse_recoverable(text).0 }
    }

    /// Whether there is such a table or key at the top.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.root.get_ref().contains_key(name)
    }

    /// The line of a field, from 1: `process.phase.times` with `[1, 0]` is that of the second process's first phase. Of
    /// what is not there, the line of what it would be in.
    #[must_use]
    pub fn line(&self, field: &str, at: &[usize]) -> usize {
        self.find(field, at).map_or(1, |(place, _)| self.line_at(place.value.start))
    }

    /// What stands for a field, if that is there, fits in a line, and is not told by a table's head.
    #[must_use]
    pub fn value(&self, field: &str, at: &[usize]) -> Option<&'t str> {
        /// Longer ones would hide what is said of them.
        const MOST_BYTES: usize = 80;
        let (place, is_whole) = self.find(field, at)?;
        let is_told = is_whole && !place.is_head;
        let value = self.text.get(place.value.clone()).filter(|_| is_told)?;
        (!value.is_empty() && value.len() <= MOST_BYTES && !value.contains('\n')).then_some(value)
    }

    /// The last of a field's names that is there, and whether that is all of it.
    fn find(&self, field: &str, at: &[usize]) -> Option<(Place, bool)> {
        let mut table = Some(self.root.get_ref());
        let mut at = at.iter();
        let mut found = None;
        for name in field.split('.') {
            let Some((key, value)) = table.and_then(|table| table.get_key_value(name)) else {
                return found.map(|place| (place, false));
            };
            let (mut key, mut value) = (Some(key.span()), value);
            while let DeValue::Array(list) = value.get_ref() {
                let Some(element) = at.as_slice().first().and_then(|&nth| list.get(nth)) else {
                    break;
                };
                at.next();
                (key, value) = (None, element);
            }
            found = Some(Place::of(name, key, value, self.text));
            table = match value.get_ref() {
                DeValue::Table(table) => Some(table),
                _ => None,
            };
        }
        found.map(|place| (place, true))
    }

    /// The line of a byte, from 1.
    #[must_use]
    pub fn line_at(&self, byte: usize) -> usize {
        let before = &self.text.as_bytes()[..byte.min(self.text.len())];
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }

    /// What the reader means by a place of its own: a key, a value, or a table by its head. `None` for the file
    /// itself, and for what is not as the reader took it to be.
    #[must_use]
    pub fn at(&self, span: &Range<usize>) -> Option<Place> {
        let (mut found, mut last) = (None, None::<Place>);
        self.each(&mut |place| {
            // A list and its first table begin alike, and so do a table and its only key.
            if found.is_none() && place.is_at(span) {
                found = Some(place.clone());
            }
            let begins = |place: &Place| place.key.as_ref().unwrap_or(&place.value).start;
            let is_later = |last: &Place| begins(last) <= begins(place);
            if !place.is_head && begins(place) <= span.start && last.as_ref().is_none_or(is_later) {
                last = Some(place.clone());
            }
        });
        // What is on that line, or goes on there.
        found.or_else(|| {
            last.filter(|place| {
                self.line_at(place.value.start) == self.line_at(span.start)
                    || place.value.end >= span.start
            })
        })
    }

    /// A place's value as far as it is on its first line.
    #[must_use]
    pub fn written(&self, place: &Place) -> &'t str {
        let value = self.text.get(place.value.clone()).unwrap_or_default();
        value.lines().next().unwrap_or_default().trim()
    }

    fn each(&self, visit: &mut dyn FnMut(&Place)) {
        each_in(self.text, "", self.root.get_ref(), visit);
    }
}

/// Goes through a table's keys and all that is below them. The reader bounds how deep that is.
fn each_in(text: &str, table: &str, keys: &DeTable<'_>, visit: &mut dyn FnMut(&Place)) {
    for (key, value) in keys {
        let dot = if table.is_empty() { "" } else { "." };
        let field = format!("{table}{dot}{}", key.get_ref());
        each_of(text, &field, Some(key.span()), value, visit);
    }
}

fn each_of(
    text: &str,
    field: &str,
    key: Option<Range<usize>>,
    value: &Spanned<DeValue<'_>>,
    visit: &mut dyn FnMut(&Place),
) {
    visit(&Place::of(field, key, value, text));
    match value.get_ref() {
        DeValue::Table(keys) => each_in(text, field, keys, visit),
        DeValue::Array(list) => {
            list.iter().for_each(|value| each_of(text, field, None, value, visit));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
