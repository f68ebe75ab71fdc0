//! Regular expressions as trees of bytes.
//!
//! An automaton has neither possessive quantifiers nor atomic groups, and `$` is a look at two bytes.
//! [`resolve`] replaces them by equal expressions, or refuses them.

use super::bytes::Set;
use regex_syntax::hir::{self, Class, ClassBytes, Hir};

/// A condition on a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Start,
    /// The start, or after a newline that is not the last byte.
    LineStart,
    End,
    LineEnd,
    /// The end, or before a newline that is the last byte.
    Dollar,
    Word,
    NotWord,
}

impl Look {
    /// Returns a set that contains the byte after each position where this holds.
    fn next(self) -> Set {
        match self {
            Self::End => Set::NONE,
            Self::LineEnd | Self::Dollar => Set::of(b'\n'),
            _ => Set::ALL,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greed {
    Greedy,
    Lazy,
    Possessive,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Set(Set),
    Look(Look),
    Concat(Vec<Node>),
    Either(Vec<Node>),
    Repeat { of: Box<Node>, min: u32, max: Option<u32>, greed: Greed },
    Atomic(Box<Node>),
}

impl Node {
    fn repeat(of: &Self, min: u32, max: Option<u32>, greed: Greed) -> Self {
        Self::Repeat { of: of.clone().into(), min, max, greed }
    }

    /// Returns whether there may be a match of no byte.
    fn may_be_empty(&self) -> bool {
        match self {
            Self::Set(_) => false,
            Self::Look(_) => true,
            Self::Concat(all) => all.iter().all(Self::may_be_empty),
            Self::Either(all) => all.iter().any(Self::may_be_empty),
            Self::Repeat { of, min, max, .. } => *min == 0 || *max == Some(0) || of.may_be_empty(),
            Self::Atomic(of) => of.may_be_empty(),
        }
    }

    /// Returns whether there is a match of no byte everywhere.
    fn is_sure(&self) -> bool {
        match self {
            Self::Set(_) | Self::Look(_) => false,
            Self::Concat(all) => all.iter().all(Self::is_sure),
            Self::Either(all) => all.iter().any(Self::is_sure),
            Self::Repeat { of, min, .. } => *min == 0 || of.is_sure(),
            Self::Atomic(of) => of.is_sure(),
        }
    }

    /// Returns a set that contains the first byte of each match.
    fn first(&self) -> Set {
        match self {
            Self::Set(set) => *set,
            Self::Look(_) => Set::NONE,
            Self::Concat(all) => next(all, Set::NONE),
            Self::Either(all) => all.iter().fold(Set::NONE, |set, one| set.or(one.first())),
            Self::Repeat { of, .. } | Self::Atomic(of) => of.first(),
        }
    }

    /// Returns the sets of an expression of a fixed number of bytes, one after another.
    fn sets(&self) -> Option<Vec<Set>> {
        match self {
            Self::Set(set) => Some(vec![*set]),
            Self::Concat(all) => {
                let sets = all.iter().map(|one| if let Self::Set(set) = one { Some(*set) } else { None });
                sets.collect()
            }
            _ => None,
        }
    }

    /// Returns whether at most one match begins at each position.
    fn is_single(&self) -> bool {
        match self {
            Self::Set(_) | Self::Look(_) => true,
            Self::Concat(all) => (0..all.len()).all(|i| {
                let rest = &all[i + 1..];
                match &all[i] {
                    Self::Repeat { of, min, max, .. } if *max != Some(*min) => {
                        let ends = !rest.iter().all(Self::may_be_empty);
                        let set = matches!(**of, Self::Set(_));
                        set && ends && next(rest, Set::NONE).and(of.first()).is_empty()
                    }
                    one => one.is_single(),
                }
            }),
            Self::Either(all) => (0..all.len()).all(|i| {
                let others = all[i + 1..].iter().fold(Set::NONE, |set, one| set.or(one.first()));
                all[i].is_single() && !all[i].may_be_empty() && all[i].first().and(others).is_empty()
            }),
            Self::Repeat { of, min, max, .. } => *max == Some(*min) && of.is_single(),
            Self::Atomic(_) => true,
        }
    }

    /// Returns the expression for the automaton, in which `$` is the end.
    pub fn hir(&self) -> Hir {
        match self {
            Self::Set(set) => match set.ranges()[..] {
                [range] if range.start() == range.end() => Hir::literal([range.start()]),
                ref ranges => Hir::class(Class::Bytes(ClassBytes::new(ranges.iter().copied()))),
            },
            Self::Look(look) => Hir::look(match look {
                Look::Start => hir::Look::Start,
                Look::LineStart => hir::Look::StartLF,
                Look::End | Look::Dollar => hir::Look::End,
                Look::LineEnd => hir::Look::EndLF,
                Look::Word => hir::Look::WordAscii,
                Look::NotWord => hir::Look::WordAsciiNegate,
            }),
            Self::Concat(all) => Hir::concat(all.iter().map(Self::hir).collect()),
            Self::Either(all) => Hir::alternation(all.iter().map(Self::hir).collect()),
            Self::Repeat { of, min, max, greed } => {
                let (min, max, greedy) = (*min, *max, *greed != Greed::Lazy);
                Hir::repetition(hir::Repetition { min, max, greedy, sub: of.hir().into() })
            }
            Self::Atomic(of) => of.hir(),
        }
    }

    /// Returns whether a condition occurs in the expression.
    pub fn looks_for(&self, wanted: Look) -> bool {
        match self {
            Self::Set(_) => false,
            Self::Look(look) => *look == wanted,
            Self::Concat(all) | Self::Either(all) => all.iter().any(|one| one.looks_for(wanted)),
            Self::Repeat { of, .. } | Self::Atomic(of) => of.looks_for(wanted),
        }
    }
}

/// Returns a set that contains the byte after each position where a match of `all` begins that `after` may
/// follow.
fn next(all: &[Node], after: Set) -> Set {
    let (mut found, mut bound) = (Set::NONE, Set::ALL);
    for one in all {
        if let Node::Look(look) = one {
            bound = bound.and(look.next());
            continue;
        }
        found = found.or(bound.and(one.first()));
        if !one.may_be_empty() {
            return found;
        }
    }
    found.or(bound.and(after))
}

/// The expression after a part.
#[derive(Clone, Copy)]
struct Then<'a> {
    rest: &'a [Node],
    /// The body of the loop that `rest` ends.
    again: Option<&'a Node>,
    up: Option<&'a Then<'a>>,
}

impl Then<'_> {
    const END: Self = Self { rest: &[], again: None, up: None };

    fn next(&self) -> Set {
        let up = self.up.map_or(Set::ALL, Self::next);
        next(self.rest, up.or(self.again.map_or(Set::NONE, Node::first)))
    }

    fn is_sure(&self) -> bool {
        self.rest.iter().all(Node::is_sure) && self.up.is_none_or(Self::is_sure)
    }

    fn may_be_empty(&self) -> bool {
        self.rest.iter().all(Node::may_be_empty) && self.up.is_none_or(Self::may_be_empty)
    }

    /// Returns whether no byte can follow.
    fn is_end(&self) -> bool {
        let no_byte = self.rest.iter().all(|one| one.may_be_empty() && one.first().is_empty());
        no_byte && self.again.is_none() && self.up.is_none_or(Self::is_end)
    }
}

/// The largest number of a quantifier whose part may be written out as often.
const MOST_WRITTEN_OUT: u32 = 8;
/// The largest number of parts that [`resolve`] may add.
const MOST_ADDED: usize = 2048;

/// Replaces what an automaton does not have.
///
/// # Errors
///
/// Returns the name of a construct for which there is no equal expression.
pub fn resolve(node: &Node) -> Result<Node, String> {
    let mut resolver = Resolver { left: MOST_ADDED };
    let resolved = resolver.node(node, &Then::END)?;
    if resolved.looks_for(Look::Dollar) && resolved.looks_for(Look::End) {
        return Err(r"`$` beside \z".to_owned());
    }
    Ok(resolved)
}

struct Resolver {
    left: usize,
}

impl Resolver {
    fn node(&mut self, node: &Node, then: &Then<'_>) -> Result<Node, String> {
        Ok(match node {
            Node::Set(_) => node.clone(),
            Node::Look(Look::Dollar) if !then.is_end() => return Err("`$` before other bytes".to_owned()),
            Node::Look(Look::LineStart) if then.may_be_empty() => {
                return Err("`^` of m where no byte has to follow".to_owned());
            }
            Node::Look(_) => node.clone(),
            Node::Concat(all) => {
                let mut done = all.clone();
                // From the last to the first, since each depends on those after it.
                for i in (0..done.len()).rev() {
                    match &done[i] {
                        Node::Set(_) => {}
                        Node::Atomic(_) | Node::Repeat { greed: Greed::Possessive, .. } => {
                            self.charge(1)?;
                            let rest = done.split_off(i + 1);
                            done.truncate(i);
                            done.extend(self.before(&all[i], rest, then)?);
                        }
                        _ => {
                            let rest = Then { rest: &done[i + 1..], again: None, up: Some(then) };
                            done[i] = self.node(&all[i], &rest)?;
                        }
                    }
                }
                Node::Concat(done)
            }
            Node::Either(all) => {
                Node::Either(all.iter().map(|one| self.node(one, then)).collect::<Result<_, _>>()?)
            }
            Node::Repeat { greed: Greed::Possessive, .. } | Node::Atomic(_) => {
                Node::Concat(self.before(node, Vec::new(), then)?)
            }
            Node::Repeat { of, min, max, greed } => {
                let again = (*max != Some(1)).then_some(&**of);
                match self.node(of, &Then { rest: &[], again, up: Some(then) }) {
                    Ok(of) => Node::Repeat { of: of.into(), min: *min, max: *max, greed: *greed },
                    // Written out, each part may have another one after it.
                    Err(_) if *max == Some(*min) && *min <= MOST_WRITTEN_OUT => {
                        self.charge(*min as usize)?;
                        self.node(&Node::Concat(vec![(**of).clone(); *min as usize]), then)?
                    }
                    Err(name) => return Err(name),
                }
            }
        })
    }

