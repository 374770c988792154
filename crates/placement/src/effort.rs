//! What it has to save to move a task.
//!
//! Evidence is uncertain by some parts of a task's use, and what those are worth is how much farther another node's
//! memory is than its own: on average, for where it will come from is not known yet.
//!
//! Example: on a machine with 10 and 20 a busy task has to save 0.04 × 10, on one with 10 and 12 0.04 × 2 of SLIT's tenths.

use crate::demand::{Demand, SHARE};

/// Of a busy task's use, in hundredths, that has to come from its own node in place of another: so 8 where two change
/// places. Guessed, above the noise of a thousand faults.
const WORTH_PERCENT: u64 = 4;

/// The same once everybody has been placed, as a multiple. Guessed: what a few scans of a handful of
/// huge pages show goes up and down by a tenth, and a move for that costs more than it brings (shared).
const PLACED: u64 = 3;

/// What moving a task has to save, in weight × distance.
#[must_use]
pub fn to_move(demand: &Demand, all_placed: bool) -> u64 {
    let (count, farther) = farther(demand);
    let cost = SHARE / 100 * WORTH_PERCENT * farther / count.max(1);
    if all_placed { PLACED * cost } else { cost }
}

/// Pairs of a node's CPUs and another's memory, and how much farther that is than the node's own, summed up.
fn farther(demand: &Demand) -> (u64, u64) {
    let nodes = 0..demand.nodes.len();
    let runs = nodes.clone().filter(|&node| demand.open[node] > 0);
    let pairs = runs.flat_map(|cpus| nodes.clone().map(move |memory| (memory, cpus)));
    let others = pairs.filter(|&(memory, cpus)| memory != cpus && demand.has_memory[memory]);
    others.fold((0, 0), |(count, sum), (memory, cpus)| {
        let own = demand.distance(cpus, cpus);
        (count + 1, sum + demand.distance(memory, cpus).saturating_sub(own))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::SLIT_UNIT;
    use numaherd_model::scene::Scene;

    fn cost(scene: &Scene, all_placed: bool) -> u64 {
        to_move(&Demand::new(&scene.snapshot()), all_placed)
    }

    #[test]
    fn a_move_has_to_save_the_more_the_farther_nodes_are_apart() {
        let mut scene = Scene::even(4, 2);
        scene.task(1, 0, 1000);
        let set = |scene: &mut Scene, far: [u32; 3]| {
            for (a, b, hops) in [(0, 1, 0), (0, 2, 0), (0, 3, 2), (1, 2, 2), (1, 3, 1), (2, 3, 1)] {
                scene.edit().topology.distances[a][b] = far[hops];
                scene.edit().topology.distances[b][a] = far[hops];
            }
        };
        set(&mut scene, [12; 3]);
        assert_eq!(
            [false, true].map(|all| cost(&scene, all)),
            [80_000, 240_000].map(|cost| cost * SLIT_UNIT)
        );
        set(&mut scene, [20; 3]);
        assert_eq!(cost(&scene, false), 400_000 * SLIT_UNIT);
        // A square: 6, 6 and 12.
        set(&mut scene, [16, 16, 22]);
        assert_eq!(cost(&scene, false), 320_000 * SLIT_UNIT);
        // To a node without memory or CPUs nobody goes.
        set(&mut scene, [12; 3]);
        for other in 0..3 {
            scene.edit().topology.distances[3][other] = 30;
            scene.edit().topology.distances[other][3] = 30;
        }
        scene.edit().topology.nodes[3].cpus = Default::default();
        scene.edit().topology.nodes[3].memory = numaherd_model::Bytes(0);
        assert_eq!(cost(&scene, false), 80_000 * SLIT_UNIT);
    }

    #[test]
    fn on_one_node_there_is_nothing_to_save() {
        let mut scene = Scene::even(1, 2);
        scene.task(1, 0, 1000);
        assert_eq!(cost(&scene, true), 0);
    }
}
