//! Expressions of Click's language of IP filters, and their evaluation.
//!
//! A test of bytes that a packet lacks fails; `not` of it holds. There are no relations but these three:
//! `!=`, `<=` and `>=` are `not` of a whole primitive, so that `port != 5` denies `src or dst port 5`.

use super::util::ip_header;
use crate::runtime::packet::Packet;
use flame_click::Mac;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    Ip,
    Transport,
    Ether,
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
    And(Vec<Expression>),
    Or(Vec<Expression>),
    If(Box<[Expression; 3]>),
    Test { base: Base, offset: usize, length: usize, mask: u32, relation: Relation, value: u32 },
    Mac { at: usize, mac: Mac },
}

use Expression as E;

impl Expression {
    pub fn matches(&self, p: &Packet) -> bool {
        match self {
            E::Constant(b) => *b,
            E::Not(e) => !e.matches(p),
            E::And(all) => all.iter().all(|e| e.matches(p)),
            E::Or(all) => all.iter().any(|e| e.matches(p)),
            E::If(e) => {
                if e[0].matches(p) {
                    e[1].matches(p)
                } else {
                    e[2].matches(p)
                }
            }
            E::Mac { at, mac } => p.link_data().and_then(|d| d.get(*at..at + 6)) == Some(&mac.0[..]),
            E::Test { base, offset, length, mask, relation, value } => {
                let bytes = match base {
                    Base::Ip => p.network().and_then(|n| p.data().get(n..)),
                    Base::Transport => {
                        // Without a whole IP header the mark of the transport header decides.
                        let at = ip_header(p).map(|h| h.payload()).or_else(|| p.transport());
                        at.and_then(|t| p.data().get(t..))
                    }
                    Base::Ether => p.link_data(),
                };
                let Some(field) = bytes.and_then(|b| b.get(*offset..offset + length)) else { return false };
                let field = field.iter().fold(0_u32, |v, b| v << 8 | u32::from(*b)) & mask;
                match relation {
                    Relation::Equal => field == *value,
                    Relation::Less => field < *value,
                    Relation::Greater => field > *value,
                }
            }
        }
    }
}
