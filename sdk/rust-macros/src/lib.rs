//! Implements `flame_module::manifest!`: the tables and parameters of `module.toml` as Rust types.
//!
//! The macro reads the manifest with the host's own parser, so a host accepts each manifest that compiles.
//! It generates text and parses it, without syn and quote, which would delay the first build of
//! every module.
#![forbid(unsafe_code)]

mod generate;
mod names;

use flame_abi::manifest::Manifest;
use proc_macro::TokenStream;
use std::path::{Path, PathBuf};

/// Generates a struct for each table of `module.toml` and a struct `Params` for its parameters. See
/// `flame_module::manifest`.
#[proc_macro]
pub fn manifest(input: TokenStream) -> TokenStream {
    let text = path(&input.to_string()).and_then(|path| expand(&path)).unwrap_or_else(|reason| {
        // The debug output of a string is a string literal.
        format!("::core::compile_error!({reason:?});")
    });
    text.parse().unwrap_or_else(|e| {
        let reason = format!("flame_module::manifest! made what is no Rust: {e}");
        format!("::core::compile_error!({reason:?});").parse().unwrap_or_default()
    })
}

/// Returns the path of the manifest: the argument of the macro, relative to the folder of `Cargo.toml`.
fn path(input: &str) -> Result<PathBuf, String> {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("manifest!: cargo names no package folder")?;
    let file = match input.trim() {
        "" => "module.toml",
        quoted => quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"')).ok_or_else(|| {
            format!("manifest!: expected nothing or the manifest's file as \"module.toml\", found {quoted}")
        })?,
    };
    Ok(Path::new(&folder).join(file))
}

fn expand(path: &Path) -> Result<String, String> {
    let name = path.display().to_string();
    let text = std::fs::read(path).map_err(|e| format!("{name}: {e}"))?;
    let manifest = Manifest::parse(&text).map_err(|e| format!("{name}: {e}"))?;
    let items = generate::items(&manifest).map_err(|e| format!("{name}: {e}"))?;
    // Cargo rebuilds the crate when the manifest changes, because the code includes the file.
    Ok(format!("{items}\nconst _: &[::core::primitive::u8] = ::core::include_bytes!({name:?});"))
}
