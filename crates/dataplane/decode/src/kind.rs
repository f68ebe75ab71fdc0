//! The kinds of headers.

/// The kind of a header, which determines the places of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An Ethernet header: destination at 0, source at 6.
    Ethernet,
    /// The address of the destination in a link header.
    MacDst,
    MacSrc,
    MacAny,
    /// Bytes up to the layer's end that belong to a header and have no known meaning.
    Opaque,
    /// Bytes up to the layer's end that hold a time.
    Clock,
    /// Bytes up to the layer's end in which the capturing system recorded when and how the packet arrived,
    /// its number, and its sender.
    Notes,
    /// ARP (RFC 826). The places of the addresses depend on the lengths in it.
    Arp,
    Ipv4,
    Ipv6,
    Tcp,
    Udp,
    Sctp,
    /// DCCP (RFC 4340) or UDP-Lite (RFC 3828): ports at 0, a checksum at 6.
    OtherTransport,
    Icmp,
    Icmpv6,
}
