//! Installed modules, their owners, and the proofs of these.

use flame_api::{Narrowing, Reservation, State};
use flame_compile::Cache;
use flame_plan::Audience;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The owner of modules: a principal of a root, or the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The root's public key as text, or empty for the operator.
    pub root: String,
    pub principal: String,
}

impl Owner {
    pub fn is_operator(&self) -> bool {
        self.root.is_empty()
    }

    /// Returns the principal to which limits apply: the holder that a root named, with all later holders of
    /// its credential.
    pub fn tenant(&self) -> String {
        let named = self.principal.split(['/', '#']).next().unwrap_or_default();
        format!("{} {named}", self.root)
    }

    /// Returns the owner's part of the cache.
    pub fn part_of(&self, cache: &Cache) -> Cache {
        match self.is_operator() {
            true => cache.clone(),
            false => cache.of(&self.tenant(), &format!("{} {}", self.root, self.principal)),
        }
    }

    /// Returns the principal's name, or `None` for the operator.
    pub fn shown(&self) -> Option<String> {
        (!self.is_operator()).then(|| self.principal.clone())
    }

    /// Returns the principal's name in a fleet. The operator has the empty name.
    pub fn fleet_name(&self) -> String {
        self.shown().map_or_else(String::new, |name| flame_trust::fleet_name(&self.root, &name))
    }

    /// Returns the reader of what concerns the owner's modules.
    pub fn audience(&self) -> Audience {
        if self.is_operator() { Audience::Operator } else { Audience::Holder }
    }
}

/// The credential of a module, and the answer of its holder for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    pub credential: String,
    pub challenge: [u8; 32],
    pub key: String,
    pub signature: [u8; 64],
}

/// An installed module, as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub owner: Owner,
    pub name: String,
    pub source: String,
    pub hash: [u8; 32],
    /// The text of the file of signatures.
    pub signatures: String,
    /// Shared, because modules are copied while they are locked.
    pub settings: Arc<BTreeMap<String, String>>,
    pub narrow: Vec<Narrowing>,
    pub proof: Option<Proof>,
    /// Its reservation while it runs.
    pub reserved: Reservation,
    pub state: State,
    pub reason: Option<String>,
    pub revision: u64,
    pub installed: u64,
}

impl Stored {
    /// Returns about the number of bytes of its row, which its owner chooses.
    pub fn row_bytes(&self) -> u64 {
        // As they are stored, in which a control character takes six bytes.
        let settings = serde_json::to_string(&*self.settings).map_or(0, |text| text.len());
        let proof = self.proof.as_ref().map_or(0, |proof| proof.credential.len());
        let narrow = serde_json::to_string(&self.narrow).map_or(0, |text| text.len());
        (self.signatures.len() + settings + proof + narrow) as u64
    }
}
