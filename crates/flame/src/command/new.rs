use crate::console::say;
use crate::error::Error;
use crate::exit::Status;
use crate::paths;
use clap::{Args, ValueEnum};
use std::fs;
use std::path::{Path, PathBuf};

/// Create a module: a folder that builds, runs and tests
#[derive(Args)]
pub struct New {
    /// Folder to create; its name is the module's name
    path: PathBuf,

    /// Language of the module
    #[arg(long, default_value = "rust")]
    lang: Language,
}

#[derive(Clone, Copy, ValueEnum)]
enum Language {
    Rust,
    C,
}

impl New {
    pub fn run(self) -> Result<Status, Error> {
        let name = self.path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let sdk = paths::sdk()?;
        let sdk = sdk.to_str().ok_or("the SDK's path is not UTF-8")?;
        let fill = |text: &str| text.replace("{{name}}", &name).replace("{{sdk}}", sdk);
        let manifest = fill(include_str!("../template/module.toml"));
        // The rules for manifests decide whether the name is valid.
        if flame_abi::manifest::Manifest::parse(manifest.as_bytes()).is_err() {
            let place = self.path.display();
            return Err(format!(
                "{place}: the folder's name becomes the module's: expected a lower-case letter, then lower-case \
                 letters, digits, _ or -, at most 32, for example `flame new my-module`"
            )
            .into());
        }
        let files: &[(&str, &str)] = match self.lang {
            Language::Rust => &[
                ("Cargo.toml", include_str!("../template/Cargo.toml.in")),
                ("src/lib.rs", include_str!("../template/lib.rs.in")),
            ],
            Language::C => &[("module.c", include_str!("../template/module.c.in"))],
        };
        if self.path.exists() {
            return Err(format!("{}: already exists", self.path.display()).into());
        }
        write(&self.path, "module.toml", &manifest)?;
        for (file, text) in files {
            write(&self.path, file, &fill(text))?;
        }
        // Without a slash at the end.
        let place: PathBuf = self.path.components().collect();
        let place = place.display();
        say!("made {place}; next: flame build {place} && flame run {place}/{name}.wasm -r FILE");
        Ok(Status::Done)
    }
}

fn write(folder: &Path, file: &str, text: &str) -> Result<(), Error> {
    let path = folder.join(file);
    let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
    made.map_err(|e| format!("{}: {e}", path.display()).into())
}
