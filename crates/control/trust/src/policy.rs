//! A node's policy: a TOML file.
//!
//! ```toml
//! [node]
//! name = "tap1"
//! key = "node.key"             # made by `flame key new`: derives pseudonyms, signs the audit log
//! revocations = "revoked"      # optional, as are the next two
//! audit = "audit.log"
//! decapsulate = true           # permits `--decapsulate`: headers in tunnels count as headers
//! options = ["promiscuous"]    # options that act on the machine and are permitted; by default none
//!
//! [roots]                      # keys whose credentials are accepted
//! operator = "ed25519/…"
//!
//! [cosigners]                  # keys for second signatures
//! privacy = "ed25519/…"
//!
//! [roles.researcher]           # the most that a credential of this role may give
//! roots = ["operator"]         # roots that may give the role; by default all
//! cosigned = ["privacy"]
//! select = ""                  # select, expose, calls and code are required, other fields optional
//! expose = "headers"
//! calls = "records, messages"
//! code = "any"
//! transform = "ip=prefix, mac=zero"
//!
//! [shows.researcher."flow.flow"]   # a table of the operator that queries of a fleet show to the role
//! columns = ["node", "proto"]
//!
//! [best-effort]                # rights without a credential; by default packet counts
//!
//! [checks]                     # further conditions in Datalog
//! datalog = 'check if interface("eth1")'
//! ```

use crate::audit::{Audit, counter_of};
use crate::credential::plain;
use crate::facts;
use crate::field::Field;
use crate::key::{KeyError, PublicKey, Secret};
use crate::layer::{Layer, Origin, meet};
use crate::machine::MachineOption;
use crate::revoked::{Revoked, RevokedError};
use crate::shown::ShownTable;
use biscuit_auth::{AuthorizerBuilder, BlockBuilder};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::Spanned;

/// Maximum length of a policy, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The reason why a policy cannot be read, with its line where there is one.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("policy {path}: {error}")]
    Io { path: String, error: std::io::Error },
    #[error("policy: {found} bytes, at most {MAX_BYTES} are read")]
    Large { found: usize },
    #[error("policy: {0}")]
    Syntax(String),
    #[error("policy, line {line}: {reason}")]
    Line { line: usize, reason: String },
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Revoked(#[from] RevokedError),
}

/// The most that credentials of one kind may give, and their requirements.
#[derive(Clone, Debug)]
pub struct Role {
    /// The names of roots that may give the role, or empty for all roots.
    pub roots: Vec<String>,
    pub cosigned: Vec<String>,
    pub fields: Vec<Layer>,
}

/// The policy of a node: its roots, and the most that each role may have.
#[derive(Clone)]
pub struct Policy {
    pub name: String,
    pub roots: BTreeMap<String, PublicKey>,
    pub cosigners: BTreeMap<String, PublicKey>,
    pub roles: BTreeMap<String, Role>,
    pub best_effort: Role,
    /// The tables of the operator that queries show to a role, by `MODULE.TABLE`.
    pub shows: BTreeMap<String, BTreeMap<String, ShownTable>>,
    /// Checks in Datalog.
    pub checks: String,
    pub revoked: Revoked,
    /// The file of revocations.
    pub revocations: Option<PathBuf>,
    pub audit: Option<PathBuf>,
    /// Whether `--decapsulate` is permitted, by which headers in tunnels count as headers.
    pub decapsulate: bool,
    /// The options of commands that act on the machine and are permitted.
    pub options: BTreeSet<MachineOption>,
    key: PathBuf,
    secret: Option<Arc<Secret>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    node: Node,
    #[serde(default)]
    roots: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    cosigners: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    roles: BTreeMap<String, Spanned<Table>>,
    #[serde(rename = "best-effort")]
    best_effort: Option<Spanned<Table>>,
    #[serde(default)]
    shows: BTreeMap<String, Spanned<BTreeMap<String, ShownTable>>>,
    checks: Option<Checks>,
}

