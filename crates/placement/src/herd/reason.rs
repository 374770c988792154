//! What a user is told of a task's place.

use numaherd_model::Reason;

use crate::demand::Demand;
use crate::outlook::Outlook;

/// Why task `i` belongs where `at` says: memory it uses alone, memory it shares with tasks
/// there, or nothing but a free CPU.
pub fn reason(demand: &Demand, outlook: &Outlook, at: &[usize], i: usize, stays: bool) -> Reason {
    let (mut local, mut with_others, mut all) = (0, 0, 0);
    for &(b, weight) in &demand.tasks[i].bundles {
        let bundle = &demand.bundles[b];
        all += weight;
        if outlook.of(b).memory == at[i] {
            local += weight;
            let mate = |(task, _): &(usize, u64)| *task != i && at[*task] == at[i];
            with_others += if bundle.users.iter().any(mate) { weight } else { 0 };
        }
    }
    let permille = |part: u64| (part * 1000).checked_div(all).unwrap_or(0) as u32;
    if !stays && demand.bandwidth.is_short(demand.tasks[i].now) {
        return Reason::Bandwidth;
    }
    match (stays, with_others * 2 > all, local > 0) {
        (true, ..) => Reason::Hold { permille: permille(local) },
        (_, true, _) => Reason::BuddiesThere { permille: permille(with_others) },
        (_, _, true) => Reason::MemoryThere { permille: permille(local) },
        _ => Reason::Balance,
    }
}
