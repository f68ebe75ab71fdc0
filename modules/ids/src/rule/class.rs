//! Classes of attack and their priority, 1 being the highest. The names are those that rules in this language
//! use.

use super::fault::{Wrong, wrong};
use super::text::Piece;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The priority of a rule that has none and whose class is not known.
pub const DEFAULT: u8 = 3;

const KNOWN: &[(u8, &[&str])] = &[
    (
        1,
        &[
            "attempted-user",
            "unsuccessful-user",
            "successful-user",
            "attempted-admin",
            "successful-admin",
            "shellcode-detect",
            "trojan-activity",
            "web-application-attack",
            "inappropriate-content",
            "policy-violation",
            "file-format",
            "malware-cnc",
            "client-side-exploit",
        ],
    ),
    (
        2,
        &[
            "bad-unknown",
            "attempted-recon",
            "successful-recon-limited",
            "successful-recon-largescale",
            "attempted-dos",
            "successful-dos",
            "rpc-portmap-decode",
            "suspicious-filename-detect",
            "suspicious-login",
            "system-call-detect",
            "unusual-client-port-connection",
            "denial-of-service",
            "non-standard-protocol",
            "web-application-activity",
            "misc-attack",
            "default-login-attempt",
            "sdf",
        ],
    ),
    (
        3,
        &[
            "unknown",
            "not-suspicious",
            "string-detect",
            "network-scan",
            "protocol-command-decode",
            "misc-activity",
            "icmp-event",
        ],
    ),
    (4, &["tcp-connection"]),
];

/// The description and priority of classes, by name.
#[derive(Default)]
pub struct Classes {
    own: BTreeMap<String, (Arc<str>, u8)>,
}

impl Classes {
    /// Parses `NAME,DESCRIPTION,PRIORITY` of a line `config classification:`.
    pub fn define(&mut self, piece: Piece<'_>) -> Result<(), Wrong> {
        let parts: Vec<_> = piece.parts(',').collect();
        let [name, description, priority] = parts[..] else {
            return wrong(piece.at, "a name, a description and a priority, with commas between");
        };
        let priority = priority.number(1, 255)? as u8;
        self.own.insert(name.text.to_owned(), (description.text.into(), priority));
        Ok(())
    }

    /// Returns the display name of a class, and its priority.
    #[inline(never)]
    pub fn find(&mut self, name: &str) -> (Arc<str>, u8) {
        if let Some(own) = self.own.get(name) {
            return own.clone();
        }
        let known = KNOWN.iter().find(|(_, names)| names.contains(&name));
        // The name is kept once for all rules of the class.
        let class = (Arc::from(name), known.map_or(DEFAULT, |k| k.0));
        self.own.insert(name.to_owned(), class.clone());
        class
    }
}
