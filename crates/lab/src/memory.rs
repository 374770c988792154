//! The part of a machine file that says how memory behaves: shared caches, coherence, prefetching,
//! bandwidth, and the links between nodes.
//!
//! All of it is optional; what a file leaves out is not modelled. Latencies are ns of guest time,
//! rates millions of bytes a second. [`Links::routes`] finds the way between nodes: the fewest
//! links, the shortest by latency among those, then the lowest node.
//!
//! ```text
//! [links] between = [[0, 1], [1, 3], [3, 2], [2, 0]]      a square: 0 → 3 goes over 1, 3 → 0 too
//! ```

use numaherd_model::places::Pair;
use numaherd_model::{nearest, ways};
use serde::Deserialize;

/// Last-level caches: one for each domain.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Llc {
    /// Size of each.
    pub bytes: u64,
    /// Associativity.
    pub ways: u32,
    /// What a hit costs.
    pub latency_ns: u64,
    /// CPUs that share one; all of a node where it is absent.
    pub cpus: Option<u32>,
}

/// Copies of a line become stale when another CPU writes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coherence {
    /// What a line costs that another CPU has written: row = the CPU's node, column = the
    /// writer's. `distance.latency_ns` where it is absent.
    pub transfer_ns: Option<Vec<Vec<u64>>>,
}

/// Misses of one run of neighbouring lines overlap.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefetch {
    /// How many are under way at a time when the run loads.
    pub load_overlap: u32,
    /// And when it stores.
    pub store_overlap: u32,
    /// Whether a run of stores fetches the lines it is going to overwrite; if absent, it does.
    /// memset of large sizes does not.
    #[serde(default = "yes")]
    pub stores_fetch: bool,
}

fn yes() -> bool {
    true
}

/// Each node's memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySpec {
    /// Reads and write-backs together; one figure for all nodes, or one for each.
    pub bandwidth_mb_s: Rates,
}

/// One figure for all, or one for each.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a whole number of MB/s, or a list of such")]
pub enum Rates {
    /// The same for all.
    All(u64),
    /// In order.
    Each(Vec<u64>),
}

impl Rates {
    /// As many as wanted; `None` if another number is given.
    fn expand(&self, count: usize) -> Option<Vec<u64>> {
        match self {
            Rates::All(rate) => Some(vec![*rate; count]),
            Rates::Each(rates) => Some(rates.clone()).filter(|rates| rates.len() == count),
        }
    }
}

/// Links between nodes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// Of each direction of a link; one figure for all links, or one for each of `between`. No limit where it is absent.
    pub bandwidth_mb_s: Option<Rates>,
    /// Pairs of node ids. Where it is absent, the pairs whose SLIT distance is the least that
    /// either of them has to another node.
    pub between: Option<Vec<Pair<u32>>>,
}

/// One direction of a link, or the way over several: indices of nodes and of directed links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// Pairs of node indices, each way of each link in turn.
    pub directed: Vec<(usize, usize)>,
    /// `via[from][to]`: positions in `directed`, in the order they are passed.
    pub via: Vec<Vec<Vec<usize>>>,
}

/// Nodes as [`Links`] needs them: ids and distances, in the machine's order.
pub struct Neighbourhood<'a> {
    /// Ids, ascending.
    pub ids: &'a [u32],
    /// SLIT.
    pub slit: &'a [Vec<u32>],
    /// Row = the CPU's node.
    pub latency_ns: &'a [Vec<u64>],
}

impl Links {
    /// Pairs of node indices.
    fn pairs(&self, nodes: &Neighbourhood<'_>) -> Result<Vec<(usize, usize)>, String> {
        let Some(between) = &self.between else { return Ok(nearest(nodes.slit)) };
        let index = |id: u32| {
            nodes
                .ids
                .iter()
                .position(|&known| known == id)
                .ok_or_else(|| format!("names node {id}, which no [[node]] has"))
        };
        let pairs = between.iter().map(|&Pair(a, b)| Ok((index(a)?, index(b)?)));
        let pairs: Vec<(usize, usize)> = pairs.collect::<Result<_, String>>()?;
        match between.iter().find(|Pair(a, b)| a == b) {
            Some(Pair(a, _)) => Err(format!("connects node {a} with itself")),
            None => Ok(pairs),
        }
    }

    /// Every way between nodes.
    ///
    /// # Errors
    /// A pair names an unknown node, or two nodes are not connected.
    pub fn routes(&self, nodes: &Neighbourhood<'_>) -> Result<Routes, String> {
        let pairs = self.pairs(nodes)?;
        let directed: Vec<_> = pairs.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]).collect();
        let count = nodes.ids.len();
        let mut via = vec![vec![Vec::new(); count]; count];
        let latency_ns = |a: usize, b: usize| nodes.latency_ns[a][b] as f64;
        let all = ways(count, &directed, latency_ns);
        for ((from, row), ways) in via.iter_mut().enumerate().zip(all) {
            for (to, way) in ways.into_iter().enumerate().filter(|&(to, _)| to != from) {
                row[to] = way.ok_or_else(|| {
                    format!("leaves no way from node {} to node {}", nodes.ids[from], nodes.ids[to])
                })?;
            }
        }
        Ok(Routes { directed, via })
    }

    /// Bytes a second of each directed link; `None` where nothing limits them.
    ///
    /// # Errors
    /// There is not one figure for each link.
    pub fn rates(&self, routes: &Routes) -> Result<Option<Vec<u64>>, String> {
        let links = routes.directed.len() / 2;
        let Some(told) = &self.bandwidth_mb_s else { return Ok(None) };
        let rates = told
            .expand(links)
            .ok_or_else(|| format!("must be one number, or one for each of {links} links"))?;
        check_rates(&rates)?;
        Ok(Some(rates.into_iter().flat_map(|mb_s| [mb_s * 1_000_000; 2]).collect()))
    }
}

