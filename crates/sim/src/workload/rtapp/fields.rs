//! Fields of rt-app's files: what is there, or what was expected, at its line.

use std::ops::RangeInclusive;

use numaherd_model::{CpuId, CpuSet, Nanos};

use super::json::{Fault, Key, Node, Value};

/// Those of an object, in their order.
pub(super) type Fields<'n, 't> = &'n [(Key, Node<'t>)];

/// A whole number as rt-app reads it.
pub(super) const INT: RangeInclusive<i64> = 0..=i32::MAX as i64;

/// CPUs are numbered up to here, as many as the simulator can number.
const MOST_CPUS: i64 = 1 << 16;

/// What was expected of a field, and what is there.
pub(super) fn wrong<T>(
    node: &Node<'_>,
    field: &str,
    expected: impl AsRef<str>,
) -> Result<T, Fault> {
    let expected = format!("{field}: {}, found {}", expected.as_ref(), node.found());
    Err(Fault { line: node.line, expected })
}

pub(super) fn missing<T>(node: &Node<'_>, field: &str) -> Result<T, Fault> {
    Err(Fault { line: node.line, expected: format!("{field}, which is missing") })
}

pub(super) fn fields<'n, 't>(node: &'n Node<'t>, field: &str) -> Result<Fields<'n, 't>, Fault> {
    match &node.value {
        Value::Object(all) => Ok(all),
        _ => wrong(node, field, "an object"),
    }
}

pub(super) fn list<'n, 't>(node: &'n Node<'t>, field: &str) -> Result<&'n [Node<'t>], Fault> {
    match &node.value {
        Value::List(all) => Ok(all),
        _ => wrong(node, field, "a list"),
    }
}

/// The one of that name, if it is there.
pub(super) fn find<'n, 't>(all: Fields<'n, 't>, name: &str) -> Option<&'n Node<'t>> {
    all.iter().find(|(key, _)| key.name == name).map(|(_, node)| node)
}

/// Nothing but what is known, each of it once.
pub(super) fn only(all: Fields<'_, '_>, field: &str, known: &[&str]) -> Result<(), Fault> {
    for (i, (key, _)) in all.iter().enumerate() {
        if !known.contains(&key.name.as_str()) {
            return Err(unknown(key, field, known));
        }
        once(&all[..i], key, field)?;
    }
    Ok(())
}

pub(super) fn unknown(key: &Key, field: &str, known: &[&str]) -> Fault {
    let expected = format!("{field}: one of {}, found {:?}", known.join(", "), key.name);
    Fault { line: key.line, expected }
}

/// A key that none of those before it is.
pub(super) fn once(before: Fields<'_, '_>, key: &Key, field: &str) -> Result<(), Fault> {
    match before.iter().find(|(other, _)| other.name == key.name) {
        None => Ok(()),
        Some((other, _)) => {
            let expected =
                format!("{field}.{}: once, found it on line {}, too", key.name, other.line);
            Err(Fault { line: key.line, expected })
        }
    }
}

pub(super) fn integer(node: &Node<'_>, field: &str, of: RangeInclusive<i64>) -> Result<u32, Fault> {
    let number = match node.value {
        Value::Number(number) => number.parse::<i64>().ok(),
        _ => None,
    };
    // All that is asked for fits in 32 bits.
    let number = number.filter(|number| of.contains(number)).map(u32::try_from);
    let Some(Ok(number)) = number else {
        let expected = format!("a whole number, {} to {}", of.start(), of.end());
        return wrong(node, field, expected);
    };
    Ok(number)
}

pub(super) fn number(node: &Node<'_>, field: &str, of: RangeInclusive<f64>) -> Result<f64, Fault> {
    let number = match node.value {
        Value::Number(number) => number.parse::<f64>().ok(),
        _ => None,
    };
    let number = number.filter(|number| of.contains(number));
    number
        .map_or_else(|| wrong(node, field, format!("a number, {} to {}", of.start(), of.end())), Ok)
}

pub(super) fn yes_or_no(node: &Node<'_>, field: &str) -> Result<bool, Fault> {
    match node.value {
        Value::Bool(told) => Ok(told),
        _ => wrong(node, field, "true or false"),
    }
}

pub(super) fn text<'n>(node: &'n Node<'_>, field: &str) -> Result<&'n str, Fault> {
    match &node.value {
        Value::Text(text) => Ok(text),
        _ => wrong(node, field, "text in quotes"),
    }
}

pub(super) fn microseconds(node: &Node<'_>, field: &str) -> Result<Nanos, Fault> {
    Ok(Nanos(u64::from(integer(node, field, INT)?) * 1000))
}

/// How often: -1 is for ever.
pub(super) fn loops(node: &Node<'_>, field: &str) -> Result<Option<u32>, Fault> {
    if matches!(node.value, Value::Number("-1")) {
        return Ok(None);
    }
    integer(node, field, 1..=*INT.end())
        .map(Some)
        .or_else(|_| wrong(node, field, format!("a whole number, 1 to {}, or -1", INT.end())))
}

pub(super) fn cpus(node: &Node<'_>, field: &str) -> Result<CpuSet, Fault> {
    let all = list(node, field)?;
    if all.is_empty() {
        return wrong(node, field, "CPUs' numbers");
    }
    all.iter().map(|cpu| Ok(CpuId(integer(cpu, field, 0..=MOST_CPUS - 1)?))).collect()
}

/// The only one that is simulated.
pub(super) fn policy(node: &Node<'_>, field: &str) -> Result<(), Fault> {
    match text(node, field)? {
        "SCHED_OTHER" => Ok(()),
        _ => wrong(node, field, "\"SCHED_OTHER\", the only policy that is simulated"),
    }
}
