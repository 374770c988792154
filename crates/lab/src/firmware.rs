//! The firmware's tables about nodes (SRAT, SLIT), for machines whose nodes QEMU's own tables
//! cannot number: ids with gaps, no node 0, memory before CPUs.
//!
//! QEMU knows nodes by number from 0 without gaps, and Linux numbers proximity domains in the
//! order in which SRAT's CPUs, then its memory ranges, first name them. So these tables begin
//! with one entry for each id from 0 to the highest, of a CPU that does not exist: domains and
//! nodes then have the same numbers, and ids without CPU and memory stay offline. The kernel takes
//! tables from the beginning of the first file system (`CONFIG_ACPI_TABLE_UPGRADE`) in place of
//! QEMU's if the maker's names are equal and the revision is higher.
//!
//! Formats: ACPI 6.5, 5.2.16 and 5.2.17. All numbers are little-endian.

use crate::machine::Machine;

/// Highest node id: a SLIT has a row for each id up to it, and each takes kernel memory.
pub const HIGHEST_NODE: u32 = 255;

/// The APIC id of the CPU that does not exist; QEMU's PC has at most 64 here.
const NO_CPU: u8 = 254;
/// What QEMU signs its tables with.
const MAKER: &[u8; 14] = b"BOCHS BXPC    ";
/// QEMU's is 1.
const MAKER_REVISION: u32 = 2;

const ENABLED: u32 = 1;
/// Distance from and to an id that has no node: anything valid.
const NOWHERE: u8 = 255;

/// QEMU's PC has memory up to here below its PCI hole, when there is at least
/// [`HOLE_FROM_BYTES`] in all.
const BELOW_HOLE_BYTES: u64 = 3 << 30;
const HOLE_FROM_BYTES: u64 = 0xe000_0000;
const FOUR_GIB: u64 = 4 << 30;

