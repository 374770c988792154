//! A made-up process: where its pages lie becomes regions, users and faults per node.

use std::path::Path;

use super::*;
use crate::memory::maps::{self, ObjectRange};
use crate::memory::numa_maps::{self, Mapping};
use crate::sys::SysError;
use crate::system::Lot;
use numaherd_model::scene::{PROCESS, Scene, task_id};

/// Two anonymous mappings of 4 MiB each; a file; one too small to matter.
const MAPS: &str = "\
400000-800000 rw-p 00000000 08:01 77 /bin/load
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
7f0001000000-7f0001400000 rw-p 00000000 00:00 0
7f0002000000-7f0002001000 rw-p 00000000 00:00 0
";

/// The first mapping is on node 0 up to its last MiB, which is on node 1; of the second, only
/// the second half was ever touched, on node 1.
fn place(address: u64) -> PageStatus {
    match address & 0xff_ffff {
        0x30_0000.. if address < 0x7f00_0100_0000 => PageStatus::On(NodeId(1)),
        0x20_0000.. if address >= 0x7f00_0100_0000 => PageStatus::On(NodeId(1)),
        _ if address < 0x7f00_0100_0000 => PageStatus::On(NodeId(0)),
        _ => PageStatus::Absent,
    }
}

/// Mappings from files below a root, unless they may not be read; places as above.
struct MadeUp<'a>(&'a Path, bool);

impl Memory for MadeUp<'_> {
    fn own_ranges(&mut self, tgid: u32) -> Result<Option<Vec<AnonymousRange>>, ReadError> {
        let source = std::io::ErrorKind::PermissionDenied.into();
        match self.1 {
            true => Err(ReadError::Read { path: "/proc/1/maps".into(), source }),
            false => maps::read(self.0, tgid),
        }
    }

    fn shared_ranges(&mut self, tgid: u32) -> Result<Option<Vec<ObjectRange>>, ReadError> {
        maps::read_shared(self.0, tgid)
    }

    fn mapped(&mut self, tgid: u32) -> Result<Option<Vec<std::ops::Range<u64>>>, ReadError> {
        maps::read_mapped(self.0, tgid)
    }

    fn pages_stay(&mut self, _: u32, _: &mut dyn FnMut()) -> Option<&'static str> {
        None
    }

    fn coverage(&mut self, _: u32) -> Option<crate::respect::Coverage> {
        None
    }

    fn mappings(&mut self, tgid: u32) -> Result<Option<Vec<Mapping>>, ReadError> {
        numa_maps::read(self.0, tgid)
    }

    fn locate(&mut self, _: u32, addresses: &[u64]) -> Result<Vec<PageStatus>, SysError> {
        Ok(addresses.iter().map(|&address| place(address)).collect())
    }

    fn migrate(&mut self, _: u32, _: &Lot) -> Result<Vec<PageStatus>, SysError> {
        unreachable!("looking moves nothing")
    }
}

fn filled(maps: &str, scene: &Scene) -> Result<Snapshot, ReadError> {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("proc/1");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("maps"), maps).unwrap();
    let mut snapshot = scene.snapshot();
    let mut memory = MadeUp(root.path(), false);
    fill(
        &mut memory,
        &mut snapshot,
        &mut Policies::default(),
        (&mut Budget::default(), &mut || {}),
    )?;
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
    let snapshot = filled(MAPS, &two_of_three()).unwrap();
    assert_eq!(snapshot.grade, EvidenceGrade::ResidentPages);
    // Pieces of 2 MiB: two of the first mapping, the touched one of the second.
    let starts: Vec<RegionId> = snapshot.regions.iter().map(|region| region.id).collect();
    let region = |start| RegionId { process: PROCESS, start };
    let expected = [0x7f00_0000_0000, 0x7f00_0020_0000, 0x7f00_0120_0000].map(region);
    assert_eq!(starts, expected);
    let user = |tid, faults| RegionUse { task: task_id(tid), faults };
    assert_eq!(snapshot.regions[1].users, [user(1, 256), user(2, 256)]);
    let both = [(NodeId(0), Pages(256)), (NodeId(1), Pages(256))];
    assert_eq!(snapshot.regions[1].pages, both);
    // Half of (512 + 256) pages on node 0, of (256 + 512) on node 1.
    let on = |node, shared| NodeFaults { node: NodeId(node), private: 0, shared };
    assert_eq!(snapshot.tasks[0].faults, [on(0, 384), on(1, 384)]);
    assert_eq!(snapshot.tasks[1].faults, snapshot.tasks[0].faults);
    assert_eq!(snapshot.tasks[2].faults, []);
}

