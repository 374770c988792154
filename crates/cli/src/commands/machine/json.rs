//! A machine as `topology -o json` writes it, or what is wrong with such a file: at which line, which field, what was
//! expected.
//!
//! The JSON reader knows lines and no names; names are found by going over the text once more, which need not be sound
//! beyond the place that is looked for.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use numaherd_model::{Node, Topology};
use numaherd_sim::SimError;

/// Published: what Linux can be built for at the most (`MAX_NUMNODES`).
pub const MOST_NODES: usize = 1024;

/// Which of an object's or a list's values.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Nth(usize),
}

/// What `topology -o json` said.
pub fn told(path: &str, text: &str) -> Result<Topology> {
    if serde_json::from_str::<numaherd_report::Matrices>(text).is_ok() {
        bail!(
            "{path} is what topology --measure found, which does not say what the machine has: give what topology -o \
             json writes, or a machine file of both (topology --measured {path} -o toml)"
        );
    }
    let wrong = |(line, expected): (usize, String)| SimError::Parse {
        path: path.into(),
        line,
        expected: format!("{expected}: this is not what topology -o json writes"),
    };
    let topology = serde_json::from_str(text).map_err(|error| wrong(in_our_words(text, &error)))?;
    match problem(&topology) {
        None => Ok(topology),
        Some((at, expected)) => Err(wrong((line_of(text, &at), expected)).into()),
    }
}

/// What does not fit together, and where.
fn problem(topology: &Topology) -> Option<(Vec<Step>, String)> {
    let Topology { nodes, distances, latencies, .. } = topology;
    let place = |name: &str, at: &[usize], key: &str| {
        let steps = at.iter().map(|&nth| Step::Nth(nth));
        let mut steps: Vec<Step> = [Step::Key(name.into())].into_iter().chain(steps).collect();
        steps.extend((!key.is_empty()).then(|| Step::Key(key.into())));
        steps
    };
    if nodes.is_empty() || nodes.len() > MOST_NODES {
        let expected = format!("nodes: 1 to {MOST_NODES}, found {}", nodes.len());
        return Some((place("nodes", &[MOST_NODES], ""), expected));
    }
    if let Some(before) = nodes.windows(2).position(|two| two[0].id >= two[1].id) {
        let expected = format!("nodes.id: ascending ids, found {}", nodes[before + 1].id);
        return Some((place("nodes", &[before + 1], "id"), expected));
    }
    if let Some(node) = nodes.iter().position(|node| node.id.0 as usize >= MOST_NODES) {
        let expected = format!("nodes.id: less than {MOST_NODES}, found {}", nodes[node].id);
        return Some((place("nodes", &[node], "id"), expected));
    }
    let mut seen = BTreeSet::new();
    let doubled = |node: &Node| node.cpus.iter().any(|cpu| !seen.insert(cpu));
    if let Some(node) = nodes.iter().position(doubled) {
        let expected = format!("nodes.cpus: each CPU on one node, found {}", nodes[node].cpus);
        return Some((place("nodes", &[node], "cpus"), expected));
    }
    for (name, rows) in [("distances", distances), ("latencies", latencies)] {
        let row = rows.iter().position(|row| row.len() != nodes.len());
        if !rows.is_empty() && (rows.len() != nodes.len() || row.is_some()) {
            let at: Vec<usize> = row.into_iter().collect();
            let expected =
                format!("{name}: as many rows and columns as there are nodes, {}", nodes.len());
            return Some((place(name, &at, ""), expected));
        }
    }
    // Nodes that a kernel pretends to have (numa=fake) are 10 apart; 255 is that there is no way.
    let is_wrong = |a: usize, b: usize, distance: u32| match a == b {
        true => distance != 10,
        false => !(10..=255).contains(&distance),
    };
    distances.iter().enumerate().find_map(|(a, row)| {
        let b = (0..row.len()).find(|&b| is_wrong(a, b, row[b]))?;
        let expected =
            format!("distances: 10 on the diagonal, 10 to 255 elsewhere, found {}", row[b]);
        Some((place("distances", &[a, b], ""), expected))
    })
}

