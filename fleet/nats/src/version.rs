//! Versions of the server.

/// The version that is tested and recommended.
pub const RECOMMENDED: Version = Version(2, 15, 3);
/// The lowest accepted patch of each minor of 2. Later minors begin with the fixes of these.
const FLOORS: [(u32, u32); 2] = [(12, 7), (14, 0)];

/// A version of nats-server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

/// The reason why a server is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "nats-server has version {found:?}, expected 2.12.7 or a later release, not of 2.13: those before let a \
     user of one account change others' streams; install 2.15.3"
)]
pub struct VersionError {
    pub found: String,
}

impl Version {
    /// Reads the version that a server states, and accepts it.
    ///
    /// # Errors
    ///
    /// Returns an error if it is no release, or one with known holes.
    pub fn accepted(text: &str) -> Result<Self, VersionError> {
        let refused = || VersionError { found: text.chars().take(40).collect() };
        let numbers: Vec<_> = text.split('.').map(str::parse::<u32>).collect();
        let [Ok(major), Ok(minor), Ok(patch)] = numbers[..] else { return Err(refused()) };
        let floor = FLOORS.into_iter().find(|(of, _)| *of == minor);
        let is_safe = match floor {
            Some((_, floor)) => patch >= floor,
            None => minor > FLOORS[1].0,
        };
        if major == 2 && is_safe { Ok(Self(major, minor, patch)) } else { Err(refused()) }
    }
}
