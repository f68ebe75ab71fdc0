//! The chain of a credential: what its blocks state, with each filter bound to the packets as its author saw
//! them.

use crate::credential::{Block, Signer};
use crate::denied::Denied;
use crate::key::{PublicKey, Secret};
use crate::layer::{Layer, meet};
use crate::policy::Role;
use crate::rights::{Rights, Sampled, Staged};
use flame_plan::{Action, Seen, ShownFilter, Stage, ViewKey};

impl Staged {
    /// Binds a filter to the packets as a credential with these rights shows them to `author`.
    pub(crate) fn new(filter: ShownFilter, rights: &Rights, author: &str) -> Self {
        let is_keyed = |action: &Action| matches!(action, Action::Prefix | Action::Hash);
        let author = if rights.transforms.values().any(is_keyed) { author } else { "" };
        Self {
            filter,
            expose: rights.expose,
            transforms: rights.transforms.clone(),
            resolution_ns: rights.resolution_ns,
            author: author.to_owned(),
        }
    }

    /// Returns the stage of a view on the node that has this key.
    pub(crate) fn stage(&self, secret: &Secret) -> Stage {
        let Self { filter, expose, transforms, resolution_ns, author } = self.clone();
        let key = Some(view_key(secret, &author));
        Stage { filter, seen: Seen { expose, transforms, resolution_ns, key } }
    }
}

/// Returns the statements of each block of a credential with this role. The filters of the root's block are
/// evaluated on the true packet. Those of a later one become [stages](Staged): its author saw the packets as
/// the blocks before it show them, under the key of the principal that these name. Sampling decides on
/// packets as policy and root show them.
///
/// # Errors
///
/// Returns an error if a cosigner filters by what may be changed before: it cannot know the pseudonyms of
/// others, so its filter would name another host than it means.
pub(crate) fn stages(role: &Role, blocks: &[Block], root: &PublicKey) -> Result<Vec<Vec<Layer>>, Denied> {
    let mut rights = meet(&role.fields);
    let mut holder: Option<PublicKey> = None;
    let mut all = Vec::new();
    for (n, block) in blocks.iter().enumerate() {
        let author = format!("{root} {}", principal_path(&blocks[..n]));
        let is_cosigner = matches!(block.signer, Signer::Key(key) if Some(key) != holder);
        let mut layers = block.fields.clone();
        for layer in &mut layers {
            for filter in std::mem::take(&mut layer.rights.select_shown) {
                let changed = filter.reads().changed(&rights.transforms, rights.resolution_ns);
                if let Some(by) = changed.filter(|_| is_cosigner) {
                    return Err(Denied::Pseudonym { block: n, filter: filter.to_string(), by });
                }
                layer.rights.stages.insert(Staged::new(filter, &rights, &author));
            }
        }
        rights = layers.iter().fold(rights, |all, layer| all.meet(layer.rights.clone()));
        if let (0, Some(layer)) = (n, layers.first_mut()) {
            layer.rights.sampled.insert(Sampled::new(&rights));
        }
        holder = block.holder.or(holder);
        all.push(layers);
    }
    Ok(all)
}

/// Returns the key for transforms of a principal, who is named with the root.
pub(crate) fn view_key(secret: &Secret, whom: &str) -> ViewKey {
    ViewKey(secret.derive("view key", whom.as_bytes()))
}

/// Returns the principals of a credential's blocks. Names contain no slash, so different principals have
/// different paths.
pub(crate) fn principal_path(blocks: &[Block]) -> String {
    blocks.iter().filter_map(|b| b.principal.as_deref()).collect::<Vec<_>>().join("/")
}
