//! Ways between nodes over the links of a machine: the same on the emulated machine and in the simulator.

/// The links from one node to another, by their positions among all; `None` where there is no way.
pub type Way = Option<Vec<usize>>;

/// For each of so many nodes, the ways from it to every node. Links are told by the nodes at the ends of each
/// direction of one. Fewest links, then least latency summed up, then the links named first.
///
/// By breadth: nodes that a link more leads to follow from those that are reached, and once all are reached no link
/// is looked at any more. So of a mesh, whose links are as many as pairs of nodes, each is looked at once.
#[must_use]
pub fn ways(
    nodes: usize,
    directed: &[(usize, usize)],
    latency_ns: impl Fn(usize, usize) -> f64,
) -> Vec<Vec<Way>> {
    let mut leaving = vec![Vec::new(); nodes];
    for (link, &(a, b)) in directed.iter().enumerate() {
        leaving[a].push((link, b));
    }
    (0..nodes).map(|from| ways_from(from, &leaving, &latency_ns)).collect()
}

/// Pairs of nodes, each once and in the order of the nodes, that are linked where a machine's file does not say which are:
/// those as near as either has any other node, by the lesser of their two distances; all pairs if these leave islands.
/// How nodes are numbered makes no difference.
#[must_use]
pub fn nearest(slit: &[Vec<u32>]) -> Vec<(usize, usize)> {
    let nodes = slit.len();
    let distance = |a: usize, b: usize| slit[a][b].min(slit[b][a]);
    let others = |a: usize| (0..nodes).filter(move |&b| b != a);
    let least: Vec<Option<u32>> =
        (0..nodes).map(|a| others(a).map(|b| distance(a, b)).min()).collect();
    let all = || (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b)));
    let near = |&(a, b): &(usize, usize)| [least[a], least[b]].contains(&Some(distance(a, b)));
    let pairs: Vec<(usize, usize)> = all().filter(near).collect();
    if are_connected(nodes, &pairs) { pairs } else { all().collect() }
}

fn are_connected(nodes: usize, pairs: &[(usize, usize)]) -> bool {
    let mut beside = vec![Vec::new(); nodes];
    for &(a, b) in pairs {
        beside[a].push(b);
        beside[b].push(a);
    }
    let mut reached = vec![false; nodes];
    let mut open: Vec<usize> = (0..nodes).take(1).collect();
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut reached[node], true) {
            open.extend(beside[node].iter().filter(|&&next| !reached[next]));
        }
    }
    reached.into_iter().all(|reached| reached)
}

/// The last link of a way that may be the best, the node it leaves, and the latencies of all of it summed up.
#[derive(Clone, Copy)]
struct Last {
    sum_ns: f64,
    node: usize,
    link: usize,
}

