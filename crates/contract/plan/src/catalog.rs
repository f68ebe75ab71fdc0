use flame_abi::manifest::Manifest;
use std::sync::Arc;

/// The modules whose records an output takes: their names and tables, without code or grants.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    pub modules: Vec<CatalogEntry>,
}

/// One module of a [`Catalog`].
#[derive(Clone, Debug)]
pub struct CatalogEntry {
    /// The name, which is unique within the plan.
    pub name: String,
    /// The SHA-256 of the `.wasm` file.
    pub hash: [u8; 32],
    pub manifest: Arc<Manifest>,
}
