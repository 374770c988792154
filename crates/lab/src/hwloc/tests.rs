//! Worked examples of both versions of the format.

use super::*;

/// Two nodes with CPUs, and one near both without any (as hwloc 2 writes CXL memory).
const VERSION_2: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000001f" complete_cpuset="0x0000003f">
    <object type="NUMANode" os_index="4" cpuset="0x0000001f" local_memory="4096"/>
    <object type="Package" os_index="0" cpuset="0x00000007">
      <object type="NUMANode" os_index="0" cpuset="0x00000007" local_memory="2048"/>
      <object type="PU" os_index="0" cpuset="0x00000001"/>
    </object>
    <object type="Package" os_index="1" cpuset="0x00000018">
      <object type="NUMANode" os_index="1" cpuset="0x00000018" local_memory="1024"/>
    </object>
  </object>
  <distances2 type="NUMANode" nbobjs="3" kind="9" name="NUMABandwidth" indexing="os">
    <indexes length="6">0 1 4 </indexes>
    <u64values length="9">1 2 3 4 5 6 7 8 9</u64values>
  </distances2>
  <distances2 type="NUMANode" nbobjs="3" kind="5" name="NUMALatency" indexing="os">
    <indexes length="6">4 0 1 </indexes>
    <u64values length="9">10 28 38 </u64values>
    <u64values length="18">28 10 21 38 21 10 </u64values>
  </distances2>
</topology>"#;

const VERSION_1: &str = r#"<topology>
  <object type="Machine" os_index="0" cpuset="0x0000000f" online_cpuset="0x0000000b">
    <distances nbobjs="2" relative_depth="1" latency_base="10.000000">
      <latency value="1.000000"/><latency value="2.100000"/>
      <latency value="2.100000"/><latency value="1.000000"/>
    </distances>
    <object type="NUMANode" os_index="1" cpuset="0x00000003" online_cpuset="0x00000003" local_memory="8"/>
    <object type="NUMANode" os_index="3" cpuset="0x0000000c" online_cpuset="0x00000008" local_memory="9"/>
  </object>
</topology>"#;

#[test]
fn version_2_gives_each_cpu_to_one_node_and_finds_the_latencies() {
    let topology = parse(VERSION_2).unwrap();
    let cpus: Vec<_> = topology.nodes.iter().map(|n| (n.id.0, n.cpus.to_string())).collect();
    assert_eq!(cpus, [(0, "0-2".into()), (1, "3-4".into()), (4, String::new())]);
    assert_eq!(topology.nodes[2].memory, Bytes(4096));
    assert_eq!(topology.distances, [[10, 21, 28], [21, 10, 38], [28, 38, 10]]);
}

#[test]
fn version_1_leaves_offline_cpus_out_and_scales_its_latencies() {
    let topology = parse(VERSION_1).unwrap();
    let cpus: Vec<_> = topology.nodes.iter().map(|n| (n.id.0, n.cpus.to_string())).collect();
    assert_eq!(cpus, [(1, "0-1".into()), (3, "3".into())]);
    assert_eq!(topology.distances, [[10, 21], [21, 10]]);
}

#[test]
fn a_machine_without_nodes_is_one() {
    let text = r#"<topology><object type="Machine" cpuset="0x3" local_memory="5"/></topology>"#;
    let topology = parse(text).unwrap();
    assert_eq!((topology.nodes.len(), topology.nodes[0].memory), (1, Bytes(5)));
    assert_eq!(topology.nodes[0].cpus.to_string(), "0-1");
    assert!(topology.distances.is_empty());
}

#[test]
fn bitmaps_have_their_highest_word_first() {
    let set = |text| bitmap(text).map(|set| set.to_string());
    assert_eq!(set("0x00000001,0x0000000f").unwrap(), "0-3,32");
    assert_eq!(set("0x1,,").unwrap(), "64");
    assert_eq!(set("").unwrap(), "");
    assert_eq!(set("0xf...f"), None);
    assert_eq!(set("0x100000000"), None);
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let says = |from: &str, to: &str| {
        let text = VERSION_2.replacen(from, to, 1);
        assert_ne!(text, VERSION_2);
        parse(&text).unwrap_err()
    };
    assert_eq!(says("os_index=\"4\"", "os_index=\"x\""), "line 5: os_index is no number: 'x'");
    assert_eq!(says("os_index=\"4\"", ""), "line 5: a NUMANode without os_index");
    assert_eq!(says("\"0x00000018\" local", "\"zz\" local"), "line 11: cpuset is no bitmap: 'zz'");
    assert!(says("os_index=\"4\"", "os_index=\"1\"").contains("two NUMANode"));
    assert_eq!(says(">10 28 38 <", ">10 28 <"), "line 18: 3 nodes need 9 distances, not 8");
    assert!(parse("<topology><a></b></topology>").unwrap_err().contains("1:"));
    let cut = VERSION_2.find("</topology>").unwrap();
    let lines = VERSION_2[..cut].lines().count();
    let told = parse(&VERSION_2[..cut]).unwrap_err();
    assert!(
        told.starts_with(&format!("line {lines}: ")) && told.ends_with("with lstopo"),
        "{told}"
    );
    assert_eq!(
        parse("<a>\n<b").unwrap_err(),
        "line 2: the root node was opened but never closed: write it with lstopo"
    );
    assert!(parse("<machines/>").unwrap_err().contains("<machines>"));
}

#[test]
fn noise_never_panics() {
    for cut in 0..VERSION_2.len() {
        if VERSION_2.is_char_boundary(cut) {
            let _ = parse(&VERSION_2[..cut]);
        }
    }
}