/// What the reader says, at its line.
fn in_our_words(text: &str, error: &serde_json::Error) -> (usize, String) {
    let said = error.to_string();
    let said = said.rsplit_once(" at line ").map_or(&*said, |(said, _)| said);
    let line = error.line().max(1);
    if !error.is_data() {
        return (line, format!("sound JSON, found that {said}"));
    }
    let before: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let end = before + error.column();
    let (mut last, mut closed) = (Vec::new(), (Vec::new(), 0));
    walk(text, &mut |event, steps| {
        match event {
            Event::Begins(at) if at < end => last = steps.to_vec(),
            Event::Ends { begun, at } if at < end => closed = (steps.to_vec(), begun),
            _ => return false,
        }
        true
    });
    if let Some(missing) = said.strip_prefix("missing field ") {
        let (table, begun) = closed;
        let table = named(&table);
        let dot = if table.is_empty() { "" } else { "." };
        let expected = format!("{table}{dot}{}, which is missing", missing.trim_matches('`'));
        return (line_at(text, begun), expected);
    }
    let field = match named(&last) {
        field if field.is_empty() => "an object".into(),
        field => field,
    };
    let of = |found: &str| {
        let kinds = ["invalid type: ", "invalid value: "];
        let found = kinds.iter().find_map(|kind| found.strip_prefix(kind)).unwrap_or(found);
        format!("found {found}")
    };
    let expected = match said.rsplit_once(", expected ") {
        Some((found, "u32" | "u64")) => {
            format!("{field}: a whole number, 0 or more, {}", of(found))
        }
        Some((found, expected)) => format!("{field}: {expected}, {}", of(found)),
        None => format!("{field}: {said}"),
    };
    (line, expected)
}

/// Its names, without which number in a list it is.
fn named(steps: &[Step]) -> String {
    let keys = steps.iter().filter_map(|step| match step {
        Step::Key(key) => Some(key.as_str()),
        Step::Nth(_) => None,
    });
    keys.collect::<Vec<_>>().join(".")
}

/// The line of a value, from 1, or of the last one that leads there.
fn line_of(text: &str, wanted: &[Step]) -> usize {
    let (mut depth, mut found) = (0, 0);
    walk(text, &mut |event, steps| {
        if let Event::Begins(at) = event
            && steps.len() > depth
            && wanted.starts_with(steps)
        {
            (depth, found) = (steps.len(), at);
        }
        depth < wanted.len()
    });
    line_at(text, found)
}

fn line_at(text: &str, byte: usize) -> usize {
    1 + text.as_bytes()[..byte.min(text.len())].iter().filter(|&&byte| byte == b'\n').count()
}

/// Where a text's values are, in bytes.
#[derive(Clone, Copy)]
enum Event {
    Begins(usize),
    /// A list or an object.
    Ends {
        begun: usize,
        at: usize,
    },
}

/// Goes over a text's values in order, as long as whoever looks wants more.
fn walk(text: &str, look: &mut dyn FnMut(Event, &[Step]) -> bool) {
    let bytes = text.as_bytes();
    let (mut steps, mut begun) = (Vec::<Step>::new(), Vec::new());
    let (mut at, mut is_key) = (0, false);
    while let Some(&byte) = bytes.get(at) {
        let goes_on = match byte {
            b' ' | b'\t' | b'\r' | b'\n' | b':' => true,
            b',' => {
                is_key = matches!(steps.last(), Some(Step::Key(_)));
                if let Some(Step::Nth(nth)) = steps.last_mut() {
                    *nth += 1;
                }
                true
            }
            b'{' | b'[' => {
                let goes_on = look(Event::Begins(at), &steps);
                is_key = byte == b'{';
                steps.push(if is_key { Step::Key(String::new()) } else { Step::Nth(0) });
                begun.push(at);
                goes_on
            }
            b'}' | b']' => {
                steps.pop();
                is_key = false;
                let begun = begun.pop().unwrap_or_default();
                look(Event::Ends { begun, at }, &steps)
            }
            _ => {
                let end = end_of(bytes, at);
                let goes_on = is_key || look(Event::Begins(at), &steps);
                if is_key && let Some(step) = steps.last_mut() {
                    let key = text.get(at..end).unwrap_or_default().trim_matches('"');
                    *step = Step::Key(key.into());
                    is_key = false;
                }
                at = end - 1;
                goes_on
            }
        };
        if !goes_on {
            return;
        }
        at += 1;
    }
}

