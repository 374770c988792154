//! A made-up process: what its numa_maps say becomes regions, users and faults per node.

use super::*;
use numaherd_model::scene::{PROCESS, Scene, task_id};

/// Two anonymous mappings of 4 MiB each, one of them by huge pages; a file; one too small to
/// matter.
const MAPS: &str = "\
400000-401000 r-xp 00000000 08:01 77 /bin/load
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
7f0001000000-7f0001400000 rw-p 00000000 00:00 0
7f0002000000-7f0002001000 rw-p 00000000 00:00 0
";
const NUMA_MAPS: &str = "\
00400000 default file=/bin/load mapped=1 N0=1 kernelpagesize_kB=4
7f0000000000 default anon=1000 dirty=1000 N0=800 N1=200 kernelpagesize_kB=4
7f0001000000 default anon=2 dirty=2 N1=2 kernelpagesize_kB=2048
7f0002000000 default anon=1 dirty=1 N0=1 kernelpagesize_kB=4
";

fn filled(maps: &str, numa_maps: &str, scene: &Scene) -> Result<Snapshot, ReadError> {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("proc/1");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("maps"), maps).unwrap();
    std::fs::write(folder.join("numa_maps"), numa_maps).unwrap();
    let mut snapshot = scene.snapshot();
    fill(root.path(), &mut snapshot)?;
    Ok(snapshot)
}

/// Threads 1 and 2 work, thread 3 sleeps.
fn two_of_three() -> Scene {
    let mut scene = Scene::even(2, 4);
    (1..=3).for_each(|tid| scene.task(tid, 0, if tid == 3 { 0 } else { 900 }));
    scene
}

#[test]
fn every_busy_thread_is_taken_to_use_all_of_its_process_memory_alike() {
    let snapshot = filled(MAPS, NUMA_MAPS, &two_of_three()).unwrap();
    assert_eq!(snapshot.grade, EvidenceGrade::ResidentPages);
    let starts: Vec<RegionId> = snapshot.regions.iter().map(|region| region.id).collect();
    let region = |start| RegionId { process: PROCESS, start };
    assert_eq!(starts, [region(0x7f00_0000_0000), region(0x7f00_0100_0000)]);
    // 1000 pages and two huge ones of 512 each, half of them to each of the two.
    let user = |tid, faults| RegionUse { task: task_id(tid), faults };
    assert_eq!(snapshot.regions[0].users, [user(1, 500), user(2, 500)]);
    assert_eq!(snapshot.regions[1].users, [user(1, 512), user(2, 512)]);
    assert_eq!(snapshot.regions[1].pages, [(NodeId(1), Pages(1024))]);
    // On node 0 800/2 pages, on node 1 200/2 + 1024/2.
    let on = |node, shared| NodeFaults { node: NodeId(node), private: 0, shared };
    assert_eq!(snapshot.tasks[0].faults, [on(0, 400), on(1, 612)]);
    assert_eq!(snapshot.tasks[1].faults, snapshot.tasks[0].faults);
    assert_eq!(snapshot.tasks[2].faults, []);
}

#[test]
fn nothing_is_made_up_for_a_process_that_has_ended_or_sleeps() {
    let mut asleep = Scene::even(2, 4);
    asleep.task(1, 0, 0);
    let nothing = filled(MAPS, NUMA_MAPS, &asleep).unwrap();
    assert!(nothing.regions.is_empty() && nothing.tasks[0].faults.is_empty());
    // It ended between the two reads.
    let nothing = filled("", NUMA_MAPS, &two_of_three()).unwrap();
    assert!(nothing.regions.is_empty());
}

#[test]
fn what_is_no_numa_maps_names_file_and_line() {
    let error = filled(MAPS, "00400000 default N0=x\n", &two_of_three()).unwrap_err();
    assert!(error.to_string().contains("proc/1/numa_maps line 1"), "{error}");
}
