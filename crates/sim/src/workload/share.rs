//! How threads that are asked for go to a workload's processes: as they do in its file.

use super::{MOST_THREADS, ProcessSpec};

/// Beyond this nobody looks for a number of threads that can be shared out. Guessed.
const MOST_LOOKED_AT: u32 = 10_000;

/// Threads of each process of each kind, or why there is no such number.
pub(super) fn out(name: &str, threads: u32, kinds: &[ProcessSpec]) -> Result<Vec<u32>, String> {
    if u64::from(threads) > MOST_THREADS {
        return Err(format!("{threads} threads: at most {MOST_THREADS} are simulated"));
    }
    let by_cpu = kinds.iter().filter(|kind| kind.threads_per_cpu.is_some()).count();
    if by_cpu > 0 && by_cpu < kinds.len() {
        return Err(format!(
            "{name} has processes with 'threads' and others with 'threads_per_cpu', between which threads cannot be \
             shared out: change the file"
        ));
    }
    let ask =
        |kind: &ProcessSpec| kind.threads_per_cpu.or(kind.threads.map(f64::from)).unwrap_or(1.0);
    let all: f64 = kinds.iter().map(|kind| ask(kind) * f64::from(kind.copies)).sum();
    let whole = |threads: u32| -> Option<Vec<u32>> {
        let each = kinds.iter().map(|kind| {
            let each = f64::from(threads) * ask(kind) / all;
            let rounded = each.round();
            (rounded >= 1.0 && (each - rounded).abs() <= 1e-9).then_some(rounded as u32)
        });
        each.collect()
    };
    whole(threads).ok_or_else(|| {
        let least = (1..=MOST_LOOKED_AT).find(|threads| whole(*threads).is_some());
        let advice = least.map_or_else(
            || "change the file".into(),
            |least| format!("give a multiple of {least}"),
        );
        format!(
            "{threads} threads cannot be shared out evenly over the processes of {name}: {advice}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::tests::slices;

    fn kinds(all: &[(u32, Option<u32>, Option<f64>)]) -> Vec<ProcessSpec> {
        let like = slices(1, 64, 1).process.remove(0);
        let kind = |&(copies, threads, threads_per_cpu)| ProcessSpec {
            copies,
            threads,
            threads_per_cpu,
            ..like.clone()
        };
        all.iter().map(kind).collect()
    }

    #[test]
    fn each_kind_has_its_part_and_what_all_can_share_is_told() {
        let two = kinds(&[(1, Some(3), None), (1, Some(5), None)]);
        assert_eq!(out("k", 16, &two), Ok(vec![6, 10]));
        assert!(out("k", 12, &two).unwrap_err().ends_with("of k: give a multiple of 8"));
        // Two processes of a half, and one of all CPUs.
        let by_cpu = kinds(&[(2, None, Some(0.5)), (1, None, Some(1.0))]);
        assert_eq!(out("k", 8, &by_cpu), Ok(vec![2, 4]));
        assert!(out("k", 6, &by_cpu).unwrap_err().ends_with("a multiple of 4"));
    }

    #[test]
    fn threads_and_threads_for_each_cpu_are_no_shares_of_each_other() {
        let mixed = kinds(&[(2, Some(8), None), (4, None, Some(0.1))]);
        assert!(out("w", 16, &mixed).unwrap_err().contains("'threads_per_cpu'"));
        let odd = kinds(&[(1, None, Some(0.123_456_7)), (1, None, Some(1.0))]);
        assert!(out("w", 16, &odd).unwrap_err().ends_with("of w: change the file"));
        assert!(out("w", 2_000_000, &odd).unwrap_err().contains("at most 1000000"));
    }
}
