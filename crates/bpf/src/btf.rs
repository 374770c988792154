//! Which functions a kernel's BTF has, their ids, and how many arguments they take; and where in a `task_struct` ids are.
//!
//! Reads only that: one walk over the types of `/sys/kernel/btf/vmlinux` (some 150,000 of them). Format: the
//! kernel's Documentation/bpf/btf.rst. Numbers are in host byte order, since it is the running kernel's.

use memchr::memmem;

/// A function of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its id in the kernel's BTF, by which a program is attached to it.
    pub id: u32,
    /// How many arguments it takes.
    pub arguments: u32,
}

/// Where a `task_struct` has its thread's and its process's id, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskIds {
    /// `pid`.
    pub pid: u32,
    /// `tgid`.
    pub tgid: u32,
}

/// What was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<const N: usize> {
    /// Functions, None for those that do not exist.
    pub functions: [Option<Function>; N],
    /// None where a `task_struct` is laid out in another way than all are that we know.
    pub ids: Option<TaskIds>,
}

/// Why a BTF file could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a kernel's BTF: {problem} at byte {offset}")]
pub(crate) struct BtfError {
    problem: &'static str,
    offset: usize,
}

const MAGIC: u16 = 0xeb9f;
const TYPE_BYTES: usize = 12;
const KIND_STRUCT: u32 = 4;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;

