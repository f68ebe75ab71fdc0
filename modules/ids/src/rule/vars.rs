//! Variables: `var`, `ipvar` and `portvar` lines, and the variables of the parameter `vars`. A value is
//! evaluated when it is defined, so it never grows by repetition.

use super::address::Addresses;
use super::fault::{Wrong, wrong};
use super::list;
use super::port::Ports;
use super::start::{BEYOND, MOST_RANGES, Start};
use super::text::Piece;
use super::yaml::{self, Sort};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The definitions, and the sets that have been read so far, each kept once.
#[derive(Default)]
pub struct Variables {
    addresses: BTreeMap<String, Arc<Addresses>>,
    ports: BTreeMap<String, Arc<Ports>>,
    read_addresses: BTreeMap<String, Arc<Addresses>>,
    read_ports: BTreeMap<String, Arc<Ports>>,
    /// The work of the start, to which lists add theirs.
    pub start: Start,
}

/// The number of times that definitions are read which refer to later ones.
const PASSES: usize = 16;
/// The text of a longer list is not kept to find its set again.
const KEPT: usize = 256;
/// A list without variables of at most this many bytes is always read.
const SHORT: usize = 64;

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
            Sort::Either | Sort::Any => {
                // Neither: the variable in it may be defined later, or the mistake is in both.
                if let (Err(wrong), Err(_)) = (&addresses, &ports)
                    && (wrong.kind.is_some() || sort == Sort::Either)
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
        let (mut waiting, unknown) =
            if yaml::is_yaml(text) { yaml::variables(text) } else { (yaml::lines(text), Vec::new()) };
        let mut faults = Vec::new();
        for _ in 0..PASSES {
            let before = waiting.len();
            faults.clear();
            waiting.retain(|v| {
                let bytes = v.value.text.len();
                if !self.start.has_time_for(bytes, 0) {
                    faults.push((v.line, format!("{}: {BEYOND}", v.name.text)));
                    return true;
                }
                self.start.other(bytes);
                match self.set(v.sort, v.name, v.value) {
                    Ok(()) => false,
                    Err(w) => {
                        let from = v.line_at;
                        let line = text[from..].lines().next().unwrap_or_default();
                        let here = Wrong { at: w.at.saturating_sub(from), ..w };
                        faults.push((v.line, format!("{}: {}", v.name.text, here.describe(line))));
                        true
                    }
                }
            });
            if waiting.is_empty() || waiting.len() == before {
                break;
            }
        }
        faults.extend(unknown.into_iter().map(|line| (line, "expected NAME: VALUE".to_owned())));
        faults.sort();
        faults
    }

    pub fn addresses(&mut self, piece: Piece<'_>) -> Result<Arc<Addresses>, Wrong> {
        find(&mut self.read_addresses, &self.addresses, &mut self.start, piece)
    }

    pub fn ports(&mut self, piece: Piece<'_>) -> Result<Arc<Ports>, Wrong> {
        find(&mut self.read_ports, &self.ports, &mut self.start, piece)
    }
}

#[inline(never)]
fn find<K: list::Kind>(
    read: &mut BTreeMap<String, Arc<K>>,
    defined: &BTreeMap<String, Arc<K>>,
    start: &mut Start,
    piece: Piece<'_>,
) -> Result<Arc<K>, Wrong> {
    if let Some(set) = read.get(piece.text) {
        return Ok(set.clone());
    }
    // A variable by itself is shared.
    if let Some(set) = piece.text.strip_prefix('$').and_then(|name| defined.get(name)) {
        return Ok(set.clone());
    }
    let is_short = piece.text.len() <= SHORT && !piece.text.contains('$');
    if !start.has_room_for_lists() && !is_short {
        return Err(Wrong {
            at: piece.at,
            expected: format!("lists of more than {MOST_RANGES} ranges together"),
            kind: Some("lists too large together".to_owned()),
        });
    }
    // A variable takes a few bytes and may stand for many ranges.
    if piece.text.contains('$') && !start.has_time_for_ranges(2 * list::MOST) {
        return Err(Wrong { at: piece.at, expected: BEYOND.to_owned(), kind: Some(BEYOND.to_owned()) });
    }
    let mut made = 0;
    let set = list::read(piece, &|name| defined.get(name).map(|set| (**set).clone()), &mut made);
    start.ranges(made);
    let set = Arc::new(set?);
    if piece.text.len() <= KEPT {
        read.insert(piece.text.to_owned(), set.clone());
    }
    Ok(set)
}
