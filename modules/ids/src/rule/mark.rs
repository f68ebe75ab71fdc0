//! `flowbits` and `xbits`: marks that one rule leaves and another one asks for.

use super::fault::{Wrong, wrong};
use super::text::Piece;
use std::collections::BTreeMap;

/// The owner of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The packet's connection (`flowbits`).
    Flow,
    Source,
    Destination,
    /// Source and destination, in either order.
    Pair,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Set,
    Unset,
    Toggle,
    IsSet,
    IsNotSet,
}

impl Action {
    /// Returns whether the action is a condition.
    pub fn asks(self) -> bool {
        matches!(self, Self::IsSet | Self::IsNotSet)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub owner: Owner,
    pub action: Action,
    /// The numbers of the names. A condition with several asks for any one of them.
    pub names: Vec<u32>,
    /// The time in seconds after which the mark is gone, or 0.
    pub expire: u32,
}

/// Numbers for the names of all marks of a rule set.
#[derive(Default)]
pub struct Numbers(BTreeMap<String, u32>);

impl Numbers {
    #[inline(never)]
    fn of(&mut self, name: Piece<'_>) -> Result<u32, Wrong> {
        if name.is_empty() || name.text.contains(char::is_whitespace) {
            return wrong(name.at, "a name");
        }
        let next = self.0.len() as u32;
        Ok(*self.0.entry(name.text.to_owned()).or_insert(next))
    }
}

#[inline(never)]
fn action(piece: Piece<'_>) -> Option<Action> {
    Some(match piece.text {
        "set" => Action::Set,
        "unset" => Action::Unset,
        "toggle" => Action::Toggle,
        "isset" => Action::IsSet,
        "isnotset" => Action::IsNotSet,
        _ => return None,
    })
}

/// Parses `noalert` or `ACTION,NAME[|NAME …]`; `noalert` gives nothing.
///
/// # Errors
///
/// Returns an error with its offset if the action or a name is missing, or if an action that is no condition
/// has several names.
#[inline(never)]
pub fn flowbits(piece: Piece<'_>, numbers: &mut Numbers) -> Result<Option<Mark>, Wrong> {
    let mut parts = piece.parts(',');
    let first = parts.next().unwrap_or(piece);
    if first.text == "noalert" && parts.next().is_none() {
        return Ok(None);
    }
    let mut parts = piece.parts(',').skip(1);
    let (Some(action), Some(names), None) = (action(first), parts.next(), parts.next()) else {
        return wrong(piece.at, "noalert, or set, unset, toggle, isset or isnotset and a name");
    };
    let names: Vec<_> = names.parts('|').map(|n| numbers.of(n)).collect::<Result<_, _>>()?;
    if names.len() > 1 && !action.asks() {
        return wrong(piece.at, "one name to set, unset or toggle");
    }
    Ok(Some(Mark { owner: Owner::Flow, action, names, expire: 0 }))
}

/// Parses `ACTION,NAME,track ip_src|ip_dst|ip_pair[,expire SECONDS]`; `noalert` gives nothing.
///
/// # Errors
///
/// Returns an error with its offset if the action, the name or the owner is missing, or if `expire` is not
/// valid. The inner error is the reason why valid marks are not supported.
#[inline(never)]
pub fn xbits(piece: Piece<'_>, numbers: &mut Numbers) -> Result<Result<Option<Mark>, String>, Wrong> {
    let mut parts = piece.parts(',');
    let first = parts.next().unwrap_or(piece);
    if first.text == "noalert" {
        return Ok(Ok(None));
    }
    let (Some(action), Some(name), Some(track)) = (action(first), parts.next(), parts.next()) else {
        return wrong(piece.at, "set, unset, toggle, isset or isnotset, a name, and track");
    };
    let owner = match track.strip("track").map(Piece::trim).unwrap_or(track).text {
        "ip_src" => Owner::Source,
        "ip_dst" => Owner::Destination,
        "ip_pair" => Owner::Pair,
        "tx" => return Ok(Err("xbits of transactions".to_owned())),
        _ => return wrong(track.at, "track ip_src, ip_dst or ip_pair"),
    };
    // Suricata's default.
    let mut expire = 30;
    for part in parts {
        match part.strip("expire") {
            Some(value) => expire = value.trim().number(1, i64::from(u32::MAX))? as u32,
            None => return wrong(part.at, "expire and seconds"),
        }
    }
    // Names of connections and of hosts are distinct.
    let names = vec![numbers.of(name)?];
    Ok(Ok(Some(Mark { owner, action, names, expire })))
}