/// The functions named, and what there is to know of tasks.
pub(crate) fn find<const N: usize>(btf: &[u8], names: [&str; N]) -> Result<Found<N>, BtfError> {
    let fail = |problem, offset| BtfError { problem, offset };
    let word = |at: usize| -> Result<u32, BtfError> {
        let bytes = btf.get(at..at + 4).ok_or(fail("it ends", at))?;
        Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    // header: magic u16, version u8, flags u8, then hdr_len, type_off, type_len, str_off, str_len
    if word(0)? as u16 != MAGIC {
        return Err(fail("no magic number", 0));
    }
    let header = word(4)? as usize;
    let section = |at: usize| -> Result<&[u8], BtfError> {
        let start = header + word(at)? as usize;
        btf.get(start..start + word(at + 4)? as usize)
            .ok_or(fail("a section runs past the end", at))
    };
    let (types, strings) = (section(8)?, section(16)?);

    let field =
        |at: usize| u32::from_ne_bytes([types[at], types[at + 1], types[at + 2], types[at + 3]]);
    // A name stands once among the strings, whoever bears it.
    let offset = |name: &str| {
        let whole = [b"\0", name.as_bytes(), b"\0"].concat();
        memmem::find(strings, &whole).map(|at| at as u32 + 1)
    };
    let names = names.map(offset);
    let (task, pid, tgid) = (offset("task_struct"), offset("pid"), offset("tgid"));
    let mut ids = None;
    let mut found: [Option<(u32, u32)>; N] = [None; N];
    // Function and prototype may come in either order, so the argument counts of all prototypes
    // are kept; ids start at 1.
    let mut counts: Vec<(u32, u32)> = Vec::new();
    let (mut at, mut id) = (0, 1);
    while at + TYPE_BYTES <= types.len() {
        let info = field(at + 4);
        let (kind, members) = (info >> 24 & 0x1f, info & 0xffff);
        let trailing = trailing_bytes(kind, members).ok_or(fail("a type of unknown kind", at))?;
        if kind == KIND_FUNC {
            let name = Some(field(at));
            if let Some(i) = names.iter().position(|wanted| *wanted == name) {
                found[i] = Some((id, field(at + 8)));
            }
        } else if kind == KIND_FUNC_PROTO {
            counts.push((id, members));
        } else if kind == KIND_STRUCT && task == Some(field(at)) {
            let body = at + TYPE_BYTES;
            if body + trailing > types.len() {
                return Err(fail("it ends", at));
            }
            // Each has its name, its type and where it begins, in bits; with bit fields among them, in the lower 24 bits.
            let bits = if info >> 31 == 1 { 0x00ff_ffff } else { u32::MAX };
            let member = |name: Option<u32>| {
                let mut all = (body..body + trailing).step_by(12);
                let at = all.find(|at| name == Some(field(*at)))?;
                Some((field(at + 8) & bits) / 8)
            };
            ids = member(pid).zip(member(tgid)).map(|(pid, tgid)| TaskIds { pid, tgid });
        }
        at += TYPE_BYTES + trailing;
        id += 1;
    }
    let arguments = |prototype: u32| {
        counts.binary_search_by_key(&prototype, |(id, _)| *id).ok().map(|i| counts[i].1)
    };
    let functions = found.map(|function| {
        let (id, prototype) = function?;
        Some(Function { id, arguments: arguments(prototype)? })
    });
    Ok(Found { functions, ids })
}

/// Bytes that follow a type's 12 bytes.
fn trailing_bytes(kind: u32, members: u32) -> Option<usize> {
    let members = members as usize;
    Some(match kind {
        // int, variable, declaration tag
        1 | 14 | 17 => 4,
        // array
        3 => 12,
        // struct, union, section, 64-bit enum
        KIND_STRUCT | 5 | 15 | 19 => members * 12,
        // enum, prototype
        6 | KIND_FUNC_PROTO => members * 8,
        // pointer, forward, typedef, volatile, const, restrict, function, float, type tag
        2 | 7..=11 | KIND_FUNC | 16 | 18 => 0,
        _ => return None,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A BTF file with an int, a `task_struct` with its ids at 12 and 16, and the functions given.
    pub(crate) fn btf_with(functions: &[(&str, u32)]) -> Vec<u8> {
        let mut strings = b"\0task_struct\0pid\0tgid\0".to_vec();
        let mut types: Vec<u32> = vec![0, 1 << 24, 4, 32]; // id 1: int
        // id 2: struct, with a bit field of 3 bits before pid and tgid
        let bit_field = [0, 1, 3 << 24 | 64];
        types.extend([1, 1 << 31 | KIND_STRUCT << 24 | 3, 20]);
        types.extend([bit_field, [13, 1, 96], [17, 1, 128]].as_flattened());
        for (i, (name, arguments)) in functions.iter().enumerate() {
            let id = 3 + 2 * i as u32;
            types.extend([0, KIND_FUNC_PROTO << 24 | arguments, 0]);
            types.extend((0..*arguments).flat_map(|_| [0, 1]));
            types.extend([strings.len() as u32, KIND_FUNC << 24 | 1, id]);
            strings.extend(name.bytes().chain([0]));
        }
        let type_bytes = 4 * types.len() as u32;
        let header = [0x0001_eb9f, 24, 0, type_bytes, type_bytes, strings.len() as u32];
        header.iter().chain(&types).flat_map(|word| word.to_ne_bytes()).chain(strings).collect()
    }

    #[test]
    fn functions_are_found_by_their_whole_name() {
        let btf = btf_with(&[("task_numa_faults", 9), ("task_numa_fault", 4), ("other", 0)]);
        let found = find(&btf, ["task_numa_fault", "mpol_misplaced", "other"]).unwrap();
        let [fault, other] =
            [(6, 4), (8, 0)].map(|(id, arguments)| Some(Function { id, arguments }));
        assert_eq!(found.functions, [fault, None, other]);
        assert_eq!(found.ids, Some(TaskIds { pid: 12, tgid: 16 }));
    }

    #[test]
    fn what_is_no_btf_is_an_error_wherever_it_is_cut() {
        let whole = btf_with(&[("task_numa_fault", 4)]);
        for len in 0..whole.len() {
            assert!(find(&whole[..len], ["task_numa_fault"]).is_err(), "{len} bytes");
        }
        let mut unknown = whole.clone();
        unknown[24 + 7] = 0x1f; // kind 31
        let error = find(&unknown, ["x"]).unwrap_err().to_string();
        assert_eq!(error, "not a kernel's BTF: a type of unknown kind at byte 0");
    }
}