impl MemorySpec {
    /// Bytes a second of each node.
    ///
    /// # Errors
    /// There is not one figure for each node.
    pub fn rates(&self, nodes: usize) -> Result<Vec<u64>, String> {
        let rates = self
            .bandwidth_mb_s
            .expand(nodes)
            .ok_or_else(|| format!("must be one number, or one for each of {nodes} nodes"))?;
        check_rates(&rates)?;
        Ok(rates.into_iter().map(|mb_s| mb_s * 1_000_000).collect())
    }
}

fn check_rates(rates: &[u64]) -> Result<(), String> {
    match rates.iter().find(|rate| !(16..=1_000_000).contains(*rate)) {
        Some(rate) => Err(format!("{rate} is not from 16 to 1000000")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(links: &Links, slit: &[Vec<u32>]) -> Result<Routes, String> {
        let ids: Vec<u32> = (0..slit.len() as u32).map(|i| 2 * i).collect();
        let latency_ns: Vec<Vec<u64>> =
            slit.iter().map(|row| row.iter().map(|&d| u64::from(d) * 10).collect()).collect();
        links.routes(&Neighbourhood { ids: &ids, slit, latency_ns: &latency_ns })
    }

    fn links(between: Option<Vec<[u32; 2]>>) -> Links {
        let pairs = |ends: Vec<[u32; 2]>| ends.into_iter().map(|[a, b]| Pair(a, b)).collect();
        Links { bandwidth_mb_s: Some(Rates::All(1000)), between: between.map(pairs) }
    }

    fn square() -> Vec<Vec<u32>> {
        vec![vec![10, 16, 16, 22], vec![16, 10, 22, 16], vec![16, 22, 10, 16], vec![22, 16, 16, 10]]
    }

    #[test]
    fn a_square_is_found_from_its_distances() {
        let found = routes(&links(None), &square()).unwrap();
        // 0-1, 0-2, 1-3, 2-3, each both ways.
        let directed = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 3), (3, 1), (2, 3), (3, 2)];
        assert_eq!(found.directed, directed);
        let nodes = |from: usize, to: usize| -> Vec<(usize, usize)> {
            found.via[from][to].iter().map(|&link| found.directed[link]).collect()
        };
        assert_eq!(nodes(0, 1), [(0, 1)]);
        assert_eq!(nodes(0, 3), [(0, 1), (1, 3)]);
        assert_eq!(nodes(3, 0), [(3, 1), (1, 0)]);
        assert_eq!(nodes(2, 2), []);
    }

    #[test]
    fn islands_are_connected_directly() {
        // Two pairs, near inside and far between.
        let slit = vec![
            vec![10, 12, 30, 30],
            vec![12, 10, 30, 30],
            vec![30, 30, 10, 12],
            vec![30, 30, 12, 10],
        ];
        let found = routes(&links(None), &slit).unwrap();
        assert_eq!(found.directed.len(), 12);
        assert!(found.via[0][3].len() == 1 && found.via[0][1].len() == 1);
    }

    #[test]
    fn stated_links_go_by_id_and_must_connect_all() {
        let stated = |pairs: &[[u32; 2]]| routes(&links(Some(pairs.to_vec())), &square());
        let line = stated(&[[0, 2], [2, 4], [4, 6]]).unwrap();
        assert_eq!(line.via[0][3].len(), 3);
        assert!(stated(&[[0, 2], [2, 5]]).unwrap_err().contains("node 5"));
        assert!(stated(&[[0, 0]]).unwrap_err().contains("itself"));
        let apart = stated(&[[0, 2], [4, 6]]).unwrap_err();
        assert!(apart.contains("no way from node 0 to node 4"), "{apart}");
    }

    #[test]
    fn rates_are_one_for_all_or_one_for_each() {
        let found = routes(&links(None), &square()).unwrap();
        let told = |bandwidth_mb_s| Links { bandwidth_mb_s, between: None };
        let each = |rates: Vec<u64>| told(Some(Rates::Each(rates)));
        assert_eq!(links(None).rates(&found).unwrap().unwrap(), [1_000_000_000; 8]);
        let rates = each(vec![1000, 20, 30, 40]).rates(&found).unwrap().unwrap();
        assert_eq!(rates[2..4], [20_000_000; 2]);
        assert_eq!(told(None).rates(&found), Ok(None));
        assert!(each(vec![1, 2]).rates(&found).unwrap_err().contains("4 links"));
        assert!(each(vec![0, 20, 30, 40]).rates(&found).unwrap_err().contains("0 is not"));
    }
}
