//! Mistakes at minting that would make a credential useless, found before it is handed out.

use crate::error::Error;
use flame_trust::{Field, Policy, PublicKey, Role, time};
use std::path::Path;

/// Checks the times of a credential: they must leave some time from now on.
///
/// # Errors
///
/// Returns an error with the remedy.
pub fn times(fields: &[(Field, String)]) -> Result<(), Error> {
    let all =
        |field: Field| fields.iter().filter(move |(f, _)| *f == field).map(|(_, value)| time::parse(value));
    let expires = all(Field::Expires).collect::<Result<Vec<_>, _>>()?.into_iter().min();
    let not_before = all(Field::NotBefore).collect::<Result<Vec<_>, _>>()?.into_iter().max();
    let now = time::now();
    match (not_before, expires) {
        (_, Some(end)) if end <= now => Err(format!(
            "--expires {}: that is past, now it is {}; give a later time, or one from now on: --expires +30d",
            time::show(end),
            time::show(now)
        )
        .into()),
        (Some(begin), Some(end)) if end <= begin => Err(format!(
            "--expires {} is not after --not-before {}: it would never give anything",
            time::show(end),
            time::show(begin)
        )
        .into()),
        _ => Ok(()),
    }
}

/// Checks that a node with this policy would accept a credential of this root and role.
///
/// # Errors
///
/// Returns an error with the remedy, or for a policy that cannot be read.
pub fn against(path: &Path, root: &PublicKey, role: &str, fields: &[(Field, String)]) -> Result<(), Error> {
    let file = path.display();
    // The node's key and its list of revocations may be on the node only.
    let text = std::fs::read(path).map_err(|e| format!("policy {file}: {e}"))?;
    let policy = Policy::parse(&text).map_err(|e| format!("{file}: {e}"))?;
    let names = |names: Vec<&String>| match names.len() {
        0 => "none".to_owned(),
        _ => names.into_iter().cloned().collect::<Vec<_>>().join(", "),
    };
    let Some(of_role) = policy.roles.get(role) else {
        let known = names(policy.roles.keys().collect());
        return Err(format!("--role {role}: {file} has no such role; it has {known}").into());
    };
    let Some((name, _)) = policy.roots.iter().find(|(_, key)| *key == root) else {
        let known = names(policy.roots.keys().collect());
        return Err(format!(
            "--key: {root} is no root of {file}; its roots are {known}: mint with the key of one of them, or add \
             this one to [roots]"
        )
        .into());
    };
    if !of_role.roots.is_empty() && !of_role.roots.contains(name) {
        let roots = of_role.roots.join(", ");
        return Err(format!("--key: the root {name} may not give the role {role}; these may: {roots}").into());
    }
    ends(of_role, role, fields)
}

/// Checks that the role has not ended, and does not end before the credential begins.
fn ends(of_role: &Role, role: &str, fields: &[(Field, String)]) -> Result<(), Error> {
    let role_ends = of_role.fields.iter().map(|layer| layer.rights.expires).min().unwrap_or(u64::MAX);
    let begins = fields.iter().filter(|(field, _)| *field == Field::NotBefore);
    let begins = begins.filter_map(|(_, value)| time::parse(value).ok()).max().unwrap_or(0).max(time::now());
    if role_ends <= begins {
        return Err(format!(
            "--role {role}: the policy ends it at {}: it would never give anything",
            time::show(role_ends)
        )
        .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_leave_nothing_are_refused() {
        let fields = |pairs: &[(Field, &str)]| {
            times(&pairs.iter().map(|(f, v)| (*f, (*v).to_owned())).collect::<Vec<_>>())
        };
        assert!(fields(&[]).is_ok());
        assert!(fields(&[(Field::Expires, "2999-01-01T00:00:00Z")]).is_ok());
        let past = fields(&[(Field::Expires, "2001-01-01T00:00:00Z")]).unwrap_err().to_string();
        assert!(past.contains("that is past") && past.contains("--expires +30d"), "{past}");
        let never = [(Field::NotBefore, "2999-01-01T00:00:00Z"), (Field::Expires, "2998-01-01T00:00:00Z")];
        assert!(fields(&never).unwrap_err().to_string().contains("never give anything"));
    }
}
