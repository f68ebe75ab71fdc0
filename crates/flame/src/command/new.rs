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
    #[arg(long, default_value = "rust", conflicts_with = "from")]
    lang: Language,

    /// Copy an example of the SDK, whose name is EXAMPLE; an unknown name lists them
    #[arg(long, value_name = "EXAMPLE")]
    from: Option<String>,
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
        let fill = |text: &str| text.replace("{{name}}", &name).replace("{{version}}", paths::SDK_VERSION);
        let filled = |(file, text): &(&str, &str)| (PathBuf::from(file), fill(text));
        let mut files = match (&self.from, self.lang) {
            (Some(example), _) => copy(&example_at(Path::new(sdk), example)?, (example, &name))?,
            (None, Language::Rust) => RUST.iter().map(filled).collect(),
            (None, Language::C) => C.iter().map(filled).collect(),
        };
        if files.iter().any(|(file, _)| file.as_os_str() == "Cargo.toml") {
            // For cargo alone, as in `cargo test`. It holds for this machine.
            let config = format!("[patch.crates-io]\nflame-module.path = {:?}\n", format!("{sdk}/rust"));
            files.push((PathBuf::from(".cargo/config.toml"), config));
            files.push((PathBuf::from(".gitignore"), "/.cargo/config.toml\n/target\n".to_owned()));
        }
        // The rules for manifests decide whether the name is valid.
        let manifest = files.iter().find(|(file, _)| file.as_os_str() == MANIFEST);
        if manifest.is_none_or(|(_, text)| flame_abi::manifest::Manifest::parse(text.as_bytes()).is_err()) {
            let place = self.path.display();
            return Err(format!(
                "{place}: the folder's name becomes the module's: expected a lower-case letter, then lower-case \
                 letters, digits, _ or -, at most 32, for example `flame new my-module`"
            )
            .into());
        }
        if self.path.exists() {
            return Err(format!("{}: already exists", self.path.display()).into());
        }
        for (file, text) in &files {
            write(&self.path.join(file), text)?;
        }
        // Without a slash at the end.
        let place: PathBuf = self.path.components().collect();
        let place = place.display();
        say!("made {place}; next: flame build {place} && flame run {place}/{name}.wasm -r FILE");
        Ok(Status::Done)
    }
}

const MANIFEST: &str = "module.toml";
const RUST: [(&str, &str); 3] = [
    (MANIFEST, include_str!("../template/module.toml")),
    ("Cargo.toml", include_str!("../template/Cargo.toml.in")),
    ("src/lib.rs", include_str!("../template/lib.rs.in")),
];
const C: [(&str, &str); 2] = [
    (MANIFEST, include_str!("../template/module.toml")),
    ("module.c", include_str!("../template/module.c.in")),
];

/// Returns the folder of an example of the SDK.
fn example_at(sdk: &Path, example: &str) -> Result<PathBuf, Error> {
    let folders = ["rust/examples", "c/examples"].map(|folder| sdk.join(folder));
    let all = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let mut all: Vec<PathBuf> = all.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    all.sort();
    let name =
        |path: &PathBuf| path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    all.iter().find(|path| name(path) == example).cloned().ok_or_else(|| {
        let names: Vec<_> = all.iter().map(name).collect();
        format!("--from {example}: there is no such example; here are {}", names.join(", ")).into()
    })
}

/// Returns the files of an example under a new name.
fn copy(folder: &Path, (example, name): (&str, &str)) -> Result<Vec<(PathBuf, String)>, Error> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(&inner).map_err(|e| format!("{}: {e}", inner.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let file = path.strip_prefix(folder)?.to_owned();
            let text = match file.to_str() {
                Some("Cargo.toml") => {
                    let named = text.replace(&format!("flame-example-{example}"), name);
                    // The example is a member of the SDK's workspace, and its copy of none.
                    let version = format!("\"{}\"", paths::SDK_VERSION);
                    named.replace("{ path = \"../..\" }", &version) + "\n[workspace]\n"
                }
                Some(MANIFEST) => text.replacen(&format!("\"{example}\""), &format!("\"{name}\""), 1),
                _ => text,
            };
            files.push((file, text));
        }
    }
    Ok(files)
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    made.map_err(|e| format!("{}: {e}", path.display()).into())
}
