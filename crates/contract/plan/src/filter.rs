//! Filters as values. The author of a filter decides on which form of a packet it is evaluated, so there is a
//! type for each: code that holds only a [`ShownFilter`] cannot evaluate it on a packet with hidden bytes.
//!
//! Filters are parsed once, here, and written in a normal form (`text.rs`), in which hosts, networks, ports
//! and protocols are numbers. So neither compiling nor evaluating a filter needs a resolver.
//!
//! ```compile_fail
//! let mut spec = flame_plan::ViewSpec::default();
//! // A manifest's filter is no filter for the true packet.
//! spec.select.extend(flame_plan::ShownFilter::parse("port 53").unwrap());
//! ```

use crate::text::read;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest text of a [`TrustedFilter`] in bytes: some 60,000 addresses, of which a filter makes sets.
pub const MAX_FILTER: usize = 1 << 20;
/// The longest text of a [`ShownFilter`] in bytes.
pub const MAX_SHOWN_FILTER: usize = 2048;
/// The maximum number of words and operators in a [`ShownFilter`].
pub const MAX_SHOWN_WORDS: usize = 512;
/// The maximum number of addresses and numbers in a [`ShownFilter`].
pub const MAX_SHOWN_VALUES: usize = 64;
/// The maximum number of shown filters that apply to one module.
pub const MAX_SHOWN_FILTERS: usize = 32;
/// The maximum number of addresses and numbers in all shown filters that apply to one module.
pub const MAX_SHOWN_TOTAL: usize = 128;

/// A filter of the node's policy, of a root, or of the operator. It is evaluated on the packet as it was
/// captured.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TrustedFilter(String);

/// A filter of any other origin. It is evaluated on the packet as the view shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ShownFilter {
    text: String,
    /// The number of addresses and numbers in the filter.
    values: usize,
}

impl From<TrustedFilter> for String {
    fn from(filter: TrustedFilter) -> Self {
        filter.0
    }
}

impl TryFrom<String> for TrustedFilter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)?.ok_or_else(|| "the filter is empty".to_owned())
    }
}

impl From<ShownFilter> for String {
    fn from(filter: ShownFilter) -> Self {
        filter.text
    }
}

impl TryFrom<String> for ShownFilter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)?.ok_or_else(|| "the filter is empty".to_owned())
    }
}

impl TrustedFilter {
    /// Parses a filter. Returns `None` for an empty filter, which every packet passes.
    ///
    /// # Errors
    ///
    /// Returns a description of the fault if the filter is too long or contains a name or a character without
    /// meaning in filters.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let words = read(text, MAX_FILTER)?;
        Ok((!words.text.is_empty()).then_some(Self(words.text)))
    }

    /// Returns the text of the filter.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ShownFilter {
    /// Parses a filter within the limits of shown filters. Returns `None` for an empty filter.
    ///
    /// # Errors
    ///
    /// Returns a description of the fault as [`TrustedFilter::parse`] does, and if the filter has too many
    /// words, addresses or numbers.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let words = read(text, MAX_SHOWN_FILTER)?;
        for (what, found, most) in [
            ("words", words.words, MAX_SHOWN_WORDS),
            ("addresses and numbers", words.values, MAX_SHOWN_VALUES),
        ] {
            if found > most {
                return Err(format!(
                    "it has {found} {what}, at most {most} are compiled: use networks or fewer terms"
                ));
            }
        }
        Ok((!words.text.is_empty()).then_some(Self { text: words.text, values: words.values }))
    }

    /// Returns the text of the filter.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Checks the number and size of filters that apply together. Each filter alone is limited, but a chain
    /// of credentials could state thousands.
    ///
    /// # Errors
    ///
    /// Returns an error if they exceed [`MAX_SHOWN_FILTERS`] or [`MAX_SHOWN_TOTAL`].
    pub fn affordable<'a>(all: impl IntoIterator<Item = &'a Self>) -> Result<(), String> {
        let (mut filters, mut values) = (0, 0usize);
        for filter in all {
            filters += 1;
            values += filter.values;
        }
        if filters > MAX_SHOWN_FILTERS || values > MAX_SHOWN_TOTAL {
            return Err(format!(
                "{filters} filters with {values} addresses and numbers are stated by credential, manifest and command \
                 line together, at most {MAX_SHOWN_FILTERS} with {MAX_SHOWN_TOTAL} are compiled: use networks or fewer terms"
            ));
        }
        Ok(())
    }
}

