use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An amount of each resource that can be reserved. 0 reserves none of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Reservation {
    /// Processor time, in millionths of one processor.
    #[serde(deserialize_with = "crate::most::amount")]
    pub cpu_ppm: u64,
    /// Memory of instances in bytes.
    #[serde(deserialize_with = "crate::most::amount")]
    pub memory: u64,
    /// Blocks of the receive buffer, over all workers of the source.
    #[serde(deserialize_with = "crate::most::amount")]
    pub blocks: u64,
    /// Bytes of records per second.
    #[serde(deserialize_with = "crate::most::amount")]
    pub record_bytes: u64,
}

impl Reservation {
    /// Returns whether nothing is reserved.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The resources of a node that can be reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capacity {
    /// The amounts that the operator makes available to reservations.
    pub capacity: Reservation,
    /// The sum of all reservations.
    pub reserved: Reservation,
    /// The difference: amounts that can still be reserved.
    pub free: Reservation,
    /// The reservations of the caller's session.
    pub own: Reservation,
}
