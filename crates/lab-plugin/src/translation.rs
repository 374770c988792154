//! One vCPU's memory of where virtual pages lie: page → frame, with the frame's node.
//!
//! Asking QEMU for an access's physical address walks its list of RAM blocks under a read lock;
//! this direct-mapped table answers nearly always. It is exact for the reason QEMU's own table
//! is: x86 lets a CPU keep a translation until that CPU itself executes an instruction that
//! drops it (a write to a control register, INVLPG, INVPCID), and the plugin watches for those
//! ([`crate::marker::drops_translations`]). Page migration sends each CPU that may hold the
//! page an interrupt, whose handler executes one; a change of task writes CR3.
//!
//! Invariant: an entry is valid only while its generation is the current one.

/// log2 of the guest's smallest page.
pub const PAGE_SHIFT: u32 = 12;
const PAGE_MASK: u64 = (1 << PAGE_SHIFT) - 1;
/// 512 pages = 2 MiB reach; chosen so that the table (8 KiB) stays in the host's first cache.
const ENTRIES: usize = 512;

/// A physical page's key with its node's index in the bits of the page offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(u64);

impl Frame {
    /// The page that holds `key`, on the node with that index.
    #[must_use]
    pub fn new(key: u64, node: usize) -> Self {
        debug_assert!(node as u64 <= PAGE_MASK);
        Frame(key & !PAGE_MASK | node as u64)
    }

    /// Index of its node.
    #[must_use]
    #[inline]
    pub fn node(self) -> usize {
        (self.0 & PAGE_MASK) as usize
    }

    /// Key of the byte that `virtual_address` names in this page.
    #[must_use]
    #[inline]
    pub fn key(self, virtual_address: u64) -> u64 {
        self.0 & !PAGE_MASK | virtual_address & PAGE_MASK
    }
}

#[derive(Clone, Copy)]
struct Entry {
    /// Virtual page with the generation in the bits of the page offset; 0 is never valid.
    tag: u64,
    frame: Frame,
}

const EMPTY: Entry = Entry { tag: 0, frame: Frame(0) };

/// The table.
pub struct Translations {
    entries: Box<[Entry; ENTRIES]>,
    /// 1 ..= PAGE_MASK.
    generation: u64,
}

impl Default for Translations {
    fn default() -> Self {
        Translations { entries: Box::new([EMPTY; ENTRIES]), generation: 1 }
    }
}

impl Translations {
    #[inline]
    fn slot(&self, virtual_address: u64) -> (usize, u64) {
        let index = (virtual_address >> PAGE_SHIFT) as usize % ENTRIES;
        (index, virtual_address & !PAGE_MASK | self.generation)
    }

    /// The frame of this address, if known.
    #[must_use]
    #[inline]
    pub fn find(&self, virtual_address: u64) -> Option<Frame> {
        let (index, tag) = self.slot(virtual_address);
        let entry = &self.entries[index];
        (entry.tag == tag).then_some(entry.frame)
    }

    /// Remembers the frame of this address.
    pub fn insert(&mut self, virtual_address: u64, frame: Frame) {
        let (index, tag) = self.slot(virtual_address);
        self.entries[index] = Entry { tag, frame };
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.generation += 1;
        if self.generation > PAGE_MASK {
            self.entries.fill(EMPTY);
            self.generation = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_keeps_key_and_node_apart() {
        let frame = Frame::new(0x1_2345_6789, 3);
        assert_eq!(frame.node(), 3);
        assert_eq!(frame.key(0x7fff_0000_0abc), 0x1_2345_6abc);
    }

    #[test]
    fn a_page_is_found_until_the_table_is_cleared() {
        let mut table = Translations::default();
        assert_eq!(table.find(0), None, "the empty table knows nothing, not even page 0");
        table.insert(0x5000, Frame::new(0x9000, 1));
        assert_eq!(table.find(0x5fff), Some(Frame::new(0x9000, 1)));
        assert_eq!(table.find(0x6000), None);
        // Same slot, another page: 512 pages further on.
        assert_eq!(table.find(0x5000 + (512 << 12)), None);
        table.clear();
        assert_eq!(table.find(0x5000), None);
    }

    #[test]
    fn an_old_generation_does_not_come_back() {
        let mut table = Translations::default();
        table.insert(0x5000, Frame::new(0x9000, 1));
        for _ in 0..=PAGE_MASK {
            table.clear();
            assert_eq!(table.find(0x5000), None);
        }
    }
}
