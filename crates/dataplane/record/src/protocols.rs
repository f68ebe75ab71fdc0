//! Names of protocols above IP (IANA), as Suricata writes them.

use std::borrow::Cow;

/// Returns the name of a protocol, or its number in three digits.
pub(crate) fn name(number: u64) -> Cow<'static, str> {
    let found = usize::try_from(number).ok().and_then(|n| NAMES.get(n));
    found.map_or_else(|| Cow::Owned(format!("{number:03}")), |name| Cow::Borrowed(*name))
}

/// The names from protocol 0 on.
#[rustfmt::skip]
const NAMES: [&str; 144] = [
    "HOPOPT", "ICMP", "IGMP", "GGP", "IP-in-IP", "ST", "TCP", "CBT", "EGP", "IGP", "BBN-RCC-MON", "NVP-II",
    "PUP", "ARGUS", "EMCON", "XNET", "CHAOS", "UDP", "MUX", "DCN-MEAS", "HMP", "PRM", "XNS-IDP", "TRUNK-1",
    "TRUNK-2", "LEAF-1", "LEAF-2", "RDP", "IRTP", "ISO-TP4", "NETBLT", "MFE-NSP", "MERIT-INP", "DCCP",
    "3PC", "IDPR", "XTP", "DDP", "IDPR-CMTP", "TP++", "IL", "IPv6", "SDRP", "IPv6-Route", "IPv6-Frag",
    "IDRP", "RSVP", "GRE", "DSR", "BNA", "ESP", "AH", "I-NLSP", "SwIPe", "NARP", "MOBILE", "TLSP", "SKIP",
    "IPv6-ICMP", "IPv6-NoNxt", "IPv6-Opts", "Any", "CFTP", "Any", "SAT-EXPAK", "KRYPTOLAN", "RVD", "IPPC",
    "Any", "SAT-MON", "VISA", "IPCU", "CPNX", "CPHB", "WSN", "PVP", "BR-SAT-MON", "SUN-ND", "WB-MON",
    "WB-EXPAK", "ISO-IP", "VMTP", "SECURE-VMTP", "VINES", "TTP", "NSFNET-IGP", "DGP", "TCF", "EIGRP",
    "OSPF", "Sprite-RPC", "LARP", "MTP", "AX.25", "OS", "MICP", "SCC-SP", "ETHERIP", "ENCAP", "Any",
    "GMTP", "IFMP", "PNNI", "PIM", "ARIS", "SCPS", "QNX", "A/N", "IPComp", "SNP", "Compaq-Peer",
    "IPX-in-IP", "VRRP", "PGM", "Any", "L2TP", "DDX", "IATP", "STP", "SRP", "UTI", "SMP", "SM", "PTP",
    "IS-IS", "FIRE", "CRTP", "CRUDP", "SSCOPMCE", "IPLT", "SPS", "PIPE", "SCTP", "FC", "RSVP-E2E-IGNORE",
    "Mobility", "UDPLite", "MPLS-in-IP", "manet", "HIP", "Shim6", "WESP", "ROHC", "Ethernet",
];