    /// Returns a part and the resolved ones after it in the same sequence.
    fn before(&mut self, node: &Node, rest: Vec<Node>, then: &Then<'_>) -> Result<Vec<Node>, String> {
        match node {
            Node::Atomic(of) => {
                let of = self.closed(of, &rest, then)?;
                self.atomic(of, rest, then)
            }
            Node::Repeat { of, min, max, greed: Greed::Possessive } => {
                let of = self.closed(of, &rest, then)?;
                self.possessive(&of, *min, *max, rest, then)
            }
            _ => {
                let one = self.node(node, &Then { rest: &rest, again: None, up: Some(then) })?;
                Ok(joined(one, rest))
            }
        }
    }

    /// Resolves an expression that is not tried again once it has matched.
    fn closed(&mut self, of: &Node, rest: &[Node], then: &Then<'_>) -> Result<Node, String> {
        if of.looks_for(Look::Dollar) && !(Then { rest, again: None, up: Some(then) }).is_end() {
            return Err("`$` before other bytes".to_owned());
        }
        self.node(of, &Then::END)
    }

    /// Returns a loop that gives nothing back, and the parts after it.
    fn possessive(
        &mut self,
        of: &Node,
        min: u32,
        max: Option<u32>,
        rest: Vec<Node>,
        then: &Then<'_>,
    ) -> Result<Vec<Node>, String> {
        let plain = |min, max| Node::repeat(of, min, max, Greed::Greedy);
        let after = Then { rest: &rest, again: None, up: Some(then) };
        // What cannot fail asks for nothing back, and what begins with another byte has no use for it.
        let apart = max == Some(min) || !of.may_be_empty() && after.next().and(of.first()).is_empty();
        if after.is_sure() || apart && of.is_single() {
            return Ok(joined(plain(min, max), rest));
        }
        let Node::Set(set) = of else {
            return Err("a possessive group that the rest may overlap".to_owned());
        };
        // After the loop comes a byte that it does not take, or it is complete.
        let other = self.restrict(&rest, set.not())?;
        let Some(max) = max else { return Ok(joined(plain(min, None), other)) };
        self.charge(rest.len() + 4)?;
        let whole = joined(plain(max, Some(max)), rest);
        let part = joined(plain(min, Some(max.saturating_sub(1).max(min))), other);
        Ok(vec![Node::Either(vec![Node::Concat(whole), Node::Concat(part)])])
    }

