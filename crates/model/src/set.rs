//! Sets of nodes and CPUs, with the kernel's list format (`0,2-3`).
//!
//! Ids may be sparse and large (more than 64 nodes, more than 1024 CPUs), so a set is a growing
//! bit map. Copies share it until one is changed: a plan has one for each task that it places.
//! Iteration is in ascending order; the empty list is the empty set.
//!
//! ```
//! use numaherd_model::{CpuId, CpuSet};
//! let set: CpuSet = "0,2-3".parse().unwrap();
//! assert_eq!(set.to_string(), "0,2-3");
//! assert_eq!(set.iter().collect::<Vec<_>>(), [CpuId(0), CpuId(2), CpuId(3)]);
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{CpuId, NodeId};

/// Highest id a list may name; far above any kernel's limit, it bounds what bad input can cost.
const HIGHEST_ID: u32 = 1 << 16;

/// A list that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a list of numbers such as 0,2-3: {problem}")]
pub struct SetError {
    /// The offending text.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

/// An id that can be a set's member.
pub trait Member: Copy {
    /// The plain number.
    fn number(self) -> u32;
    /// From the plain number.
    fn from_number(number: u32) -> Self;
}

impl Member for NodeId {
    fn number(self) -> u32 {
        self.0
    }
    fn from_number(number: u32) -> Self {
        NodeId(number)
    }
}

impl Member for CpuId {
    fn number(self) -> u32 {
        self.0
    }
    fn from_number(number: u32) -> Self {
        CpuId(number)
    }
}

/// A set of ids of one kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdSet<T> {
    /// 64 ids a word, lowest first, without trailing zero words.
    words: Arc<[u64]>,
    kind: PhantomData<T>,
}

/// A set of memory nodes.
pub type NodeSet = IdSet<NodeId>;
/// A set of logical CPUs.
pub type CpuSet = IdSet<CpuId>;

impl<T> Default for IdSet<T> {
    fn default() -> Self {
        IdSet { words: Arc::default(), kind: PhantomData }
    }
}

impl<T: Member> IdSet<T> {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Builds a set from the kernel's bit words, lowest first.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Self {
        IdSet { words: trimmed(words).into(), kind: PhantomData }
    }

    /// The bit words, lowest first, without trailing zeroes.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds one id.
    pub fn insert(&mut self, id: T) {
        let (word, bit) = place(id);
        if self.words.len() <= word {
            let mut words = self.words.to_vec();
            words.resize(word + 1, 0);
            self.words = words.into();
        }
        Arc::make_mut(&mut self.words)[word] |= bit;
    }

    /// Takes one id out.
    pub fn remove(&mut self, id: T) {
        let (word, bit) = place(id);
        if self.contains(id) {
            Arc::make_mut(&mut self.words)[word] &= !bit;
            *self = Self::from_words(&self.words);
        }
    }

    /// Whether `id` is a member.
    #[must_use]
    pub fn contains(&self, id: T) -> bool {
        let (word, bit) = place(id);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| T::from_number(i as u32 * 64 + bit))
        })
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Lowest member.
    #[must_use]
    pub fn first(&self) -> Option<T> {
        self.iter().next()
    }

    /// Members of both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let words: Vec<u64> =
            self.words.iter().zip(other.words.iter()).map(|(a, b)| a & b).collect();
        Self::from_words(&words)
    }

    /// Members of this one that are none of `other`'s.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let masks = other.words.iter().copied().chain(std::iter::repeat(0));
        let words: Vec<u64> = self.words.iter().zip(masks).map(|(a, b)| a & !b).collect();
        Self::from_words(&words)
    }

    /// Members of either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.extend(other.iter());
        all
    }

    /// Whether every member is one of `other`'s.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.intersection(other).words == self.words
    }
}

/// Without trailing zero words.
fn trimmed(words: &[u64]) -> &[u64] {
    let len = words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
    &words[..len]
}

fn place<T: Member>(id: T) -> (usize, u64) {
    let number = id.number();
    ((number / 64) as usize, 1 << (number % 64))
}

impl<T: Member> Extend<T> for IdSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, ids: I) {
        for id in ids {
            self.insert(id);
        }
    }
}

impl<T: Member> FromIterator<T> for IdSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(ids: I) -> Self {
        let mut set = Self::new();
        set.extend(ids);
        set
    }
}

impl<T: Member> fmt::Display for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<u32> = self.iter().map(T::number).collect();
        let runs = ids.chunk_by(|a, b| a + 1 == *b);
        for (i, run) in runs.enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match run {
                [one] => write!(f, "{comma}{one}")?,
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

impl<T: Member> fmt::Debug for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl<T: Member> FromStr for IdSet<T> {
    type Err = SetError;

    fn from_str(text: &str) -> Result<Self, SetError> {
        let mut set = Self::new();
        let text = text.trim();
        if text.is_empty() {
            return Ok(set);
        }
        let fail = |problem: String| SetError { text: text.to_string(), problem };
        let number = |part: &str| match part.trim().parse::<u32>() {
            Ok(n) if n <= HIGHEST_ID => Ok(n),
            Ok(n) => Err(fail(format!("{n} is above {HIGHEST_ID}"))),
            Err(_) => Err(fail(format!("'{part}' is not a number"))),
        };
        for part in text.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((a, b)) => (number(a)?, number(b)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(fail(format!("{first}-{last} runs backwards")));
            }
            set.extend((first..=last).map(T::from_number));
        }
        Ok(set)
    }
}

impl<T: Member> Serialize for IdSet<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, T: Member> Deserialize<'de> for IdSet<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_list_that_cannot_be_read_says_which_part() {
        let text = |list: &str| list.parse::<CpuSet>().unwrap_err().to_string();
        assert!(text("0,x").contains("'x' is not a number"));
        assert!(text("3-1").contains("3-1 runs backwards"));
        assert!(text("0-99999999").contains("above"));
    }

    #[test]
    fn ids_above_1024_and_sparse_ones_survive() {
        let set: CpuSet = "0,63-64,2047".parse().unwrap();
        assert_eq!(set.to_string(), "0,63-64,2047");
        assert_eq!(set.len(), 4);
    }

    proptest! {
        #[test]
        fn a_set_prints_as_it_parses(ids in proptest::collection::btree_set(0u32..3000, 0..40)) {
            let set: CpuSet = ids.iter().map(|&i| CpuId(i)).collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set.clone());
            prop_assert_eq!(set.iter().map(|c| c.0).collect::<Vec<_>>(), ids.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn removing_what_was_inserted_gives_the_same_set(ids in proptest::collection::btree_set(0u32..300, 0..20), one in 301u32..999) {
            let set: CpuSet = ids.iter().map(|&i| CpuId(i)).collect();
            let mut other = set.clone();
            other.insert(CpuId(one));
            other.remove(CpuId(one));
            prop_assert_eq!(other, set);
        }
    }
}