type Table = BTreeMap<String, Spanned<toml::Value>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    name: Spanned<String>,
    key: PathBuf,
    revocations: Option<PathBuf>,
    audit: Option<PathBuf>,
    #[serde(default)]
    decapsulate: bool,
    #[serde(default)]
    options: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Checks {
    datalog: Spanned<String>,
}

/// The values of fields that a role does not state.
const DEFAULTS: [(Field, &str); 7] = [
    (Field::Memory, "256MiB"),
    (Field::PacketBudget, "100000000"),
    (Field::RecordsPerSecond, "10000"),
    (Field::BytesPerSecond, "4MiB"),
    (Field::Transmit, "128MiB"),
    (Field::Cpu, "1s/1s"),
    (Field::Compile, "60s/1h"),
];

/// The rights without a credential, unless the policy states others: packet counts.
const BEST_EFFORT: [(Field, &str); 8] = [
    (Field::Expose, "count"),
    (Field::Calls, "records,messages"),
    (Field::Resolution, "1s"),
    (Field::Memory, "64MiB"),
    (Field::RecordsPerSecond, "1000"),
    (Field::BytesPerSecond, "256KiB"),
    (Field::Cpu, "100ms/1s"),
    (Field::Compile, "10s/1h"),
];

/// Fields that each role must state, so that none of them is granted by omission.
const STATED: [Field; 4] = [Field::Select, Field::Expose, Field::Calls, Field::Code];

impl Policy {
    /// Reads a policy, its key and its revocations. Paths in it are relative to its folder.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy, its key or its revocations cannot be read or are invalid.
    pub fn open(path: &Path) -> Result<Self, PolicyError> {
        let io = |error| PolicyError::Io { path: path.display().to_string(), error };
        let mut policy = Self::parse(&std::fs::read(path).map_err(io)?)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        policy.key = folder.join(&policy.key);
        policy.revocations = policy.revocations.map(|p| folder.join(p));
        policy.audit = policy.audit.map(|p| folder.join(p));
        policy.secret = Some(Arc::new(Secret::from_file(&policy.key)?));
        if let Some(path) = &policy.revocations {
            policy.revoked = Revoked::read(path)?;
        }
        Ok(policy)
    }

