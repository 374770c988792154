//! What a move is expected to bring, where counters tell how long CPUs wait for memory. Pure.
//!
//! Of the time that a piece of work takes now, the share `w` is waiting for memory at the mean
//! distance `d` of the misses counted. Afterwards the same misses go `d'` far, and the work finds
//! `c'` CPUs instead of `c`:
//!
//! ```text
//! gain = 1 − (1 − w·(1 − d' ÷ d)) · c ÷ c'
//! ```
//!
//! Example: numa02 with all memory remote on the emulated 2x4 waits ¾ of its time (300 of 400 ns a
//! miss). At 100 ns instead of 300: 1 − (1 − ¾·⅔) = ½. Waiting for bandwidth, and lines that come
//! from another CPU's cache, are taken to become shorter by as much.

use numaherd_model::{Latencies, NodeId, Topology};

use super::projection::Projection;
use crate::estimate::Interval;
use crate::stalls::Stalls;

/// Of the CPU time spent while counting, so much must be the process's own for the counts to be
/// about it. Guessed.
const OWN: f64 = 0.8;

/// So far may the local share of the misses lie below that of the evidence, which weighs a page used
/// much as one used little. Measured on the emulated 2x4: 0.03 for jbb-like well placed, 0.13 for
/// numa01 scattered by the kernel, which then takes hardly any faults; the bound between is guessed.
const APART: f64 = 0.1;

/// How far memory is from a node's CPUs: as measured in nanoseconds, else as firmware says, 10 for near.
pub struct Distances<'a> {
    /// The firmware's.
    pub firmware: &'a Topology,
    /// Of this machine.
    pub measured: Option<&'a Latencies>,
}

impl Distances<'_> {
    /// From a node's CPUs to a node's memory.
    pub fn between(&self, from: NodeId, to: NodeId) -> f64 {
        match self.measured {
            None => f64::from(self.firmware.distance(from, to)),
            Some(latencies) => latencies.between(from, to).unwrap_or(0.0),
        }
    }

    /// Where they come from.
    pub fn source(&self) -> &'static str {
        if self.measured.is_some() { "measured" } else { "firmware" }
    }
}

/// The share of the time taken now that the move saves; less than nothing where it costs time.
/// `own_cpus` is what the process used while it was counted. `None` where the counts are not about
/// it, or nothing is known.
pub fn gain(
    stalls: &Stalls,
    told: &Projection,
    own_cpus: f64,
    distances: &Distances<'_>,
) -> Option<f64> {
    if own_cpus < OWN * stalls.busy_cpus {
        return None;
    }
    if !told.moves() && !misses_more(stalls, told) {
        return Some(0.0);
    }
    let [now, near] = far(stalls, distances)?;
    let work = work_after(stalls.waiting, now, distance_after(now, near, told.distances?));
    let [before, after] = told.cpus.map(|permille| permille as f64);
    (after > 0.0).then(|| 1.0 - work * before / after)
}

/// What may come of it where too few faults tell whether threads share memory: from the less to the more
/// of what comes if each has its own (`apart`), and if they share all. Herd acts once it knows, so that
/// learning of sharing costs nothing.
pub fn either(apart: f64, shared: Option<f64>) -> Interval {
    let shared = shared.map_or(apart, |gain| gain.max(0.0));
    Interval { low: apart.min(shared), high: apart.max(shared) }
}

/// Whether more is remote by the misses than by the evidence: then the evidence is not complete,
/// and that it asks for no move says little. What is known of it tells how near things come.
fn misses_more(stalls: &Stalls, told: &Projection) -> bool {
    stalls.local_share().zip(told.after).is_some_and(|(counted, after)| counted < after - APART)
}

/// The same if every thread's memory can be brought to it: all there is to gain, and what there is
/// where no two threads use the same memory.
pub fn most(stalls: &Stalls, own_cpus: f64, distances: &Distances<'_>) -> Option<f64> {
    if own_cpus < OWN * stalls.busy_cpus {
        return None;
    }
    let [now, near] = far(stalls, distances)?;
    Some(1.0 - work_after(stalls.waiting, now, near))
}

/// How far misses go now, on average, and how far they would if all were near.
fn far(stalls: &Stalls, distances: &Distances<'_>) -> Option<[f64; 2]> {
    let now = stalls.mean(|from, to| distances.between(from, to)).filter(|now| *now > 0.0)?;
    Some([now, stalls.mean(|from, _| distances.between(from, from))?])
}

/// How far misses that go `now` far go afterwards, if evidence says from where to where. Where it takes more to be remote than
/// the misses are, as where all of a process's memory is taken to be shared that has some of it for each thread, it does so
/// afterwards, too: as large a part of what is beyond `near` is left as by the evidence.
///
/// Example: 150 ns now, 100 near; by the evidence 200 now and 150 afterwards: 125.
fn distance_after(now: f64, near: f64, [before, after]: [f64; 2]) -> f64 {
    match before > now && before > near {
        true => near + (now - near) * (after - near) / (before - near),
        false => after,
    }
}