    /// Returns a group in which only the first match counts, and the parts after it.
    fn atomic(&mut self, of: Node, rest: Vec<Node>, then: &Then<'_>) -> Result<Vec<Node>, String> {
        let after = Then { rest: &rest, again: None, up: Some(then) };
        if of.is_single() || after.is_sure() {
            return Ok(joined(of, rest));
        }
        let refused = || Err("an atomic group whose matches overlap".to_owned());
        match of {
            Node::Repeat { of, min, max, greed } => match greed {
                Greed::Lazy => Ok(joined(Node::repeat(&of, min, Some(min), Greed::Greedy), rest)),
                _ => self.possessive(&of, min, max, rest, then),
            },
            Node::Concat(mut all) => {
                let Some(last) = all.pop() else { return Ok(rest) };
                // Choices before the last part would be tried again if it did not match.
                if !Node::Concat(all.clone()).is_single() {
                    return refused();
                }
                all.extend(self.atomic(last, rest, then)?);
                Ok(all)
            }
            Node::Either(all) => {
                let sets: Option<Vec<Vec<Set>>> = all.iter().map(Node::sets).collect();
                match sets {
                    Some(sets) => self.first_of(&sets, rest, then),
                    None => refused(),
                }
            }
            _ => refused(),
        }
    }

