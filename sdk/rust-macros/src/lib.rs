//! `flame_module::manifest!`: the tables and parameters of `module.toml` as Rust types.
//!
//! The macro reads the manifest by the host's own parser, so that what compiles is what a host accepts. It
//! makes text and parses it: neither syn nor quote is needed, which every first build of a module would wait
//! for.
#![forbid(unsafe_code)]

mod generate;
mod names;

use flame_abi::manifest::Manifest;
use proc_macro::TokenStream;
use std::path::{Path, PathBuf};

/// Makes a struct for each table of `module.toml` and one, `Params`, for its parameters. See
/// `flame_module::manifest`.
#[proc_macro]
pub fn manifest(input: TokenStream) -> TokenStream {
    let text = path(&input.to_string()).and_then(|path| expand(&path)).unwrap_or_else(|reason| {
        // Debug output of a string is a string literal.
        format!("::core::compile_error!({reason:?});")
    });
    text.parse().unwrap_or_else(|e| {
        let reason = format!("flame_module::manifest! made what is no Rust: {e}");
        format!("::core::compile_error!({reason:?});").parse().unwrap_or_default()
    })
}

/// The manifest's file: what the macro was given, from the folder of `Cargo.toml` on.
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
    // Cargo builds again when the manifest changes, since the code includes it.
    Ok(format!("{items}\nconst _: &[::core::primitive::u8] = ::core::include_bytes!({name:?});"))
}
