//! Instructions of other processes, from `/proc/PID/mem`, remembered by address: a program spends
//! its time in few places.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::block::{Block, MOST};

/// An instruction's longest encoding, in bytes.
const LONGEST: usize = 15;

/// Places that are remembered: beyond, all are read anew. Guessed: a few megabytes.
const MOST_BLOCKS: usize = 4096;

/// Times that a place is answered before it is read anew: a program that compiles itself may have put
/// something else there. Guessed.
const TRUSTED: u32 = 1000;

/// What was read, by process and address.
#[derive(Debug)]
pub struct Code {
    root: PathBuf,
    blocks: BTreeMap<(u32, u64), (u32, Block)>,
}

impl Code {
    /// Reads below `root`: `/`, unless this is a test.
    pub fn new(root: &Path) -> Code {
        Code { root: root.to_path_buf(), blocks: BTreeMap::new() }
    }

    /// The instructions of a process from an address on; none where they cannot be read.
    pub fn at(&mut self, tgid: u32, ip: u64) -> &Block {
        if self.blocks.len() >= MOST_BLOCKS {
            self.blocks.clear();
        }
        let read = || (0, Block::read(ip, |address| bytes(&self.root, tgid, address)));
        let known = self.blocks.entry((tgid, ip)).or_insert_with(&read);
        if known.0 >= TRUSTED {
            *known = read();
        }
        known.0 += 1;
        &known.1
    }

    /// Whether nobody may read others' code, not even root: Yama's strictest setting, which cannot be taken back.
    pub fn is_sealed(&self) -> bool {
        let scope = std::fs::read_to_string(self.root.join("proc/sys/kernel/yama/ptrace_scope"));
        scope.is_ok_and(|scope| scope.trim() == "3")
    }

    /// Forgets what was read of other processes than these.
    pub fn keep(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.blocks.retain(|(tgid, _), _| is_kept(*tgid));
    }
}

fn bytes(root: &Path, tgid: u32, address: u64) -> Vec<u8> {
    let mut bytes = vec![0; MOST * LONGEST];
    let file = File::open(root.join(format!("proc/{tgid}/mem")));
    // As many as are there: the next page may not be.
    let read = file.and_then(|file| file.read_at(&mut bytes, address)).unwrap_or(0);
    bytes.truncate(read);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_read_once_until_it_has_served_long() {
        let root = std::env::temp_dir().join(format!("numaherd-code-{}", std::process::id()));
        std::fs::create_dir_all(root.join("proc/7")).unwrap();
        let mem = root.join("proc/7/mem");
        let held = crate::registers::tests::holding(&[(iced_x86::Register::RDI, 0x1000)]);
        // mov [rdi], rax; ret, and from the fourth byte on nothing is read.
        std::fs::write(&mem, [0x90, 0x48, 0x89, 0x07]).unwrap();
        let mut code = Code::new(&root);
        assert_eq!(code.at(7, 1).accesses(&held), [0x1000]);
        std::fs::write(&mem, [0x90; 8]).unwrap();
        for _ in 1..TRUSTED {
            assert_eq!(code.at(7, 1).accesses(&held), [0x1000]);
        }
        assert!(code.at(7, 1).accesses(&held).is_empty());
        assert!(code.at(8, 1).accesses(&held).is_empty());
        let sealed = |scope: &str| {
            std::fs::create_dir_all(root.join("proc/sys/kernel/yama")).unwrap();
            std::fs::write(root.join("proc/sys/kernel/yama/ptrace_scope"), scope).unwrap();
            Code::new(&root).is_sealed()
        };
        assert!(sealed("3\n") && !sealed("2\n"));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