#[test]
fn a_large_mapping_is_cut_into_pieces_that_can_be_moved_whole() {
    let range = |start, len| AnonymousRange { start, len: Bytes(len) };
    let sizes = |len| cut(&range(1 << 40, len)).iter().map(|piece| piece.len.0 >> 20).max();
    // 3 GiB in 512 pieces are 6 MiB each; 1 TiB would be 2 GiB each.
    assert_eq!([sizes(8 << 20), sizes(3 << 30), sizes(1 << 40)], [Some(2), Some(6), Some(16)]);
    // One that begins in the middle of a huge page gets back in step at once.
    let odd = cut(&range((1 << 40) + 0x1000, 5 << 20));
    let ends: Vec<u64> = odd.iter().map(|piece| piece.start + piece.len.0 - (1 << 40)).collect();
    assert_eq!(ends, [2 << 20, 4 << 20, (5 << 20) + 0x1000]);
}

#[test]
fn nothing_is_made_up_for_a_process_that_has_ended_or_sleeps() {
    let mut asleep = Scene::even(2, 4);
    asleep.task(1, 0, 0);
    let nothing = filled(MAPS, &asleep).unwrap();
    assert!(nothing.regions.is_empty() && nothing.tasks[0].faults.is_empty());
    // It ended between the two reads.
    let nothing = filled("", &two_of_three()).unwrap();
    assert!(nothing.regions.is_empty());
}

#[test]
fn what_is_no_maps_names_file_and_line() {
    let error = filled("400000 rw-p\n", &two_of_three()).unwrap_err();
    assert!(error.to_string().contains("proc/1/maps line 1"), "{error}");
}

#[test]
fn memory_with_a_policy_of_its_own_or_of_the_reserve_stays() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("proc/1");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("maps"), MAPS).unwrap();
    let policies = "400000 default huge anon=2 N1=2 kernelpagesize_kB=2048\n\
                    7f0000000000 bind:0 anon=1024 N0=1024 kernelpagesize_kB=4\n\
                    7f0001000000 default anon=512 N1=512 kernelpagesize_kB=4\n";
    std::fs::write(folder.join("numa_maps"), policies).unwrap();
    let mut snapshot = two_of_three().snapshot();
    let mut memory = MadeUp(root.path(), false);
    let mut known = Policies::default();
    fill(&mut memory, &mut snapshot, &mut known, (&mut Budget::default(), &mut || {})).unwrap();
    let told = |region: &Region| (region.id.start, region.pages.clone(), region.stays);
    let on = |node: u32, pages: u64| vec![(NodeId(node), Pages(pages))];
    let expected = [
        (0x40_0000, on(1, 1024), true),
        (0x7f00_0000_0000, on(0, 1024), true),
        (0x7f00_0120_0000, on(1, 512), false),
    ];
    assert_eq!(snapshot.regions.iter().map(told).collect::<Vec<_>>(), expected);
    // For a while that is taken to stay so; then it is looked at again.
    std::fs::write(folder.join("numa_maps"), "").unwrap();
    let mut stay_after = |ms: u64| {
        let mut snapshot = two_of_three().snapshot();
        snapshot.time.0 += ms * 1_000_000;
        fill(&mut memory, &mut snapshot, &mut known, (&mut Budget::default(), &mut || {})).unwrap();
        snapshot.regions.iter().filter(|region| region.stays).count()
    };
    assert_eq!([9_000, 11_000].map(&mut stay_after), [2, 0]);
    // Sooner where it is young: it may have filled its memory under a policy and given that up.
    std::fs::write(folder.join("numa_maps"), policies).unwrap();
    let mut young = two_of_three().snapshot();
    young.tasks.iter_mut().for_each(|task| task.age = Nanos(700_000_000));
    let mut known = Policies::default();
    let mut stay_after = |ms: u64| {
        let mut snapshot = young.clone();
        snapshot.time.0 += ms * 1_000_000;
        fill(&mut memory, &mut snapshot, &mut known, (&mut Budget::default(), &mut || {})).unwrap();
        std::fs::write(folder.join("numa_maps"), "").unwrap();
        snapshot.regions.iter().filter(|region| region.stays).count()
    };
    assert_eq!([0, 600, 800].map(&mut stay_after), [2, 2, 0]);
}

