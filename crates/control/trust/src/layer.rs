//! Rights with their origins.

use crate::field::Field;
use crate::rights::Rights;
use std::fmt;

/// The place where a field was stated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The node's policy, with the number of the line.
    Policy { line: usize },
    /// A block of the credential. Block 0 is the root's.
    Block(usize),
    /// The manifest of the module.
    Manifest,
    /// The command line.
    Command,
    /// No statement: the default of a node.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy { line } => write!(f, "policy, line {line}"),
            Self::Block(0) => f.write_str("credential, block 0 (the root's)"),
            Self::Block(n) => write!(f, "credential, block {n}"),
            Self::Manifest => f.write_str("the module's manifest"),
            Self::Command => f.write_str("the command line"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A field as it is stated in one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    pub origin: Origin,
    pub field: Field,
    pub value: String,
    /// The meaning of the value.
    pub rights: Rights,
}

impl Layer {
    /// Reads the value of a field as its origin may state it: filters of the policy and of roots are
    /// trusted ones.
    ///
    /// # Errors
    ///
    /// Returns the reason why the value is invalid.
    pub fn new(origin: Origin, field: Field, value: String) -> Result<Self, String> {
        let trusted = matches!(origin, Origin::Policy { .. } | Origin::Default | Origin::Block(0));
        let rights = if trusted { field.trusted_rights(&value)? } else { field.rights(&value)? };
        Ok(Self { origin, field, value, rights })
    }
}

/// Returns the meet of all layers.
pub fn meet(layers: &[Layer]) -> Rights {
    layers.iter().fold(Rights::all(), |all, layer| all.meet(layer.rights.clone()))
}

/// Returns the origins without which a field would be wider, in order. Origins that repeat earlier statements
/// are left out.
pub fn decided(layers: &[Layer], field: Field) -> Vec<Origin> {
    let mut so_far = Rights::all();
    let mut origins = Vec::new();
    for layer in layers.iter().filter(|l| l.field == field) {
        let next = so_far.clone().meet(layer.rights.clone());
        if next != so_far {
            origins.push(layer.origin.clone());
        }
        so_far = next;
    }
    origins
}