/// Time for a piece of work that takes 1 now, once memory is `after` instead of `now` far.
fn work_after(waiting: f64, now: f64, after: f64) -> f64 {
    1.0 - waiting * (1.0 - after / now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;

    fn told(distance_after: f64, cpus: [u64; 2]) -> Projection {
        Projection {
            tasks: 8,
            pages: 0,
            before: Some(0.0),
            after: Some(1.0),
            distances: Some([21.0, distance_after]),
            cpus,
            finished: true,
        }
    }

    /// All misses remote, `waiting` of the time.
    fn remote(waiting: f64) -> Stalls {
        Stalls { waiting, busy_cpus: 8.0, misses: vec![((NodeId(0), NodeId(1)), 1000)] }
    }

    #[test]
    fn the_worked_example_gains_half_by_true_latencies() {
        let topology = Scene::two_by_four().snapshot().topology;
        let firmware = Distances { firmware: &topology, measured: None };
        let by = |after, cpus| gain(&remote(0.75), &told(after, cpus), 8.0, &firmware).unwrap();
        // by the firmware's 10 and 21: 1 - (1 - 0.75 x 11/21) = 0.393
        assert!((by(10.0, [8000, 8000]) - 0.75 * 11.0 / 21.0).abs() < 1e-9);
        // a third of the distance: ½
        assert!((by(7.0, [8000, 8000]) - 0.5).abs() < 1e-9);
        // on 7 of 8 CPUs the same half takes 8/7 of that: 1 - 4/7
        assert!((by(7.0, [8000, 7000]) - 3.0 / 7.0).abs() < 1e-9);
    }

    /// A quarter of all misses is remote; by the evidence half is, since all seems to be shared, and stays so.
    #[test]
    fn what_evidence_takes_to_be_remote_beyond_the_misses_is_no_loss_to_come() {
        let topology = Scene::two_by_four().snapshot().topology;
        let firmware = Distances { firmware: &topology, measured: None };
        let at = |to: u32, count| ((NodeId(0), NodeId(to)), count);
        let misses = vec![at(0, 750), at(1, 250)];
        let quarter = Stalls { misses, ..remote(0.5) };
        let by = |before, after| {
            let told = Projection { distances: Some([before, after]), ..told(after, [8000; 2]) };
            gain(&quarter, &told, 8.0, &firmware).unwrap()
        };
        assert!(by(15.5, 15.5).abs() < 1e-9, "as far as before");
        // 12.75 now: by half of the way to 10, and all of it.
        assert!((by(15.5, 12.75) - 0.5 * 1.375 / 12.75).abs() < 1e-9);
        assert!((by(15.5, 10.0) - 0.5 * 2.75 / 12.75).abs() < 1e-9);
        // Where the misses are no nearer than that, it is as far as the evidence says.
        assert!((by(12.75, 15.5) + 0.5 * 2.75 / 12.75).abs() < 1e-9);
    }

    #[test]
    fn a_promise_holds_whether_or_not_threads_share() {
        let told = |apart, shared| {
            let Interval { low, high } = either(apart, shared);
            (low, high)
        };
        assert_eq!(told(0.2, None), (0.2, 0.2));
        assert_eq!(told(-0.1, None), (-0.1, -0.1));
        assert_eq!(told(0.2, Some(0.05)), (0.05, 0.2));
        assert_eq!(told(0.2, Some(-0.3)), (0.0, 0.2));
        assert_eq!(told(0.0, Some(0.4)), (0.0, 0.4));
    }

    #[test]
    fn the_most_is_all_near() {
        let topology = Scene::two_by_four().snapshot().topology;
        let firmware = Distances { firmware: &topology, measured: None };
        let gain = most(&remote(0.75), 8.0, &firmware).unwrap();
        assert!((gain - 0.75 * 11.0 / 21.0).abs() < 1e-9);
        assert_eq!(most(&remote(0.75), 6.0, &firmware), None);
    }

    #[test]
    fn nothing_to_move_brings_nothing_and_others_counts_are_not_ours() {
        let topology = Scene::two_by_four().snapshot().topology;
        let firmware = Distances { firmware: &topology, measured: None };
        let idle = Projection { tasks: 0, ..told(10.0, [8000, 8000]) };
        let near = Stalls { misses: vec![((NodeId(0), NodeId(0)), 1000)], ..remote(0.4) };
        assert_eq!(gain(&near, &idle, 8.0, &firmware), Some(0.0));
        assert_eq!(gain(&near, &idle, 6.0, &firmware), None);
        // All is local by the evidence, and all misses are remote: it has not seen them.
        let unseen = gain(&remote(0.75), &idle, 8.0, &firmware).unwrap();
        assert!((unseen - 0.75 * 11.0 / 21.0).abs() < 1e-9);
    }
}
