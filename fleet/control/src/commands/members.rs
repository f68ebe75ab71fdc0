//! The nodes of a fleet: invited, approved, refused and listed.

use super::warn;
use crate::folder::{Fleet, MAX_TEXT, Place};
use crate::service;
use crate::state::Applicant;
use crate::token::{self, Token};
use crate::{Error, node, now, random};
use flame_fleet_protocol::Key;
use flame_fleet_protocol::enrolment::{Standing, TokenHash};
use flame_fleet_protocol::signed::hex;
use std::io::Write as _;
use std::path::Path;

/// The principal for whom credentials of nodes are minted.
const PRINCIPAL: &str = "fleet";

pub(super) fn invite(
    place: &Place,
    node: Option<String>,
    valid: u64,
    output: Option<&Path>,
) -> Result<(), Error> {
    let secret: [u8; 32] = random()?;
    let expires = now().saturating_add(valid);
    place.change(|state| {
        state.members.tidy(now());
        state.applicants.retain(|applicant| now() < applicant.expires);
        state.members.invite(TokenHash::of(&secret), node, expires);
        let key = token::user(&secret).public();
        state.applicants.push(Applicant { id: token::id(&secret), key, expires });
        Ok(())
    })?;
    let authority = String::from_utf8(place.read("ca.pem", MAX_TEXT)?.unwrap_or_default())?;
    let Fleet { name, root, server, .. } = place.fleet.clone();
    let text = Token { fleet: name, root, server, authority, secret: hex(&secret) }.text();
    match output {
        None => println!("{text}"),
        Some(path) => {
            let made = flame_files::create_new(path).and_then(|mut file| writeln!(file, "{text}"));
            made.map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}

pub(super) fn approve(
    place: &Place,
    node: &str,
    key: &str,
    root: Option<&Path>,
    role: &str,
) -> Result<(), Error> {
    let key =
        Key::parse(key).ok_or_else(|| format!("{key:?}: expected ed25519/ and 64 hexadecimal digits"))?;
    if let Some(root) = root {
        let path = place.path.join(format!("credential.{node}"));
        // The name is one of a node, or the application would have been refused.
        let standing = place.state()?.members.nodes().get(node).copied();
        if standing.is_none_or(|standing| standing.key() != key) {
            return Err(format!("node {node:?} has not applied with key {key}").into());
        }
        let (root, path, key) = (root.to_string_lossy(), path.to_string_lossy(), key.to_string());
        let mint = ["grant", "mint", "--key", &root, "--to", PRINCIPAL, "--role", role, "--code", "any"];
        node::flame(&[&mint[..], &["--holder", &key, "-o", &path]].concat())?;
    }
    place.change(|state| Ok(state.members.approve(node, &key)?))?;
    println!("{node} is a member");
    if root.is_none() {
        eprintln!("it runs no modules of the fleet before it has a credential: repeat this with --root FILE");
    }
    Ok(())
}

pub(super) fn refuse(place: &Place, node: &str) -> Result<(), Error> {
    place.change(|state| {
        let key = state.members.nodes().get(node).map(Standing::key);
        let key = key.ok_or_else(|| format!("no node {node:?}: flame fleet members"))?;
        Ok(state.members.end(node, &key)?)
    })?;
    println!("{node} is no member any more, and its key never again");
    Ok(())
}

pub(super) fn members(place: &Place) -> Result<(), Error> {
    let state = place.state()?;
    let status = service::status(place);
    let seen = status.clone().unwrap_or_default().nodes;
    for (name, standing) in state.members.nodes() {
        let what = match standing {
            Standing::Applied(_) => "applied",
            Standing::Member(_) => "member",
            Standing::Gone(_) => "gone",
        };
        let labels = state.labels.get(name).into_iter().flatten();
        let labels: Vec<_> = labels.map(|(name, value)| format!("{name}={value}")).collect();
        let report = match seen.get(name) {
            None => "no report".to_owned(),
            Some(seen) => {
                let refused = match &seen.reason {
                    Some(reason) => {
                        format!(", refused {} statements, the last because {reason}", seen.refused)
                    }
                    None => String::new(),
                };
                format!("reported {} s ago{refused}", now().saturating_sub(seen.at))
            }
        };
        println!("{name:<16} {what:<8} {}  {}  {report}", standing.key(), labels.join(" "));
    }
    warn(status.as_ref());
    Ok(())
}