    /// Returns the alternatives, each only where none before it matches, and the parts after them.
    fn first_of(&mut self, all: &[Vec<Set>], rest: Vec<Node>, then: &Then<'_>) -> Result<Vec<Node>, String> {
        let refused = || Err("an atomic group whose alternatives overlap".to_owned());
        let (mut ways, mut split) = (Vec::new(), false);
        'each: for (i, one) in all.iter().enumerate() {
            // The bytes that may not follow a single byte, as an alternative before it would match them.
            let mut taken: Option<(Set, Set)> = None;
            for before in &all[..i] {
                let both: Vec<Set> = before.iter().zip(one).map(|(a, b)| a.and(*b)).collect();
                if both.iter().any(|set| set.is_empty()) {
                    continue;
                }
                let covers = before.len() <= one.len() && both.iter().zip(one).all(|(set, b)| set == b);
                match (covers, &before[..], &one[..], taken) {
                    (true, ..) => continue 'each,
                    (_, [first, second], [_], None) => taken = Some((*first, *second)),
                    _ => return refused(),
                }
            }
            ways.push((one, taken));
            split |= taken.is_some();
        }
        let after = Then { rest: &rest, again: None, up: Some(then) };
        let next = after.next();
        let plain = |sets: &[Set]| sets.iter().map(|set| Node::Set(*set)).collect::<Vec<_>>();
        let mut found = Vec::new();
        split &= ways.iter().any(|(_, taken)| taken.is_some_and(|(_, second)| !next.and(second).is_empty()));
        if !split {
            found.extend(ways.iter().map(|(one, _)| Node::Concat(plain(one))));
            return Ok(joined(Node::Either(found), rest));
        }
        self.charge(ways.len() * (rest.len() + 2))?;
        for (one, taken) in ways {
            let Some((first, second)) = taken else {
                found.push(Node::Concat([plain(one), rest.clone()].concat()));
                continue;
            };
            let free = Node::Set(one[0].and(first.not()));
            found.push(Node::Concat(joined(free, rest.clone())));
            let other = self.restrict(&rest, second.not())?;
            found.push(Node::Concat(joined(Node::Set(one[0].and(first)), other)));
        }
        Ok(vec![Node::Either(found)])
    }

    /// Returns a sequence whose first byte is one of `allowed`.
    fn restrict(&mut self, all: &[Node], allowed: Set) -> Result<Vec<Node>, String> {
        let Some((one, rest)) = all.split_first() else {
            return Err("a possessive quantifier or an atomic group at the end of a group".to_owned());
        };
        self.charge(rest.len() + 1)?;
        if let Node::Look(look) = one
            && !look.next().and(allowed.not()).is_empty()
        {
            return Err("a condition after a possessive quantifier or an atomic group".to_owned());
        }
        Ok(match one {
            Node::Set(set) => joined(Node::Set(set.and(allowed)), rest.to_vec()),
            Node::Look(_) => all.to_vec(),
            Node::Concat(inner) => self.restrict(&[inner, rest].concat(), allowed)?,
            Node::Atomic(of) => self.restrict(&joined((**of).clone(), rest.to_vec()), allowed)?,
            Node::Either(ways) => {
                let mut each = |way: &Node| {
                    let found = match way.may_be_empty() {
                        true => self.restrict(&joined(way.clone(), rest.to_vec()), allowed),
                        false => self.restrict(std::slice::from_ref(way), allowed).map(|mut way| {
                            way.extend_from_slice(rest);
                            way
                        }),
                    };
                    found.map(Node::Concat)
                };
                vec![Node::Either(ways.iter().map(&mut each).collect::<Result<_, _>>()?)]
            }
            Node::Repeat { max: Some(0), .. } => self.restrict(rest, allowed)?,
            Node::Repeat { of, min, max, greed } => {
                let mut once = self.restrict(std::slice::from_ref(&**of), allowed)?;
                let (less, most) = (min.saturating_sub(1), max.map(|max| max - 1));
                once.push(Node::repeat(of, less, most, *greed));
                once.extend_from_slice(rest);
                if *min > 0 {
                    return Ok(once);
                }
                let none = Node::Concat(self.restrict(rest, allowed)?);
                let once = Node::Concat(once);
                let ways = if *greed == Greed::Lazy { vec![none, once] } else { vec![once, none] };
                vec![Node::Either(ways)]
            }
        })
    }

    /// Refuses expressions that would grow without end.
    fn charge(&mut self, parts: usize) -> Result<(), String> {
        self.left = self.left.saturating_sub(parts);
        if self.left == 0 {
            Err("too many possessive quantifiers and atomic groups".to_owned())
        } else {
            Ok(())
        }
    }
}

fn joined(one: Node, rest: Vec<Node>) -> Vec<Node> {
    let mut all = Vec::with_capacity(rest.len() + 1);
    all.push(one);
    all.extend(rest);
    all
}
