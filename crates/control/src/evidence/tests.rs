//! Faults in, regions and shares out.

use super::*;
use crate::controller::tests::snapshot;
use numaherd_model::scene::{PROCESS, task_id};
use numaherd_model::{CpuId, FaultFlags, Pages, RegionUse};

pub fn fault(tid: u32, address: u64, node: u32, last: Option<u8>) -> HintingFault {
    HintingFault {
        time: Nanos(5),
        tid,
        tgid: 1,
        cpu: CpuId(0),
        memory_node: NodeId(node),
        pages: Pages(1),
        flags: FaultFlags::default(),
        address: Some(address),
        last_cpu: None,
        last_pid_low8: last,
    }
}

/// The processes of a scene.
fn all_of(snapshot: &Snapshot) -> BTreeSet<u32> {
    snapshot.tasks.iter().map(|task| task.process.tgid).collect()
}

fn filled(faults: &[HintingFault]) -> Snapshot {
    let mut snapshot = snapshot(2);
    let mut evidence = Evidence::new();
    evidence.add(faults, &snapshot);
    evidence.fill(&mut snapshot);
    snapshot
}

#[test]
fn faults_fall_into_regions_of_two_mebibytes() {
    let at = 0x4000_0000;
    let faults =
        [fault(1, at, 0, None), fault(1, at + 4096, 1, None), fault(1, at + REGION_BYTES, 1, None)];
    let snapshot = filled(&faults);
    let starts: Vec<u64> = snapshot.regions.iter().map(|r| r.id.start).collect();
    assert_eq!(starts, [at, at + REGION_BYTES]);
    assert_eq!(snapshot.regions[0].pages, [(NodeId(0), Pages(1)), (NodeId(1), Pages(1))]);
    assert_eq!(snapshot.regions[0].users, [RegionUse { task: task_id(1), faults: 2 }]);
    assert_eq!(snapshot.tasks[0].faults.len(), 2);
}

/// While both tasks of a scene live.
const LATELY: u64 = 19_000_000_000;

/// One pass over 32 pages of one region by the given tasks in turn, at a time.
fn pass(tids: &[u32], time_ms: u64) -> Vec<HintingFault> {
    let touch = |(i, tid): (u64, &u32)| HintingFault {
        time: Nanos(LATELY + time_ms * 1_000_000),
        ..fault(*tid, 0x4000_0000 + i * 4096, 0, None)
    };
    (0..32).zip(tids.iter().cycle()).map(touch).collect()
}

#[test]
fn who_has_run_for_a_month_shares_its_memory_like_anybody_else() {
    for days in [1, 24, 25, 30, 49, 50, 75, 400] {
        let lives = Nanos(days * 86_400_000_000_000);
        let mut snapshot = snapshot(2);
        snapshot.time = Nanos(LATELY + lives.0);
        snapshot.tasks.iter_mut().for_each(|task| task.age = lives);
        let mut evidence = Evidence::new();
        let at = |ms: u64| lives.0 / 1_000_000 + ms;
        evidence.add(&pass(&[1, 2], at(0)), &snapshot);
        evidence.add(&pass(&[2, 1], at(1000)), &snapshot);
        evidence.fill(&mut snapshot);
        let Sharing { samples, switches, .. } = snapshot.sharing[0];
        assert_eq!((samples, switches), (32, 32), "{days} days");
    }
}

#[test]
fn memory_that_two_share_changes_hands_and_private_memory_does_not() {
    let mut snapshot = snapshot(2);
    let mut evidence = Evidence::new();
    // Page by page: 1 2 1 2 …, then 2 1 2 1 …: every page changes hands.
    evidence.add(&pass(&[1, 2], 10), &snapshot);
    evidence.add(&pass(&[2, 1], 20), &snapshot);
    evidence.fill(&mut snapshot);
    let expected = Sharing { process: PROCESS, samples: 32, switches: 32 };
    assert_eq!(snapshot.sharing, [expected]);
    assert_eq!(snapshot.tasks[0].faults[0].shared, 16);
    let mut private = Evidence::new();
    private.add(&pass(&[1, 2], 10), &snapshot);
    private.add(&pass(&[1, 2], 20), &snapshot);
    private.fill(&mut snapshot);
    assert_eq!((snapshot.sharing[0].samples, snapshot.sharing[0].switches), (32, 0));
    assert_eq!((snapshot.regions[0].pairs, snapshot.regions[0].switches), (32, 0));
}

#[test]
fn that_a_region_was_shared_is_known_when_others_use_it() {
    let mut snapshot = snapshot(2);
    let mut evidence = Evidence::new();
    evidence.add(&pass(&[1, 2], 0), &snapshot);
    (1..=2).for_each(|time| evidence.add(&pass(&[2, 1], time * 1000), &snapshot));
    let mut told = |evidence: &mut Evidence| {
        evidence.fill(&mut snapshot);
        let region = &snapshot.regions[0];
        (region.users.iter().map(|user| user.faults).sum(), region.pairs, region.switches)
    };
    assert_eq!(told(&mut evidence), (96_u64, 64, 32));
    let now = crate::controller::tests::snapshot(2);
    evidence.fade(Nanos(LATELY + 2_500_000_000), &all_of(&now), &now);
    assert_eq!(told(&mut evidence), (24, 64, 32));
}

