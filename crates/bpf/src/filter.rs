//! Whose faults are forwarded: the thread groups of a table in the kernel, which has room for so many.
//! Where there are more, all faults are forwarded, and whoever sums them up passes over the others'.

use std::collections::BTreeSet;
use std::io;

/// The table, and the switch.
pub trait Table {
    /// Adds a thread group; answers false where the table is full.
    fn add(&mut self, tgid: u32) -> io::Result<bool>;
    /// Takes one out, if it is in there.
    fn remove(&mut self, tgid: u32) -> io::Result<()>;
    /// Whether only those of the table are wanted.
    fn switch(&mut self, on: bool) -> io::Result<()>;
}

/// What the table holds.
#[derive(Debug, Default)]
pub struct Filter {
    held: BTreeSet<u32>,
    on: bool,
}

impl Filter {
    /// Forwards faults of these only; of all, if there are none or too many.
    pub fn set(&mut self, table: &mut dyn Table, wanted: &BTreeSet<u32>) -> io::Result<()> {
        // New ones first and old ones last, so that nothing watched before and after is missed.
        let mut whole = self.add(table, wanted)?;
        if !whole {
            self.switch(table, false)?;
        }
        let old: Vec<u32> = self.held.difference(wanted).copied().collect();
        for tgid in &old {
            table.remove(*tgid)?;
            self.held.remove(tgid);
        }
        if !whole && !old.is_empty() {
            whole = self.add(table, wanted)?;
        }
        self.switch(table, whole && !wanted.is_empty())
    }

    /// Whether all have found room.
    fn add(&mut self, table: &mut dyn Table, wanted: &BTreeSet<u32>) -> io::Result<bool> {
        for tgid in wanted {
            if !self.held.contains(tgid) {
                if !table.add(*tgid)? {
                    return Ok(false);
                }
                self.held.insert(*tgid);
            }
        }
        Ok(true)
    }

    fn switch(&mut self, table: &mut dyn Table, on: bool) -> io::Result<()> {
        if self.on != on {
            table.switch(on)?;
            self.on = on;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for three.
    #[derive(Default)]
    struct Small(BTreeSet<u32>, bool);

    impl Table for Small {
        fn add(&mut self, tgid: u32) -> io::Result<bool> {
            let room = self.0.len() < 3 || self.0.contains(&tgid);
            if room {
                self.0.insert(tgid);
            }
            Ok(room)
        }

        fn remove(&mut self, tgid: u32) -> io::Result<()> {
            self.0.remove(&tgid);
            Ok(())
        }

        fn switch(&mut self, on: bool) -> io::Result<()> {
            self.1 = on;
            Ok(())
        }
    }

    #[test]
    fn where_too_many_are_watched_all_are_until_they_fit() {
        let (mut table, mut filter) = (Small::default(), Filter::default());
        let mut set = |wanted: &[u32]| {
            filter.set(&mut table, &wanted.iter().copied().collect()).unwrap();
            table.1.then(|| table.0.iter().copied().collect::<Vec<_>>())
        };
        assert_eq!(set(&[]), None);
        assert_eq!(set(&[1, 2]), Some(vec![1, 2]));
        assert_eq!(set(&[1, 2, 3, 4]), None);
        assert_eq!(set(&[1, 2, 3, 4, 5]), None);
        assert_eq!(set(&[2, 4, 5]), Some(vec![2, 4, 5]));
        // All others, at once.
        assert_eq!(set(&[6, 7, 8]), Some(vec![6, 7, 8]));
        assert_eq!(set(&[]), None);
    }
}
