//! `/proc/PID/numa_maps`: policy and pages per node of every mapping.
//!
//! Cost: the kernel walks all page tables of the process, about 1 ms per 100 MiB of base pages
//! (guessed), so it is for starts and fallbacks, not for every 100 ms. The kernel counts pages of
//! `kernelpagesize_kB`; here everything is in bytes, so that huge pages need no thought.
//!
//! Source: the kernel's Documentation/filesystems/proc.rst and show_numa_map (v6.12).

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use numaherd_model::{Bytes, NodeId};

use crate::file::{Buffer, ReadError, unescape};

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Memory policy in the kernel's words: `default`, `bind:0-1`, `prefer (many):0`.
    pub policy: String,
    /// File behind it.
    pub file: Option<String>,
    /// The process's heap.
    pub heap: bool,
    /// The main thread's stack.
    pub stack: bool,
    /// Made of hugetlb pages.
    pub huge: bool,
    /// Anonymous memory.
    pub anonymous: Bytes,
    /// Dirty memory.
    pub dirty: Bytes,
    /// Memory of a file that is mapped.
    pub mapped: Bytes,
    /// Pages on the active list; None where the kernel prints none because all are.
    pub active: Option<Bytes>,
    /// Memory being written back.
    pub writeback: Bytes,
    /// Memory that has a place in the swap too.
    pub swap_cache: Bytes,
    /// Most mappings that any of its pages has; 0 or 1 for private memory.
    pub most_mappings: u64,
    /// Resident memory per node, ascending by node.
    pub nodes: Vec<(NodeId, Bytes)>,
    /// Size of its pages; 0 when none is resident.
    pub page_size: Bytes,
}

impl Mapping {
    /// Resident memory, on all nodes.
    #[must_use]
    pub fn resident(&self) -> Bytes {
        Bytes(self.nodes.iter().map(|(_, bytes)| bytes.0).sum())
    }
}

/// Reads the mappings of a process, ascending; None when it has ended, or on a kernel without
/// NUMA.
///
/// # Errors
/// The file cannot be read (other users' processes need privilege), or is not the kernel's.
pub fn read(root: &Path, tgid: u32) -> Result<Option<Vec<Mapping>>, ReadError> {
    read_file(&root.join(format!("proc/{tgid}/numa_maps")))
}

/// Read at once: less than most lines have, so that the kernel lets go of the process's lock on its mappings after each
/// or each second one (seq_read_iter, v6.12), and not after as many as fill a page.
const STEP: usize = 64;

fn read_file(path: &Path) -> Result<Option<Vec<Mapping>>, ReadError> {
    let mut buffer = Buffer::default();
    let Some(bytes) = buffer.read_in_steps(path, STEP)? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().enumerate().map(|(index, line)| {
        let expected = "'ADDRESS POLICY NAME=PAGES …'";
        parse(line).ok_or_else(|| ReadError::parse(path, index + 1, expected, line))
    });
    lines.collect::<Result<_, _>>().map(Some)
}

/// No more than the shortest line has: the kernel goes on to the next mapping, and walks its page tables too, until it has
/// as much as was asked for (seq_read_iter, v6.12).
const HEAD_BYTES: usize = "00400000 default\n".len();

/// Whether a thread has a memory policy of its own; false also where that cannot be told. Of mappings without one its
/// `numa_maps` shows the thread's, so that the first line tells, if the process's own has `default` there.
#[must_use]
pub fn has_policy(root: &Path, tgid: u32, tid: u32) -> bool {
    let path = root.join(format!("proc/{tgid}/task/{tid}/numa_maps"));
    // Of its name there may be only the beginning.
    first_policy(&path, HEAD_BYTES).is_some_and(|policy| !"default".starts_with(&policy))
}

/// The policy in the first line, or as much of it as is among the first bytes.
pub(crate) fn first_policy(path: &Path, bytes: usize) -> Option<String> {
    let mut head = vec![0; bytes];
    let len = File::open(path).and_then(|mut file| file.read(&mut head)).ok()?;
    let text = String::from_utf8_lossy(&head[..len]);
    text.split([' ', '\n']).nth(1).map(str::to_string)
}

