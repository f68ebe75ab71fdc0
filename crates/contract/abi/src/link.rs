//! Link types by their number in capture files (the registry is at tcpdump.org/linktypes.html).

/// The type of the link header with which a packet begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkType(pub u16);

impl LinkType {
    pub const NULL: Self = Self(0);
    pub const ETHERNET: Self = Self(1);
    /// DLT_RAW as some systems write it into files.
    pub const RAW_BSD: Self = Self(12);
    pub const RAW_OPENBSD: Self = Self(14);
    pub const PPP: Self = Self(9);
    /// PPP in HDLC-like framing, or Cisco HDLC.
    pub const PPP_HDLC: Self = Self(50);
    pub const RAW: Self = Self(101);
    /// Cisco HDLC.
    pub const C_HDLC: Self = Self(104);
    pub const PPPOE: Self = Self(51);
    /// ATM with LLC (RFC 1483).
    pub const ATM_RFC1483: Self = Self(100);
    pub const FRAME_RELAY: Self = Self(107);
    /// OpenBSD's encapsulating interface of IPsec.
    pub const ENC: Self = Self(109);
    /// The log of OpenBSD's packet filter.
    pub const PFLOG: Self = Self(117);
    /// PPP after a byte that states the direction, of pppd and of others.
    pub const PPP_PPPD: Self = Self(166);
    pub const PPP_WITH_DIR: Self = Self(204);
    /// Per-packet information, then a packet of another link type.
    pub const PPI: Self = Self(192);
    /// Apple's packet tap: a header that states the process, then a packet of another link type.
    pub const PKTAP: Self = Self(258);
    pub const IEEE802_11: Self = Self(105);
    pub const IEEE802_11_RADIOTAP: Self = Self(127);
    pub const NFLOG: Self = Self(239);
    /// Ethernet with a switch's tag after the addresses. This is Broadcom's tag; [`Self::DSA_TAG_DSA`] and
    /// [`Self::DSA_TAG_EDSA`] are Marvell's, the latter with an EtherType.
    pub const DSA_TAG_BRCM: Self = Self(281);
    /// Ethernet with Broadcom's tag before the addresses.
    pub const DSA_TAG_BRCM_PREPEND: Self = Self(282);
    pub const DSA_TAG_DSA: Self = Self(284);
    pub const DSA_TAG_EDSA: Self = Self(285);
    pub const LOOP: Self = Self(108);
    pub const LINUX_SLL: Self = Self(113);
    pub const IPV4: Self = Self(228);
    pub const IPV6: Self = Self(229);
    pub const LINUX_SLL2: Self = Self(276);

    /// The link types whose packets are decoded.
    pub const DECODED: [Self; 29] = [
        Self::NULL,
        Self::ETHERNET,
        Self::RAW_BSD,
        Self::RAW_OPENBSD,
        Self::RAW,
        Self::LOOP,
        Self::LINUX_SLL,
        Self::IPV4,
        Self::IPV6,
        Self::LINUX_SLL2,
        Self::PPP,
        Self::PPP_HDLC,
        Self::C_HDLC,
        Self::IEEE802_11,
        Self::IEEE802_11_RADIOTAP,
        Self::NFLOG,
        Self::DSA_TAG_BRCM,
        Self::DSA_TAG_BRCM_PREPEND,
        Self::DSA_TAG_DSA,
        Self::DSA_TAG_EDSA,
        Self::PPPOE,
        Self::ATM_RFC1483,
        Self::FRAME_RELAY,
        Self::ENC,
        Self::PFLOG,
        Self::PPP_PPPD,
        Self::PPP_WITH_DIR,
        Self::PPI,
        Self::PKTAP,
    ];

    /// Returns whether packets of this type are decoded. Others count as not IP.
    pub fn is_decoded(self) -> bool {
        Self::DECODED.contains(&self)
    }
}
