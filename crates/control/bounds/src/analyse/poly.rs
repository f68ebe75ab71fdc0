//! The serialization of polynomials, which belong to the verifier, for the child process.

use flame_verify::Poly;
use serde::{Deserialize, Deserializer, Serializer};

pub fn serialize<S: Serializer>(poly: &Poly, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(poly.to_bytes())
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Poly, D::Error> {
    let bytes = Vec::<u8>::deserialize(deserializer)?;
    let bytes = bytes.try_into().map_err(|_| serde::de::Error::custom("a polynomial of another size"))?;
    Ok(Poly::from_bytes(&bytes))
}