#[test]
fn whose_memory_may_not_be_read_is_left_alone_and_the_others_are_looked_after() {
    let root = tempfile::tempdir().unwrap();
    let mut snapshot = two_of_three().snapshot();
    let mut policies = Policies::default();
    fill(
        &mut MadeUp(root.path(), true),
        &mut snapshot,
        &mut policies,
        (&mut Budget::default(), &mut || {}),
    )
    .unwrap();
    assert!(snapshot.regions.is_empty());
    assert!(policies.unreadable[&PROCESS].contains("/proc/1/maps"), "{policies:?}");
    fill(
        &mut MadeUp(root.path(), false),
        &mut snapshot,
        &mut policies,
        (&mut Budget::default(), &mut || {}),
    )
    .unwrap();
    assert!(policies.unreadable.is_empty(), "it may be readable by now");
}

/// The kernel may have taken it there for not being used.
#[test]
fn what_lies_on_a_node_without_cpus_stays_there() {
    let mut scene = two_of_three();
    let stays = |scene: &Scene| {
        let snapshot = filled(MAPS, scene).unwrap();
        snapshot.regions.iter().map(|region| region.stays).collect::<Vec<_>>()
    };
    assert_eq!(stays(&scene), [false; 3]);
    scene.edit().topology.nodes[1].cpus = numaherd_model::CpuSet::new();
    assert_eq!(stays(&scene), [false, false, true]);
}

/// Policies are read every ten seconds: each time it is asked whether that holds it up.
#[test]
fn whoever_has_grown_is_read_no_more() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| crate::testing::put(root.path(), path, text);
    put("proc/meminfo", "AnonPages: 100 kB\nAnonHugePages: 0 kB\n");
    put("proc/1/numa_maps", "10000000000 default anon=9 N0=9 kernelpagesize_kB=4\n");
    let mut policies = Policies::default();
    let mut is_read = |gib: u64, second: u64| {
        put("proc/1/status", &format!("RssAnon:\t{} kB\n", gib << 20));
        let end = (1_u64 << 40) + (gib << 30);
        put("proc/1/maps", &format!("10000000000-{end:x} rw-p 00000000 00:00 0 \n"));
        let mut memory = crate::system::Running::new(root.path());
        let (now, age) = (Nanos(second * 1_000_000_000), Nanos(u64::MAX));
        let read = policies.of(&mut memory, PROCESS, (now, age), &mut Budget::default()).is_some();
        (read, policies.unreadable.contains_key(&PROCESS))
    };
    // Where pages are large, a mapping has fewer.
    let much = 17 * crate::sys::pages::size().0 / 4096;
    assert_eq!([is_read(1, 0), is_read(much, 9)], [(true, false); 2]);
    assert_eq!(is_read(much, 10), (false, true));
}

