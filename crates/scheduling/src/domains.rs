//! Scheduling domains: nested sets of CPUs, each split into groups between which load is evened.
//!
//! As in Linux: siblings of a core (SMT), CPUs that share a last-level cache (MC), the node
//! (where it holds several caches), and one level for each further distance between nodes. A
//! level that says nothing new (one group, or those of the level below) is left out.
//!
//! ```
//! use numaherd_scheduling::{Domains, Level, Place};
//! // Two nodes of two cores with two threads each.
//! let places: Vec<Place> =
//!     (0..8).map(|cpu| Place { core: cpu / 2, cache: cpu / 4, node: cpu / 4 }).collect();
//! let domains = Domains::new(&places, &[vec![10, 21], vec![21, 10]]);
//! let levels: Vec<Level> = domains.levels.iter().map(|level| level.0).collect();
//! assert_eq!(levels, [Level::Smt, Level::Cache, Level::Numa(21)]);
//! assert_eq!(domains.levels[1].1[0].groups, [vec![0, 1], vec![2, 3]]);
//! ```

/// Where a CPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its core, numbered over the machine.
    pub core: usize,
    /// Its last-level cache, numbered over the machine.
    pub cache: usize,
    /// Its node's index.
    pub node: usize,
}

/// What the CPUs of a domain have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A core.
    Smt,
    /// A last-level cache.
    Cache,
    /// A node.
    Node,
    /// Nodes within this SLIT distance of each other.
    Numa(u32),
}

/// Between nodes farther apart than this by SLIT nobody is started or woken: RECLAIM_DISTANCE. Published.
const RECLAIM_DISTANCE: u32 = 30;

/// What is done in the domains of a level: Linux's SD_* flags, without those that say nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// SD_BALANCE_NEWIDLE: a CPU about to idle takes a task.
    pub newidle: bool,
    /// SD_BALANCE_EXEC: a task that starts a program goes where least runs.
    pub exec: bool,
    /// SD_BALANCE_FORK: so does one that is born.
    pub fork: bool,
    /// SD_WAKE_AFFINE: who is woken may come to who wakes it.
    pub wake_affine: bool,
    /// SD_SHARE_PKG_RESOURCES: its CPUs share a cache.
    pub shares_cache: bool,
    /// SD_SHARE_CPUCAPACITY: its CPUs share a core.
    pub shares_core: bool,
    /// SD_PREFER_SIBLING: tasks spread over the groups of the level above.
    pub prefers_sibling: bool,
    /// SD_NUMA: its groups are nodes.
    pub numa: bool,
}

impl Level {
    /// Its flags.
    #[must_use]
    pub fn flags(self) -> Flags {
        let far = matches!(self, Level::Numa(distance) if distance > RECLAIM_DISTANCE);
        let numa = matches!(self, Level::Numa(_));
        Flags {
            newidle: true,
            exec: !far,
            fork: !far,
            wake_affine: !far,
            shares_cache: self <= Level::Cache,
            shares_core: self == Level::Smt,
            prefers_sibling: !numa,
            numa,
        }
    }
}

/// A domain: CPUs and the groups they fall into, each ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The CPUs for which this domain balances. They are those of the domain, except where
    /// distances overlap: then each node has a domain of its own.
    pub owners: Vec<usize>,
    /// Its groups.
    pub groups: Vec<Vec<usize>>,
}

/// All domains, from the smallest level to the largest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domains {
    /// A level and its domains.
    pub levels: Vec<(Level, Vec<Domain>)>,
    /// For each CPU, where it is.
    pub places: Vec<Place>,
    /// For each node index, its CPUs; likewise for each cache and each core.
    pub nodes: Vec<Vec<usize>>,
    caches: Vec<Vec<usize>>,
    cores: Vec<Vec<usize>>,
    /// For each level and CPU, the domain that balances for it.
    own: Vec<Vec<Option<usize>>>,
}

