//! Expressions of Click's language of IP filters, and their evaluation.
//!
//! A test of bytes that a packet lacks fails; `not` of it holds. There are no relations but these three:
//! `!=`, `<=` and `>=` are the contrary of a whole primitive, so that `port != 5` denies `src or dst port 5`.
//! That fails, too, if the packet lacks bytes of the primitive.

use super::util::ip_header;
use crate::runtime::packet::Packet;
use flame_click::Mac;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    Ip,
    Transport,
    Ether,
}

impl Base {
    /// Returns bytes of a packet, if it has all of them.
    fn bytes(self, p: &Packet, offset: usize, length: usize) -> Option<&[u8]> {
        let all = match self {
            Self::Ip => p.data().get(p.network()?..),
            // Without a whole IP header the mark of the transport header decides.
            Self::Transport => p.data().get(ip_header(p).map(|h| h.payload()).or_else(|| p.transport())?..),
            Self::Ether => p.link_data(),
        };
        all?.get(offset..offset + length)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Equal,
    Less,
    Greater,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    Constant(bool),
    Not(Box<Expression>),
    /// Holds if the packet has all bytes that the expression tests, and that does not hold.
    Contrary(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    If(Box<[Expression; 3]>),
    Test {
        base: Base,
        offset: usize,
        length: usize,
        mask: u32,
        relation: Relation,
        value: u32,
    },
    Mac {
        at: usize,
        mac: Mac,
    },
}

use Expression as E;

impl Expression {
    pub fn matches(&self, p: &Packet) -> bool {
        match self {
            E::Constant(b) => *b,
            E::Not(e) => !e.matches(p),
            E::Contrary(e) => e.has_bytes(p) && !e.matches(p),
            E::And(all) => all.iter().all(|e| e.matches(p)),
            E::Or(all) => all.iter().any(|e| e.matches(p)),
            E::If(e) => {
                if e[0].matches(p) {
                    e[1].matches(p)
                } else {
                    e[2].matches(p)
                }
            }
            E::Mac { at, mac } => Base::Ether.bytes(p, *at, 6) == Some(&mac.0[..]),
            E::Test { base, offset, length, mask, relation, value } => {
                let Some(field) = base.bytes(p, *offset, *length) else { return false };
                let field = field.iter().fold(0_u32, |v, b| v << 8 | u32::from(*b)) & mask;
                match relation {
                    Relation::Equal => field == *value,
                    Relation::Less => field < *value,
                    Relation::Greater => field > *value,
                }
            }
        }
    }

    /// Returns whether a packet has all bytes that are tested.
    fn has_bytes(&self, p: &Packet) -> bool {
        match self {
            E::Constant(_) => true,
            E::Not(e) | E::Contrary(e) => e.has_bytes(p),
            E::And(all) | E::Or(all) => all.iter().all(|e| e.has_bytes(p)),
            E::If(e) => e.iter().all(|e| e.has_bytes(p)),
            E::Mac { at, .. } => Base::Ether.bytes(p, *at, 6).is_some(),
            E::Test { base, offset, length, .. } => base.bytes(p, *offset, *length).is_some(),
        }
    }
}
