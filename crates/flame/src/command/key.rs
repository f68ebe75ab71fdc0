use crate::console::say;
use crate::error::Error;
use crate::exit::Status;
use crate::files::read;
use crate::paths;
use clap::{Args, Subcommand};
use flame_trust::{PublicKey, Secret, sign_module};
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// Create and show keys, sign modules
#[derive(Args)]
pub struct Key {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Create a secret key (Ed25519, PEM) and print its public key
    New {
        /// File to create, readable by its owner only; it must not exist
        file: PathBuf,
    },
    /// Print the public key of a secret key
    Show { file: PathBuf },
    /// Sign a module by adding a line to MODULE.wasm.sig
    Sign {
        /// A module by name or path
        module: String,
        /// The signer's secret key
        #[arg(short, long, value_name = "FILE")]
        key: PathBuf,
    },
}

impl Key {
    pub fn run(self) -> Result<Status, Error> {
        match self.what {
            What::New { file } => {
                let secret = Secret::generate();
                secret.write_new(&file)?;
                show(&secret.public());
            }
            What::Show { file } => show(&Secret::from_file(&file)?.public()),
            What::Sign { module, key } => {
                let secret = Secret::from_file(&key)?;
                let path = paths::module(&module)?;
                let hash = Sha256::digest(read(&path)?).into();
                let file = sign_module(&path, &hash, &secret)?;
                say!("{}: signed by {}", file.display(), secret.public());
            }
        }
        Ok(Status::Done)
    }
}

fn show(key: &PublicKey) {
    say!("{key}");
}