/// Parses one line. Policies may hold spaces (`prefer (many):0-1`), so the policy is whatever
/// precedes the first attribute; unknown attributes are passed over.
pub fn parse(line: &str) -> Option<Mapping> {
    let (address, rest) = line.split_once(' ')?;
    let mut mapping =
        Mapping { start: u64::from_str_radix(address, 16).ok()?, ..Mapping::default() };
    let mut in_policy = true;
    let mut pages = Counts::default();
    for word in rest.split_ascii_whitespace() {
        let attribute = read_attribute(word, &mut mapping, &mut pages)?;
        if attribute {
            in_policy = false;
        } else if in_policy {
            if !mapping.policy.is_empty() {
                mapping.policy.push(' ');
            }
            mapping.policy.push_str(word);
        }
    }
    if mapping.policy.is_empty() {
        return None;
    }
    let bytes = |count: u64| count.checked_mul(mapping.page_size.0).map(Bytes);
    let nodes: Option<Vec<_>> =
        pages.nodes.iter().map(|&(node, count)| Some((node, bytes(count)?))).collect();
    let mut nodes = nodes?;
    nodes.sort_unstable();
    Some(Mapping {
        anonymous: bytes(pages.anonymous)?,
        dirty: bytes(pages.dirty)?,
        mapped: bytes(pages.mapped)?,
        active: pages.active.map(bytes).unwrap_or_default(),
        writeback: bytes(pages.writeback)?,
        swap_cache: bytes(pages.swap_cache)?,
        nodes,
        ..mapping
    })
}

/// Counts in pages, until the size of a page is known: it stands last on the line.
#[derive(Default)]
struct Counts {
    anonymous: u64,
    dirty: u64,
    mapped: u64,
    active: Option<u64>,
    writeback: u64,
    swap_cache: u64,
    nodes: Vec<(NodeId, u64)>,
}

