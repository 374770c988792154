//! Ways between nodes over the links of a machine: the same on the emulated machine and in the simulator.

/// A way over links, with the latencies of its links summed up.
struct Way {
    sum_ns: f64,
    links: Vec<usize>,
}

impl Way {
    fn is_better(&self, known: &Way) -> bool {
        let by_links = self.links.len().cmp(&known.links.len());
        let by_latency = by_links.then(self.sum_ns.total_cmp(&known.sum_ns));
        by_latency.then_with(|| self.links.cmp(&known.links)).is_lt()
    }
}

/// For each of so many nodes, the links from `from` to there, by their positions in `directed`, which names
/// the nodes at the ends of each direction of a link; `None` where there is no way. Fewest links, then least
/// latency summed up, then the links named first.
///
/// Bellman 1958, Ford 1956: a way has fewer links than there are nodes.
#[must_use]
pub fn ways_from(
    from: usize,
    nodes: usize,
    directed: &[(usize, usize)],
    latency_ns: impl Fn(usize, usize) -> f64,
) -> Vec<Option<Vec<usize>>> {
    let mut best: Vec<Option<Way>> = (0..nodes).map(|_| None).collect();
    best[from] = Some(Way { sum_ns: 0.0, links: Vec::new() });
    for _ in 1..nodes {
        let mut done = true;
        for (link, &(a, b)) in directed.iter().enumerate() {
            let Some(way) = best[a].as_ref() else { continue };
            if best[b].as_ref().is_some_and(|known| known.links.len() <= way.links.len()) {
                continue;
            }
            let sum_ns = way.sum_ns + latency_ns(a, b);
            let longer = Way { sum_ns, links: [&way.links[..], &[link]].concat() };
            if best[b].as_ref().is_none_or(|known| longer.is_better(known)) {
                best[b] = Some(longer);
                done = false;
            }
        }
        // Of a mesh of hundreds of nodes every way is found at once.
        if done {
            break;
        }
    }
    best.into_iter().map(|way| way.map(|way| way.links)).collect()
}
