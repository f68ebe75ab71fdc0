//! Deserializers with a maximum: every text, list and map of a request has one, so that no request makes the
//! node hold more than it states. Each stops reading where its maximum is exceeded.

use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{Object, ObjectBuilder, RefOr, Schema, Type};

/// Maximum length of the name of a source, a field or a parameter.
pub const NAME: usize = 64;
/// Maximum length of a public key as text.
pub const KEY: usize = 128;
/// Maximum length of a credential as text.
pub const CREDENTIAL: usize = 64 << 10;
/// Maximum length of the file of a module's signatures.
pub const SIGNATURES: usize = 64 << 10;
/// Maximum number of narrowings.
pub const NARROWINGS: usize = 32;
/// Maximum length of a narrowing's value.
pub const VALUE: usize = 4096;
/// Maximum number of parameters that are set.
pub const SETTINGS: usize = 256;
/// Maximum length of a parameter's value.
pub const SETTING: usize = 128 << 20;

/// Reads a text of at most `MOST` characters.
///
/// # Errors
///
/// Returns an error if there is no text, or if it is longer.
pub fn text<'de, D: Deserializer<'de>, const MOST: usize>(deserializer: D) -> Result<String, D::Error> {
    limited::<D::Error, MOST>(String::deserialize(deserializer)?)
}

/// Reads a text of at most `MOST` characters, or nothing.
///
/// # Errors
///
/// Returns an error if the value is no text, or if it is longer.
pub fn optional_text<'de, D: Deserializer<'de>, const MOST: usize>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(deserializer)?.map(limited::<D::Error, MOST>).transpose()
}

fn limited<E: Error, const MOST: usize>(text: String) -> Result<String, E> {
    // A character has at least one byte.
    match text.len() > MOST && text.chars().count() > MOST {
        true => Err(E::custom(format!("a text has more than {MOST} characters"))),
        false => Ok(text),
    }
}

/// Reads an amount, which is described as a signed integer of 64 bits that is not negative.
///
/// # Errors
///
/// Returns an error if there is no integer, or if it is outside that range.
pub fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let amount = u64::deserialize(deserializer)?;
    match i64::try_from(amount) {
        Ok(_) => Ok(amount),
        Err(_) => Err(D::Error::custom(format!("{amount}: expected at most {}", i64::MAX))),
    }
}

/// Reads a list of at most `MOST` elements.
///
/// # Errors
///
/// Returns an error if there is no list, if it is longer, or if an element cannot be read.
pub fn list<'de, D: Deserializer<'de>, T: DeserializeOwned, const MOST: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    List::<T, MOST>::deserialize(deserializer).map(|list| list.0)
}

/// Reads a list of at most `MOST` elements, or nothing.
///
/// # Errors
///
/// Returns an error if the value is no list, if it is longer, or if an element cannot be read.
pub fn optional_list<'de, D: Deserializer<'de>, T: DeserializeOwned, const MOST: usize>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    Ok(Option::<List<T, MOST>>::deserialize(deserializer)?.map(|list| list.0))
}

/// Reads settings, or nothing.
///
/// # Errors
///
/// Returns an error as [`settings`] does, but not if they are missing.
pub fn optional_settings<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    Ok(Option::<Settings>::deserialize(deserializer)?.map(|settings| settings.0))
}

/// Reads settings: values of parameters by name.
///
/// # Errors
///
/// Returns an error if there are more than [`SETTINGS`], if a name is longer than [`NAME`], or if a value
/// is longer than [`SETTING`].
pub fn settings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    Settings::deserialize(deserializer).map(|settings| settings.0)
}

/// Returns the description of settings, with their maximum.
pub fn settings_schema() -> Object {
    settings_of(Type::Object.into())
}

/// Returns the description of settings that may be missing.
pub fn optional_settings_schema() -> Object {
    settings_of(SchemaType::from_iter([Type::Object, Type::Null]))
}