/// `leaving` has the links that leave each node, and where these lead.
fn ways_from(
    from: usize,
    leaving: &[Vec<(usize, usize)>],
    latency_ns: &impl Fn(usize, usize) -> f64,
) -> Vec<Way> {
    let nodes = leaving.len();
    let mut ways: Vec<Way> = vec![None; nodes];
    let mut sum_ns = vec![0.0; nodes];
    ways[from] = Some(Vec::new());
    let mut farthest = vec![from];
    let mut reached = 1;
    while !farthest.is_empty() && reached < nodes {
        let mut last: Vec<Option<Last>> = vec![None; nodes];
        let mut next = Vec::new();
        for &node in &farthest {
            for &(link, to) in leaving[node].iter().filter(|&&(_, to)| ways[to].is_none()) {
                let new = Last { sum_ns: sum_ns[node] + latency_ns(node, to), node, link };
                // Both ways have as many links.
                let is_better = last[to].is_none_or(|known| {
                    let by_latency = new.sum_ns.total_cmp(&known.sum_ns);
                    let by_name = || ways[node].cmp(&ways[known.node]).then(link.cmp(&known.link));
                    by_latency.then_with(by_name).is_lt()
                });
                if last[to].is_none() {
                    next.push(to);
                }
                if is_better {
                    last[to] = Some(new);
                }
            }
        }
        for &to in &next {
            let Some(Last { sum_ns: sum, node, link }) = last[to] else { continue };
            let before = ways[node].as_deref().unwrap_or_default();
            ways[to] = Some([before, &[link]].concat());
            sum_ns[to] = sum;
        }
        reached += next.len();
        farthest = next;
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every way without a node twice, tried one by one: links, then latency, then names.
    fn tried(from: usize, to: usize, links: &[(usize, usize)], ns: &[Vec<f64>]) -> Way {
        let mut best: Option<(usize, f64, Vec<usize>)> = None;
        let mut open = vec![(from, vec![from], 0.0, Vec::new())];
        while let Some((at, seen, sum, way)) = open.pop() {
            if at == to {
                let found = (way.len(), sum, way);
                if best.as_ref().is_none_or(|known| found < *known) {
                    best = Some(found);
                }
                continue;
            }
            for (link, &(_, b)) in links.iter().enumerate().filter(|(_, (a, _))| *a == at) {
                if !seen.contains(&b) {
                    let seen = [&seen[..], &[b]].concat();
                    open.push((b, seen, sum + ns[at][b], [&way[..], &[link]].concat()));
                }
            }
        }
        best.map(|(.., way)| way)
    }

    proptest! {
        #[test]
        fn ways_are_the_best_of_all_there_are(
            pairs in prop::collection::vec((0usize..6, 0usize..6), 0..12),
            latencies in prop::collection::vec(prop::collection::vec(1u32..4, 6), 6),
        ) {
            let links: Vec<(usize, usize)> =
                pairs.into_iter().filter(|(a, b)| a != b).flat_map(|(a, b)| [(a, b), (b, a)]).collect();
            let ns: Vec<Vec<f64>> =
                latencies.iter().map(|row| row.iter().map(|&ns| f64::from(ns)).collect()).collect();
            let found = ways(6, &links, |a, b| ns[a][b]);
            for (from, row) in found.iter().enumerate() {
                for (to, way) in row.iter().enumerate() {
                    prop_assert_eq!(way, &tried(from, to, &links, &ns), "{} {}", from, to);
                }
            }
        }
    }

    /// Node 1 is as near to node 0 as 12 one way, and 25 the other.
    #[test]
    fn nearest_are_by_the_lesser_distance() {
        let slit = [vec![10, 12, 30], vec![25, 10, 20], vec![30, 20, 10]];
        assert_eq!(nearest(&slit), [(0, 1), (1, 2)]);
        // Two pairs, near inside and far between.
        let islands: Vec<Vec<u32>> =
            [[10, 12, 30, 30], [12, 10, 30, 30], [30, 30, 10, 12], [30, 30, 12, 10]]
                .map(Vec::from)
                .into();
        assert_eq!(nearest(&islands).len(), 6);
        assert!(nearest(&[vec![10]]).is_empty() && nearest(&[]).is_empty());
    }

    proptest! {
        /// Renumbered nodes have the same links, renumbered, whether distances are the same both ways or not.
        #[test]
        fn nearest_do_not_hang_on_numbers(
            slit in prop::collection::vec(prop::collection::vec(11u32..15, 5), 5),
            new in Just((0..5).collect::<Vec<usize>>()).prop_shuffle(),
        ) {
            let mut other = slit.clone();
            for (a, row) in slit.iter().enumerate() {
                for (b, &distance) in row.iter().enumerate() {
                    other[new[a]][new[b]] = distance;
                }
            }
            let renumbered = nearest(&slit).into_iter().map(|(a, b)| {
                (new[a].min(new[b]), new[a].max(new[b]))
            });
            let mut renumbered: Vec<(usize, usize)> = renumbered.collect();
            renumbered.sort_unstable();
            prop_assert_eq!(renumbered, nearest(&other));
        }
    }

    /// So large that looking at every link from every node would be looking at 10⁹.
    #[test]
    fn of_a_mesh_of_a_thousand_nodes_every_way_is_a_link() {
        let pairs = (0..1024).flat_map(|a| (a + 1..1024).map(move |b| (a, b)));
        let links: Vec<(usize, usize)> = pairs.flat_map(|(a, b)| [(a, b), (b, a)]).collect();
        let looked = std::cell::Cell::new(0);
        let found = ways(1024, &links, |_, _| {
            looked.set(looked.get() + 1);
            1.0
        });
        let is_its_link = |from: usize, to: usize| match found[from][to].as_deref() {
            Some([]) => from == to,
            Some([link]) => links[*link] == (from, to),
            _ => false,
        };
        assert!((0..1024).all(|from| (0..1024).all(|to| is_its_link(from, to))));
        assert_eq!(looked.get(), links.len());
    }
}