impl fmt::Display for TrustedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ShownFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns `text` with every word in its normal form, separated by single spaces.
///
/// # Errors
///
/// Returns an error if `text` is too long or contains a name or an unknown character.
pub fn normalize_filter(text: &str) -> Result<String, String> {
    Ok(read(text, MAX_FILTER)?.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        ShownFilter::parse(text).map(|f| f.map_or_else(String::new, |f| f.to_string()))
    }

    #[test]
    fn one_text_has_one_form_wherever_spaces_are() {
        for (text, form) in [
            (" port 53 ", "port 53"),
            ("\ttcp[tcpflags]&tcp-syn!=0", "tcp [ tcpflags ] & tcp-syn != 0"),
            ("ip[2:2]-4>0x10 ", "ip [ 2 : 2 ] - 4 > 16"),
            ("net 10/8||portrange 80-90", "net 10 / 8 || portrange 80-90"),
            ("host ::1 or host fe80::A", "host 0:0:0:0:0:0:0:1 or host fe80:0:0:0:0:0:0:a"),
            ("ether host 1:2:3:4:5:6", "ether host 01:02:03:04:05:06"),
            ("ether src dead.beef.cafe", "ether src de:ad:be:ef:ca:fe"),
            ("net 192.168 and len<=010", "net 192.168 and len <= 8"),
            (" \n", ""),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(form));
            assert_eq!(shown(form).as_deref(), Ok(form), "its own form");
            assert_eq!(normalize_filter(text).as_deref(), Ok(form));
        }
    }

    #[test]
    fn names_are_refused_wherever_they_stand() {
        for text in [
            "host localhost",
            "host a",
            "port no-such-service",
            "port auth-or-not",
            "portrange 80-nothing",
            "host domain",
            "domain",
            "port 53 or host domain",
            "port domain and ip[domain] = 1",
            "net loopback",
            "ip proto nothing",
            "proto domain",
            "host \\tcp",
            "\\tcp",
            "tcp port syslog",
            "port syslog or 53",
            "port (domain or syslog)",
            "gateway 10.0.0.1",
            "host 10.0.0.1.example.org",
            "host face",
            "ether host abc",
            "host fe80::1%eth0",
            "port 80-90",
            "host 0xf-1",
            "ip[0xf-1]=1",
            "host 1.2.3.4.5",
            "host 300.1.1.1",
            "src host _x",
            "host 10..1",
            "host ::g",
            "len-14 > 0",
            "port 99999999999",
            "host 10.1.2.3a",
            "host $a",
            "ip\0",
        ] {
            assert!(shown(text).is_err(), "{text}");
            assert!(normalize_filter(text).is_err(), "{text}");
        }
        assert!(shown("host example.org").unwrap_err().contains("\"example.org\" is a name"));
    }

    #[test]
    fn names_of_services_and_protocols_are_numbers() {
        for (text, form) in [
            ("port domain", "port 53"),
            ("tcp port http or https", "tcp port 80 or 443"),
            ("src or dst port (ssh or not telnet)", "src or dst port ( 22 or not 23 )"),
            ("portrange ftp-data-ssh", "portrange 20-22"),
            ("portrange 80-https", "portrange 80-443"),
            // A service of one protocol alone.
            ("port syslog", "udp port 514"),
            ("ip and not src port shell and port 1", "ip and not tcp src port 514 and port 1"),
            ("src or dst port syslog or port domain", "udp src or dst port 514 or port 53"),
            ("udp dst port syslog or 53", "udp dst port 514 or 53"),
            ("(port syslog) && tcp", "( udp port 514 ) && tcp"),
            ("proto gre", "proto 47"),
            ("ip proto ospf or \\tcp", "ip proto 89 or 6"),
            ("ip6 proto \\icmp6 or proto udp", "ip6 proto 58 or proto 17"),
            ("ether proto \\arp or ether proto lldp", "ether proto 2054 or ether proto 35020"),
            // Words of the language keep their meaning.
            ("port domain or tcp", "port 53 or tcp"),
            ("proto gre or esp", "proto 47 or esp"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(form), "{text}");
            assert_eq!(shown(form).as_deref(), Ok(form), "its own form");
        }
        let refused = |text: &str| shown(text).unwrap_err();
        assert!(refused("tcp port syslog").contains("write `udp port syslog`"));
        assert!(refused("port syslog or 53").contains("write `or port 53`"));
        assert!(refused("port nonsense").contains("no service of the table"));
        assert!(refused("proto nonsense").contains("no protocol of the table"));
    }

    #[test]
    fn strangers_have_bounds_that_operators_do_not() {
        let hosts = |n: usize| vec!["host 10.0.0.1"; n].join(" or ");
        assert!(shown(&hosts(MAX_SHOWN_VALUES)).is_ok());
        assert!(shown(&hosts(MAX_SHOWN_VALUES + 1)).unwrap_err().contains("at most 64"));
        assert!(shown(&format!("{}ip", "!".repeat(MAX_SHOWN_WORDS))).unwrap_err().contains("words"));
        assert!(shown(&" ".repeat(MAX_SHOWN_FILTER + 1)).unwrap_err().contains("bytes"));
        assert!(TrustedFilter::parse(&hosts(1000)).is_ok());
        // Short as it is written, too long in its normal form.
        let short = format!("{}host ::1", "icmp6-echo host ::1||".repeat(60));
        assert!(short.len() < MAX_SHOWN_FILTER && shown(&short).unwrap_err().contains("whole addresses"));
        assert!(normalize_filter(&"!".repeat(MAX_FILTER)).is_err());
    }
}