    /// Parses a policy without the files that it names.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is too long or no TOML, or one with the line of a name, key or role
    /// that is invalid.
    pub fn parse(bytes: &[u8]) -> Result<Self, PolicyError> {
        if bytes.len() > MAX_BYTES {
            return Err(PolicyError::Large { found: bytes.len() });
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|e| PolicyError::Syntax(format!("not UTF-8 at byte {}", e.valid_up_to())))?;
        let file: File =
            toml::from_str(text).map_err(|e| PolicyError::Syntax(e.to_string().trim_end().to_owned()))?;
        let at = |start: usize| text[..start.min(text.len())].matches('\n').count() + 1;
        let wrong = |start: usize, reason: String| PolicyError::Line { line: at(start), reason };

        plain(file.node.name.get_ref()).map_err(|e| wrong(file.node.name.span().start, e))?;
        let keys = |table: &BTreeMap<String, Spanned<String>>| {
            let mut keys: BTreeMap<String, PublicKey> = BTreeMap::new();
            for (name, text) in table {
                let fail = |reason| wrong(text.span().start, format!("{name}: {reason}"));
                plain(name).map_err(fail)?;
                let key = PublicKey::parse(text.get_ref()).map_err(|e| fail(e.to_string()))?;
                if let Some((other, _)) = keys.iter().find(|(_, k)| **k == key) {
                    return Err(fail(format!("{other} has the same key")));
                }
                keys.insert(name.clone(), key);
            }
            Ok(keys)
        };
        let (roots, cosigners) = (keys(&file.roots)?, keys(&file.cosigners)?);
        if let Some((name, other)) =
            cosigners.iter().find_map(|(n, k)| Some((n, roots.iter().find(|(_, r)| *r == k)?.0)))
        {
            let start = file.cosigners[name].span().start;
            let reason =
                format!("{name}: the root {other} has the same key: its second signature would add nothing");
            return Err(wrong(start, reason));
        }
        let mut roles = BTreeMap::new();
        for (name, table) in file.roles {
            let start = table.span().start;
            plain(&name).map_err(|e| wrong(start, e))?;
            let role = Role::new(&table, at, &DEFAULTS)
                .map_err(|(s, reason)| wrong(s.unwrap_or(start), format!("role {name}: {reason}")))?;
            let known = |list: &[String], keys: &BTreeMap<String, PublicKey>, what: &str| {
                let unknown = list.iter().find(|n| !keys.contains_key(*n));
                unknown.map_or(Ok(()), |n| Err(wrong(start, format!("role {name}: {what} has no {n:?}"))))
            };
            known(&role.roots, &roots, "[roots]")?;
            known(&role.cosigned, &cosigners, "[cosigners]")?;
            roles.insert(name, role);
        }
        let mut shows = BTreeMap::new();
        for (role, tables) in file.shows {
            let fail = |reason| wrong(tables.span().start, format!("shows.{role}: {reason}"));
            if !roles.contains_key(&role) {
                return Err(fail("[roles] has no such role".to_owned()));
            }
            tables.get_ref().iter().try_for_each(|(name, table)| table.check(name)).map_err(fail)?;
            shows.insert(role, tables.into_inner());
        }
        let best_effort = match file.best_effort {
            Some(table) => {
                let start = table.span().start;
                let role = Role::new(&table, at, &DEFAULTS)
                    .map_err(|(s, reason)| wrong(s.unwrap_or(start), format!("best-effort: {reason}")))?;
                if !role.roots.is_empty() || !role.cosigned.is_empty() {
                    let reason = "best-effort: it is for those who have no credential: nobody signs";
                    return Err(wrong(start, reason.to_owned()));
                }
                role
            }
            None => Role { roots: Vec::new(), cosigned: Vec::new(), fields: defaults(&BEST_EFFORT) },
        };
        let option = |name: &Spanned<String>| {
            name.get_ref().parse().map_err(|reason: String| (name.span().start, format!("options: {reason}")))
        };
        let options: Result<BTreeSet<_>, _> = file.node.options.iter().map(option).collect();
        let checks = match file.checks {
            Some(checks) => {
                let (start, text) = (checks.datalog.span().start, checks.datalog.into_inner());
                check_datalog(&text).map_err(|reason| wrong(start, format!("datalog: {reason}")))?;
                text
            }
            None => String::new(),
        };
        Ok(Self {
            name: file.node.name.into_inner(),
            roots,
            cosigners,
            roles,
            best_effort,
            shows,
            checks,
            revoked: Revoked::default(),
            revocations: file.node.revocations,
            audit: file.node.audit,
            decapsulate: file.node.decapsulate,
            options: options.map_err(|(start, reason)| wrong(start, reason))?,
            key: file.node.key,
            secret: None,
        })
    }

    /// Returns this policy with more revocations: lines of the file of revocations.
    ///
    /// # Errors
    ///
    /// Returns an error if a line cannot be read.
    pub fn with_revocations(&self, lines: &str) -> Result<Self, RevokedError> {
        let mut policy = self.clone();
        policy.revoked.add(lines)?;
        Ok(policy)
    }

    /// Checks that an option is permitted, `stated` as on the command line.
    ///
    /// # Errors
    ///
    /// Returns an error that names the option and what the policy would have to state.
    pub fn permits(&self, option: MachineOption, stated: &str) -> Result<(), String> {
        if self.options.contains(&option) { Ok(()) } else { Err(option.refusal(stated)) }
    }

    /// Returns the policy without what a line of the list revokes.
    #[must_use]
    pub fn without_revocation(&self, line: &str) -> Self {
        let mut policy = self.clone();
        policy.revoked.remove(line);
        policy
    }

    /// Returns the node's audit log, if it has one.
    pub fn log(&self) -> Option<Audit> {
        self.audit.as_deref().map(|log| Audit::new(log, &self.counter()))
    }

    /// Returns the path of the audit log's counter.
    pub fn counter(&self) -> PathBuf {
        counter_of(&self.key)
    }

