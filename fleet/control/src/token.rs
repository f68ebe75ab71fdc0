//! The text with which a node enrols: server, authority, fleet, root, and a secret that is valid once.

use crate::Error;
use flame_fleet_protocol::enrolment::TokenHash;
use flame_fleet_protocol::signed::{hex, unhex};
use flame_fleet_protocol::{Key, Secret};
use serde::{Deserialize, Serialize};

/// The beginning of a token's text, with the number of its form.
const BEGIN: &str = "flame-token-1.";
const MAX_TEXT: usize = 16 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    pub fleet: String,
    pub root: Key,
    pub server: String,
    /// The certificate of the authority in PEM.
    pub authority: String,
    /// Hexadecimal digits of the secret.
    pub secret: String,
}

impl Token {
    /// Returns the text, which has no spaces.
    pub fn text(&self) -> String {
        // Strings cannot fail.
        let json = serde_json::to_vec(self).unwrap_or_default();
        format!("{BEGIN}{}", hex(&json))
    }

    /// Reads a text, or the content of a file that ends with a line break.
    ///
    /// # Errors
    ///
    /// Returns an error that states what is expected, without the token.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let expected =
            "expected the text that `flame fleet enrol` printed on the operator's machine, in one piece";
        let fault = |found: String| Error::from(format!("the token: {found}, {expected}"));
        let text = text.trim();
        let digits = text.strip_prefix(BEGIN).filter(|_| text.len() <= MAX_TEXT);
        let digits =
            digits.ok_or_else(|| fault(format!("it does not begin with {BEGIN}, or is too long")))?;
        let byte = |n: usize| u8::from_str_radix(digits.get(2 * n..2 * n + 2)?, 16).ok();
        let is_hex = digits.len().is_multiple_of(2) && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let json: Option<Vec<u8>> = (0..digits.len() / 2).map(byte).collect();
        let json =
            json.filter(|_| is_hex).ok_or_else(|| fault("it has other characters than digits".to_owned()))?;
        let token: Self = serde_json::from_slice(&json).map_err(|e| fault(format!("its content: {e}")))?;
        token.secret().ok_or_else(|| fault("its secret has not 64 digits".to_owned()))?;
        Ok(token)
    }

    /// Returns the 32 bytes of the secret.
    pub fn secret(&self) -> Option<[u8; 32]> {
        unhex(&self.secret)
    }
}

/// Returns the name of a token in subjects. It states nothing about the secret.
pub fn id(secret: &[u8; 32]) -> String {
    hex(&TokenHash::of(secret).0[..8])
}

/// Returns the key with which an applicant connects to the server.
pub fn user(secret: &[u8; 32]) -> Secret {
    Secret::new(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let root = Secret::new(&[1; 32]).public();
        let text = |name: &str| name.to_owned();
        let (fleet, server) = (text("f"), text("tls://h:1"));
        let token = Token { fleet, root, server, authority: text("PEM"), secret: hex(&[9; 32]) };
        assert_eq!(Token::parse(&format!("{}\n", token.text())).unwrap(), token);
        let whole = token.text();
        for cut in [0, 5, BEGIN.len(), BEGIN.len() + 1, whole.len() - 2, whole.len() - 1] {
            let error = Token::parse(&whole[..cut]).unwrap_err().to_string();
            assert!(error.contains("flame fleet enrol"), "{error}");
        }
        assert!(Token::parse(&format!("{BEGIN}éé")).is_err());
        assert!(Token::parse(&format!("{BEGIN}+1+1")).is_err());
    }
}
