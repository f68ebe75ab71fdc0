use crate::caller::machine_policy;
use crate::command::explain::fields;
use crate::console::{complain, say, say_json};
use crate::error::Error;
use crate::exit::Status;
use crate::files::read_module;
use crate::format::OutputFormat;
use crate::grant_args::Fields;
use crate::mint_checks;
use crate::trust_args::{TrustArgs, credential, place, signers, told};
use clap::{Args, Subcommand};
use flame_trust::{Credential, Event, Mint, Narrow, Policy, PublicKey, Revoked, Secret, Signer};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Create, narrow, sign, inspect, verify and revoke credentials
#[derive(Args)]
pub struct Grant {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Create a credential, signed with a root key of the node's policy
    Mint {
        /// The root's secret key
        #[arg(short, long, value_name = "FILE")]
        key: PathBuf,
        /// Principal for whom the credential is made
        #[arg(long, value_name = "NAME")]
        to: String,
        /// Role in the policy; it limits what the credential can give
        #[arg(long, value_name = "ROLE")]
        role: String,
        /// Policy of the node for which it is minted: role, root and times are checked against it [default:
        /// this machine's, if it has one]
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        #[command(flatten)]
        more: More,
    },
    /// Narrow a credential; --holder and --to hand it on
    Narrow {
        /// File of the credential
        credential: PathBuf,
        /// Principal to whom it is handed on
        #[arg(long, value_name = "NAME")]
        to: Option<String>,
        /// Key of its present holder, needed to hand on a credential that is bound to a key
        #[arg(long, value_name = "FILE")]
        identity: Option<PathBuf>,
        #[command(flatten)]
        more: More,
    },
    /// Add a second signature, which a policy may require
    Cosign {
        /// File of the credential
        credential: PathBuf,
        /// The signer's secret key
        #[arg(short, long, value_name = "FILE")]
        key: PathBuf,
        /// The signer's name in the policy
        #[arg(long, value_name = "NAME")]
        name: String,
        #[command(flatten)]
        more: More,
    },
    /// Show the contents of a credential, block by block, without checking who signed it
    Inspect {
        /// File of the credential
        credential: PathBuf,
        /// Format of the output
        #[arg(short, long, default_value = "table")]
        format: OutputFormat,
    },
    /// Check a credential against a policy, and show the grant that a module gets
    Verify {
        /// File of the credential
        credential: PathBuf,
        /// The node's policy [default: this machine's]
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// Secret key of the credential's holder
        #[arg(long, value_name = "FILE")]
        identity: Option<PathBuf>,
        /// Module that would run
        #[arg(long, default_value = "count")]
        module: String,
        /// Interface on which the module would run, or `file` for captures
        #[arg(short, long, default_value = "file")]
        interface: String,
        /// Format of the output
        #[arg(short, long, default_value = "table")]
        format: OutputFormat,
    },
    /// Revoke a credential and all that were narrowed from it, or a key; running modules end within a second
    Revoke {
        /// File of the credential to revoke
        #[arg(required_unless_present = "key", conflicts_with = "key")]
        credential: Option<PathBuf>,
        /// Public key to revoke, with everything that it signed and all credentials bound to it
        #[arg(long, value_name = "PUBLIC KEY")]
        key: Option<String>,
        /// The node's policy, which names the file of revocations
        #[arg(long, value_name = "FILE")]
        policy: PathBuf,
    },
}

#[derive(Args)]
struct More {
    /// Public key of the holder; using the credential requires the matching secret key
    #[arg(long, value_name = "PUBLIC KEY")]
    holder: Option<String>,
    /// Checks in Datalog, over time, node, principal, interface, hash, signer and claimed_name
    #[arg(long, value_name = "TEXT", default_value = "")]
    datalog: String,
    /// Write the credential to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    fields: Fields,
}

impl More {
    fn narrow(&self, principal: Option<String>) -> Result<Narrow, Error> {
        let holder = self.holder.as_deref().map(PublicKey::parse).transpose()?;
        let (fields, datalog) = (self.fields.0.clone(), self.datalog.clone());
        Ok(Narrow { fields, principal, holder, datalog })
    }

    fn write(&self, credential: &Credential) -> Result<Status, Error> {
        let text = credential.text();
        match &self.output {
            None => say!("{text}"),
            Some(path) => {
                // A credential that is bound to no key can be used by everyone who can read the file.
                let written = flame_files::Staged::private(path).and_then(|mut file| {
                    file.write_all(format!("{text}\n").as_bytes())?;
                    file.finish()
                });
                written.map_err(|e| format!("{}: {e}", path.display()))?;
            }
        }
        Ok(Status::Done)
    }
}

