//! jbb-like: the open kernel of a warehouse benchmark in the shape of SPECjbb2005. N processes,
//! each with its share of the threads; every thread owns a warehouse of maps and runs
//! transactions on it, a fixed number of them or for a fixed time. No I/O.
//!
//! An operation is one transaction. `bind` gives each process its share of the nodes and each
//! warehouse, thread and memory, one node of it. The memory is the allocator's: it is placed by
//! the policy of the thread that touches it first, and a process goes on allocating and freeing
//! while it runs.

mod warehouse;

use std::sync::Mutex;

use crate::job::Job;
use crate::parts::threads_of;
use crate::setting::{Setting, Tie};
use crate::{WorkloadError, sys, system};
use warehouse::Warehouse;

/// Least memory of a warehouse: a few customers and items.
const LEAST_BYTES: usize = 64 << 10;

/// An error unless there is room for each warehouse of `parts` processes.
pub fn check(setting: &Setting, parts: usize) -> Result<(), WorkloadError> {
    let size = setting.params.size_bytes;
    let threads = threads_of(setting.params.threads, parts, 0);
    if size / threads.max(1) >= LEAST_BYTES {
        return Ok(());
    }
    let problem =
        format!("{size} bytes are less than {LEAST_BYTES} for each of {threads} warehouses");
    Err(WorkloadError::Params { problem })
}

/// One process of `parts`, its warehouses filled.
pub fn job<'a>(
    setting: &Setting<'a>,
    parts: usize,
    index: usize,
) -> Result<Job<'a>, WorkloadError> {
    let params = &setting.params;
    let threads = threads_of(params.threads, parts, index);
    let bytes = params.size_bytes / threads.max(1);
    let process = setting.layout.home(parts, index);
    let homes: Vec<_> = (0..threads)
        .map(|thread| setting.layout.of_thread(process.clone(), threads, thread))
        .collect();
    let policies: Vec<_> = homes.iter().map(|home| setting.policy(home.clone())).collect();
    let mut warehouses = Vec::with_capacity(threads);
    for (thread, policy) in policies.iter().enumerate() {
        follow(policy.as_ref())?;
        let seed = (index * 1000 + thread) as u64;
        warehouses.push(Mutex::new(Warehouse::new(seed, bytes)));
    }
    follow(None)?;
    // What a tied process allocates later stays tied too.
    let tied = params.tie != Tie::Free;
    let loops = params.loops;
    Ok(Job::of(homes, move |thread, tally| {
        if tied {
            follow(policies[thread].as_ref())?;
        }
        let mut warehouse =
            warehouses[thread].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut began = sys::ticks();
        for _ in tally.rounds(loops) {
            warehouse.transact();
            began = tally.operation(began);
        }
        warehouse.audit().map_err(|problem| WorkloadError::Process { index, problem })
    }))
}

/// Puts the calling thread under a policy, or under none.
fn follow(policy: Option<&(i32, Vec<u32>)>) -> Result<(), WorkloadError> {
    let (mode, nodes) = policy.map_or((sys::MPOL_DEFAULT, &[][..]), |(mode, n)| (*mode, &n[..]));
    match sys::set_thread_policy(mode, nodes) {
        // A kernel without NUMA has no policies to go back to.
        Err(e) if policy.is_none() && e.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        other => other.map_err(system(&format!("cannot put new memory on nodes {nodes:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run_here, with};

    #[test]
    fn every_warehouse_runs_its_transactions_and_its_books_balance() {
        with(3, 1 << 20, 500, |setting| {
            let measured = run_here(&job(setting, 2, 0).unwrap(), setting);
            assert_eq!(measured.amount, 2 * 500);
            let latency = measured.latency_ns.unwrap();
            assert!(latency.p50 <= latency.p99 && latency.p99 <= latency.max, "{latency:?}");
            assert_eq!(run_here(&job(setting, 2, 1).unwrap(), setting).amount, 500);
        });
    }

    #[test]
    fn a_warehouse_without_room_is_refused() {
        with(2, 1 << 16, 1, |setting| {
            let error = check(setting, 1).unwrap_err().to_string();
            assert!(error.contains("65536 for each of 2 warehouses"), "{error}");
        });
    }
}
