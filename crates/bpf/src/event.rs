//! One event of the ring buffer, and the kernel's packed "who touched this page before".
//!
//! The layout is that of `faults.h`: 48 bytes in host byte order. `last_cpupid` is packed by the
//! kernel's `cpu_pid_to_cpupid` (include/linux/mm.h, v6.x): the low 8 bits are the low 8 bits of
//! a thread id, above them the CPU in as many bits as the kernel's highest CPU number needs.
//!
//! It is seldom known. Since the default policy prefers the CPU's own node, the kernel
//! (`mpol_misplaced`, seen in sources from v5.15 on) notes nobody on a page that already lies
//! there; what it notes on a page of another node seems lost once the page has moved and is
//! written to (inferred). Measured on v6.12, threads writing to their own memory: known for 3 of
//! 25,109 faults, and for 8 of 47,721.
//!
//! ```
//! use numaherd_bpf::decode_last_access;
//! // CPU 5, thread id ending in 0x2a, on a kernel built for 8192 CPUs (13 bits)
//! let last = decode_last_access(5 << 8 | 0x2a, 13).unwrap();
//! assert_eq!((last.cpu.0, last.pid_low8), (5, 0x2a));
//! ```

use numaherd_model::{Birth, CpuId, FaultFlags, HintingFault, Nanos, NodeId, Pages};

/// `sizeof(struct numaherd_fault)`.
pub(crate) const EVENT_BYTES: usize = 48;

/// The kernel's `LAST__PID_SHIFT`.
const LAST_PID_BITS: u32 = 8;

/// Who touched a page before the faulting task did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAccess {
    /// CPU it ran on then.
    pub cpu: CpuId,
    /// Low 8 bits of its thread id.
    pub pid_low8: u8,
}

/// Unpacks `last_cpupid` of a kernel that needs `cpu_bits` bits for a CPU number (13 for the 8192
/// CPUs of distribution kernels). None when the kernel knew of no earlier access: it then has all
/// CPU bits set.
#[must_use]
pub fn decode_last_access(last_cpupid: i32, cpu_bits: u32) -> Option<LastAccess> {
    if last_cpupid < 0 || cpu_bits == 0 || cpu_bits > 31 - LAST_PID_BITS {
        return None;
    }
    let packed = last_cpupid as u32;
    let cpu = packed >> LAST_PID_BITS;
    let unset = (1 << cpu_bits) - 1;
    (cpu < unset).then_some(LastAccess { cpu: CpuId(cpu), pid_low8: packed as u8 })
}

/// The bits a kernel with this highest CPU number (`/sys/devices/system/cpu/kernel_max`) keeps
/// for a CPU: its `NR_CPUS_BITS`.
pub(crate) fn cpu_bits(kernel_max: u32) -> u32 {
    u32::BITS - kernel_max.leading_zeros()
}

/// What an event tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Fault(HintingFault),
    Birth(Birth),
}

/// Reads one event. None if it is shorter than an event or names no node.
pub(crate) fn decode_event(bytes: &[u8], bits: Option<u32>) -> Option<Event> {
    let bytes: &[u8; EVENT_BYTES] = bytes.get(..EVENT_BYTES)?.try_into().ok()?;
    let word =
        |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let long = |at: usize| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(eight)
    };
    if word(44) == 1 {
        return Some(Event::Birth(Birth {
            time: Nanos(long(0)),
            child: word(16),
            parent: word(20),
        }));
    }
    let last = bits.and_then(|bits| decode_last_access(word(40) as i32, bits));
    Some(Event::Fault(HintingFault {
        time: Nanos(long(0)),
        address: Some(long(8)).filter(|&address| address != 0),
        tid: word(16),
        tgid: word(20),
        cpu: CpuId(word(24)),
        memory_node: NodeId(u32::try_from(word(28) as i32).ok()?),
        pages: Pages(u64::from(word(32))),
        flags: FaultFlags(word(36)),
        last_cpu: last.map(|last| last.cpu),
        last_pid_low8: last.map(|last| last.pid_low8),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_cpu_and_pid_come_apart() {
        // (last_cpupid, cpu bits) -> (cpu, low 8 bits of the pid)
        let table = [
            (0, 13, Some((0, 0))),
            (0xff, 13, Some((0, 0xff))),
            (0x100, 13, Some((1, 0))),
            (8190 << 8 | 7, 13, Some((8190, 7))),
            // all CPU bits set is "unset", whatever the pid says
            (0x1f_ffff, 13, None),
            (8191 << 8, 13, None),
            // a kernel built for 64 CPUs has 6 bits
            (0x3fff, 6, None),
            (62 << 8 | 1, 6, Some((62, 1))),
            (-1, 13, None),
            // nonsense widths are no reason to panic
            (5, 0, None),
            (5, 32, None),
        ];
        for (packed, bits, expected) in table {
            let got = decode_last_access(packed, bits).map(|last| (last.cpu.0, last.pid_low8));
            assert_eq!(got, expected, "{packed:#x} with {bits} bits");
        }
    }

    #[test]
    fn cpu_bits_are_the_kernels() {
        // CONFIG_NR_CPUS 8192, 64, 65 and 2; the kernel rounds up to a power of two
        for (kernel_max, bits) in [(8191, 13), (63, 6), (64, 7), (1, 1), (0, 0)] {
            assert_eq!(cpu_bits(kernel_max), bits, "kernel_max {kernel_max}");
        }
    }

    #[test]
    fn an_event_is_read_field_by_field() {
        let mut bytes = Vec::new();
        bytes.extend(7_000_000_001_u64.to_ne_bytes());
        bytes.extend(0x7f00_1234_5000_u64.to_ne_bytes());
        for word in [101_u32, 100, 3, 1, 512, 0x09, 5 << 8 | 0x2a, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        assert_eq!(bytes.len(), EVENT_BYTES);
        let decode = |bytes: &[u8], bits| match decode_event(bytes, bits) {
            Some(Event::Fault(fault)) => Some(fault),
            other => {
                assert_eq!(other, None);
                None
            }
        };
        let fault = decode(&bytes, Some(13)).unwrap();
        let expected = HintingFault {
            time: Nanos(7_000_000_001),
            tid: 101,
            tgid: 100,
            cpu: CpuId(3),
            memory_node: NodeId(1),
            pages: Pages(512),
            flags: FaultFlags(FaultFlags::MIGRATED | FaultFlags::FAULT_LOCAL),
            address: Some(0x7f00_1234_5000),
            last_cpu: Some(CpuId(5)),
            last_pid_low8: Some(0x2a),
        };
        assert_eq!(fault, expected);
        assert_eq!(decode(&bytes, None).unwrap().last_cpu, None);
        assert_eq!(decode(&bytes[..47], Some(13)), None);
        bytes[8..16].fill(0);
        assert_eq!(decode(&bytes, Some(13)).unwrap().address, None);
        bytes[28..32].copy_from_slice(&(-1_i32).to_ne_bytes());
        assert_eq!(decode(&bytes, Some(13)), None, "node -1 is no node");
    }

    #[test]
    fn a_birth_is_told_from_a_fault() {
        let mut bytes = [0; EVENT_BYTES];
        for (at, word) in [(16, 102_u32), (20, 100), (44, 1)] {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes[..8].copy_from_slice(&7_u64.to_ne_bytes());
        let birth = Event::Birth(Birth { time: Nanos(7), child: 102, parent: 100 });
        assert_eq!(decode_event(&bytes, Some(13)), Some(birth));
    }
}
