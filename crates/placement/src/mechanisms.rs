//! Parts of herd that can be left out, to measure what each is worth.

/// Which parts are in; all, by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mechanisms {
    /// Pages follow tasks. Without: they are left to the kernel.
    pub pages: bool,
    /// Small problems are solved exactly. Without: by moves and swaps alone.
    pub exact: bool,
    /// Where tasks crowd, those that are already right are held.
    pub hold: bool,
    /// A placed task that waits for a CPU is let go.
    pub relief: bool,
    /// With nothing to do for a while, all has converged. Without: only if nearly all is local.
    pub quiet: bool,
}

/// Names, as a user gives them.
pub const NAMES: [&str; 5] = ["pages", "exact", "hold", "relief", "quiet"];

impl Default for Mechanisms {
    fn default() -> Self {
        Mechanisms { pages: true, exact: true, hold: true, relief: true, quiet: true }
    }
}

impl Mechanisms {
    /// Leaves one of [`NAMES`] out; false if it is none.
    pub fn leave_out(&mut self, name: &str) -> bool {
        let part = match name {
            "pages" => &mut self.pages,
            "exact" => &mut self.exact,
            "hold" => &mut self.hold,
            "relief" => &mut self.relief,
            "quiet" => &mut self.quiet,
            _ => return false,
        };
        *part = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leaves_one_part_out_and_no_other() {
        for name in NAMES {
            let mut one = Mechanisms::default();
            assert!(one.leave_out(name));
            assert_ne!(one, Mechanisms::default(), "{name}");
        }
        let mut all = Mechanisms::default();
        assert!(!all.leave_out("luck"));
        assert!(NAMES.iter().all(|name| all.leave_out(name)));
        let none =
            Mechanisms { pages: false, exact: false, hold: false, relief: false, quiet: false };
        assert_eq!(all, none);
    }
}