fn settings_of(kind: SchemaType) -> Object {
    let value = ObjectBuilder::new().schema_type(Type::String).max_length(Some(SETTING)).build();
    ObjectBuilder::new()
        .schema_type(kind)
        .max_properties(Some(SETTINGS))
        .property_names(Some(ObjectBuilder::new().schema_type(Type::String).max_length(Some(NAME)).build()))
        .additional_properties(Some(RefOr::T(Schema::Object(value))))
        .build()
}

struct List<T, const MOST: usize>(Vec<T>);

impl<'de, T: DeserializeOwned, const MOST: usize> Deserialize<'de> for List<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<T, const MOST: usize>(PhantomData<T>);

        impl<'de, T: DeserializeOwned, const MOST: usize> Visitor<'de> for Elements<T, MOST> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MOST} elements")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Vec<T>, A::Error> {
                let mut list = Vec::new();
                while list.len() < MOST {
                    match all.next_element()? {
                        Some(one) => list.push(one),
                        None => return Ok(list),
                    }
                }
                match all.next_element::<IgnoredAny>()? {
                    Some(_) => Err(A::Error::custom(format!("a list has more than {MOST} elements"))),
                    None => Ok(list),
                }
            }
        }

        deserializer.deserialize_seq(Elements::<T, MOST>(PhantomData)).map(Self)
    }
}

struct Settings(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = BTreeMap<String, String>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {SETTINGS} values of parameters")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
                let mut settings = BTreeMap::new();
                while let Some((name, value)) = all.next_entry::<String, String>()? {
                    let name = limited::<A::Error, NAME>(name)?;
                    settings.insert(name, limited::<A::Error, SETTING>(value)?);
                    if settings.len() > SETTINGS {
                        return Err(A::Error::custom(format!("more than {SETTINGS} parameters are set")));
                    }
                }
                Ok(settings)
            }
        }

        deserializer.deserialize_map(Entries).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InstallRequest, UpdateRequest};
    use serde_json::json;

    #[test]
    fn lists_texts_and_maps_of_requests_end_at_their_maximum() {
        let narrow = |n: usize| vec![json!({ "field": "expose", "value": "count" }); n];
        let settings =
            |n: usize| (0..n).map(|i| (format!("p{i}"), json!("1"))).collect::<serde_json::Map<_, _>>();
        let install = |body: serde_json::Value| serde_json::from_value::<InstallRequest>(body).map(drop);
        let update = |body: serde_json::Value| serde_json::from_value::<UpdateRequest>(body).map(drop);
        install(json!({ "wasm": "", "narrow": narrow(NARROWINGS), "settings": settings(SETTINGS) })).unwrap();
        update(json!({ "narrow": narrow(NARROWINGS), "settings": settings(SETTINGS) })).unwrap();
        update(json!({ "narrow": null, "settings": null, "signatures": null })).unwrap();
        let long = |n: usize| "x".repeat(n + 1);
        for (body, said) in [
            (json!({ "narrow": narrow(NARROWINGS + 1) }), "more than 32 elements"),
            (json!({ "settings": settings(SETTINGS + 1) }), "more than 256 parameters"),
            (json!({ "settings": { long(NAME): "" } }), "more than 64 characters"),
            (json!({ "narrow": [{ "field": long(NAME), "value": "" }] }), "more than 64 characters"),
            (json!({ "narrow": [{ "field": "", "value": long(VALUE) }] }), "more than 4096 characters"),
            (json!({ "signatures": long(SIGNATURES) }), "more than 65536 characters"),
        ] {
            let mut whole = body.clone();
            whole["wasm"] = json!("");
            for refused in [update(body).unwrap_err(), install(whole).unwrap_err()] {
                assert!(refused.to_string().contains(said), "{refused}");
            }
        }
        assert!(install(json!({ "wasm": "", "source": long(NAME) })).is_err());
    }
}