#[test]
fn policies_that_there_is_no_time_to_read_are_read_later() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| crate::testing::put(root.path(), path, text);
    put("proc/1/numa_maps", "10000000000 default anon=9 N0=9 kernelpagesize_kB=4\n");
    let mut memory = crate::system::Running::new(root.path());
    let mut policies = Policies::default();
    let mut walks = Budget::default();
    // Paid for after 50 s, of which 25 may be ahead.
    walks.spend(Nanos(0), Nanos(1_000_000_000));
    let mut is_read = |second: u64| {
        policies.unreadable.clear();
        let now = Nanos(second * 1_000_000_000);
        let read = policies.of(&mut memory, PROCESS, (now, now), &mut walks).is_some();
        (read, policies.unreadable.contains_key(&PROCESS))
    };
    assert_eq!([is_read(20), is_read(27)], [(false, true), (true, false)]);
}

/// Policies of every process, each of which takes a millisecond to read; how often each was.
struct Slow(BTreeMap<u32, u32>);

impl Memory for Slow {
    fn own_ranges(&mut self, _: u32) -> Result<Option<Vec<AnonymousRange>>, ReadError> {
        Ok(Some(vec![AnonymousRange { start: 1 << 40, len: Bytes(4 << 20) }]))
    }

    fn shared_ranges(&mut self, _: u32) -> Result<Option<Vec<ObjectRange>>, ReadError> {
        Ok(None)
    }

    fn mapped(&mut self, _: u32) -> Result<Option<Vec<std::ops::Range<u64>>>, ReadError> {
        Ok(None)
    }

    fn pages_stay(&mut self, _: u32, _: &mut dyn FnMut()) -> Option<&'static str> {
        None
    }

    fn coverage(&mut self, _: u32) -> Option<crate::respect::Coverage> {
        None
    }

    fn mappings(&mut self, tgid: u32) -> Result<Option<Vec<Mapping>>, ReadError> {
        std::thread::sleep(std::time::Duration::from_millis(1));
        *self.0.entry(tgid).or_default() += 1;
        Ok(Some(Vec::new()))
    }

    fn locate(&mut self, _: u32, addresses: &[u64]) -> Result<Vec<PageStatus>, SysError> {
        Ok(vec![PageStatus::On(NodeId(0)); addresses.len()])
    }

    fn migrate(&mut self, _: u32, _: &Lot) -> Result<Vec<PageStatus>, SysError> {
        unreachable!("looking moves nothing")
    }
}

/// There is time to read two at each look, and what is known is good for less than the time between two.
#[test]
fn where_there_is_no_time_for_all_each_has_its_turn_and_nobody_is_left_alone() {
    let mut scene = Scene::even(2, 4);
    (1..=6).for_each(|tid| scene.task(tid, 0, 900));
    let mut memory = Slow(BTreeMap::new());
    let mut policies = Policies::default();
    let mut look = |second: u64, memory: &mut Slow, walks: &mut Budget| {
        let mut snapshot = scene.snapshot();
        snapshot.time = Nanos(second * 1_000_000_000);
        for task in &mut snapshot.tasks {
            task.process = ProcessId { tgid: task.id.tid, start: 1 };
            task.age = snapshot.time;
        }
        fill(memory, &mut snapshot, &mut policies, (walks, &mut || {})).unwrap();
        policies.unreadable.len()
    };
    assert_eq!(look(100, &mut memory, &mut Budget::default()), 0);
    assert_eq!(memory.0.values().copied().collect::<Vec<_>>(), [1; 6]);
    for nth in 1..=12 {
        let now = 100 + nth * 11;
        let mut walks = Budget::default();
        // So that 25 s are ahead but for what one and a half take.
        let begin = Nanos(now * 1_000_000_000);
        walks.spend(begin, Nanos(begin.0 + 488_700_000));
        assert_eq!(look(now, &mut memory, &mut walks), 0);
    }
    assert!(memory.0.values().all(|&read| read >= 3), "{:?}", memory.0);
    // Those for whom there was none in minutes are not known any more.
    let mut walks = Budget::default();
    walks.spend(Nanos(0), Nanos(1_000_000_000_000));
    assert_eq!(look(1000, &mut memory, &mut walks), 6);
}
