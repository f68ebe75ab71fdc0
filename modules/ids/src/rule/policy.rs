//! `threshold.config`: lines `threshold`, `event_filter` and `suppress`, which limit the alerts of rules by
//! their numbers.

use super::address::Addresses;
use super::fault::{Wrong, wrong};
use super::rate::{self, Rate};
use super::text::Piece;
use super::vars::Variables;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The addresses for which a rule does not alert.
#[derive(Clone, Debug)]
pub struct Suppression {
    pub source: bool,
    pub destination: bool,
    /// All addresses, if there are none.
    pub addresses: Option<Arc<Addresses>>,
}

/// The file and the line of a policy.
pub type Place = (u32, u32);

#[derive(Default)]
struct Limits {
    /// The rate, its place, and whether a rule has it.
    rate: Option<(Rate, Place)>,
    has_rate: bool,
    suppressed: Vec<Suppression>,
    /// The same, as rules have them, once they are read.
    shared: Option<Arc<[Suppression]>>,
    /// The places of the suppressions.
    places: Vec<Place>,
}

/// The lines so far, by gid and sid; 0 stands for all.
#[derive(Default)]
pub struct Policies {
    by_number: BTreeMap<(u32, u32), Limits>,
    /// The places of rates that a later line replaced.
    replaced: Vec<Place>,
}

pub fn is_line(word: &str) -> bool {
    matches!(word, "threshold" | "event_filter" | "suppress" | "rate_filter")
}

impl Policies {
    /// Parses the line of kind `kind`, after that word. The inner result is a reason why it is not supported.
    ///
    /// # Errors
    ///
    /// Returns an error with its offset if a word, a number or the addresses are missing or not valid.
    #[inline(never)]
    pub fn define(
        &mut self,
        kind: Piece<'_>,
        rest: Piece<'_>,
        place: Place,
        vars: &mut Variables,
    ) -> Result<Result<(), String>, Wrong> {
        if kind.text == "rate_filter" {
            return Ok(Err("line of kind rate_filter (changes actions)".to_owned()));
        }
        let id = |word: &str, part: Option<Piece<'_>>| -> Result<u32, Wrong> {
            let part = part.unwrap_or(rest);
            let Some(value) = part.strip(word) else { return wrong(part.at, format!("{word} and a number")) };
            Ok(value.trim().number(0, u32::MAX.into())? as u32)
        };
        // The address of a suppression may be a list with commas in it, so the first parts are taken singly.
        let mut parts = rest.parts(',');
        let (gid, sid) = (id("gen_id", parts.next())?, id("sig_id", parts.next())?);
        let third = parts.next();
        let after = third.map(|p| rest.from(p.at - rest.at));
        let limits = self.by_number.entry((gid, sid)).or_default();
        if kind.text != "suppress" {
            let Some(after) = after else { return wrong(rest.end(), "type, track, count and seconds") };
            let rate = match rate::read(after, false)? {
                Ok(rate) => rate,
                Err(reason) => return Ok(Err(reason)),
            };
            self.replaced.extend(limits.rate.replace((rate, place)).map(|(_, place)| place));
            return Ok(Ok(()));
        }
        let Some(track) = third else {
            limits.suppressed.push(Suppression { source: true, destination: true, addresses: None });
            limits.places.push(place);
            return Ok(Ok(()));
        };
        let (source, destination) = match track.strip("track").map_or("", |t| t.trim().text) {
            "by_src" => (true, false),
            "by_dst" => (false, true),
            "by_either" => (true, true),
            _ => return wrong(track.at, "track by_src, by_dst or by_either"),
        };
        let list = rest.from(track.end() - rest.at).trim();
        let Some(list) = list.strip(",").and_then(|l| l.trim().strip("ip")) else {
            return wrong(list.at, "a comma, ip and an address");
        };
        let addresses = Some(vars.addresses(list.trim())?);
        limits.suppressed.push(Suppression { source, destination, addresses });
        limits.places.push(place);
        Ok(Ok(()))
    }

    /// Returns the rate and the suppressions of a rule, which has the rate `own` itself. A rate for one rule
    /// replaces its own; a rate for all rules does not. Rules share the suppressions of all.
    #[inline(never)]
    pub fn of(&mut self, gid: u32, sid: u32, own: Option<Rate>) -> (Option<Rate>, Vec<Arc<[Suppression]>>) {
        let (mut rate, mut suppressed) = (own, Vec::new());
        for key in [(gid, sid), (gid, 0), (0, 0)] {
            let Some(limits) = self.by_number.get_mut(&key) else { continue };
            if let Some((own, _)) = limits.rate.filter(|_| key.1 != 0 || rate.is_none()) {
                rate = Some(own);
                limits.has_rate = true;
            }
            if !limits.suppressed.is_empty() {
                let shared = limits.shared.get_or_insert_with(|| limits.suppressed.as_slice().into());
                suppressed.push(shared.clone());
            }
        }
        (rate, suppressed)
    }

    /// Returns the lines that have no effect on the rules which were asked for, and the reason.
    pub fn idle(&self) -> impl Iterator<Item = (Place, &'static str)> {
        let rates = self.by_number.values().filter(|limits| !limits.has_rate).filter_map(|l| l.rate);
        let idle = self.by_number.values().filter(|limits| limits.shared.is_none());
        let replaced = self.replaced.iter().map(|place| (*place, "a later line replaces this one"));
        let none = |place| (place, "no rule in use has these numbers, or has no other rate");
        let suppressions = idle.flat_map(|limits| &limits.places).copied();
        replaced.chain(rates.map(|(_, place)| place).map(none)).chain(suppressions.map(none))
    }
}
