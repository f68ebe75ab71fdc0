//! Variables: `var`, `ipvar` and `portvar` lines, and the variables of the parameter `vars`. A value is
//! evaluated when it is defined, so it never grows by repetition.

use super::address::Addresses;
use super::fault::{Wrong, wrong};
use super::list;
use super::port::Ports;
use super::text::Piece;
use super::yaml;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Addresses,
    Ports,
    Any,
}

/// The definitions, and the sets that have been read so far, each kept once.
#[derive(Default)]
pub struct Variables {
    addresses: BTreeMap<String, Arc<Addresses>>,
    ports: BTreeMap<String, Arc<Ports>>,
    read_addresses: BTreeMap<String, Arc<Addresses>>,
    read_ports: BTreeMap<String, Arc<Ports>>,
}

/// The text of a longer list is not kept to find its set again.
const KEPT: usize = 256;

impl Variables {
    /// Parses `NAME VALUE` after the word `kind`.
    #[inline(never)]
    pub fn define(&mut self, kind: &str, piece: Piece<'_>) -> Result<(), Wrong> {
        let (name, value) = piece.trim().word(&[]);
        let sort = match kind {
            "ipvar" => Sort::Addresses,
            "portvar" => Sort::Ports,
            _ => Sort::Any,
        };
        self.set(sort, name, value.trim())
    }

    #[inline(never)]
    pub fn set(&mut self, sort: Sort, name: Piece<'_>, value: Piece<'_>) -> Result<(), Wrong> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.text.chars().all(plain) {
            return wrong(name.at, "a name of letters, digits and _");
        }
        if value.is_empty() {
            return wrong(value.at, format!("what {} stands for", name.text));
        }
        let addresses = self.addresses(value);
        let ports = self.ports(value);
        match sort {
            Sort::Addresses => drop(self.addresses.insert(name.text.to_owned(), addresses?)),
            Sort::Ports => drop(self.ports.insert(name.text.to_owned(), ports?)),
            // A `var` may be of both kinds (any), of one, or a path, which no rule can use.
            Sort::Any => {
                // Neither: the variable in it may be defined later, or the mistake is in both.
                if let (Err(wrong), Err(_)) = (&addresses, &ports)
                    && wrong.kind.is_some()
                {
                    return Err(wrong.clone());
                }
                if let Ok(set) = addresses {
                    self.addresses.insert(name.text.to_owned(), set);
                }
                if let Ok(set) = ports {
                    self.ports.insert(name.text.to_owned(), set);
                }
            }
        }
        // What was read with the old value is no longer true.
        self.read_addresses.clear();
        self.read_ports.clear();
        Ok(())
    }

    /// Reads the parameter `vars`: a suricata.yaml, or lines `NAME = VALUE`. A definition may refer to later
    /// ones. Returns the faults, with their lines.
    pub fn read(&mut self, text: &str) -> Vec<(u32, String)> {
        let mut waiting = if yaml::is_yaml(text) { yaml::variables(text) } else { yaml::lines(text) };
        loop {
            let before = waiting.len();
            let mut faults = Vec::new();
            waiting.retain(|v| match self.set(v.sort, v.name, v.value) {
                Ok(()) => false,
                Err(w) => {
                    let from = v.line_at;
                    let line = text[from..].lines().next().unwrap_or_default();
                    let here = Wrong { at: w.at.saturating_sub(from), ..w };
                    faults.push((v.line, format!("{}: {}", v.name.text, here.describe(line))));
                    true
                }
            });
            if waiting.is_empty() || waiting.len() == before {
                return faults;
            }
        }
    }

    pub fn addresses(&mut self, piece: Piece<'_>) -> Result<Arc<Addresses>, Wrong> {
        find(&mut self.read_addresses, &self.addresses, piece)
    }

    pub fn ports(&mut self, piece: Piece<'_>) -> Result<Arc<Ports>, Wrong> {
        find(&mut self.read_ports, &self.ports, piece)
    }
}

#[inline(never)]
fn find<K: list::Kind>(
    read: &mut BTreeMap<String, Arc<K>>,
    defined: &BTreeMap<String, Arc<K>>,
    piece: Piece<'_>,
) -> Result<Arc<K>, Wrong> {
    if let Some(set) = read.get(piece.text) {
        return Ok(set.clone());
    }
    let set = Arc::new(list::read(piece, &|name| defined.get(name).map(|set| (**set).clone()))?);
    if piece.text.len() <= KEPT {
        read.insert(piece.text.to_owned(), set.clone());
    }
    Ok(set)
}
