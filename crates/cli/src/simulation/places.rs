//! Where the tasks of a finished run spent their time, as a call graph.

use numaherd_report::callgraph::{CallGraph, Frame, Lock, Point};
use numaherd_sim::account::{LockUse, Place};

use super::Finished;
use crate::args::SimPlacement;

/// Of one run, the first being 1.
pub fn graph(placement: SimPlacement, run: u32, finished: &Finished) -> CallGraph {
    let account = finished.sim.account();
    let seconds = |place| account.ns(place) as f64 / 1e9;
    let mut all = Frame::new("all tasks");
    for place in Place::ALL.into_iter().filter(|&place| account.times(place) > 0) {
        all.add(place.path(), seconds(place), account.times(place));
    }
    all.sort();
    let blocked = Place::ALL.into_iter().filter(|&p| p.blocks() && account.times(p) > 0);
    let mut blocked: Vec<Point> = blocked
        .map(|place| Point {
            name: place.name().into(),
            times: account.times(place),
            share: account.share_of_blocks(place),
            seconds: seconds(place),
        })
        .collect();
    blocked.sort_by_key(|point| std::cmp::Reverse(point.times));
    let mut locks: Vec<_> = finished.sim.locks().filter(|(.., used)| used.waited > 0).collect();
    locks.sort_by_key(|(process, name, used)| {
        (std::cmp::Reverse(used.wait_ns), process.tgid, *name)
    });
    let whole_ns = (finished.run.seconds * 1e9).max(1.0);
    let locks = locks
        .into_iter()
        .map(|(process, name, used)| {
            lock(format!("{name}, process {}", process.tgid), used, whole_ns)
        })
        .collect();
    CallGraph { placement: placement.to_string(), run, all, blocked, locks }
}

fn lock(name: String, used: &LockUse, whole_ns: f64) -> Lock {
    let mean_us = |ns: u64, times: u64| ns as f64 / 1e3 / times.max(1) as f64;
    Lock {
        name,
        taken: used.taken,
        waited_share: used.waited as f64 / used.taken.max(1) as f64,
        held_share: used.held_ns as f64 / whole_ns,
        held_mean_us: mean_us(used.held_ns, used.taken),
        wait_mean_us: mean_us(used.wait_ns, used.waited),
        wait_longest_us: used.longest_wait_ns as f64 / 1e3,
    }
}
