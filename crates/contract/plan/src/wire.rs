//! The serialization of fields of a plan that have no form of their own: machine code as bytes, manifests as
//! text.

pub(crate) mod code {
    use serde::{Deserializer, Serializer, de::Visitor};
    use std::fmt;
    use std::sync::Arc;

    pub fn serialize<S: Serializer>(code: &Arc<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(code)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[u8]>, D::Error> {
        struct Bytes;
        impl<'de> Visitor<'de> for Bytes {
            type Value = Arc<[u8]>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("machine code as bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
                Ok(bytes.into())
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = seq.next_element()? {
                    bytes.push(byte);
                }
                Ok(bytes.into())
            }
        }
        from.deserialize_bytes(Bytes)
    }
}

pub(crate) mod manifest {
    use flame_abi::manifest::Manifest;
    use serde::{Deserialize, Deserializer, Serializer, de, ser};
    use std::sync::Arc;

    pub fn serialize<S: Serializer>(manifest: &Arc<Manifest>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&manifest.to_toml().map_err(ser::Error::custom)?)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Manifest>, D::Error> {
        let text = String::deserialize(from)?;
        Manifest::from_toml(&text).map(Arc::new).map_err(de::Error::custom)
    }
}
