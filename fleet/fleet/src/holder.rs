//! The holder of a credential who queries an archive, and its views of it.
//!
//! Its own tables are those whose rows were released to it, by the name of its principal. Tables of the
//! operator are there as the policy shows them to its role (`[shows.ROLE]`), under the rights that role and
//! credential leave: `expose` and `transform` decide about columns by their kind, `resolution` rounds times
//! down, `group` is the least number of rows for which one row stands, `node` decides about rows. A
//! credential that selects or samples packets sees none of them, since records do not state their packets.

use crate::Error;
use crate::store::File;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field};
use flame_plan::{Expose, Field as PacketField};
use flame_trust::{
    Challenge, Credential, Event, MAX_BYTES, Policy, Rights, SESSION, Secret, ShownTable, Verified,
    fleet_name, meet,
};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// A holder that has proved to own its key.
pub struct Holder {
    /// The name of its principal in a fleet.
    pub name: String,
    policy: Policy,
    /// The policy's file.
    path: PathBuf,
    principal: String,
    credential: Credential,
    /// The id of its credential's last block, as lists of revocations name it.
    id: String,
    rights: Rights,
    /// The tables of the operator that it sees, by module and table.
    shows: BTreeMap<(String, String), ShownTable>,
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Holder {
    /// Reads policy, credential and the holder's key, and decides at `now`, in seconds since 1970.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read, or the credential gives no session under the policy.
    pub fn open(path: &Path, credential: &Path, identity: &Path, now: u64) -> Result<Self, Error> {
        let policy = Policy::open(path)?;
        let at = |e: &dyn std::fmt::Display| format!("{}: {e}", credential.display());
        let text = std::fs::File::open(credential)
            .and_then(|file| flame_files::read_at_most(file, MAX_BYTES as u64))
            .map_err(|e| at(&e))?;
        let text = String::from_utf8(text).map_err(|_| at(&"a credential is text, this is not"))?;
        let credential = Credential::parse(&text).map_err(|e| at(&e))?;
        let key = match identity.as_os_str() == "-" {
            true => Secret::read(std::io::stdin().lock()).map_err(|e| format!("--identity -: {e}"))?,
            false => Secret::from_file(identity)?,
        };
        let challenge = Challenge::new()?;
        let answer = challenge.answer(&key, &credential, &SESSION);
        let verified = policy.present(&credential, (&challenge, &answer))?;
        Self::decide(policy, path, credential, &verified, now)
    }

    /// Returns the holder under the policy and its revocations as they are now.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy cannot be read, or the credential gives no session any more.
    pub fn again(&self, now: u64) -> Result<Self, Error> {
        let policy = Policy::open(&self.path)?;
        // It has proved to own its key.
        let verified = policy.named(&self.credential)?;
        Self::decide(policy, &self.path, self.credential.clone(), &verified, now)
    }

    fn decide(
        policy: Policy,
        path: &Path,
        credential: Credential,
        verified: &Verified,
        now: u64,
    ) -> Result<Self, Error> {
        policy.admit_session(verified, now)?;
        let (identity, rights) = (&verified.identity, verified.rights().clone());
        let of_role = policy.roles.get(&identity.role).map(|role| meet(&role.fields));
        let shows = policy.shows.get(&identity.role).filter(|_| {
            of_role.is_some_and(|role| {
                (&role.select, &role.select_shown, &role.stages, role.sample, &role.interfaces)
                    == (
                        &rights.select,
                        &rights.select_shown,
                        &rights.stages,
                        rights.sample,
                        &rights.interfaces,
                    )
            })
        });
        let part = |(name, table): (&String, &ShownTable)| {
            let (module, of) = name.split_once('.')?;
            Some(((module.to_owned(), of.to_owned()), table.clone()))
        };
        let shows = shows.into_iter().flatten().filter_map(part).collect();
        let name = fleet_name(&identity.root.to_string(), &identity.principal);
        let id = credential.blocks()?.pop().map_or_else(String::new, |last| last.id);
        let (path, principal) = (path.to_owned(), identity.principal.clone());
        Ok(Self { name, policy, path, principal, credential, id, rights, shows })
    }

    /// Writes a query and its outcome to the audit log of the policy, if it has one, and waits until it is on
    /// the disk.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be written.
    pub fn audit(&self, query: &str, outcome: &str) -> Result<(), Error> {
        let Some((log, secret)) = self.policy.log().zip(self.policy.secret()) else { return Ok(()) };
        let text = format!("credential {}: {outcome}: {query}", self.id);
        Ok(log.write(secret, Event::Query, &self.principal, "", &text)?)
    }

    /// Returns whether rows of a node are visible.
    pub fn sees_node(&self, node: &str) -> bool {
        self.rights.nodes.as_ref().is_none_or(|nodes| nodes.contains(node))
    }

    /// Returns whether rows of a node that were released to a principal are its own, and visible.
    pub fn owns(&self, node: &str, principal: &str) -> bool {
        principal == self.name && self.sees_node(node)
    }

    /// Returns the statement by which rows of the operator in a file are visible, if they are.
    pub fn shown(&self, file: &File) -> Option<&ShownTable> {
        let shown = self.shows.get(&(file.module.clone(), file.table.clone()))?;
        (file.principal.is_empty() && self.sees_node(&file.node)).then_some(shown)
    }

    /// Returns the least number of rows for which a row of a shown table stands.
    pub fn group(&self, shown: &ShownTable) -> u64 {
        shown.group.max(self.rights.group)
    }

    /// Returns the nanoseconds to whose multiples times of shown tables are rounded down.
    pub fn resolution(&self) -> u64 {
        self.rights.resolution_ns
    }

    /// Returns whether the exposure permits a column.
    pub fn exposes(&self, field: &Field) -> bool {
        self.rights.expose >= least_exposure(field)
    }

    /// Returns the columns of a batch of its own that the exposure permits.
    ///
    /// # Errors
    ///
    /// Returns an error if the batch has a damaged schema.
    pub fn visible(&self, batch: &RecordBatch) -> Result<RecordBatch, Error> {
        let fields = batch.schema_ref().fields().iter().enumerate();
        let seen: Vec<_> = fields.filter(|(_, field)| self.exposes(field)).map(|(n, _)| n).collect();
        Ok(batch.project(&seen)?)
    }

    /// Returns the id of its credential's last block.
    #[cfg(test)]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns whether a column may hold what a transform hides. Records were made of packets without it.
    pub fn is_transformed(&self, field: &Field) -> bool {
        self.rights.transforms.keys().any(|hidden| match (hidden, kind(field)) {
            (_, "text") => true,
            (PacketField::IpSrc | PacketField::IpDst, kind) => kind == "ip",
            (PacketField::MacSrc | PacketField::MacDst, kind) => kind == "mac",
            // Ports have no kind of their own.
            (PacketField::PortSrc | PacketField::PortDst, _) => *field.data_type() == DataType::UInt16,
        })
    }
}

/// Returns the kind of a column as its manifest states it. Without a statement, text is the widest.
fn kind(field: &Field) -> &str {
    let is_number = field.data_type().is_numeric() || *field.data_type() == DataType::Boolean;
    match field.metadata().get("type") {
        Some(kind) => kind,
        None if is_number || field.data_type().is_temporal() => "number",
        None => "text",
    }
}

/// Returns the least exposure whose packets yield such a column.
fn least_exposure(field: &Field) -> Expose {
    match kind(field) {
        "bool" | "u8" | "u16" | "u32" | "u64" | "i64" | "f64" | "time" | "duration" | "enum" | "number" => {
            Expose::Count
        }
        "ip" | "mac" => Expose::Headers,
        _ => Expose::Payload(0),
    }
}
