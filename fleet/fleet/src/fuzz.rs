//! What fuzz targets call, and tests of theirs: `fleet/fuzz`.

use crate::world::{GROUPS, HEADERS, Hidden, World};
use datafusion::prelude::SessionContext;

/// What is hidden in the second archive.
const OTHER: Hidden = Hidden {
    src: "10.8.8.8",
    dport: 7,
    bytes: 1_000_000,
    host: "nothing",
    own: "a text",
    key: 77,
    unshown: "never",
};

/// Two archives that differ in what a holder does not see, and in nothing else.
pub struct Twins {
    pub(crate) worlds: [World; 2],
    sessions: [SessionContext; 2],
}

impl Twins {
    /// Makes both, and a session of the holder in each.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it makes files")]
    pub fn new() -> Self {
        let world = World::new();
        let worlds = [world.twin(&OTHER), world];
        let sessions = worlds.each_ref().map(|world| world.session(HEADERS, GROUPS, &[]));
        Self { worlds, sessions }
    }

    /// Returns the answers to a statement, or its errors, with lines in order.
    pub fn answers(&self, sql: &str) -> [Result<String, String>; 2] {
        [0, 1].map(|n| answer(&self.worlds[n], &self.sessions[n], sql))
    }
}

/// Returns an answer with its lines in order: the order of rows is not promised. An error has no proposal of
/// another name, which is of several that are as near, by chance.
pub(crate) fn answer(world: &World, context: &SessionContext, sql: &str) -> Result<String, String> {
    let plain = |e: String| e.split("\nDid you mean").next().unwrap_or_default().to_owned();
    let mut lines: Vec<String> =
        world.query(context, sql).map_err(plain)?.lines().map(str::to_owned).collect();
    lines.sort();
    Ok(lines.join("\n"))
}
