//! The words of the filter language: those with a meaning here, and those that are refused, with the reason.

/// The words of libpcap's language (pcap-filter(7)) that name no host, network, port or protocol to look up.
const KEYWORDS: &[&str] = &[
    "aarp",
    "addr1",
    "addr2",
    "addr3",
    "addr4",
    "ah",
    "and",
    "arp",
    "atalk",
    "broadcast",
    "clnp",
    "dir",
    "direction",
    "dst",
    "ether",
    "esp",
    "fddi",
    "geneve",
    "greater",
    "host",
    "icmp",
    "icmp6",
    "icmp6code",
    "icmp6type",
    "icmpcode",
    "icmptype",
    "igmp",
    "igrp",
    "inbound",
    "ip",
    "ip6",
    "ipx",
    "iso",
    "isis",
    "lat",
    "len",
    "length",
    "less",
    "link",
    "llc",
    "mask",
    "mopdl",
    "moprc",
    "mpls",
    "multicast",
    "net",
    "netbeui",
    "not",
    "or",
    "outbound",
    "pim",
    "port",
    "portrange",
    "ppp",
    "pppoed",
    "pppoes",
    "proto",
    "ra",
    "ta",
    "rarp",
    "sctp",
    "slip",
    "src",
    "stp",
    "subtype",
    "tcp",
    "tcpflags",
    "tr",
    "type",
    "udp",
    "vlan",
    "vrrp",
    "carp",
    "wlan",
    "icmp-echoreply",
    "icmp-unreach",
    "icmp-sourcequench",
    "icmp-redirect",
    "icmp-echo",
    "icmp-routeradvert",
    "icmp-routersolicit",
    "icmp-timxceed",
    "icmp-paramprob",
    "icmp-tstamp",
    "icmp-tstampreply",
    "icmp-ireq",
    "icmp-ireqreply",
    "icmp-maskreq",
    "icmp-maskreply",
    "icmp6-destinationunreach",
    "icmp6-packettoobig",
    "icmp6-timeexceeded",
    "icmp6-parameterproblem",
    "icmp6-echo",
    "icmp6-echoreply",
    "icmp6-multicastlistenerquery",
    "icmp6-multicastlistenerreportv1",
    "icmp6-multicastlistenerdone",
    "icmp6-routersolicit",
    "icmp6-routeradvert",
    "icmp6-neighborsolicit",
    "icmp6-neighboradvert",
    "icmp6-redirect",
    "tcp-fin",
    "tcp-syn",
    "tcp-rst",
    "tcp-push",
    "tcp-ack",
    "tcp-urg",
    "tcp-ece",
    "tcp-cwr",
];

/// Names of IEEE 802.11 frames and directions. libpcap looks them up as hosts or ports elsewhere than after
/// [`NAMING`].
const FRAMES: &[&str] = &[
    "mgt",
    "ctl",
    "data",
    "beacon",
    "probe-req",
    "probe-resp",
    "assoc-req",
    "assoc-resp",
    "reassoc-req",
    "reassoc-resp",
    "atim",
    "disassoc",
    "auth",
    "deauth",
    "ps-poll",
    "rts",
    "cts",
    "ack",
    "cf-end",
    "cf-end-ack",
    "null",
    "qos-data",
    "tods",
    "fromds",
    "dstods",
    "nods",
];

/// The words after which a frame or a direction is named.
const NAMING: &[&str] = &["type", "subtype", "dir", "direction"];

const FIREWALL: &str =
    "only the logs of pf(4) state it, which are not decoded: match addresses, ports and protocols instead";
const INTERFACE: &str =
    "a packet's bytes do not state its interface: choose the interface (-i), or state it in the grant";

/// Words that are refused, and why.
const REFUSED: &[(&str, &str)] = &[
    (
        "protochain",
        "it follows a chain of headers by a loop, which filters here do not have: write `proto N`, or test \
         the header, as in `ip6 [ 6 ] = 0 and ip6 [ 40 ] = 6`",
    ),
    ("gateway", "it needs a name, and names are not looked up: write `ether host MAC and not host ADDRESS`"),
    ("byte", "its meaning is not documented: write `link [ 5 ] & 3 != 0` for byte 5"),
    ("vxlan", "not every version of libpcap has it: write `udp port 4789`"),
    ("ifindex", INTERFACE),
    ("ifname", INTERFACE),
    ("on", INTERFACE),
    ("rnr", FIREWALL),
    ("rulenum", FIREWALL),
    ("srnr", FIREWALL),
    ("subrulenum", FIREWALL),
    ("rset", FIREWALL),
    ("ruleset", FIREWALL),
    ("reason", FIREWALL),
    ("action", FIREWALL),
];

/// Returns whether a word has a meaning after `before`, the word in front of it.
///
/// # Errors
///
/// Returns the reason for a word that is refused wherever it stands.
pub(crate) fn is_word(word: &str, before: &str) -> Result<bool, String> {
    match REFUSED.iter().find(|(refused, _)| *refused == word) {
        Some((_, reason)) => Err(format!("`{word}` is refused: {reason}")),
        None => Ok(KEYWORDS.contains(&word) || (FRAMES.contains(&word) && NAMING.contains(&before))),
    }
}

/// Returns the words that are passed to libpcap wherever they stand.
pub fn filter_words() -> impl Iterator<Item = &'static str> {
    KEYWORDS.iter().copied()
}

/// Returns the reason why a word is refused for packets that do not carry the property that it tests: the
/// kernel knows it for a packet that it captures, and no file states it.
pub fn filter_metadata(word: &str) -> Option<&'static str> {
    matches!(word, "inbound" | "outbound").then_some(
        "the bytes of these packets do not state their direction; cooked packets (`-i any`) do: compare an \
         address of this machine, as in `ether src MAC` or `src host ADDRESS`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_words_have_a_reason_and_a_remedy() {
        for (word, _) in REFUSED {
            let reason = is_word(word, "").unwrap_err();
            assert!(reason.contains(word) && reason.contains(": "), "{reason}");
            assert!(!KEYWORDS.contains(word) && !FRAMES.contains(word), "{word}");
        }
    }

    /// libpcap would look such a name up.
    #[test]
    fn frames_are_named_only_where_frames_are_meant() {
        for word in FRAMES {
            for before in ["", "host", "net", "port", "proto", "and", "(", "or", "llc"] {
                assert_eq!(is_word(word, before), Ok(false), "{before} {word}");
            }
            assert!(NAMING.iter().all(|before| is_word(word, before) == Ok(true)));
        }
    }
}
