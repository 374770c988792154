//! Our own turns, spread over our CPUs.
//!
//! The loop runs on the CPUs it looks after. Where all of those are busy the kernel wakes us on the CPU
//! we ran on before, again and again, and one victim loses all the time that we take: a program whose
//! threads wait for each other loses as much. So each turn runs on another CPU than the one before.
//!
//! Only this thread's affinity is touched, and threads that it starts later inherit it; if someone
//! else sets it meanwhile, that counts from then on. CPUs that go offline vanish from it too, and that is nobody's
//! word: they may come back.

use std::path::Path;

use numaherd_model::{CpuId, CpuSet};

use crate::sys::affinity;
use crate::topology;

/// See the module.
#[derive(Debug)]
pub struct Rotation {
    /// What we may run on by our owner's will.
    allowed: CpuSet,
    /// What we set last.
    set: CpuSet,
    /// CPUs set apart, which we leave alone if we may run on others.
    apart: CpuSet,
}

impl Rotation {
    /// Of the calling thread; nothing is changed yet. None where its affinity cannot be read.
    #[must_use]
    pub fn new() -> Option<Rotation> {
        let allowed = affinity::get(0).ok()?;
        let apart = topology::isolated(Path::new("/")).unwrap_or_default();
        Some(Rotation { set: allowed.clone(), allowed, apart })
    }

    /// Has the calling thread go on elsewhere. Where that is refused it stays.
    pub fn step(&mut self) {
        let (Ok(current), Some(here)) = (affinity::get(0), affinity::current_cpu()) else { return };
        self.heed(&current, || topology::online(Path::new("/")).ok());
        let next = self.next(here);
        self.set = if affinity::set(0, &next).is_ok() { next } else { current };
    }

    /// Where we go from here: elsewhere, but for what is set apart; and nowhere if there is nothing else.
    fn next(&self, here: CpuId) -> CpuSet {
        let open = self.allowed.difference(&self.apart);
        let open = if open.is_empty() { self.allowed.clone() } else { open };
        let others = open.difference(&[here].into_iter().collect());
        if others.is_empty() { open } else { others }
    }

    /// Takes for its owner's word what is neither what we set nor what hotplug left of that.
    fn heed(&mut self, current: &CpuSet, online: impl FnOnce() -> Option<CpuSet>) {
        let is_left = |online: CpuSet| {
            let missing = self.set.difference(current);
            current.is_subset(&self.set) && missing.intersection(&online).is_empty()
        };
        if *current != self.set && !online().is_some_and(is_left) {
            self.allowed.clone_from(current);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_goes_offline_is_not_the_owners_word() {
        let cpus = |list: &str| list.parse::<CpuSet>().unwrap();
        let after = |current: &str, online: &str| {
            let (allowed, set, apart) = (cpus("0-3"), cpus("1-3"), cpus(""));
            let mut rotation = Rotation { allowed, set, apart };
            rotation.heed(&cpus(current), || Some(cpus(online)));
            rotation.allowed
        };
        assert_eq!(after("1-3", "0-3"), cpus("0-3"));
        assert_eq!(after("1-2", "0-2"), cpus("0-3"), "3 went offline");
        // Of what is missing not all is offline, or something is new.
        assert_eq!(after("1", "0-2"), cpus("1"));
        assert_eq!(after("1-2", "0-3"), cpus("1-2"));
        assert_eq!(after("0-2", "0-2"), cpus("0-2"));
    }

    #[test]
    fn we_keep_away_from_what_is_set_apart_where_there_is_anything_else() {
        let cpus = |list: &str| list.parse::<CpuSet>().unwrap();
        let next = |allowed: &str, apart: &str, here: u32| {
            let (allowed, set) = (cpus(allowed), cpus(allowed));
            Rotation { allowed, set, apart: cpus(apart) }.next(CpuId(here)).to_string()
        };
        assert_eq!(next("0-3", "", 1), "0,2-3");
        assert_eq!(next("0-7", "2-7", 0), "1");
        assert_eq!(next("0-7", "2-7", 5), "0-1");
        assert_eq!(next("0-7", "1-7", 0), "0");
        assert_eq!(next("2-3", "2-7", 2), "3");
        assert_eq!(next("3", "", 3), "3");
    }

    #[test]
    fn each_step_leads_elsewhere_and_the_owners_word_counts() {
        let whole = affinity::get(0).unwrap();
        let mut rotation = Rotation::new().unwrap();
        for _ in 0..4 {
            let before = affinity::current_cpu().unwrap();
            rotation.step();
            let after = affinity::current_cpu().unwrap();
            assert!(whole.len() == 1 || after != before);
            assert!(whole.contains(after));
        }
        // Its owner's word: the one CPU that we were just told to leave.
        let left = whole.difference(&affinity::get(0).unwrap());
        if let Some(cpu) = left.first() {
            let one: CpuSet = [cpu].into_iter().collect();
            affinity::set(0, &one).unwrap();
            rotation.step();
            assert_eq!(affinity::get(0).unwrap(), one);
        }
    }
}
