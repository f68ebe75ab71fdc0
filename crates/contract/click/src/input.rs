//! Reads configurations and libraries, which may be longer than the memory.

use std::io::Read;

/// The bytes that a configuration may have, with all its libraries.
pub const MOST_BYTES: usize = 16 << 20;

/// Reads all bytes of a configuration. At most one byte beyond the limit is read.
///
/// # Errors
///
/// Returns an error if reading fails, or if there are more than `limit` bytes.
pub fn read(from: impl Read, limit: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    from.take(most).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    match bytes.len() > limit {
        true => Err(format!("longer than the limit of {limit} bytes")),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_input_is_refused() {
        assert_eq!(read(std::io::repeat(0), 1000).unwrap_err(), "longer than the limit of 1000 bytes");
        assert_eq!(read(&b"abc"[..], 3).unwrap(), b"abc");
        assert!(read(&b"abcd"[..], 3).is_err());
    }
}
