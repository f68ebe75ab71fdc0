//! Why a capsule ended.

flame_capsule::causes! {
    "Why a message was refused, or a copy was not sent. Each is counted.";

    /// The link refused the datagram; its own counts have the reason.
    Link = "the link refused the datagram"
    Malformed = "the message was damaged, or is of others"
    ForeignPayer = "a host states that another principal pays: it may not vouch for others"
    BeyondGrant = "the bound is more than the payer's credential leaves of this second: send less"
    Elsewhere = "the payer's credential is not for this node: send the capsule to a node that it names"
    Interface = "the payer's credential is not for the interface to or from the neighbour: name it there"
    BeyondShare = "the bound is more than what is left of the peer's share of this second: send less"
    Exhausted = "the bound does not suffice for the datagram: begin the capsule with more"
    NoRoute = "no neighbour is on the way to the place"
    NoLink = "the next hop has no session yet: keys are being exchanged"
    NoCode = "a stranger's capsule names code that is not cached: send the code with it"
    Full = "the account holds as many capsules without code as it may"
    Overdue = "the code did not come within five seconds"
    Unasked = "the code was not asked for, or came again"
    NotOwed = "the code is asked by a node that was not sent its hash, or was answered before"
    Long = "the code is longer than the request takes"
    NotCompiled = "the code cannot be compiled"
    NoFunction = "the code has no function of this number"
    Trapped = "the program ended by an error, or made a call that is not granted"
    /// The sandbox spent more than its limit: an error of this node. Nothing of the capsule goes further.
    Overrun = "the program ran over its limit of instructions"
    SoftFull = "the account has left as many values as it may"
}
