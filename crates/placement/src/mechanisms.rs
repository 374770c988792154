//! Parts of herd that can be left out, to measure what each is worth.

/// Which parts are in; all, by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mechanisms {
    /// Pages follow tasks. Without: they are left to the kernel.
    pub pages: bool,
    /// Memory that several nodes use alike is shared out over those.
    pub interleave: bool,
    /// Tasks are left alone most of whose memory takes no hinting faults. (It is whoever looks that
    /// leaves them alone.)
    pub coverage: bool,
    /// Memory that several processes map is one thing. (It is whoever looks that tells.)
    pub objects: bool,
    /// Virtual nodes stay whole. (It is whoever looks that tells them.)
    pub units: bool,
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
pub const NAMES: [&str; 9] =
    ["pages", "interleave", "coverage", "objects", "units", "exact", "hold", "relief", "quiet"];

impl Default for Mechanisms {
    fn default() -> Self {
        Mechanisms {
            pages: true,
            interleave: true,
            coverage: true,
            objects: true,
            units: true,
            exact: true,
            hold: true,
            relief: true,
            quiet: true,
        }
    }
}

impl Mechanisms {
    /// Leaves one of [`NAMES`] out; false if it is none.
    pub fn leave_out(&mut self, name: &str) -> bool {
        let part = match name {
            "pages" => &mut self.pages,
            "interleave" => &mut self.interleave,
            "coverage" => &mut self.coverage,
            "objects" => &mut self.objects,
            "units" => &mut self.units,
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
        let none = Mechanisms {
            pages: false,
            interleave: false,
            coverage: false,
            objects: false,
            units: false,
            exact: false,
            hold: false,
            relief: false,
            quiet: false,
        };
        assert_eq!(all, none);
    }
}