/// Takes one word in. Some(false) if it is no attribute, None if its number is none.
fn read_attribute(word: &str, mapping: &mut Mapping, pages: &mut Counts) -> Option<bool> {
    let Some((name, value)) = word.split_once('=') else {
        match word {
            "heap" => mapping.heap = true,
            "stack" => mapping.stack = true,
            "huge" => mapping.huge = true,
            _ => return Some(false),
        }
        return Some(true);
    };
    if name == "file" {
        mapping.file = Some(unescape(value));
        return Some(true);
    }
    let number = || value.parse::<u64>().ok();
    match name {
        "anon" => pages.anonymous = number()?,
        "dirty" => pages.dirty = number()?,
        "mapped" => pages.mapped = number()?,
        "mapmax" => mapping.most_mappings = number()?,
        "active" => pages.active = Some(number()?),
        "writeback" => pages.writeback = number()?,
        "swapcache" => pages.swap_cache = number()?,
        "kernelpagesize_kB" => mapping.page_size = Bytes(number()?.checked_mul(1024)?),
        _ => match name.strip_prefix('N').and_then(|node| node.parse().ok()) {
            Some(node) => pages.nodes.push((NodeId(node), number()?)),
            // policies have a '=' too: interleave=static:0-3
            None => return Some(false),
        },
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_whole_line_is_read() {
        let line = "7f00a0000000 bind=static:0-1 file=/dev/shm/a\\040b\\134c huge anon=3 dirty=2 \
                    mapped=4 mapmax=5 swapcache=1 active=0 writeback=1 N1=1 N0=3 \
                    kernelpagesize_kB=2048";
        let mib = |mib: u64| Bytes(mib << 20);
        let expected = Mapping {
            start: 0x7f00_a000_0000,
            policy: "bind=static:0-1".to_string(),
            file: Some("/dev/shm/a b\\c".to_string()),
            heap: false,
            stack: false,
            huge: true,
            anonymous: mib(6),
            dirty: mib(4),
            mapped: mib(8),
            active: Some(Bytes(0)),
            writeback: mib(2),
            swap_cache: mib(2),
            most_mappings: 5,
            nodes: vec![(NodeId(0), mib(6)), (NodeId(1), mib(2))],
            page_size: mib(2),
        };
        assert_eq!(parse(line), Some(expected));
    }

    #[test]
    fn policies_of_several_words_stay_whole() {
        for (line, policy, heap) in [
            ("1000 default", "default", false),
            (
                "1000 prefer (many):0-1 heap anon=1 N0=1 kernelpagesize_kB=4",
                "prefer (many):0-1",
                true,
            ),
            ("1000 weighted interleave:0,2", "weighted interleave:0,2", false),
            ("1000 interleave=relative:0-3 heap", "interleave=relative:0-3", true),
        ] {
            let mapping = parse(line).unwrap();
            assert_eq!((mapping.policy.as_str(), mapping.heap), (policy, heap), "{line}");
        }
    }

    #[test]
    fn a_captured_process_adds_up() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/2x4/root");
        let mappings = read_file(&Path::new(path).join("proc/self/numa_maps")).unwrap().unwrap();
        assert!(mappings.iter().any(|m| m.stack) && mappings.iter().any(|m| m.heap));
        assert!(mappings.is_sorted_by_key(|m| m.start));
        for mapping in mappings {
            let resident = mapping.resident();
            assert_eq!(resident, mapping.anonymous.max(mapping.mapped), "{mapping:?}");
        }
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for line in ["", "xyz default", "1000", "1000 ", "1000 default N0=x", "1000 heap"] {
            assert_eq!(parse(line), None, "{line:?}");
        }
        let huge = "1000 default N0=18446744073709551615 kernelpagesize_kB=4";
        assert_eq!(parse(huge), None, "overflow is no panic");
    }

    #[test]
    fn the_first_line_tells_a_threads_own_policy() {
        let root = tempfile::tempdir().unwrap();
        let has = |text| {
            crate::testing::put(root.path(), "proc/7/task/8/numa_maps", text);
            has_policy(root.path(), 7, 8)
        };
        assert!(!has("00400000 default\n00600000 bind:0\n"));
        assert!(!has("55a4416a7000 default file=/bin/x mapped=1 N0=1\n"));
        assert!(!has("7fffa4416a7000 default\n") && !has("") && !has("nothing"));
        assert!(has("55a4416a7000 bind:0 file=/bin/x\n"));
        assert!(has("400000 local\n") && has("7fffa4416a7000 interleave:0-1\n"));
        assert!(!has_policy(root.path(), 7, 9), "it has ended");
    }

    #[test]
    fn a_thread_that_binds_itself_has_a_policy_and_its_process_has_none() {
        use crate::sys::mempolicy;
        let me = std::process::id();
        let of_me = read("/".as_ref(), me).unwrap();
        if of_me.is_none_or(|mappings| mappings[0].policy != "default") {
            eprintln!("skipped: this kernel has no memory policies, or we have one");
            return;
        }
        let bound = || {
            // PID/task/TID
            let tid = std::fs::read_link("/proc/thread-self").unwrap();
            let tid = tid.file_name().unwrap().to_str().unwrap().parse().unwrap();
            let before = has_policy("/".as_ref(), me, tid);
            mempolicy::set_raw(libc::MPOL_BIND, &mempolicy::allowed().unwrap()).ok()?;
            Some((before, has_policy("/".as_ref(), me, tid)))
        };
        match std::thread::scope(|scope| scope.spawn(bound).join().unwrap()) {
            Some(found) => assert_eq!(found, (false, true)),
            None => eprintln!("skipped: we may not set a policy here"),
        }
        assert_eq!(read("/".as_ref(), me).unwrap().unwrap()[0].policy, "default");
    }

    proptest! {
        #[test]
        fn no_text_panics(line in "[0-9a-f]{1,4} [a-zN0-9=\\\\ ]{0,60}") {
            let _ = parse(&line);
        }
    }
}