    /// Returns the folder of the credentials' used quotas: next to the audit log, or next to the key.
    pub fn quotas(&self) -> PathBuf {
        let mut path = self.audit.as_ref().unwrap_or(&self.key).as_os_str().to_owned();
        path.push(".quotas");
        path.into()
    }

    /// Returns the node's key, if the policy was opened as a file.
    pub fn secret(&self) -> Option<&Secret> {
        self.secret.as_deref()
    }

    /// Returns the node's key for shared ownership.
    pub fn shared_secret(&self) -> Option<Arc<Secret>> {
        self.secret.clone()
    }

    /// Returns the policy with the node's key.
    pub fn with_secret(mut self, secret: Secret) -> Self {
        self.secret = Some(Arc::new(secret));
        self
    }
}

/// Checks the node's own Datalog. It can only narrow: it consists of rules and checks, and has no `allow`
/// policies.
fn check_datalog(text: &str) -> Result<(), String> {
    let block = BlockBuilder::new().code(text).map_err(|e| e.to_string())?;
    AuthorizerBuilder::new().code(text).map_err(|e| e.to_string())?;
    facts::known(&block)?;
    crate::datalog::affordable(&[block])
}

fn defaults(fields: &[(Field, &str)]) -> Vec<Layer> {
    let layer =
        |(field, value): &(Field, &str)| Layer::new(Origin::Default, *field, (*value).to_owned()).ok();
    fields.iter().filter_map(layer).collect()
}

type Fault = (Option<usize>, String);

impl Role {
    fn new(
        table: &Spanned<Table>,
        at: impl Fn(usize) -> usize,
        silent: &[(Field, &str)],
    ) -> Result<Self, Fault> {
        let mut role = Self { roots: Vec::new(), cosigned: Vec::new(), fields: Vec::new() };
        for (key, value) in table.get_ref() {
            let start = value.span().start;
            let fail = |reason: String| (Some(start), reason);
            let each = texts(value.get_ref()).map_err(|e| fail(format!("{key}: {e}")))?;
            match (key.as_str(), Field::parse(key)) {
                ("roots", _) => role.roots = each,
                ("cosigned", _) => role.cosigned = each,
                (_, Some(field)) => {
                    // Each filter narrows by itself. The elements of other lists are one value.
                    let values =
                        if field == Field::Select && each.len() > 1 { each } else { vec![each.join(",")] };
                    for value in values {
                        let layer = Layer::new(Origin::Policy { line: at(start) }, field, value);
                        role.fields.push(layer.map_err(fail)?);
                    }
                }
                _ => {
                    let known: Vec<_> = Field::ALL.iter().map(|f| f.name()).collect();
                    return Err(fail(format!(
                        "{key}: no such field: expected roots, cosigned, {}",
                        known.join(", ")
                    )));
                }
            }
        }
        let stated = |field: Field| role.fields.iter().any(|l| l.field == field);
        if let Some(missing) = STATED.into_iter().find(|f| !stated(*f)) {
            return Err((None, format!("state {}: {}", missing.name(), missing.help())));
        }
        let silent: Vec<_> = silent.iter().filter(|(field, _)| !stated(*field)).copied().collect();
        role.fields.extend(defaults(&silent));
        let rights = meet(&role.fields);
        if rights.not_before >= rights.expires {
            return Err((None, "not_before is not before expires: it would never give anything".to_owned()));
        }
        Ok(role)
    }
}

/// Returns a value as text, and a list as several texts.
fn texts(value: &toml::Value) -> Result<Vec<String>, String> {
    let one = |value: &toml::Value| match value {
        toml::Value::String(s) => Ok(s.clone()),
        toml::Value::Integer(n) => Ok(n.to_string()),
        toml::Value::Datetime(t) => Ok(t.to_string()),
        other => Err(format!("expected text, found {other}")),
    };
    match value {
        toml::Value::Array(list) => list.iter().map(one).collect(),
        value => Ok(vec![one(value)?]),
    }
}
