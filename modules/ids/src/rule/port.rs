//! Ports: `any`, a port, `1:1024`, `:1024`, `1024:`, and lists of these.

use super::fault::{Wrong, wrong};
use super::list::Kind;
use super::set::Set;
use super::text::Piece;

pub type Ports = Set<u16>;

impl Kind for Ports {
    fn all() -> Self {
        Set::all()
    }

    fn is_empty(&self) -> bool {
        Set::is_empty(self)
    }

    fn ranges(&self) -> u64 {
        1 + self.parts().len() as u64
    }

    fn union(sets: Vec<Self>) -> Self {
        Set::union(sets)
    }

    fn minus(&self, other: &Self) -> Self {
        Set::minus(self, other)
    }

    #[inline(never)]
    fn single(piece: Piece<'_>) -> Result<Self, Wrong> {
        let port = |text: &str, none: u16| if text.is_empty() { Some(none) } else { text.parse().ok() };
        let (first, last) = piece.text.split_once(':').unwrap_or((piece.text, piece.text));
        match (port(first, 0), port(last, u16::MAX)) {
            (Some(a), Some(b)) if a <= b && piece.text != ":" => Ok(Set::range(a, b)),
            _ => wrong(piece.at, "a port from 0 to 65535, a range as 1:1024, a list, a variable or any"),
        }
    }
}
