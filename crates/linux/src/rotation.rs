//! Our own turns, spread over our CPUs.
//!
//! The loop runs on the CPUs it looks after. Where all of those are busy the kernel wakes us on the CPU
//! we ran on before, again and again, and one victim loses all the time that we take: a program whose
//! threads wait for each other loses as much. So each turn runs on another CPU than the one before.
//!
//! Only this thread's affinity is touched, and threads that it starts later inherit it; if someone
//! else sets it meanwhile, that counts from then on.

use numaherd_model::CpuSet;

use crate::sys::affinity;

/// See the module.
#[derive(Debug)]
pub struct Rotation {
    /// What we may run on by our owner's will.
    allowed: CpuSet,
    /// What we set last.
    set: CpuSet,
}

impl Rotation {
    /// Of the calling thread; nothing is changed yet. None where its affinity cannot be read.
    #[must_use]
    pub fn new() -> Option<Rotation> {
        let allowed = affinity::get(0).ok()?;
        Some(Rotation { set: allowed.clone(), allowed })
    }

    /// Has the calling thread go on elsewhere. Where that is refused it stays.
    pub fn step(&mut self) {
        let (Ok(current), Some(here)) = (affinity::get(0), affinity::current_cpu()) else { return };
        if current != self.set {
            self.allowed.clone_from(&current);
        }
        let here: CpuSet = [here].into_iter().collect();
        let others = self.allowed.difference(&here);
        self.set = if !others.is_empty() && affinity::set(0, &others).is_ok() {
            // As the kernel has it, which leaves out what is offline.
            affinity::get(0).unwrap_or(others)
        } else {
            current
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let first: CpuSet = whole.first().into_iter().collect();
        affinity::set(0, &first).unwrap();
        rotation.step();
        assert_eq!(affinity::get(0).unwrap(), first);
    }
}
