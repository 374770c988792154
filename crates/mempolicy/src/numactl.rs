//! numactl's options: their names, and the way getopt_long reads them. What they ask for is in
//! [`crate::intent`].
//!
//! Options are read one after the other, as numactl does: what is wrong behind `--show` never
//! matters. Long names may be shortened as long as one option is left.
//!
//! ```
//! use numaherd_mempolicy::numactl::{Key, Options};
//! let words: Vec<String> = ["--memb=0", "-C", "0-3", "ls", "-l"].map(str::to_string).into();
//! let mut options = Options::new(&words);
//! let first = options.next().unwrap().unwrap();
//! assert_eq!((first.key, first.value.as_deref()), (Key::Membind, Some("0")));
//! assert_eq!(options.next().unwrap().unwrap().key, Key::Physcpubind);
//! assert!(options.next().is_none());
//! assert_eq!(options.rest(), ["ls", "-l"]);
//! ```

use std::collections::VecDeque;

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // they are the options' names
pub enum Key {
    All,
    Balancing,
    Interleave,
    WeightedInterleave,
    Preferred,
    PreferredMany,
    Cpunodebind,
    Physcpubind,
    Membind,
    Localalloc,
    Show,
    Hardware,
    Shm,
    File,
    Offset,
    Length,
    Strict,
    Shmmode,
    Dump,
    DumpNodes,
    Shmid,
    Huge,
    Touch,
    Verify,
    HomeNode,
    Weights,
    Explain,
    Help,
}

/// An option's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Behind `--`.
    pub long: &'static str,
    /// Behind `-`.
    pub short: Option<char>,
    /// Whether it takes a value.
    pub takes_value: bool,
    /// Which it is.
    pub key: Key,
}

const fn spec(long: &'static str, short: Option<char>, takes_value: bool, key: Key) -> Spec {
    Spec { long, short, takes_value, key }
}

/// numactl's options: those of 2.0.16, and `-w` of newer ones.
pub const NUMACTL: &[Spec] = &[
    spec("all", Some('a'), false, Key::All),
    spec("interleave", Some('i'), true, Key::Interleave),
    spec("weighted-interleave", Some('w'), true, Key::WeightedInterleave),
    spec("preferred", Some('p'), true, Key::Preferred),
    spec("preferred-many", Some('P'), true, Key::PreferredMany),
    spec("cpubind", Some('c'), true, Key::Cpunodebind),
    spec("cpunodebind", Some('N'), true, Key::Cpunodebind),
    spec("physcpubind", Some('C'), true, Key::Physcpubind),
    spec("membind", Some('m'), true, Key::Membind),
    spec("show", Some('s'), false, Key::Show),
    spec("localalloc", Some('l'), false, Key::Localalloc),
    spec("balancing", Some('b'), false, Key::Balancing),
    spec("hardware", Some('H'), false, Key::Hardware),
    spec("shm", Some('S'), true, Key::Shm),
    spec("file", Some('f'), true, Key::File),
    spec("offset", Some('o'), true, Key::Offset),
    spec("length", Some('L'), true, Key::Length),
    spec("strict", Some('t'), false, Key::Strict),
    spec("shmmode", Some('M'), true, Key::Shmmode),
    spec("dump", Some('d'), false, Key::Dump),
    spec("dump-nodes", Some('D'), false, Key::DumpNodes),
    spec("shmid", Some('I'), true, Key::Shmid),
    spec("huge", Some('u'), false, Key::Huge),
    spec("touch", Some('T'), false, Key::Touch),
    spec("verify", Some('V'), false, Key::Verify),
];

/// What `numaherd run` has beside them.
pub const OURS: &[Spec] = &[
    spec("home-node", None, true, Key::HomeNode),
    spec("weights", None, true, Key::Weights),
    spec("explain", None, false, Key::Explain),
    spec("help", Some('h'), false, Key::Help),
];

/// An option as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Which.
    pub key: Key,
    /// Its value, for those that take one.
    pub value: Option<String>,
}

impl Given {
    /// The value, empty for those that take none.
    #[must_use]
    pub fn text(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }
}

