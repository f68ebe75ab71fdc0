//! `var`, `ipvar` and `portvar` lines. A value is evaluated when it is defined, so it can only refer to
//! definitions above it and never grows by repetition.

use super::address::Addresses;
use super::fault::{Wrong, wrong};
use super::list;
use super::port::Ports;
use super::text::Piece;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Variables {
    addresses: BTreeMap<String, Addresses>,
    ports: BTreeMap<String, Ports>,
}

impl Variables {
    /// Parses `NAME VALUE` after the word `kind`.
    pub fn define(&mut self, kind: &str, piece: Piece<'_>) -> Result<(), Wrong> {
        let (name, value) = piece.trim().word(&[]);
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.text.chars().all(plain) {
            return wrong(name.at, "a name of letters, digits and _");
        }
        let value = value.trim();
        if value.is_empty() {
            return wrong(value.at, format!("what {} stands for", name.text));
        }
        let addresses = self.addresses(value);
        let ports = self.ports(value);
        match kind {
            "ipvar" => drop(self.addresses.insert(name.text.to_owned(), addresses?)),
            "portvar" => drop(self.ports.insert(name.text.to_owned(), ports?)),
            // A `var` may be of both kinds (any), of one, or a path, which no rule can use.
            _ => {
                if let Ok(set) = addresses {
                    self.addresses.insert(name.text.to_owned(), set);
                }
                if let Ok(set) = ports {
                    self.ports.insert(name.text.to_owned(), set);
                }
            }
        }
        Ok(())
    }

    pub fn addresses(&self, piece: Piece<'_>) -> Result<Addresses, Wrong> {
        list::read(piece, &|name| self.addresses.get(name).cloned())
    }

    pub fn ports(&self, piece: Piece<'_>) -> Result<Ports, Wrong> {
        list::read(piece, &|name| self.ports.get(name).cloned())
    }
}
