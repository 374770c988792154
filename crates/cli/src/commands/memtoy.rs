//! `memtoy`: memory to try policies on, by commands from the keyboard or a script.
//!
//! After Lee Schermerhorn's tool of the same name: segments are made by name, mapped, bound,
//! touched, locked, migrated, and looked at. One command a line; `#` begins a comment. What goes
//! wrong is one line on stderr, and the session goes on, unless it is to be strict.

mod segment;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use numaherd_linux::sys::mapping::Touch;
use numaherd_linux::sys::{affinity, mempolicy};
use numaherd_mempolicy::intent::{Lists, Universes};
use numaherd_mempolicy::{Flags, Mode, Request, kernel_text};
use numaherd_model::{NodeId, NodeSet, counted};
use segment::Segment;

use crate::args::{MEMTOY_COMMANDS, Memtoy};
use crate::drop_in;

/// Reads commands until there are no more.
pub fn run(args: &Memtoy) -> Result<ExitCode> {
    let (_, universes) = drop_in::here()?;
    let mut toy = Toy { universes, segments: BTreeMap::new() };
    let mut failures = 0;
    let asks = args.script.is_none() && std::io::stdin().is_terminal();
    let input: Box<dyn BufRead> = match &args.script {
        Some(path) => {
            let file = std::fs::File::open(path);
            Box::new(BufReader::new(
                file.with_context(|| format!("cannot open {}", path.display()))?,
            ))
        }
        None => Box::new(std::io::stdin().lock()),
    };
    prompt(asks)?;
    for (line, number) in input.lines().zip(1..) {
        match toy.line(&line.context("cannot read commands")?) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                say!("numaherd: memtoy line {number}: {}", crate::one_line(&error));
                failures += 1;
                if args.strict {
                    break;
                }
            }
        }
        prompt(asks)?;
    }
    Ok(ExitCode::from(u8::from(failures > 0)))
}

fn prompt(asks: bool) -> Result<()> {
    if asks {
        put!("memtoy> ");
        std::io::stdout().flush()?;
    }
    Ok(())
}

struct Toy {
    universes: Universes,
    segments: BTreeMap<String, Segment>,
}

impl Toy {
    /// Does one line's command; false ends the session.
    fn line(&mut self, line: &str) -> Result<bool> {
        let words: Vec<&str> =
            line.split('#').next().unwrap_or_default().split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            ["quit" | "q" | "exit"] => return Ok(false),
            ["help" | "h" | "?"] => putln!("{MEMTOY_COMMANDS}"),
            ["pid"] => putln!("pid {}", std::process::id()),
            ["mems"] => putln!("mems {}", mempolicy::allowed()?),
            ["cpus"] => putln!("cpus {}", affinity::get(0)?),
            ["show"] => {
                self.segments.iter().for_each(|(name, segment)| putln!("{name}: {segment}"))
            }
            ["on", list] => {
                let lists = &mut Lists::new(&self.universes, drop_in::device);
                affinity::set(0, &lists.cpus(list)?)?;
            }
            ["migrate", from, to] if !self.segments.contains_key(*from) => {
                let from = self.nodes(from).with_context(|| {
                    format!("'{from}' is neither a segment nor a list of nodes")
                })?;
                let to = self.nodes(to)?;
                let stayed = mempolicy::migrate_process(std::process::id(), &from, &to)?;
                putln!("migrated {from} to {to}, {} stayed", counted(stayed, "page"));
            }
            ["policy"] => putln!("policy {}", own_policy()?),
            ["policy", rest @ ..] => mempolicy::set(&policy(&rest.join(" "))?)?,
            ["anon", name, size] => self.add(name, Segment::anonymous(bytes(size)?, false)?)?,
            ["anon", name, size, "shared"] => {
                self.add(name, Segment::anonymous(bytes(size)?, true)?)?;
            }
            ["shm", name, size] => self.add(name, Segment::system_v(bytes(size)?)?)?,
            ["file", name, path] => self.add(name, Segment::file(path, 0, None)?)?,
            ["file", name, path, offset, size] => {
                self.add(name, Segment::file(path, bytes(offset)? as u64, Some(bytes(size)?))?)?;
            }
            ["remove", name] => {
                let gone = self.segments.remove(*name);
                gone.with_context(|| format!("there is no segment {name}"))?;
            }
            [command, name, rest @ ..] => self.about(command, name, rest)?,
            [other] => bail!("'{other}' is no command, or lacks its words; 'help' lists them"),
        }
        Ok(true)
    }

    fn add(&mut self, name: &str, segment: Segment) -> Result<()> {
        if self.segments.contains_key(name) {
            bail!("there is a segment {name} already");
        }
        // so that it is not taken for a size, or a list of nodes
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || name == "all" {
            bail!("'{name}' is no name: it begins with a letter, and is not 'all'");
        }
        putln!("{name}: {segment}");
        self.segments.insert(name.to_string(), segment);
        Ok(())
    }

    fn nodes(&self, list: &str) -> Result<NodeSet> {
        Ok(Lists::new(&self.universes, drop_in::device).nodes(list)?)
    }

    /// Commands about a part of a segment.
    fn about(&mut self, command: &str, name: &str, rest: &[&str]) -> Result<()> {
        let known = ["bind", "mbind", "home", "touch", "lock", "unlock", "migrate", "where"];
        if !known.contains(&command) {
            bail!("'{command}' is no command, or its words are wrong; 'help' lists them");
        }
        let nodes = |list: &str| Lists::new(&self.universes, drop_in::device).nodes(list);
        let segment = self.segments.get_mut(name);
        let segment = segment.with_context(|| format!("there is no segment {name}"))?;
        let (part, rest) = part(segment.len(), rest)?;
        match (command, rest) {
            ("bind" | "mbind", [_, ..]) => {
                let text = rest.join(" ");
                let (text, moves) = match text.strip_suffix("+move") {
                    Some(text) => (text.trim_end(), true),
                    None => (text.as_str(), false),
                };
                segment.bind(part, &policy(text)?, moves)
            }
            ("home", [node]) => {
                let home = one(&nodes(node)?)?;
                segment.set_home(part, home)
            }
            ("migrate", [node]) => {
                let node = one(&nodes(node)?)?;
                let (moved, stayed) = segment.migrate(part, node)?;
                let moved = counted(moved, "page");
                putln!("migrated {name} to node {node}: {moved} moved, {stayed} stayed");
                Ok(())
            }
            ("touch", []) => {
                segment.touch(part, Touch::Write);
                Ok(())
            }
            ("touch", ["read"]) => {
                segment.touch(part, Touch::Read);
                Ok(())
            }
            ("touch", ["write"]) => {
                segment.touch(part, Touch::Write);
                Ok(())
            }
            ("lock", []) => segment.lock(part, true),
            ("unlock", []) => segment.lock(part, false),
            ("where", []) => {
                put!("{}", segment.whereabouts(part)?);
                Ok(())
            }
            _ => bail!("'{command}' has the wrong words; 'help' lists them"),
        }
    }
}

