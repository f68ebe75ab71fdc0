use crate::caller;
use crate::console::say;
use crate::error::Error;
use crate::exit::Status;
use clap::{Args, Subcommand};
use flame_node::check_viewable;
use flame_transform::Remains;
use flame_trust::{Field, Policy, Role, time};
use std::path::{Path, PathBuf};

/// Check a node's policy
#[derive(Args)]
pub struct PolicyCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Read a policy with the files that it names, and list what it grants and what may be a mistake
    ///
    /// Exit status: 0 if a node can use it, with or without warnings; 1 if not, or if --strict is given and
    /// there is a warning.
    Check {
        /// The policy [default: this machine's]
        #[arg(value_name = "FILE")]
        policy: Option<PathBuf>,

        /// Fail for a warning, too
        #[arg(long)]
        strict: bool,
    },
}

impl PolicyCommand {
    pub fn run(self) -> Result<Status, Error> {
        let What::Check { policy, strict } = self.what;
        let path = match policy {
            Some(path) => path,
            None => caller::machine_policy()?
                .ok_or("this machine has no policy: name one, `flame policy check FILE`")?,
        };
        check(&path, strict)
    }
}

fn check(path: &Path, strict: bool) -> Result<Status, Error> {
    let file = path.display();
    let policy = Policy::open(path).map_err(|e| format!("{file}: {e}"))?;
    let best_effort = ("best-effort".to_owned(), policy.best_effort.clone());
    let roles: Vec<_> = policy.roles.clone().into_iter().chain([best_effort]).collect();
    for (name, role) in &roles {
        let of_role = |e: flame_node::NodeError| format!("{file}: {name}: {e}");
        role.fields.iter().try_for_each(check_viewable).map_err(of_role)?;
    }
    say!("{file}: policy of {}", policy.name);
    let names = |names: Vec<&String>| names.into_iter().cloned().collect::<Vec<_>>().join(", ");
    say!("  roots      {}", names(policy.roots.keys().collect()));
    if !policy.cosigners.is_empty() {
        say!("  cosigners  {}", names(policy.cosigners.keys().collect()));
    }
    for (name, role) in &roles {
        say!("  {name}: {}", summary(role));
        // Others are warnings.
        let inherent = remains(role).into_iter().filter(|remains| remains.remedy.is_none());
        inherent.for_each(|Remains { text, .. }| say!("    {text}"));
    }
    let warnings = warnings(&policy);
    warnings.iter().for_each(|warning| say!("warning: {warning}"));
    Ok(if strict && !warnings.is_empty() { Status::Failed } else { Status::Done })
}

/// Returns the fields of a role in one line.
fn summary(role: &Role) -> String {
    let field = |layer: &flame_trust::Layer| format!("{} {:?}", layer.field.name(), layer.value);
    let mut parts: Vec<_> = role.fields.iter().map(field).collect();
    if !role.roots.is_empty() {
        parts.push(format!("by {}", role.roots.join(" or ")));
    }
    if !role.cosigned.is_empty() {
        parts.push(format!("cosigned by {}", role.cosigned.join(" and ")));
    }
    parts.join(", ")
}

/// Returns what stays visible of the data that a role hides.
fn remains(role: &Role) -> Vec<Remains> {
    let rights = flame_trust::meet(&role.fields);
    flame_transform::remains(rights.expose, &rights.transforms, rights.resolution_ns)
}

/// Returns what a node accepts and its operator may not mean, with the remedy.
fn warnings(policy: &Policy) -> Vec<String> {
    let mut found = Vec::new();
    if policy.roots.is_empty() {
        found.push("[roots] is empty: no credential is accepted; add the public key of one".to_owned());
    }
    if policy.roles.is_empty() {
        found.push("there are no roles: no credential gives anything; add [roles.NAME]".to_owned());
    }
    if policy.revocations.is_none() {
        found
            .push("no list of revocations: nothing can be revoked; add revocations = \"revoked\"".to_owned());
    }
    if policy.audit.is_none() {
        found.push("no audit log: installs are not recorded; add audit = \"audit.log\"".to_owned());
    }
    for (name, role) in &policy.roles {
        let of = |field: Field| role.fields.iter().filter(move |layer| layer.field == field);
        if let Some(layer) = of(Field::Expires).find(|layer| layer.rights.expires <= time::now()) {
            found.push(format!("role {name}: it ended at {}: give a later time", layer.value));
        }
        let hidden = of(Field::Expose).any(|layer| layer.value == "all");
        if hidden
            && of(Field::Transform).next().is_none()
            && of(Field::Code).any(|layer| layer.value == "any")
        {
            found.push(format!(
                "role {name}: any code sees every byte of every packet; narrow expose, code, or add transform"
            ));
        }
        for Remains { text, remedy } in remains(role) {
            found.extend(remedy.map(|remedy| format!("role {name}: {text}; {remedy}")));
        }
    }
    let used =
        |name: &String| policy.roles.values().any(|role| role.roots.is_empty() || role.roots.contains(name));
    for name in policy.roots.keys().filter(|name| !policy.roles.is_empty() && !used(name)) {
        found.push(format!("root {name}: it may give no role"));
    }
    let is_needed = |name: &String| policy.roles.values().any(|role| role.cosigned.contains(name));
    for name in policy.cosigners.keys().filter(|name| !is_needed(name)) {
        found.push(format!("cosigner {name}: no role requires its signature"));
    }
    found
}