impl Domains {
    /// From where each CPU is, and the SLIT by node index.
    #[must_use]
    pub fn new(places: &[Place], slit: &[Vec<u32>]) -> Domains {
        let cpus = |wanted: &dyn Fn(&Place) -> bool| -> Vec<usize> {
            (0..places.len()).filter(|&cpu| wanted(&places[cpu])).collect()
        };
        let nodes = (0..slit.len()).map(|node| cpus(&|place| place.node == node)).collect();
        let by = |of: &dyn Fn(&Place) -> usize| {
            let most = places.iter().map(of).max().map_or(0, |most| most + 1);
            let mut all = vec![Vec::new(); most];
            places.iter().enumerate().for_each(|(cpu, place)| all[of(place)].push(cpu));
            all
        };
        let mut domains = Domains {
            levels: Vec::new(),
            places: places.to_vec(),
            nodes,
            caches: by(&|place| place.cache),
            cores: by(&|place| place.core),
            own: Vec::new(),
        };
        let core = |place: &Place| place.core;
        let cache = |place: &Place| place.cache;
        let node = |place: &Place| place.node;
        domains.nest(Level::Smt, &core, None);
        domains.nest(Level::Cache, &cache, Some(&core));
        domains.nest(Level::Node, &node, Some(&cache));
        let mut distances: Vec<u32> =
            slit.iter().flatten().copied().filter(|&distance| distance > 10).collect();
        distances.sort_unstable();
        distances.dedup();
        for distance in distances {
            domains.add_distance(distance, slit);
        }
        domains.own = domains.levels.iter().map(|(_, all)| owners(all, places.len())).collect();
        domains
    }

    /// A level whose domains do not overlap: CPUs with the same `whole`, grouped by `part`
    /// (alone where there is none).
    fn nest(
        &mut self,
        level: Level,
        whole: &dyn Fn(&Place) -> usize,
        part: Option<&dyn Fn(&Place) -> usize>,
    ) {
        let mut domains: Vec<(usize, Domain)> = Vec::new();
        for (cpu, place) in self.places.iter().enumerate() {
            let key = whole(place);
            let at = domains.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
                domains.push((key, Domain { owners: Vec::new(), groups: Vec::new() }));
                domains.len() - 1
            });
            let domain = &mut domains[at].1;
            domain.owners.push(cpu);
            let same = |group: &&mut Vec<usize>| {
                part.is_some_and(|part| part(&self.places[group[0]]) == part(place))
            };
            match domain.groups.iter_mut().find(same) {
                Some(group) => group.push(cpu),
                None => domain.groups.push(vec![cpu]),
            }
        }
        let domains: Vec<Domain> = domains.into_iter().map(|(_, domain)| domain).collect();
        self.keep(level, domains);
    }

    /// For each node, the nodes within `distance`; its groups are those nodes.
    fn add_distance(&mut self, distance: u32, slit: &[Vec<u32>]) {
        let mut domains: Vec<Domain> = Vec::new();
        for (from, row) in slit.iter().enumerate() {
            let near = row.iter().enumerate().filter(|(_, d)| **d <= distance).map(|(to, _)| to);
            let groups: Vec<Vec<usize>> =
                near.map(|to| self.nodes[to].clone()).filter(|group| !group.is_empty()).collect();
            match domains.iter_mut().find(|known| known.groups == groups) {
                Some(known) => known.owners.extend(&self.nodes[from]),
                None => domains.push(Domain { owners: self.nodes[from].clone(), groups }),
            }
        }
        self.keep(Level::Numa(distance), domains);
    }

    fn keep(&mut self, level: Level, mut domains: Vec<Domain>) {
        domains.retain(|domain| !domain.owners.is_empty() && domain.groups.len() > 1);
        let known = self.levels.last().is_some_and(|(_, last)| *last == domains);
        if !domains.is_empty() && !known {
            self.levels.push((level, domains));
        }
    }

    /// The CPU's domain on a level.
    #[must_use]
    pub fn own(&self, level: usize, cpu: usize) -> Option<&Domain> {
        self.own[level][cpu].map(|domain| &self.levels[level].1[domain])
    }

    /// CPUs that share a last-level cache with this one, itself included.
    #[must_use]
    pub fn near(&self, cpu: usize) -> &[usize] {
        &self.caches[self.places[cpu].cache]
    }

    /// CPUs of the same core, itself included.
    #[must_use]
    pub fn siblings(&self, cpu: usize) -> &[usize] {
        &self.cores[self.places[cpu].core]
    }

    /// Number of CPUs.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.places.len()
    }
}

