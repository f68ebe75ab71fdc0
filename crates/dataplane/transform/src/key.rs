//! The secret key of the transforms `prefix` and `hash`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The maximum number of bytes of a key file that are read.
const MOST: u64 = 256;

/// A key of 32 bytes: an AES-128 key, then the source of Crypto-PAn's padding, as in the reference
/// implementation. A holder of the key can undo `prefix`, and test guesses against `hash`.
#[derive(Clone)]
pub struct Key([u8; 32]);

/// The reason why a file gave no key. It never shows the content of the file.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("key {path}: {error}")]
    Read { path: String, error: std::io::Error },
    #[error(
        "key {path}: {found}; expected 32 bytes, or 64 hexadecimal digits: \
         make one with `head -c 32 /dev/urandom > FILE`"
    )]
    Form { path: String, found: String },
}

impl Key {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads 32 raw bytes, or 64 hexadecimal digits with white space around them.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if its content has neither form.
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        let shown = || path.display().to_string();
        let read = |error| KeyError::Read { path: shown(), error };
        let mut bytes = Vec::new();
        File::open(path).map_err(read)?.take(MOST + 1).read_to_end(&mut bytes).map_err(read)?;
        Self::parse(&bytes).map_err(|found| KeyError::Form { path: shown(), found })
    }

    /// Parses the content of a key file.
    ///
    /// # Errors
    ///
    /// Returns a description of the form found, without the content.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if let Ok(raw) = <[u8; 32]>::try_from(bytes) {
            return Ok(Self(raw));
        }
        let digits = bytes.trim_ascii();
        if digits.len() != 64 {
            return Err(match bytes.len() as u64 {
                0 => "it is empty".to_owned(),
                n if n > MOST => format!("it has more than {MOST} bytes"),
                n => format!("it has {n} bytes"),
            });
        }
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16);
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
                return Err("its 64 characters are not all hexadecimal digits".to_owned());
            };
            *byte = (high << 4 | low) as u8;
        }
        Ok(Self(key))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &[u8]) -> Result<[u8; 32], String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, content).unwrap();
        Key::from_file(&path).map(|k| k.0).map_err(|e| e.to_string())
    }

    #[test]
    fn both_forms_and_each_fault() {
        assert_eq!(read(&[7; 32]), Ok([7; 32]));
        assert_eq!(read(format!("{}\n", "0A".repeat(32)).as_bytes()), Ok([10; 32]));
        assert!(read(b"").unwrap_err().contains("empty"));
        assert!(read(&[1; 31]).unwrap_err().contains("31 bytes"));
        assert!(read(&[1; 5000]).unwrap_err().contains("more than 256"));
        assert!(read("0g".repeat(32).as_bytes()).unwrap_err().contains("not all"));
        let absent = Key::from_file(Path::new("/nonexistent/key")).unwrap_err().to_string();
        assert!(absent.contains("/nonexistent/key"));
        assert_eq!(format!("{:?}", Key::new([1; 32])), "Key(…)");
    }
}
