//! Lines as Linux 6.12 prints them, and what must hold of any timeline.

use super::*;

const TEXT: &str = "\
# tracer: nop
#
          <idle>-0       [000] d..2.    10.000100: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a b ==> c next_pid=41 next_prio=120
          <idle>-0       [001] d..2.    10.000200: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=numa02 next_pid=42 next_prio=120
          numa02-42      [001] .....    10.000250: mm_migrate_pages: nr_succeeded=3 nr_failed=1 nr_thp_succeeded=0 nr_thp_failed=0 nr_thp_split=0 nr_large_folio_split=0 mode=MIGRATE_ASYNC reason=numa_misplaced
           a b ==> c-41  [000] d..2.    10.000300: sched_switch: prev_comm=a b ==> c prev_pid=41 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
          numa02-42      [001] .....    10.000400: mm_migrate_pages: nr_succeeded=2 nr_failed=0 mode=MIGRATE_ASYNC reason=numa_misplaced
# dropped on cpu 1: 7
";

fn nodes() -> BTreeMap<u32, u32> {
    [(0, 0), (1, 5)].into_iter().collect()
}

fn of_kind(timeline: &Timeline, kind: &str) -> Vec<Value> {
    let events = timeline.json["traceEvents"].as_array().unwrap();
    events.iter().filter(|event| event["ph"] == kind).cloned().collect()
}

#[test]
fn slices_counters_and_losses_are_as_the_text_has_them() {
    let timeline = timeline(TEXT, &nodes(), "test");
    assert_eq!((timeline.switches, timeline.dropped, timeline.unread), (3, 7, 0));
    assert_eq!(timeline.pages["numa_misplaced"], 5);
    let slices = of_kind(&timeline, "X");
    // thread 41 ran from 100 to 300 µs after 10 s, on CPU 0 of node 0
    assert_eq!((&slices[0]["ts"], &slices[0]["dur"]), (&json!(10_000_100.0), &json!(200.0)));
    assert_eq!((&slices[0]["name"], &slices[0]["args"]["tid"]), (&json!("a b ==> c"), &json!(41)));
    assert_eq!(slices[1]["name"], "CPU 0, node 0");
    // thread 42 is still running at the last event, 400 µs: its slice ends there
    assert_eq!((&slices[2]["dur"], &slices[2]["pid"]), (&json!(200.0), &json!(NODES_FROM + 5)));
    assert_eq!(slices.len(), 4);
    let counts: Vec<Value> =
        of_kind(&timeline, "C").iter().map(|e| e["args"]["pages"].clone()).collect();
    assert_eq!(counts, [json!(3), json!(5)]);
    assert_eq!(timeline.json["otherData"]["dropped_events"], 7);
}

#[test]
fn every_slice_is_on_a_named_track_and_none_overlap() {
    let mut text = String::new();
    // two threads take turns on two CPUs, 50 times
    for i in 0..100_u64 {
        let (cpu, tid) = (i % 2, 40 + (i / 2) % 2);
        text += &format!(
            "  x-1 [00{cpu}] d..2. 5.{:06}: sched_switch: prev_comm=x prev_pid=1 prev_prio=1 prev_state=R ==> next_comm=w next_pid={tid} next_prio=1\n",
            i * 10
        );
    }
    let timeline = timeline(&text, &nodes(), "test");
    let named: Vec<(Value, Value)> = of_kind(&timeline, "M")
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| (event["pid"].clone(), event["tid"].clone()))
        .collect();
    let mut ends: BTreeMap<String, f64> = BTreeMap::new();
    for slice in of_kind(&timeline, "X") {
        assert!(named.contains(&(slice["pid"].clone(), slice["tid"].clone())), "{slice}");
        let (from, length) = (slice["ts"].as_f64().unwrap(), slice["dur"].as_f64().unwrap());
        assert!(length >= 0.0, "{slice}");
        if slice["pid"].as_u64().unwrap() < THREADS_FROM {
            let end = ends.entry(slice["tid"].to_string()).or_insert(0.0);
            assert!(from >= *end, "{slice} begins before {end}");
            *end = from + length;
        }
    }
}

#[test]
fn what_cannot_be_read_is_counted_and_a_foreign_cpu_is_left_out() {
    let text = "  x-1 [000] d..2. 5.0: sched_switch: next_comm=\n  x-1 [077] d..2. 5.000001: sched_switch: prev_comm=x prev_pid=1 ==> next_comm=y next_pid=2 next_prio=1\nnoise\n";
    let timeline = timeline(text, &nodes(), "test");
    assert_eq!((timeline.unread, timeline.switches), (1, 0));
}