/// For each CPU, the domain whose owner it is.
fn owners(domains: &[Domain], cpus: usize) -> Vec<Option<usize>> {
    let mut own = vec![None; cpus];
    for (index, domain) in domains.iter().enumerate() {
        domain.owners.iter().for_each(|&cpu| own[cpu] = Some(index));
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glueless_eight_socket_machine_has_two_numa_levels_of_four_and_eight() {
        // Each socket has three neighbours and four nodes two hops away, as the X5-8 has.
        let hop = |a: usize, b: usize| match a ^ b {
            0 => 10,
            1 | 2 | 7 => 21,
            _ => 31,
        };
        let slit: Vec<Vec<u32>> = (0..8).map(|a| (0..8).map(|b| hop(a, b)).collect()).collect();
        let places: Vec<Place> =
            (0..16).map(|cpu| Place { core: cpu, cache: cpu / 2, node: cpu / 2 }).collect();
        let domains = Domains::new(&places, &slit);
        let levels: Vec<Level> = domains.levels.iter().map(|level| level.0).collect();
        assert_eq!(levels, [Level::Cache, Level::Numa(21), Level::Numa(31)]);
        assert!(domains.levels[1].1.iter().all(|domain| domain.groups.len() == 4));
        assert_eq!(domains.levels[2].1.len(), 1);
    }

    /// As the STEAL series lists them of the X5-8 (2018).
    #[test]
    fn nobody_is_started_or_woken_farther_than_pages_are_reclaimed() {
        let levels = [Level::Smt, Level::Cache, Level::Numa(21), Level::Numa(31)];
        let told = levels.map(|level| {
            let flags = level.flags();
            let all = [
                (flags.newidle, "BALANCE_NEWIDLE"),
                (flags.exec, "BALANCE_EXEC"),
                (flags.fork, "BALANCE_FORK"),
                (flags.shares_cache, "SHARE_PKG_RESOURCES"),
                (flags.prefers_sibling, "PREFER_SIBLING"),
                (flags.shares_core, "SHARE_CPUCAPACITY"),
                (flags.numa, "NUMA"),
                (flags.wake_affine, "WAKE_AFFINE"),
            ];
            all.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
        });
        let begins = "BALANCE_NEWIDLE BALANCE_EXEC BALANCE_FORK";
        let expected = [
            format!("{begins} SHARE_PKG_RESOURCES PREFER_SIBLING SHARE_CPUCAPACITY WAKE_AFFINE"),
            format!("{begins} SHARE_PKG_RESOURCES PREFER_SIBLING WAKE_AFFINE"),
            format!("{begins} NUMA WAKE_AFFINE"),
            "BALANCE_NEWIDLE NUMA".into(),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_memory_only_node_is_in_no_group() {
        let places = [Place { core: 0, cache: 0, node: 0 }, Place { core: 1, cache: 1, node: 1 }];
        let slit = [vec![10, 21, 30], vec![21, 10, 30], vec![30, 30, 10]];
        let domains = Domains::new(&places, &slit);
        assert_eq!(domains.levels.len(), 1, "distance 30 adds no CPU: {:?}", domains.levels);
        assert_eq!(domains.levels[0].1[0].groups, [vec![0], vec![1]]);
    }
}
