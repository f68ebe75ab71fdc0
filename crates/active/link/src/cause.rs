//! Why a datagram was refused.

flame_capsule::causes! {
    "Why a datagram changed nothing. Each is counted.";

    /// It has no header.
    Short = "the datagram ends before byte 16, expected a header: it was cut, or is of others"
    Foreign = "the datagram begins with other bytes than FL and version 1, or has a kind above 6"
    NoSession = "no session has this number: the other end knows one from before a restart, or it is forged"
    OtherAddress = "the session belongs to another address: the sender is forged, or moved; exchange keys again"
    Forged = "the authenticator does not fit: the packet was changed, reflected or forged"
    Replayed = "the packet was taken before"
    Late = "the packet is too far behind the newest: it was held back"
    Ahead = "the packet's key is too far ahead, expected at most eight keys: it is forged, or too much was lost"
    Ended = "the session has ended with its certificate or after an hour: exchange keys again"
    Exhausted = "the session has no nonce left: exchange keys again"
    Asks = "the first message is shorter than an answer may be: fill it with zeros to 2,048 bytes"
    Skewed = "the clocks of both ends differ by more than 30 s: set them"
    Repeated = "the first message was taken before"
    Crowded = "more first messages come in a second than are answered: exchange keys again a second later"
    Unproven = "many first messages come: the sender is asked to show by a cookie that it receives at its address"
    NoExchange = "no exchange waits for this message: it came late, again, or is forged"
    Exchange = "the message of the exchange was changed, cut or forged: the exchange has ended"
    /// The other end presents the static key of this one.
    Reflected = "the exchange was reflected: both ends have the same key"
    OtherPlace = "the certificate is of another node than the neighbour at this address: it is taken for it"
    Expired = "the certificate has expired: have it renewed"
    Revoked = "the certificate is revoked: ask its root"
    Widened = "the certificate claims more than the one above it: have it narrowed"
    Untrusted = "the certificate chain is of no root that this node trusts, or is malformed"
    NotHolder = "the certificate is for another holder or key"
    Attestation = "the attestation is missing or not accepted: measure the start of the node"
    Wide = "the certificate names more than eight services, nodes or interfaces, as travel with capsules: have it narrowed"
    ManyLinks = "the node has as many links as it may have: end others, or raise the limit"
    ManyOfOne = "the principal has as many links as one may have: end others"
    NoLink = "the address has no session: exchange keys first"
    Long = "the packet is longer than a datagram may be"
}