fn one(nodes: &NodeSet) -> Result<NodeId> {
    nodes.first().filter(|_| nodes.len() == 1).context("one node is wanted")
}

/// `OFFSET LEN` at the beginning, if there; else the whole.
fn part<'w>(len: usize, words: &'w [&'w str]) -> Result<(Range<usize>, &'w [&'w str])> {
    let is_size = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    match words {
        [offset, length, rest @ ..] if is_size(offset) && is_size(length) => {
            let (offset, length) = (bytes(offset)?, bytes(length)?);
            let end = offset.checked_add(length).filter(|end| *end <= len);
            let end = end.with_context(|| format!("it has {len} bytes only"))?;
            Ok((offset..end, rest))
        }
        rest => Ok((0..len, rest)),
    }
}

/// Bytes, with k, m or g, or p for pages.
pub fn bytes(text: &str) -> Result<usize> {
    let page = numaherd_linux::sys::pages::size().0 as usize;
    let (digits, unit) = match text.as_bytes().last().map(u8::to_ascii_lowercase) {
        Some(b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g') => (&text[..text.len() - 1], 1 << 30),
        Some(b'p') => (&text[..text.len() - 1], page),
        _ => (text, 1),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    bytes.with_context(|| format!("'{text}' is no size such as 4096, 16p or 2m"))
}

/// A policy in the kernel's words, with `balancing` among its flags too.
fn policy(text: &str) -> Result<Request> {
    Ok(kernel_text::parse_map(text.strip_prefix("mpol=").unwrap_or(text))?)
}

fn own_policy() -> Result<String> {
    let told = mempolicy::get()?;
    let mode = told.mode().map_or("[unknown]", Mode::kernel_word);
    let flags = told.flags();
    let flags = if flags == Flags::NONE { String::new() } else { format!("={flags}") };
    let nodes = if told.nodes.is_empty() { String::new() } else { format!(":{}", told.nodes) };
    Ok(format!("{mode}{flags}{nodes}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toy() -> Toy {
        Toy { universes: drop_in::here().unwrap().1, segments: BTreeMap::new() }
    }

    #[test]
    fn a_session_maps_binds_touches_and_tells_where() {
        let mut toy = toy();
        let node = mempolicy::allowed().unwrap().first().unwrap();
        let bind = format!("bind a 4p 4p bind:{node}");
        for line in
            ["anon a 64p", "", "# nothing", &bind, "touch a 0 8p", "lock a 0 1p", "unlock a 0 1p"]
        {
            assert!(toy.line(line).unwrap(), "{line}");
        }
        // there already, and nothing of it is elsewhere
        assert_eq!(toy.segments["a"].migrate(0..64 * 4096, node).unwrap(), (0, 0));
        let told = toy.segments["a"].whereabouts(0..64 * 4096).unwrap();
        assert!(told.contains(&format!("{:>8} pages on node {node}", 8)), "{told}");
        assert!(told.contains("56 pages absent"), "{told}");
        assert!(told.contains(&format!("pages 4-7: bind:{node}")), "{told}");
        assert!(!toy.line("quit").unwrap());
    }

    #[test]
    fn what_is_wrong_is_told_and_the_session_goes_on() {
        let mut toy = toy();
        toy.line("anon a 4p").unwrap();
        for (line, problem) in [
            ("anon a 4p", "there is a segment a already"),
            ("anon 1 4p", "begins with a letter"),
            ("touch b", "there is no segment b"),
            ("migrate b 0", "neither a segment nor a list of nodes"),
            ("migrate a 0-9", "out of range"),
            ("migrate a", "wrong words"),
            ("touch a 2p 8p", "it has 16384 bytes only"),
            ("bind a nonsense:0", "no mode"),
            ("bind a bind", "Invalid argument"),
            ("frobnicate", "no command"),
            ("frobnicate a", "no command"),
            ("anon b x", "no size"),
            ("where a what", "wrong words"),
        ] {
            let error = format!("{:#}", toy.line(line).unwrap_err());
            assert!(error.contains(problem), "{line}: {error}");
        }
    }
}