#[test]
fn of_how_often_a_region_changed_hands_eight_passes_are_known() {
    let mut snapshot = snapshot(2);
    let mut evidence = Evidence::new();
    let all = |tid: u32, nth: u64| HintingFault {
        pages: Pages(512),
        time: Nanos(LATELY + nth * 1000),
        ..fault(tid, 0x4000_0000, 0, None)
    };
    let faults: Vec<_> = (0..100).map(|nth| all(1 + u32::from(nth >= 50), nth)).collect();
    evidence.add(&faults, &snapshot);
    evidence.fill(&mut snapshot);
    let region = &snapshot.regions[0];
    assert!((4 * 512..=8 * 512).contains(&region.pairs) && region.switches < 64);
}

#[test]
fn base_pages_of_a_region_show_before_the_second_pass_who_shares_it() {
    let mut snapshot = snapshot(2);
    // `known` pages by task 1, and then one each at these times.
    let mut told = |known: u64, faults: &[(u32, u64)]| {
        let mut evidence = Evidence::new();
        let at = |page: u64, tid, ms: u64| HintingFault {
            time: Nanos(LATELY + ms * 1_000_000),
            ..fault(tid, 0x4000_0000 + page * 4096, 0, None)
        };
        let before = (0..known).map(|page| at(page, 1, 0));
        let after = (known..).zip(faults).map(|(page, &(tid, ms))| at(page, tid, ms));
        evidence.add(&before.chain(after).collect::<Vec<_>>(), &snapshot);
        evidence.fill(&mut snapshot);
        snapshot.sharing.first().map(|sharing| (sharing.samples, sharing.switches))
    };
    assert_eq!(told(256, &[(2, 300), (2, 600), (1, 900)]), Some((3, 2)));
    // One sweeps, and the other finds nothing left.
    assert_eq!(told(256, &[(1, 100), (1, 200), (1, 299)]), None);
    // A few pages that both have in common are not a working set.
    assert_eq!(told(100, &[(2, 300), (2, 600), (1, 900)]), None);
}

#[test]
fn who_touched_a_page_before_the_task_was_born_does_not_count() {
    let mut snapshot = snapshot(2);
    snapshot.tasks[1].age = Nanos(snapshot.time.0 - LATELY - 15_000_000);
    let mut evidence = Evidence::new();
    evidence.add(&pass(&[1], 10), &snapshot);
    evidence.add(&pass(&[2], 20), &snapshot);
    evidence.fill(&mut snapshot);
    assert!(snapshot.sharing.is_empty());
}

#[test]
fn a_newcomer_outweighs_its_predecessor_within_three_passes() {
    let mut snapshot = snapshot(2);
    let mut evidence = Evidence::new();
    let pass = |tid: u32| -> Vec<_> {
        (0..512).map(|i| fault(tid, 0x4000_0000 + i * 4096, 0, None)).collect()
    };
    for _ in 0..20 {
        evidence.add(&pass(1), &snapshot);
    }
    for _ in 0..3 {
        evidence.add(&pass(2), &snapshot);
    }
    evidence.fill(&mut snapshot);
    let users = &snapshot.regions[0].users;
    assert!(users[1].faults > users[0].faults, "{users:?}");
    assert!(users.iter().map(|u| u.faults).sum::<u64>() <= 4 * 512);
}

#[test]
fn what_the_kernel_brought_to_whoever_faulted_was_remote_before() {
    let local = FaultFlags(FaultFlags::FAULT_LOCAL);
    let near = HintingFault { flags: local, ..fault(1, 0x4000_0000, 0, None) };
    let far = fault(1, 0x4000_1000, 0, None);
    assert_eq!(filled(&[near, far, far]).tasks[0].remote_faults, 2);
}

#[test]
fn a_huge_page_is_512_and_what_we_moved_is_known_to_be_there() {
    let mut snapshot = snapshot(1);
    let mut evidence = Evidence::new();
    let huge = HintingFault { pages: Pages(512), ..fault(1, 0x4000_0000 + 77 * 4096, 0, None) };
    evidence.add(&[huge], &snapshot);
    evidence.fill(&mut snapshot);
    assert_eq!(snapshot.regions[0].pages, [(NodeId(0), Pages(512))]);
    evidence.moved(RegionId { process: PROCESS, start: 0x4000_0000 }, NodeId(1));
    evidence.fill(&mut snapshot);
    assert_eq!(snapshot.regions[0].pages, [(NodeId(1), Pages(512))]);
}

#[test]
fn dead_tasks_take_their_evidence_with_them() {
    let both = snapshot(2);
    let mut evidence = Evidence::new();
    evidence.add(&[fault(2, 0x4000_0000, 0, None)], &both);
    let mut one = snapshot(1);
    evidence.fill(&mut one);
    assert!(one.regions.is_empty());
}

