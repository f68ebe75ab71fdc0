//! Classes of attack and their priority, 1 being the highest. Names and descriptions are those of Suricata's
//! and Snort's classification.config, so that records join theirs.

use super::fault::{Wrong, wrong};
use super::options::MOST_TEXT;
use super::text::Piece;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The priority of a rule that has none and whose class is not known.
pub const DEFAULT: u8 = 3;

/// Name, priority and description, by name.
const KNOWN: &[(&str, u8, &str)] = &[
    ("attempted-admin", 1, "Attempted Administrator Privilege Gain"),
    ("attempted-dos", 2, "Attempted Denial of Service"),
    ("attempted-recon", 2, "Attempted Information Leak"),
    ("attempted-user", 1, "Attempted User Privilege Gain"),
    ("bad-unknown", 2, "Potentially Bad Traffic"),
    ("client-side-exploit", 1, "Known client side exploit attempt"),
    ("coin-mining", 2, "Crypto Currency Mining Activity Detected"),
    ("command-and-control", 1, "Malware Command and Control Activity Detected"),
    ("credential-theft", 1, "Successful Credential Theft Detected"),
    ("default-login-attempt", 2, "Attempt to login by a default username and password"),
    ("denial-of-service", 2, "Detection of a Denial of Service Attack"),
    ("domain-c2", 1, "Domain Observed Used for C2 Detected"),
    ("exploit-kit", 1, "Exploit Kit Activity Detected"),
    ("external-ip-check", 2, "Device Retrieving External IP Address Detected"),
    ("file-format", 1, "Known malicious file or file based exploit"),
    ("icmp-event", 3, "Generic ICMP event"),
    ("inappropriate-content", 1, "Inappropriate Content was Detected"),
    ("malware-cnc", 1, "Known malware command and control traffic"),
    ("misc-activity", 3, "Misc activity"),
    ("misc-attack", 2, "Misc Attack"),
    ("network-scan", 3, "Detection of a Network Scan"),
    ("non-standard-protocol", 2, "Detection of a non-standard protocol or event"),
    ("not-suspicious", 3, "Not Suspicious Traffic"),
    ("policy-violation", 1, "Potential Corporate Privacy Violation"),
    ("protocol-command-decode", 3, "Generic Protocol Command Decode"),
    ("pup-activity", 2, "Possibly Unwanted Program Detected"),
    ("rpc-portmap-decode", 2, "Decode of an RPC Query"),
    ("sdf", 2, "Sensitive Data"),
    ("shellcode-detect", 1, "Executable code was detected"),
    ("social-engineering", 2, "Possible Social Engineering Attempted"),
    ("string-detect", 3, "A suspicious string was detected"),
    ("successful-admin", 1, "Successful Administrator Privilege Gain"),
    ("successful-dos", 2, "Denial of Service"),
    ("successful-recon-largescale", 2, "Large Scale Information Leak"),
    ("successful-recon-limited", 2, "Information Leak"),
    ("successful-user", 1, "Successful User Privilege Gain"),
    ("suspicious-filename-detect", 2, "A suspicious filename was detected"),
    ("suspicious-login", 2, "An attempted login using a suspicious username was detected"),
    ("system-call-detect", 2, "A system call was detected"),
    ("targeted-activity", 1, "Targeted Malicious Activity was Detected"),
    ("tcp-connection", 4, "A TCP connection was detected"),
    ("trojan-activity", 1, "A Network Trojan was detected"),
    ("unknown", 3, "Unknown Traffic"),
    ("unsuccessful-user", 1, "Unsuccessful User Privilege Gain"),
    ("unusual-client-port-connection", 2, "A client was using an unusual port"),
    ("web-application-activity", 2, "access to a potentially vulnerable web application"),
    ("web-application-attack", 1, "Web Application Attack"),
];

/// The description and priority of classes, by name.
#[derive(Default)]
pub struct Classes {
    own: BTreeMap<String, (Arc<str>, u8)>,
}

impl Classes {
    /// Parses `NAME,DESCRIPTION,PRIORITY` of a line `config classification:`.
    ///
    /// # Errors
    ///
    /// Returns an error with its offset if a part is missing, or if the priority is not 1 to 255.
    pub fn define(&mut self, piece: Piece<'_>) -> Result<(), Wrong> {
        let parts: Vec<_> = piece.parts(',').collect();
        let [name, description, priority] = parts[..] else {
            return wrong(piece.at, "a name, a description and a priority, with commas between");
        };
        if description.text.len() > MOST_TEXT {
            return wrong(description.at, format!("a description of at most {MOST_TEXT} bytes"));
        }
        let priority = priority.number(1, 255)? as u8;
        self.own.insert(name.text.to_owned(), (description.text.into(), priority));
        Ok(())
    }

    /// Returns the description of a class, or its name if it is not known, and its priority.
    #[inline(never)]
    pub fn find(&mut self, name: &str) -> (Arc<str>, u8) {
        if let Some(own) = self.own.get(name) {
            return own.clone();
        }
        let known = KNOWN.binary_search_by_key(&name, |(known, ..)| known).ok();
        // The text is kept once for all rules of the class.
        let class = match known.map(|i| KNOWN[i]) {
            Some((_, priority, description)) => (Arc::from(description), priority),
            None => (Arc::from(name), DEFAULT),
        };
        self.own.insert(name.to_owned(), class.clone());
        class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_in_order() {
        assert!(KNOWN.is_sorted_by_key(|(name, ..)| *name));
        assert_eq!(Classes::default().find("trojan-activity"), ("A Network Trojan was detected".into(), 1));
        assert_eq!(Classes::default().find("mine"), ("mine".into(), DEFAULT));
    }
}
