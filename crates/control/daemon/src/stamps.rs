//! The times of changes of a policy's files, by which others than those that were read are noticed.

use flame_node::Node;
use std::path::Path;
use std::time::SystemTime;

/// The time of a file's last change, and its size; `None` if it cannot be looked at.
pub(crate) type Stamp = Option<(SystemTime, u64)>;

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Returns the stamps of the files of a policy.
pub(crate) fn stamps(node: &Node) -> Vec<Stamp> {
    node.files().into_iter().map(stamp).collect()
}