impl Grant {
    pub fn run(self) -> Result<Status, Error> {
        match self.what {
            What::Mint { key, to, role, policy, more } => {
                let root = Secret::from_file(&key)?;
                mint_checks::times(&more.fields.0)?;
                match policy.map_or_else(machine_policy, |policy| Ok(Some(policy)))? {
                    Some(policy) => mint_checks::against(&policy, &root.public(), &role, &more.fields.0)?,
                    None => complain!(
                        "flame: note: whether a node has the role {role} and this root is not checked: --policy FILE \
                         does"
                    ),
                }
                let mint = Mint { principal: to, role, narrow: more.narrow(None)? };
                more.write(&Credential::mint(&root, &mint)?)
            }
            What::Narrow { credential: path, to, identity, more } => {
                let identity = identity.as_deref().map(Secret::from_file).transpose()?;
                more.write(&credential(&path)?.narrow(&more.narrow(to)?, identity.as_ref())?)
            }
            What::Cosign { credential: path, key, name, more } => {
                let secret = Secret::from_file(&key)?;
                more.write(&credential(&path)?.cosign(&secret, &name, &more.narrow(None)?)?)
            }
            What::Inspect { credential: path, format } => inspect(&credential(&path)?, format),
            What::Verify { credential, policy, identity, module, interface, format } => {
                let trust = TrustArgs { policy, credential: Some(credential), identity };
                verify(&trust, &module, &interface, format)
            }
            What::Revoke { credential: path, key, policy } => {
                revoke(path.as_deref(), key.as_deref(), &policy)
            }
        }
    }
}

fn signer(signer: &Signer) -> String {
    match signer {
        Signer::Root => "the root".to_owned(),
        Signer::Bearer => "a bearer".to_owned(),
        Signer::Key(key) => key.to_string(),
    }
}

fn inspect(credential: &Credential, format: OutputFormat) -> Result<Status, Error> {
    for (n, block) in credential.blocks()?.iter().enumerate() {
        let named = [
            ("principal", block.principal.clone()),
            ("role", block.role.clone()),
            ("holder", block.holder.map(|k| k.to_string())),
            ("approved", (!block.approved.is_empty()).then(|| block.approved.join(", "))),
        ];
        let stated = named.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let stated = stated.chain(block.fields.iter().map(|l| (l.field.name(), l.value.clone())));
        let checks: Vec<_> =
            block.source.lines().filter(|l| l.starts_with("check") || l.contains("<-")).collect();
        match format {
            OutputFormat::Json => {
                let fields: Vec<_> = stated.map(|(name, value)| json!([name, value])).collect();
                let signer = signer(&block.signer);
                say_json!({"block": n, "signer": signer, "id": block.id, "fields": fields, "checks": checks});
            }
            OutputFormat::Table => {
                say!("block {n}, by {}", signer(&block.signer));
                stated.for_each(|(name, value)| say!("  {name:<18} {value}"));
                checks.iter().for_each(|check| say!("  {check}"));
                say!("  {:<18} {}", "id", block.id);
            }
        }
    }
    Ok(Status::Done)
}

fn verify(trust: &TrustArgs, module: &str, interface: &str, format: OutputFormat) -> Result<Status, Error> {
    let applicant = trust.open(&place(interface)?)?.ok_or("--policy is missing")?;
    let (path, wasm) = read_module(module)?;
    let compiler = crate::compiler::looking()?;
    let compiler = applicant.noting(applicant.compiler(&compiler, &flame_compile::hash_of(&wasm))?);
    let examined = compiler.examine(&wasm).map_err(|e| format!("{}: {e}", path.display()))?;
    let grant = applicant.explain(&examined, &signers(&path, &examined.hash)?).map_err(told)?;
    if matches!(format, OutputFormat::Table) {
        let name = &applicant.node.policy().name;
        say!("{} for {}, role {}: granted on {name}", module, grant.principal, grant.role);
    }
    fields(&grant, format);
    Ok(Status::Done)
}

fn revoke(path: Option<&Path>, key: Option<&str>, policy: &Path) -> Result<Status, Error> {
    let policy_path = policy;
    let policy = Policy::open(policy_path)?;
    let place = policy.revocations.as_deref().ok_or_else(|| {
        format!(
            "{}: [node] names no file of revocations: add revocations = \"revoked\"",
            policy_path.display()
        )
    })?;
    let (line, whom) = match (path, key) {
        (Some(path), _) => {
            let blocks = credential(path)?.blocks()?;
            // Only the last block is revoked: the credential from which it was narrowed stays valid.
            let last = blocks.last().ok_or("the credential has no blocks")?;
            let names: Vec<_> = blocks.iter().filter_map(|b| b.principal.as_deref()).collect();
            (format!("id {}", last.id), names.join("/"))
        }
        (None, Some(key)) => (format!("key {}", PublicKey::parse(key)?), key.to_owned()),
        (None, None) => return Err("give a credential or --key".into()),
    };
    Revoked::append(place, &line)?;
    if let (Some(log), Some(secret)) = (policy.log(), policy.secret()) {
        log.write(secret, Event::Revoke, &whom, "", &line)?;
    }
    say!("{}: {line}", place.display());
    Ok(Status::Done)
}