#[test]
fn what_faded_is_next_to_nothing_after_two_passes_and_where_pages_are_stays_known() {
    let snapshot = snapshot(2);
    let mut evidence = Evidence::new();
    let pass = |tid: u32| -> Vec<_> {
        (0..512).map(|i| fault(tid, 0x4000_0000 + i * 4096, 0, None)).collect()
    };
    (0..20).for_each(|_| evidence.add(&pass(1), &snapshot));
    evidence.fade(Nanos(0), &all_of(&snapshot), &snapshot);
    (0..2).for_each(|_| evidence.add(&pass(2), &snapshot));
    let mut shown = snapshot.clone();
    evidence.fill(&mut shown);
    let region = &shown.regions[0];
    // four passes at most are remembered: a quarter of those is one, and 512 / 32 = 16
    let faults: Vec<u64> = region.users.iter().map(|user| user.faults).collect();
    assert!((1..=16).contains(&faults[0]) && faults[1] == 1024, "{faults:?}");
    assert_eq!(region.pages, [(NodeId(0), Pages(512))]);
    // and once is enough for who took a single fault
    let mut few = Evidence::new();
    few.add(&[fault(1, 0x4000_0000, 0, None)], &snapshot);
    few.fade(Nanos(0), &all_of(&snapshot), &snapshot);
    few.fill(&mut shown);
    assert_eq!(shown.regions[0].users, [RegionUse { task: task_id(1), faults: 1 }]);
}

#[test]
fn what_one_process_goes_on_to_says_nothing_of_another() {
    let mut snapshot = snapshot(2);
    let other = ProcessId { tgid: 2, start: 1 };
    snapshot.tasks[1].process = other;
    let mut evidence = Evidence::new();
    let seen: Vec<HintingFault> = [1, 2]
        .iter()
        .flat_map(|&tid| (0..32).map(move |i| (tid, i)))
        .map(|(tid, i)| HintingFault {
            time: Nanos(LATELY),
            tgid: tid,
            ..fault(tid, 0x4000_0000 + i * 4096, 0, None)
        })
        .collect();
    evidence.add(&seen, &snapshot);
    evidence.fade(Nanos(LATELY + 1), &BTreeSet::from([2]), &snapshot);
    evidence.fill(&mut snapshot);
    let faults: Vec<u64> = snapshot.regions.iter().map(|region| region.users[0].faults).collect();
    assert_eq!(faults, [32, 8]);
    let of_tasks: Vec<u64> = snapshot.tasks.iter().map(Task::fault_pages).collect();
    assert_eq!(of_tasks, [32, 8]);
}

/// The clock is read once a tick on each CPU, and CPUs' ticks do not come at the same time.
#[test]
fn a_fault_that_is_a_tick_older_than_the_one_before_does_not_follow_it() {
    let mut region = RegionEvidence::new(2);
    let at = |tid: u32, time_ms: u64| HintingFault {
        time: Nanos(time_ms * 1_000_000),
        ..fault(tid, 0x4000_0000, 0, None)
    };
    let user = region.user(task_id(1));
    (0..2).for_each(|page| {
        region.touch(user, page, &at(1, 1000));
    });
    assert!(region.follow(&at(1, 1000)).is_none());
    assert!(region.follow(&at(2, 996)).is_none(), "not 49 days later");
    assert!(region.follow(&at(2, 1299)).is_none());
    assert_eq!(region.follow(&at(2, 1300)).map(|touch| touch.tid), Some(1));
}

/// One task passes its memory on to the other: whoever is next to touch a page says nothing of sharing, until
/// each has been touched again.
#[test]
fn what_was_passed_on_is_not_shared() {
    let mut snapshot = snapshot(2);
    let mut evidence = Evidence::new();
    evidence.add(&pass(&[1], 0), &snapshot);
    evidence.fade(Nanos(LATELY + 500_000_000), &all_of(&snapshot), &snapshot);
    evidence.add(&pass(&[2], 1000), &snapshot);
    evidence.fill(&mut snapshot);
    assert_eq!(snapshot.sharing, []);
    evidence.add(&pass(&[2], 2000), &snapshot);
    evidence.fill(&mut snapshot);
    assert_eq!((snapshot.sharing[0].samples, snapshot.sharing[0].switches), (32, 0));
}

#[test]
fn memory_in_huge_pages_larger_than_a_region_stays() {
    let at = 0x4000_0000;
    let huge = |pages| HintingFault { pages: Pages(pages), ..fault(1, at, 0, None) };
    // As many as a region has, and a huge page of 512 MiB in base pages of 64 KiB.
    let stays = |pages| {
        let region = filled(&[huge(pages)]).regions[0].clone();
        (region.stays, region.rests, region.known_pages())
    };
    assert_eq!(stays(512), (false, false, Pages(512)));
    assert_eq!(stays(8192), (true, true, Pages(512)));
}
