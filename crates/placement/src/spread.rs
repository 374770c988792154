//! How a bundle's users are spread over nodes, what that costs and where its memory is cheapest, kept up to date as
//! they change nodes.
//!
//! On a machine of many nodes what several users' memory would cost on each node that comes into question is kept, so
//! that a user's change takes two distances a node to weigh, and none of the other users is asked.

use smallvec::SmallVec;

use crate::demand::{Amounts, Bundle, Demand, FEW_NODES, add};

/// See the module.
pub struct Spread {
    /// The users' weight on each node that has some.
    pub weights: Amounts,
    /// Where the memory is cheapest, and what it costs there ([`Demand::best_memory`]).
    pub memory: usize,
    pub cost: u64,
    /// Of nodes that take its memory those that hold some of it or run a user; `None` where they are not kept.
    places: Option<SmallVec<[Place; 1]>>,
}

/// Set in what memory costs where moving it there would fill the node: dearer than any that does not.
const FULL: u64 = 1 << 63;

/// What a bundle's memory would cost on a node, moving it there included.
#[derive(Clone, Copy)]
struct Place {
    node: u32,
    cost: u64,
}

impl Spread {
    /// For tasks where `at` says.
    pub fn new(demand: &Demand, bundle: &Bundle, at: &[usize]) -> Spread {
        let weights = bundle.weights(at);
        let several = bundle.users.len() > 1 && !bundle.stays;
        let places = (several && demand.nodes.len() > FEW_NODES).then(|| {
            let with_pages = bundle.pages.iter().map(|&(node, _)| node);
            let others = weights.iter().map(|&(node, _)| node);
            let others = others.filter(|&node| bundle.pages_on(node) == 0);
            let nodes = with_pages.chain(others);
            nodes.filter_map(|node| Place::new(demand, bundle, node, &weights)).collect()
        });
        let mut spread = Spread { weights, memory: 0, cost: 0, places };
        spread.find(demand, bundle);
        spread
    }

    /// Moves a weight from one node to another.
    pub fn shift(&mut self, demand: &Demand, bundle: &Bundle, weight: u64, from: usize, to: usize) {
        shift(&mut self.weights, weight, from, to);
        if let Some(places) = &mut self.places {
            if !has(&self.weights, from) && bundle.pages_on(from) == 0 {
                places.retain(|place| place.node as usize != from);
            }
            let (near, far) = (demand.distances(to), demand.distances(from));
            for place in places.iter_mut() {
                place.cost = place.cost_with(weight, near, far);
            }
            let known = || places.iter().any(|place| place.node as usize == to);
            if has(&self.weights, to) && !known() {
                places.extend(Place::new(demand, bundle, to, &self.weights));
            }
        }
        self.find(demand, bundle);
    }

    /// What the bundle would cost with a weight elsewhere. What `scratch` holds is lost.
    pub fn cost_with(
        &self,
        demand: &Demand,
        bundle: &Bundle,
        (weight, from, to): (u64, usize, usize),
        scratch: &mut Amounts,
    ) -> u64 {
        if bundle.users.len() == 1 {
            return demand.best_memory(bundle, &[(to, weight)]).1;
        }
        let kept = self.places.as_ref();
        kept.and_then(|places| self.least_with(places, demand, bundle, (weight, from, to)))
            .unwrap_or_else(|| {
                scratch.clone_from(&self.weights);
                shift(scratch, weight, from, to);
                demand.best_memory(bundle, scratch).1
            })
    }

    /// The same from what is kept; `None` where none of that takes it.
    fn least_with(
        &self,
        places: &[Place],
        demand: &Demand,
        bundle: &Bundle,
        (weight, from, to): (u64, usize, usize),
    ) -> Option<u64> {
        let on_from = self.weights.iter().find(|(node, _)| *node == from)?.1;
        // Nobody would be left there.
        let gone = on_from <= weight && bundle.pages_on(from) == 0;
        let (near, far) = (demand.distances(to), demand.distances(from));
        let (mut least, mut is_known) = (u64::MAX, false);
        for place in places.iter().filter(|place| !gone || place.node as usize != from) {
            is_known |= place.node as usize == to;
            least = least.min(place.cost_with(weight, near, far));
        }
        if !is_known && let Some(place) = Place::new(demand, bundle, to, &self.weights) {
            least = least.min(place.cost_with(weight, near, far));
        }
        (least < u64::MAX).then_some(least & !FULL)
    }

    /// Finds where the memory is cheapest; of equal nodes that which [`Demand::best_memory`] takes.
    fn find(&mut self, demand: &Demand, bundle: &Bundle) {
        let rank = |place: &Place| (u64::MAX - bundle.pages_on(place.node as usize), place.node);
        let cheaper =
            |a: &&Place, b: &&Place| a.cost.cmp(&b.cost).then_with(|| rank(a).cmp(&rank(b)));
        let kept = self.places.as_ref().and_then(|places| places.iter().min_by(cheaper));
        (self.memory, self.cost) = match kept {
            Some(place) => (place.node as usize, place.cost & !FULL),
            None => demand.best_memory(bundle, &self.weights),
        };
    }
}

impl Place {
    /// `None` where its memory may not be on the node, or that has none.
    fn new(
        demand: &Demand,
        bundle: &Bundle,
        node: usize,
        weights: &[(usize, u64)],
    ) -> Option<Place> {
        let arriving = bundle.known - bundle.pages_on(node);
        let far = weights.iter().map(|&(cpus, weight)| weight * demand.distance(node, cpus));
        let full = if arriving > demand.room[node] { FULL } else { 0 };
        let cost = |far: u64| far + arriving * bundle.page_cost + full;
        demand.takes(bundle, node).then(|| Place { node: node as u32, cost: cost(far.sum()) })
    }

    /// With a weight nearer to one node and no longer near another, given the distances from their CPUs.
    fn cost_with(&self, weight: u64, to: &[u32], from: &[u32]) -> u64 {
        let node = self.node as usize;
        self.cost + weight * u64::from(to[node]) - weight * u64::from(from[node])
    }
}

fn has(weights: &Amounts, node: usize) -> bool {
    weights.iter().any(|entry| entry.0 == node)
}

/// Moves a weight from one node to another; nodes without any are not listed.
fn shift(weights: &mut Amounts, weight: u64, from: usize, to: usize) {
    if let Some(i) = weights.iter().position(|(node, _)| *node == from) {
        weights[i].1 -= weight;
        if weights[i].1 == 0 {
            weights.swap_remove(i);
        }
    }
    if weight > 0 {
        add(weights, to, weight);
    }
}
