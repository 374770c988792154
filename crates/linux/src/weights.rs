//! Weights of weighted interleaving, `/sys/kernel/mm/mempolicy/weighted_interleave/nodeN`
//! (Linux 6.9). They are the whole machine's.

use std::path::{Path, PathBuf};

use numaherd_mempolicy::placing::Weights;
use numaherd_model::NodeId;

use crate::file;

const FOLDER: &str = "sys/kernel/mm/mempolicy/weighted_interleave";

/// Weights that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// Not a list of weights.
    #[error("'{text}' is no list of weights such as 0=3,1=1; a weight is 1 to 255")]
    Parse {
        /// The text.
        text: String,
    },
    /// The kernel has no weights, or not for this node.
    #[error("this kernel has no weight for node {node} (Linux 6.9 has them for nodes with memory)")]
    Missing {
        /// The node.
        node: NodeId,
    },
    /// The system refused.
    #[error("cannot write {}: {source}{}", path.display(), remedy(source))]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

fn remedy(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => " (run as root)",
        _ => "",
    }
}

/// A list such as `0=3,1=1`.
///
/// # Errors
/// It is none.
pub fn parse(text: &str) -> Result<Weights, WeightsError> {
    let pair = |part: &str| {
        let (node, weight) = part.split_once('=')?;
        let weight = weight.trim().parse::<u8>().ok().filter(|weight| *weight > 0)?;
        Some((NodeId(node.trim().parse().ok()?), weight))
    };
    let all: Option<Weights> = text.split(',').map(pair).collect();
    all.ok_or_else(|| WeightsError::Parse { text: text.to_string() })
}

/// The weights in force; empty where the kernel has none.
#[must_use]
pub fn read(root: &Path) -> Weights {
    let mut weights = Weights::new();
    for entry in std::fs::read_dir(root.join(FOLDER)).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let node = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok());
        let text = file::text_if_present(&entry.path()).ok().flatten();
        let weight = text.and_then(|text| text.trim().parse().ok());
        weights.extend(node.map(NodeId).zip(weight));
    }
    weights
}

/// Writes weights; returns those before. Nothing is written if a node has none.
///
/// # Errors
/// A node has no weight, or the system refuses (it takes root).
pub fn write(root: &Path, wanted: &Weights) -> Result<Weights, WeightsError> {
    let before = read(root);
    if let Some((node, _)) = wanted.iter().find(|(node, _)| !before.contains_key(node)) {
        return Err(WeightsError::Missing { node: *node });
    }
    for (node, weight) in wanted {
        let path = file(root, *node);
        if let Err(source) = std::fs::write(&path, weight.to_string()) {
            put_back(root, wanted, &before);
            return Err(WeightsError::Write { path, source });
        }
    }
    Ok(before)
}

/// Writes the weights from before where those wanted are still there.
pub fn put_back(root: &Path, wanted: &Weights, before: &Weights) {
    let now = read(root);
    for (node, weight) in wanted.iter().filter(|(node, weight)| now.get(node) == Some(weight)) {
        // Nobody can do more about what is refused now.
        _ = before
            .get(node)
            .filter(|was| *was != weight)
            .map(|was| std::fs::write(file(root, *node), was.to_string()));
    }
}

fn file(root: &Path, node: NodeId) -> PathBuf {
    root.join(FOLDER).join(format!("node{node}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_write_is_told_who_may() {
        let path = PathBuf::from("/sys/node0");
        let error =
            WeightsError::Write { path, source: std::io::ErrorKind::PermissionDenied.into() };
        assert_eq!(error.to_string(), "cannot write /sys/node0: permission denied (run as root)");
    }

    #[test]
    fn weights_are_written_and_read_back() {
        let root = tempfile::tempdir().unwrap();
        assert!(read(root.path()).is_empty());
        let folder = root.path().join(FOLDER);
        std::fs::create_dir_all(&folder).unwrap();
        for node in ["node0", "node1"] {
            std::fs::write(folder.join(node), "1\n").unwrap();
        }
        let before = write(root.path(), &parse("1=4").unwrap()).unwrap();
        assert_eq!(before[&NodeId(1)], 1);
        assert_eq!(read(root.path()), parse("0=1,1=4").unwrap());
        let error = write(root.path(), &parse("0=2,7=4").unwrap()).unwrap_err();
        assert!(error.to_string().contains("no weight for node 7"));
        assert_eq!(read(root.path())[&NodeId(0)], 1, "nothing is written");
        for text in ["", "0", "0=0", "0=256", "x=1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
