//! Which functions a kernel's BTF has, and how many arguments they take.
//!
//! Reads only that: one walk over the types of `/sys/kernel/btf/vmlinux` (some 150,000 of them),
//! names compared for functions alone. Format: the kernel's Documentation/bpf/btf.rst. Numbers
//! are in host byte order, since it is the running kernel's.

/// Why a BTF file could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a kernel's BTF: {problem} at byte {offset}")]
pub(crate) struct BtfError {
    problem: &'static str,
    offset: usize,
}

const MAGIC: u16 = 0xeb9f;
const TYPE_BYTES: usize = 12;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;

/// The number of arguments of each of the functions named, None for those that do not exist.
pub(crate) fn argument_counts<const N: usize>(
    btf: &[u8],
    names: [&str; N],
) -> Result<[Option<u32>; N], BtfError> {
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
    let mut prototypes = [None; N];
    let mut argument_counts = [None; N];
    // Function and prototype may come in either order, so the argument counts of all prototypes
    // are kept; ids start at 1.
    let mut counts: Vec<(u32, u32)> = Vec::new();
    let (mut at, mut id) = (0, 1);
    while at + TYPE_BYTES <= types.len() {
        let info = field(at + 4);
        let (kind, members) = (info >> 24 & 0x1f, info & 0xffff);
        if kind == KIND_FUNC {
            let name = strings.get(field(at) as usize..).unwrap_or_default();
            for (wanted, prototype) in names.iter().zip(&mut prototypes) {
                if name.strip_prefix(wanted.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
                {
                    *prototype = Some(field(at + 8));
                }
            }
        } else if kind == KIND_FUNC_PROTO {
            counts.push((id, members));
        }
        at +=
            TYPE_BYTES + trailing_bytes(kind, members).ok_or(fail("a type of unknown kind", at))?;
        id += 1;
    }
    for (prototype, count) in prototypes.iter().zip(&mut argument_counts) {
        *count = prototype
            .and_then(|prototype| counts.binary_search_by_key(&prototype, |(id, _)| *id).ok())
            .map(|i| counts[i].1);
    }
    Ok(argument_counts)
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
        4 | 5 | 15 | 19 => members * 12,
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

    /// A BTF file with an int, a struct of two members and the functions given.
    pub(crate) fn btf_with(functions: &[(&str, u32)]) -> Vec<u8> {
        let mut strings = b"\0".to_vec();
        let mut types: Vec<u32> = vec![0, 1 << 24, 4, 32]; // id 1: int
        types.extend([0, 4 << 24 | 2, 8, 0, 1, 0, 0, 1, 32]); // id 2: struct
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
        let found = argument_counts(&btf, ["task_numa_fault", "mpol_misplaced", "other"]);
        assert_eq!(found, Ok([Some(4), None, Some(0)]));
    }

    #[test]
    fn what_is_no_btf_is_an_error_wherever_it_is_cut() {
        let whole = btf_with(&[("task_numa_fault", 4)]);
        for len in 0..whole.len() {
            assert!(argument_counts(&whole[..len], ["task_numa_fault"]).is_err(), "{len} bytes");
        }
        let mut unknown = whole.clone();
        unknown[24 + 7] = 0x1f; // kind 31
        let error = argument_counts(&unknown, ["x"]).unwrap_err().to_string();
        assert_eq!(error, "not a kernel's BTF: a type of unknown kind at byte 0");
    }
}
