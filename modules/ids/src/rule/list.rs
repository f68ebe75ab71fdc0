//! Lists of addresses and of ports, `[a, b, !c, [d, e]]`: the entries without `!` (everything, if there are
//! none) minus the entries with it.

use super::fault::{Wrong, wrong};
use super::text::Piece;

/// The largest depth of nested lists.
const DEPTH: usize = 16;
/// The largest number of ranges in one list, as [`Kind::ranges`] counts them, and in the lists in it.
pub const MOST: u64 = 1 << 19;

/// The type of set that a list describes.
pub trait Kind: Sized + Clone {
    fn all() -> Self;
    fn is_empty(&self) -> bool;
    /// Returns the number of ranges, or more: what it costs to read and keep the set.
    fn ranges(&self) -> u64;
    fn union(sets: Vec<Self>) -> Self;
    fn minus(&self, other: &Self) -> Self;
    /// Parses one entry that is neither a list, nor negated, nor a variable, nor `any`.
    ///
    /// # Errors
    ///
    /// Returns an error with its offset if the text is no such entry.
    fn single(piece: Piece<'_>) -> Result<Self, Wrong>;
}

/// Parses a whole piece; `look` looks up variables. Adds the number of ranges that this takes to `made`.
///
/// # Errors
///
/// Returns an error with its offset if the list is not valid, leaves nothing, is nested too deep or has more
/// than [`MOST`] ranges, or if a variable is not defined.
#[inline(never)]
pub fn read<K: Kind>(piece: Piece<'_>, look: &dyn Fn(&str) -> Option<K>, made: &mut u64) -> Result<K, Wrong> {
    let piece = piece.trim();
    let (set, rest) = entry(piece, look, 0, made)?;
    if !rest.trim().is_empty() {
        return wrong(rest.trim().at, "the end of this list");
    }
    Ok(set)
}

/// Parses one entry, negated or not.
#[inline(never)]
fn entry<'a, K: Kind>(
    piece: Piece<'a>,
    look: &dyn Fn(&str) -> Option<K>,
    depth: usize,
    made: &mut u64,
) -> Result<(K, Piece<'a>), Wrong> {
    let piece = piece.skip_space();
    let (negated, set, rest) = signed(piece, look, depth, made)?;
    *made += set.ranges();
    if !negated {
        return Ok((set, rest));
    }
    let set = K::all().minus(&set);
    if set.is_empty() {
        return wrong(piece.at, "something that is left when this is taken away");
    }
    Ok((set, rest))
}

#[inline(never)]
fn signed<'a, K: Kind>(
    piece: Piece<'a>,
    look: &dyn Fn(&str) -> Option<K>,
    depth: usize,
    made: &mut u64,
) -> Result<(bool, K, Piece<'a>), Wrong> {
    let (negated, piece) = match piece.strip("!") {
        Some(rest) => (true, rest.skip_space()),
        None => (false, piece),
    };
    if let Some(inside) = piece.strip("[") {
        let (set, rest) = list(inside, look, depth + 1, made)?;
        return Ok((negated, set, rest));
    }
    let (word, rest) = piece.word(&[',', ']', '[']);
    let set = match word.text {
        "" => return wrong(word.at, "an address, a port, a list or a variable"),
        "any" => K::all(),
        text => match text.strip_prefix('$') {
            Some(name) => match look(name) {
                Some(set) => set,
                None => {
                    return Err(Wrong {
                        at: word.at,
                        expected: format!("variable {name} is not defined"),
                        kind: Some(format!("undefined variable {name}")),
                    });
                }
            },
            None => K::single(word)?,
        },
    };
    Ok((negated, set, rest))
}

#[inline(never)]
fn list<'a, K: Kind>(
    mut piece: Piece<'a>,
    look: &dyn Fn(&str) -> Option<K>,
    depth: usize,
    made: &mut u64,
) -> Result<(K, Piece<'a>), Wrong> {
    let start = piece.at;
    if depth > DEPTH {
        return wrong(start, format!("lists in lists at most {DEPTH} deep"));
    }
    let (mut with, mut without) = (Vec::new(), Vec::new());
    loop {
        let (negated, set, rest) = signed(piece.skip_space(), look, depth, made)?;
        *made += set.ranges();
        if *made > MOST {
            return Err(Wrong {
                at: start,
                expected: format!("a list of more than {MOST} ranges"),
                kind: Some("list too large".to_owned()),
            });
        }
        if negated {
            without.push(set)
        } else {
            with.push(set)
        }
        let rest = rest.skip_space();
        if let Some(next) = rest.strip(",") {
            piece = next;
        } else if let Some(after) = rest.strip("]") {
            let all = if with.is_empty() { K::all() } else { K::union(with) };
            let set = all.minus(&K::union(without));
            if set.is_empty() {
                return wrong(start, "a list with something left in it");
            }
            return Ok((set, after));
        } else {
            return wrong(rest.at, "`,` or `]`");
        }
    }
}
