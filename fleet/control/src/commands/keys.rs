//! The keys of a fleet: how it begins, and how its key rotates.

use crate::folder::{Fleet, Place};
use crate::state::State;
use crate::{Error, authority, now, random};
use flame_fleet_protocol::signed::hex;
use flame_fleet_protocol::{Delegation, Secret};
use std::path::{Path, PathBuf};

/// Reads a secret key that only its owner may read.
fn key_file(path: &Path) -> Result<Secret, Error> {
    let at = |e: String| Error::from(format!("{}: {e}", path.display()));
    let file = flame_files::open(path, flame_files::Others::Nothing).map_err(|e| at(e.to_string()))?;
    let bytes = flame_files::read_at_most(file, 4096).map_err(|e| at(e.to_string()))?;
    let secret = std::str::from_utf8(&bytes).ok().and_then(Secret::from_pem);
    secret.ok_or_else(|| at("no Ed25519 secret key in PEM: make one with `flame key new FILE`".to_owned()))
}

pub(super) fn init(
    path: &Path,
    (name, server, listen): (String, String, Option<String>),
    root: &Path,
    valid: u64,
    tls: Option<Vec<PathBuf>>,
) -> Result<(), Error> {
    let fault = || format!("--server {server:?}: expected tls://HOST:PORT");
    let (host, port) =
        server.strip_prefix("tls://").and_then(|rest| rest.rsplit_once(':')).ok_or_else(fault)?;
    let _: u16 = port.parse().map_err(|_| fault())?;
    let host = host.trim_matches(['[', ']']).to_owned();
    let listen = listen.unwrap_or_else(|| format!("0.0.0.0:{port}"));
    let root = key_file(root)?;
    let made = match tls {
        None => Some(authority::make(&name, std::slice::from_ref(&host))?),
        Some(_) => None,
    };
    let given: Vec<Vec<u8>> = tls.iter().flatten().map(std::fs::read).collect::<Result<_, _>>()?;
    let fleet = Fleet { name, root: root.public(), server, listen, store: "server".into() };
    let place = Place::make(path, fleet)?;
    match (made, &given[..]) {
        (Some(made), _) => {
            place.put("ca.pem", made.authority.as_bytes())?;
            place.put("ca.key", made.authority_key.as_bytes())?;
            place.put("server.pem", made.server.as_bytes())?;
            place.put("server.key", made.server_key.as_bytes())?;
        }
        (None, [authority, certificate, key]) => {
            place.put("ca.pem", authority)?;
            place.put("server.pem", certificate)?;
            place.put("server.key", key)?;
        }
        (None, _) => return Err("--tls: expected three files".into()),
    }
    for user in ["control", "archive", "system"] {
        place.put(&format!("{user}.key"), Secret::new(&random()?).to_pem().as_bytes())?;
    }
    delegate(&place, &root, 1, valid)?;
    let state = State::new();
    place.store(&state)?;
    place.configure(&state)?;
    let shown = place.path.display();
    println!("{shown}: fleet {}, under root {}", place.fleet.name, place.fleet.root);
    eprintln!(
        "start its server and its control:\n  nats-server -c {shown}/server.conf\n  flame fleet control \
         --fleet {shown}"
    );
    Ok(())
}

/// Makes a key of the fleet and its delegation.
fn delegate(place: &Place, root: &Secret, number: u64, valid: u64) -> Result<(), Error> {
    if root.public() != place.fleet.root {
        return Err(format!("the root's key is {}, expected {}", root.public(), place.fleet.root).into());
    }
    let secret = Secret::new(&random()?);
    let key = hex(&secret.public().0);
    let delegation =
        Delegation { fleet: place.fleet.name.clone(), key, number, expires: now().saturating_add(valid) };
    place.put("fleet.key", secret.to_pem().as_bytes())?;
    place.put("delegation", &root.delegate(&delegation).to_bytes())
}

pub(super) fn rotate(place: &Place, root: &Path, valid: u64, lost: bool) -> Result<(), Error> {
    let root = key_file(root)?;
    let (_, number) = place.change(|state| {
        let number = place.delegation()?.1.number + 1;
        delegate(place, &root, number, valid)?;
        state.revocations.number += 1;
        if lost {
            state.revocations.delegations = number;
        }
        Ok(number)
    })?;
    println!("delegation {number} is in force; nodes that are away have it with their next contact");
    Ok(())
}
