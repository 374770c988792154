//! How often a daemon that looks at the machine does so.

use std::fmt;
use std::str::FromStr;

/// Seconds between two looks of numad: the next is due after the least where it has just acted,
/// after the greatest where all is quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookInterval {
    pub least: u32,
    pub greatest: u32,
}

/// What numad does when nobody says anything, and what Debian's unit comes to.
impl Default for LookInterval {
    fn default() -> LookInterval {
        LookInterval { least: 5, greatest: 15 }
    }
}

/// Longest that makes sense: a day.
const MOST: u32 = 86_400;

impl FromStr for LookInterval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = |word: &str| word.parse::<u32>().ok().filter(|s| (1..=MOST).contains(s));
        let both = text.split_once(':').and_then(|(a, b)| seconds(a).zip(seconds(b)));
        // numad itself refuses equal ones.
        match both.filter(|(least, greatest)| least < greatest) {
            Some((least, greatest)) => Ok(LookInterval { least, greatest }),
            None => Err("two whole numbers of seconds, the smaller first, such as 5:15".into()),
        }
    }
}

impl fmt::Display for LookInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.least, self.greatest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_as_numad_reads_them() {
        let one_to_five: LookInterval = "1:5".parse().unwrap();
        assert_eq!(one_to_five, LookInterval { least: 1, greatest: 5 });
        assert_eq!(one_to_five.to_string().parse(), Ok(one_to_five));
        assert_eq!(LookInterval::default().to_string(), "5:15");
        for wrong in ["", "5", "5:", ":5", "5:5", "6:5", "0:5", "-1:5", "1:99999999999", "1:2:3"] {
            assert!(wrong.parse::<LookInterval>().is_err(), "{wrong}");
        }
    }
}