/// Behind a text in quotes, a number or a word that begins there.
fn end_of(bytes: &[u8], start: usize) -> usize {
    if bytes[start] != b'"' {
        let is_end = |byte: &u8| b" \t\r\n,:]}".contains(byte);
        return bytes[start..]
            .iter()
            .position(is_end)
            .map_or(bytes.len(), |len| start + len.max(1));
    }
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{
  "nodes": [
    {"id": 0, "cpus": "0-1", "memory": 1048576, "free": 1},
    {
      "id": 2, "cpus": "2-3",
      "memory": 1048576,
      "free": 1
    }
  ],
  "distances": [
    [10, 20],
    [20,
     10]
  ]
}"#;

    #[test]
    fn a_wrong_machine_is_told_with_its_line_and_field() {
        assert_eq!(told("m.json", GOOD).unwrap().nodes.len(), 2);
        let wrong = [
            ("\"id\": 2", "\"id\": 0", 5, "nodes.id: ascending ids, found 0"),
            ("\"id\": 2", "\"id\": 4000000000", 5, "nodes.id: less than 1024, found 4000000000"),
            (
                "\"id\": 2",
                "\"id\": \"two\"",
                5,
                "nodes.id: a whole number, 0 or more, found string",
            ),
            ("2-3", "1-3", 5, "nodes.cpus: each CPU on one node, found 1-3"),
            ("2-3", "2-x", 5, "nodes.cpus: '2-x' is not a list of numbers"),
            (
                "1048576,\n",
                "-1,\n",
                6,
                "nodes.memory: a whole number, 0 or more, found integer `-1`",
            ),
            ("\"memory\": 1048576,\n", "", 4, "nodes.memory, which is missing"),
            ("\"nodes\"", "\"node\\u001b\"", 1, "nodes, which is missing"),
            ("    [10, 20],\n", "", 10, "distances: as many rows and columns"),
            ("    [10, 20],", "    [10],", 11, "distances: as many rows and columns"),
            ("20,\n     10]", "20,\n     11]", 13, "distances: 10 on the diagonal"),
            ("[20,\n", "[0,\n", 12, "distances: 10 on the diagonal, 10 to 255 elsewhere, found 0"),
            ("\"free\": 1\n    }", "\"free\": 1\n    ", 9, "sound JSON"),
        ];
        for (from, to, line, expected) in wrong {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let said = told("m.json", &text).unwrap_err().to_string();
            let start = format!("m.json:{line}: expected {expected}");
            assert!(said.starts_with(&start) && !said.contains('\n'), "{start}, not {said}");
        }
    }

    #[test]
    fn more_nodes_than_a_kernel_has_are_told_at_the_first_too_many() {
        let node = |id| format!("{{\"id\": {id}, \"cpus\": \"\", \"memory\": 1, \"free\": 1}}");
        let nodes: Vec<String> = (0..40_000).map(node).collect();
        let text = format!("{{\"distances\": [], \"nodes\": [\n{}]}}", nodes.join(",\n"));
        let said = told("m.json", &text).unwrap_err().to_string();
        assert!(said.starts_with("m.json:1026: expected nodes: 1 to 1024, found 40000"), "{said}");
    }

    #[test]
    fn what_was_cut_off_is_told_too() {
        for end in 0..GOOD.len() {
            let said = told("m.json", &GOOD[..end]).unwrap_err().to_string();
            assert!(said.starts_with("m.json:"), "{said}");
        }
    }
}
