//! What the plugin recognises in the guest's code: our markers, and the instructions after
//! which a CPU may see other translations.
//!
//! A marker is the 8-byte nop `0f 1f 84 00 disp32` (`nopl disp32(%rax,%rax,1)`) with the
//! displacement `0x4e48_0000 | op << 8 | arg`. It is looked for when code is translated, so it
//! costs nothing elsewhere, and on real hardware it is what it says: a nop.

/// Upper half of a marker's displacement, "NH".
const SIGNATURE: u32 = 0x4e48;

/// What the guest asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// Start charging.
    ChargingOn,
    /// Stop charging.
    ChargingOff,
    /// Copy all counters under this tag.
    Snapshot {
        /// Chosen by the guest.
        tag: u8,
    },
    /// Learning starts; this vCPU now touches memory of node index 0.
    MapBegin,
    /// This vCPU goes on with memory of the next node.
    MapNext,
    /// Learning ends; decide.
    MapEnd,
}

impl Marker {
    /// The marker that these bytes of one instruction are, if any.
    #[must_use]
    pub fn decode(instruction: &[u8]) -> Option<Self> {
        let &[0x0f, 0x1f, 0x84, 0x00, b0, b1, b2, b3] = instruction else {
            return None;
        };
        let displacement = u32::from_le_bytes([b0, b1, b2, b3]);
        if displacement >> 16 != SIGNATURE {
            return None;
        }
        Self::unpack((displacement & 0xffff) as u16)
    }

    /// From `op << 8 | arg`.
    #[must_use]
    pub fn unpack(word: u16) -> Option<Self> {
        let [arg, op] = word.to_le_bytes();
        match op {
            1 => Some(Marker::ChargingOn),
            2 => Some(Marker::ChargingOff),
            3 => Some(Marker::Snapshot { tag: arg }),
            4 => Some(Marker::MapBegin),
            5 => Some(Marker::MapNext),
            6 => Some(Marker::MapEnd),
            _ => None,
        }
    }

    /// As `op << 8 | arg`, to travel in a callback's user data.
    #[must_use]
    pub fn pack(self) -> u16 {
        match self {
            Marker::ChargingOn => 1 << 8,
            Marker::ChargingOff => 2 << 8,
            Marker::Snapshot { tag } => 3 << 8 | u16::from(tag),
            Marker::MapBegin => 4 << 8,
            Marker::MapNext => 5 << 8,
            Marker::MapEnd => 6 << 8,
        }
    }
}

/// Whether the CPU that executes this instruction may drop translations it holds: a write to a
/// control register (`0f 22`), INVLPG (`0f 01 /7` with a memory operand) or INVPCID
/// (`66 0f 38 82`).
#[must_use]
pub fn drops_translations(instruction: &[u8]) -> bool {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let opcode = instruction.iter().position(|byte| !is_prefix(byte)).unwrap_or(0);
    match &instruction[opcode..] {
        [0x0f, 0x22, ..] | [0x0f, 0x38, 0x82, ..] => true,
        [0x0f, 0x01, modrm, ..] => modrm >> 6 != 3 && modrm >> 3 & 7 == 7,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_read_from_their_bytes() {
        // nopl 0x4e480307(%rax,%rax,1): op 3, arg 7.
        let bytes = [0x0f, 0x1f, 0x84, 0x00, 0x07, 0x03, 0x48, 0x4e];
        assert_eq!(Marker::decode(&bytes), Some(Marker::Snapshot { tag: 7 }));
        assert_eq!(
            Marker::decode(&[0x0f, 0x1f, 0x84, 0, 0, 1, 0x48, 0x4e]),
            Some(Marker::ChargingOn)
        );
    }

    #[test]
    fn other_nops_are_not_markers() {
        // The assembler's own padding, a foreign signature, an unknown op, a cut-off one.
        assert_eq!(Marker::decode(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]), None);
        assert_eq!(Marker::decode(&[0x0f, 0x1f, 0x84, 0, 0, 1, 0x48, 0x4f]), None);
        assert_eq!(Marker::decode(&[0x0f, 0x1f, 0x84, 0, 0, 9, 0x48, 0x4e]), None);
        assert_eq!(Marker::decode(&[0x0f, 0x1f, 0x84, 0, 0, 1, 0x48]), None);
    }

    #[test]
    fn packing_loses_nothing() {
        for marker in [
            Marker::ChargingOn,
            Marker::ChargingOff,
            Marker::Snapshot { tag: 255 },
            Marker::MapBegin,
            Marker::MapNext,
            Marker::MapEnd,
        ] {
            assert_eq!(Marker::unpack(marker.pack()), Some(marker));
        }
    }

    #[test]
    fn instructions_that_drop_translations() {
        assert!(drops_translations(&[0x0f, 0x22, 0xd8])); // mov %rax,%cr3
        assert!(drops_translations(&[0x41, 0x0f, 0x22, 0xd8])); // mov %r8,%cr3
        assert!(drops_translations(&[0x0f, 0x01, 0x38])); // invlpg (%rax)
        assert!(drops_translations(&[0x66, 0x0f, 0x38, 0x82, 0x04, 0x24])); // invpcid (%rsp),%rax
        assert!(!drops_translations(&[0x0f, 0x01, 0xf8])); // swapgs
        assert!(!drops_translations(&[0x0f, 0x20, 0xd8])); // mov %cr3,%rax
        assert!(!drops_translations(&[0x48, 0x89, 0xc3])); // mov %rax,%rbx
        assert!(!drops_translations(&[]));
    }
}
