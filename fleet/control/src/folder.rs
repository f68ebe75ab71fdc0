//! The operator's folder: keys, the state, the server's files, and what nodes are given.

use crate::state::{FORM, State};
use crate::users::{self, Own, Places};
use crate::{Error, now};
use flame_files::Folder;
use flame_fleet_nats::{Access, User};
use flame_fleet_protocol::{Delegated, Delegation, Key, Secret};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAX_STATE: u64 = 256 << 20;
const MAX_KEY: u64 = 4096;
/// The most bytes of a module.
pub const MAX_MODULE: u64 = 64 << 20;
/// The most bytes of a file of signatures, and of a credential.
pub const MAX_TEXT: u64 = 64 << 10;

/// The constants of a fleet, `fleet.toml`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fleet {
    pub name: String,
    pub root: Key,
    /// The address that nodes connect to, and the address on which the server listens.
    pub server: String,
    pub listen: String,
    pub store: PathBuf,
}

/// The operator's folder.
pub struct Place {
    pub path: PathBuf,
    pub fleet: Fleet,
    folder: Folder,
}

impl Place {
    /// Opens a folder that `flame fleet init` has made.
    ///
    /// # Errors
    ///
    /// Returns an error if it has no `fleet.toml`, or if others have access to it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let shown = path.display();
        if !path.join("fleet.toml").exists() {
            return Err(format!(
                "{shown}: no fleet.toml there, expected the folder of a fleet: make one (flame fleet init), or \
                 state it (--fleet FOLDER, or FLAME_FLEET)"
            )
            .into());
        }
        let folder = Folder::private(path).map_err(|e| format!("{shown}: {e}"))?;
        let bytes = folder.read("fleet.toml", MAX_TEXT).map_err(|e| format!("{shown}: fleet.toml: {e}"))?;
        let text = String::from_utf8(bytes.unwrap_or_default())?;
        let fleet =
            toml::from_str(&text).map_err(|e| format!("{shown}/fleet.toml: {}", e.to_string().trim()))?;
        Ok(Self { path: path.to_owned(), fleet, folder })
    }

    /// Makes a folder.
    pub fn make(path: &Path, fleet: Fleet) -> Result<Self, Error> {
        let shown = path.display();
        let folder = Folder::private(path).map_err(|e| format!("{shown}: {e}"))?;
        let text = toml::to_string(&fleet)?;
        if !folder.put_new("fleet.toml", text.as_bytes()).map_err(|e| format!("{shown}: {e}"))? {
            return Err(format!("{shown}: a fleet is there already: choose another folder").into());
        }
        Ok(Self { path: path.to_owned(), fleet, folder })
    }

    fn at<E: std::fmt::Display>(&self, name: &str) -> impl FnOnce(E) -> Error {
        let shown = self.path.join(name).display().to_string();
        move |e| format!("{shown}: {e}").into()
    }

    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.folder.put_synced(name, bytes).map_err(self.at(name))
    }

    pub fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, Error> {
        self.folder.read(name, most).map_err(self.at(name))
    }

    /// Reads a key of the folder.
    pub fn secret(&self, name: &str) -> Result<Secret, Error> {
        let bytes = self.read(name, MAX_KEY)?.unwrap_or_default();
        let secret = std::str::from_utf8(&bytes).ok().and_then(Secret::from_pem);
        secret
            .ok_or_else(|| self.at(name)("no Ed25519 secret key in PEM there: see docs/fleet.md, lost keys"))
    }

    /// Returns the delegation of the fleet's key.
    pub fn delegation(&self) -> Result<(Delegated, Delegation), Error> {
        let bytes = self.read("delegation", MAX_TEXT)?.unwrap_or_default();
        let read = Delegated::read(&bytes);
        read.ok_or_else(|| self.at("delegation")("no delegation there: flame fleet rotate --root FILE"))
    }

    /// Returns the state.
    pub fn state(&self) -> Result<State, Error> {
        let bytes = self.read("state", MAX_STATE)?.unwrap_or_default();
        let state: State = serde_json::from_slice(&bytes).map_err(self.at("state"))?;
        match state.form {
            FORM => Ok(state),
            form => {
                Err(self.at("state")(format!("form {form}, expected {FORM}: use the release that wrote it")))
            }
        }
    }

    /// Changes the state, one change at a time. Without an error it is on the disk when this returns.
    pub fn change<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, Error>,
    ) -> Result<(State, T), Error> {
        let _lock = self.folder.lock().map_err(self.at("lock"))?;
        let mut state = self.state()?;
        let result = change(&mut state)?;
        state.change += 1;
        self.store(&state)?;
        Ok((state, result))
    }

    pub fn store(&self, state: &State) -> Result<(), Error> {
        self.put("state", &serde_json::to_vec(state)?)
    }

    /// Writes the server's configuration for a state. Returns its SHA-256.
    pub fn configure(&self, state: &State) -> Result<[u8; 32], Error> {
        let key = |name: &str| Ok::<_, Error>(self.secret(name)?.public());
        let own =
            Own { control: key("control.key")?, archive: key("archive.key")?, system: key("system.key")? };
        let folder = std::path::absolute(&self.path)?;
        let store = folder.join(&self.fleet.store);
        let places = Places { listen: &self.fleet.listen, folder: &folder, store: &store };
        let text = users::configuration(&places, &own, state, now());
        let before = self.read("server.conf", MAX_STATE)?;
        if before.as_deref() != Some(text.as_bytes()) {
            self.put("server.conf", text.as_bytes())?;
        }
        Ok(Sha256::digest(text.as_bytes()).into())
    }

    /// Returns the way to the server for a user of this folder.
    pub fn access(&self, user: &str) -> Result<Access, Error> {
        let secret = Arc::new(self.secret(&format!("{user}.key"))?);
        let (authority, inbox) = (self.path.join("ca.pem"), format!("flame.inbox.{user}"));
        let user = Some(User { secret, authority, inbox, node: None });
        Ok(Access { server: self.fleet.server.clone(), user })
    }
}
