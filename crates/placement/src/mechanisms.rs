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
    /// Where most of a process's memory is huge pages of the reserve, its accesses are sampled. (It is whoever
    /// looks that samples them.)
    pub accesses: bool,
    /// Accesses to memory that faults are sampled, too, where the kernel's scans are left as they are. (It is whoever looks
    /// that samples them.)
    pub samples: bool,
    /// Memory that several processes map is one thing. (It is whoever looks that tells.)
    pub objects: bool,
    /// Virtual nodes stay whole. (It is whoever looks that tells them.)
    pub units: bool,
    /// Nodes are as far from each other as somebody measured. Without: as firmware says.
    pub latencies: bool,
    /// Tasks of a process that share memory are told apart from those that do not.
    pub teams: bool,
    /// Processes whose memory lies wrong are placed before it is known how far they share it, where that is
    /// right either way.
    pub early: bool,
    /// Where faults do not tell yet where memory lies, page tables do. (It is whoever looks that reads them.)
    pub tables: bool,
    /// Teams that do not fit their memory's node take turns at being away.
    pub turns: bool,
    /// That tasks share cores has its price. Without: a CPU is a CPU, whatever its siblings do.
    pub cores: bool,
    /// Groups are spread whose traffic one node's memory does not carry.
    pub bandwidth: bool,
    /// A group that one node does not hold is put on as few and as near nodes as possible, even where the
    /// mean distance is no less. In small problems.
    pub scatter: bool,
    /// Tasks with memory of their own stay where they are spread, and that comes to them. Without: they are gathered
    /// where it lies, as far as there are CPUs.
    pub level: bool,
    /// Small problems are solved exactly. Without: by moves and swaps alone.
    pub exact: bool,
    /// Where tasks crowd, those that are already right are held.
    pub hold: bool,
    /// A placed task that waits for a CPU is let go.
    pub relief: bool,
    /// Faults that tell of another phase wake the loop, and old evidence counts for less. (It is the loop
    /// that hears them.)
    pub stir: bool,
    /// With nothing to do for a while, all has converged. Without: only if nearly all is local.
    pub quiet: bool,
}

/// Names, as a user gives them, and what each does.
pub const PARTS: [(&str, &str); 21] = [
    ("pages", "pages follow tasks; without, they are left to the kernel"),
    ("interleave", "memory that several nodes use alike is shared out over those"),
    ("coverage", "who has most memory where no faults come is left alone"),
    ("accesses", "where most memory is huge pages of the reserve, accesses are sampled"),
    (
        "samples",
        "accesses to other memory are sampled too, where the kernel's scans are left as they are",
    ),
    ("objects", "memory that several processes map is one thing"),
    ("units", "virtual nodes of virtual machines stay whole"),
    ("latencies", "nodes are as far as was measured (--measured); without, as firmware says"),
    ("teams", "tasks of a process that share memory are told apart from those that do not"),
    ("early", "who is surely misplaced is placed before it is known how far memory is shared"),
    ("tables", "where faults do not tell yet where memory lies, page tables do"),
    ("turns", "teams that do not fit their memory's node take turns at being away"),
    ("cores", "that tasks share cores has its price"),
    ("bandwidth", "groups are spread whose traffic one node's memory does not carry"),
    (
        "scatter",
        "a group that one node does not hold is put on as few and as near nodes as possible",
    ),
    ("level", "tasks with memory of their own stay where they are spread, and it comes to them"),
    ("exact", "small problems are solved exactly; without, by moves and swaps alone"),
    ("hold", "where tasks crowd, those that are already right are held"),
    ("relief", "a placed task that waits for a CPU is let go"),
    ("stir", "faults that tell of another phase wake the loop"),
    (
        "quiet",
        "with nothing to do for a while all has converged; without, only if nearly all is local",
    ),
];

/// The names.
pub const NAMES: [&str; 21] = {
    let (mut names, mut nth) = ([""; 21], 0);
    while nth < names.len() {
        names[nth] = PARTS[nth].0;
        nth += 1;
    }
    names
};

impl Default for Mechanisms {
    fn default() -> Self {
        Mechanisms {
            pages: true,
            interleave: true,
            coverage: true,
            accesses: true,
            samples: true,
            objects: true,
            units: true,
            latencies: true,
            teams: true,
            early: true,
            tables: true,
            turns: true,
            cores: true,
            bandwidth: true,
            scatter: true,
            level: true,
            exact: true,
            hold: true,
            relief: true,
            stir: true,
            quiet: true,
        }
    }
}

/// All but some of [`NAMES`], which were checked when they were read.
#[must_use]
pub fn leaving_out(names: &[String]) -> Mechanisms {
    let mut parts = Mechanisms::default();
    names.iter().for_each(|name| _ = parts.leave_out(name));
    parts
}

impl Mechanisms {
    /// Leaves one of [`NAMES`] out; false if it is none.
    pub fn leave_out(&mut self, name: &str) -> bool {
        let part = match name {
            "pages" => &mut self.pages,
            "interleave" => &mut self.interleave,
            "coverage" => &mut self.coverage,
            "accesses" => &mut self.accesses,
            "samples" => &mut self.samples,
            "objects" => &mut self.objects,
            "units" => &mut self.units,
            "latencies" => &mut self.latencies,
            "teams" => &mut self.teams,
            "early" => &mut self.early,
            "tables" => &mut self.tables,
            "turns" => &mut self.turns,
            "cores" => &mut self.cores,
            "bandwidth" => &mut self.bandwidth,
            "scatter" => &mut self.scatter,
            "level" => &mut self.level,
            "exact" => &mut self.exact,
            "hold" => &mut self.hold,
            "relief" => &mut self.relief,
            "stir" => &mut self.stir,
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
            accesses: false,
            samples: false,
            objects: false,
            units: false,
            latencies: false,
            teams: false,
            early: false,
            tables: false,
            turns: false,
            cores: false,
            bandwidth: false,
            scatter: false,
            level: false,
            exact: false,
            hold: false,
            relief: false,
            stir: false,
            quiet: false,
        };
        assert_eq!(all, none);
    }
}