/// Words that are no options of numactl.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("unrecognized option '{name}'")]
    Unknown {
        /// As given.
        name: String,
    },
    /// Several options begin like this.
    #[error("option '{name}' is ambiguous; possibilities: {possible}")]
    Ambiguous {
        /// As given.
        name: String,
        /// Those that begin like it.
        possible: String,
    },
    /// The value is missing.
    #[error("option '{name}' requires an argument")]
    ValueMissing {
        /// As given.
        name: String,
    },
    /// It takes no value.
    #[error("option '{name}' doesn't allow an argument")]
    ValueNotWanted {
        /// As given.
        name: String,
    },
}

/// Reads options off the front of a command line.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    specs: Vec<Spec>,
    words: &'a [String],
    at: usize,
    /// What is left of a word such as `-sH`.
    letters: VecDeque<char>,
}

impl<'a> Options<'a> {
    /// numactl's.
    #[must_use]
    pub fn new(words: &'a [String]) -> Self {
        Options { specs: NUMACTL.to_vec(), words, at: 0, letters: VecDeque::new() }
    }

    /// numactl's and ours.
    #[must_use]
    pub fn with_ours(words: &'a [String]) -> Self {
        let specs = [NUMACTL, OURS].concat();
        Options { specs, words, at: 0, letters: VecDeque::new() }
    }

    /// The words behind the options.
    #[must_use]
    pub fn rest(&self) -> &'a [String] {
        &self.words[self.at.min(self.words.len())..]
    }

    fn long(&mut self, word: &str) -> Result<Given, OptionError> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (word, None),
        };
        let spec = self.find_long(name)?;
        let name = || format!("--{}", spec.long);
        match (spec.takes_value, value) {
            (false, Some(_)) => Err(OptionError::ValueNotWanted { name: name() }),
            (true, None) => {
                let value =
                    Some(self.next_word().ok_or(OptionError::ValueMissing { name: name() })?);
                Ok(Given { key: spec.key, value })
            }
            (_, value) => Ok(Given { key: spec.key, value }),
        }
    }

    fn find_long(&self, name: &str) -> Result<Spec, OptionError> {
        if let Some(exact) = self.specs.iter().find(|spec| spec.long == name) {
            return Ok(*exact);
        }
        let begin: Vec<&Spec> = self.specs.iter().filter(|s| s.long.starts_with(name)).collect();
        let given = format!("--{name}");
        match begin.as_slice() {
            [] => Err(OptionError::Unknown { name: given }),
            [one] => Ok(**one),
            several => {
                let possible: Vec<String> =
                    several.iter().map(|spec| format!("'--{}'", spec.long)).collect();
                Err(OptionError::Ambiguous { name: given, possible: possible.join(" ") })
            }
        }
    }

    fn short(&mut self, letter: char) -> Result<Given, OptionError> {
        let name = || letter.to_string();
        let found = self.specs.iter().find(|spec| spec.short == Some(letter)).copied();
        let spec = found.ok_or(OptionError::Unknown { name: name() })?;
        if !spec.takes_value {
            return Ok(Given { key: spec.key, value: None });
        }
        let attached: String = self.letters.drain(..).collect();
        let value = if attached.is_empty() { self.next_word() } else { Some(attached) };
        let value = Some(value.ok_or(OptionError::ValueMissing { name: name() })?);
        Ok(Given { key: spec.key, value })
    }

    fn next_word(&mut self) -> Option<String> {
        let word = self.words.get(self.at)?;
        self.at += 1;
        Some(word.clone())
    }
}

impl Iterator for Options<'_> {
    type Item = Result<Given, OptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(letter) = self.letters.pop_front() {
            return Some(self.short(letter));
        }
        let word = self.words.get(self.at)?;
        if word == "--" {
            self.at += 1;
            // nothing behind it is an option
            self.specs.clear();
            self.words = &self.words[self.at..];
            self.at = 0;
            return None;
        }
        if self.specs.is_empty() || word == "-" || !word.starts_with('-') {
            return None;
        }
        self.at += 1;
        if let Some(long) = word.strip_prefix("--") {
            let long = long.to_string();
            return Some(self.long(&long));
        }
        self.letters = word.chars().skip(1).collect();
        let letter = self.letters.pop_front()?;
        Some(self.short(letter))
    }
}

#[cfg(test)]
mod tests;