/// A table by the name of its file.
pub type Table = (&'static str, Vec<u8>);

/// Tables to be given to the kernel; none where QEMU's own give the nodes their ids.
#[must_use]
pub fn tables(machine: &Machine) -> Vec<Table> {
    let dense = machine.node.iter().zip(0..).all(|(node, index)| node.id == index);
    let cpus_first = machine.node.is_sorted_by_key(|node| node.cpus == 0);
    if dense && cpus_first {
        return Vec::new();
    }
    vec![("srat.aml", srat(machine)), ("slit.aml", slit(machine))]
}

/// Guest-physical memory below the hole that ends at 4 GiB.
#[must_use]
pub fn below_hole_bytes(machine: &Machine) -> u64 {
    let all = machine.memory_mib() << 20;
    if all < HOLE_FROM_BYTES { all } else { BELOW_HOLE_BYTES }
}

/// The APIC id of each CPU, in order: QEMU keeps as many bits for the core as a socket needs, and
/// for the thread as a core does.
fn apic_ids(machine: &Machine) -> Vec<u8> {
    let (cores, threads) = (crate::qemu::cores_per_socket(machine), machine.cpu.threads_per_core);
    let core_width = threads.next_power_of_two();
    let socket_width = cores.next_power_of_two() * core_width;
    let apic_id = |cpu: u32| {
        let (core, thread) = (cpu / threads, cpu % threads);
        (core / cores * socket_width + core % cores * core_width + thread) as u8
    };
    (0..machine.cpus()).map(apic_id).collect()
}

fn srat(machine: &Machine) -> Vec<u8> {
    let mut body = vec![1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let highest = machine.node.last().map_or(0, |node| node.id);
    for id in 0..=highest {
        body.extend(cpu_affinity(id, NO_CPU));
    }
    for (apic, index) in apic_ids(machine).into_iter().zip(machine.node_index_of_cpus()) {
        body.extend(cpu_affinity(machine.node[index].id, apic));
    }
    let below = below_hole_bytes(machine);
    let mut start = 0;
    for node in &machine.node {
        let end = start + (node.memory_mib << 20);
        let split = below.clamp(start, end);
        let hole = FOUR_GIB - below;
        for (from, to) in [(start, split), (split + hole, end + hole)] {
            if from < to {
                body.extend(memory_affinity(node.id, from, to - from));
            }
        }
        start = end;
    }
    table(b"SRAT", 3, &body)
}

fn cpu_affinity(id: u32, apic: u8) -> [u8; 16] {
    let id = id.to_le_bytes();
    let mut entry = [0; 16];
    entry[..4].copy_from_slice(&[0, 16, id[0], apic]);
    entry[4..8].copy_from_slice(&ENABLED.to_le_bytes());
    entry[9..12].copy_from_slice(&id[1..]);
    entry
}

fn memory_affinity(id: u32, from: u64, bytes: u64) -> [u8; 40] {
    let mut entry = [0; 40];
    entry[..2].copy_from_slice(&[1, 40]);
    entry[2..6].copy_from_slice(&id.to_le_bytes());
    entry[8..16].copy_from_slice(&from.to_le_bytes());
    entry[16..24].copy_from_slice(&bytes.to_le_bytes());
    entry[28..32].copy_from_slice(&ENABLED.to_le_bytes());
    entry
}

fn slit(machine: &Machine) -> Vec<u8> {
    let ids = machine.node.last().map_or(0, |node| node.id) + 1;
    let index_of = |id: u32| machine.node.iter().position(|node| node.id == id);
    let mut body = u64::from(ids).to_le_bytes().to_vec();
    for from in 0..ids {
        for to in 0..ids {
            body.push(match (index_of(from), index_of(to)) {
                _ if from == to => 10,
                (Some(a), Some(b)) => machine.distance.slit[a][b] as u8,
                _ => NOWHERE,
            });
        }
    }
    table(b"SLIT", 1, &body)
}

/// Head and body; the sum of all bytes is 0.
fn table(signature: &[u8; 4], revision: u8, body: &[u8]) -> Vec<u8> {
    let mut table = signature.to_vec();
    table.extend((36 + body.len() as u32).to_le_bytes());
    table.extend([revision, 0]);
    table.extend(MAKER);
    table.extend(MAKER_REVISION.to_le_bytes());
    table.extend(b"NHRD");
    table.extend(1_u32.to_le_bytes());
    table.extend(body);
    let sum = table.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    table[9] = sum.wrapping_neg();
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(table: &[u8]) -> u8 {
        table.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    #[test]
    fn only_machines_that_qemu_would_number_otherwise_get_tables() {
        assert!(tables(&Machine::find("2x4").unwrap()).is_empty());
        assert!(tables(&Machine::find("cxl").unwrap()).is_empty(), "memory after CPUs");
        assert_eq!(tables(&Machine::find("sparse").unwrap()).len(), 2);
    }

    #[test]
    fn tables_are_as_long_as_they_say_and_sum_to_zero() {
        let machine = Machine::find("sparse").unwrap();
        let highest = machine.node.last().unwrap().id as usize;
        for (_, table) in tables(&machine) {
            assert_eq!(u32::from_le_bytes(table[4..8].try_into().unwrap()) as usize, table.len());
            assert_eq!(sum(&table), 0);
        }
        // head, then a byte for each pair of ids
        assert_eq!(slit(&machine).len(), 36 + 8 + (highest + 1) * (highest + 1));
    }

    #[test]
    fn every_id_is_named_in_order_before_any_cpu_and_memory_skips_the_hole() {
        let machine = Machine::find("sparse").unwrap();
        let srat = srat(&machine);
        let highest = machine.node.last().unwrap().id;
        let entries = &srat[48..];
        for id in 0..=highest {
            let entry = &entries[id as usize * 16..][..16];
            assert_eq!((entry[0], entry[2], entry[3]), (0, id as u8, NO_CPU));
        }
        let memory = &entries[(highest as usize + 1 + machine.cpus() as usize) * 16..];
        let bytes: u64 = memory
            .chunks(40)
            .map(|entry| u64::from_le_bytes(entry[16..24].try_into().unwrap()))
            .sum();
        assert_eq!(bytes, machine.memory_mib() << 20);
        let last = memory.chunks(40).next_back().unwrap();
        let end = u64::from_le_bytes(last[8..16].try_into().unwrap())
            + u64::from_le_bytes(last[16..24].try_into().unwrap());
        // 3 GiB lie below the hole, the rest from 4 GiB on
        assert_eq!(end, (machine.memory_mib() << 20) + (1 << 30));
    }
}
