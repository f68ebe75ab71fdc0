use crate::CutOff;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The reason why a module is evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The node's policy grants less than when the module was installed.
    Narrowed,
    /// The grant is no longer valid: it expired or was revoked, or a check now fails. The text for the
    /// operator may repeat what the policy states, the other one does not.
    Denied { public: String, operator: String },
    /// A call of the module that nothing interrupts was cut off.
    CutOff(CutOff),
    /// The batches of the module exceeded their time limit too often.
    Overrun(Overrun),
    /// The calls besides batches took more than their part of a processor.
    Calls { used_ms: u64, elapsed_ms: u64, share_per_mille: u32 },
    /// The module was removed, and its last calls did not end in time.
    Unfinished,
}

/// Measured times of the batches of a module that exceeded its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrun {
    /// The limit in nanoseconds per packet.
    pub limit_ns: u64,
    /// The number of batches that took longer, of all `batches`.
    pub over: u64,
    pub batches: u64,
    /// The number of batches per 1000 that may take longer.
    pub allowed_per_mille: u32,
    /// The nanoseconds per packet that half of the batches did not exceed.
    pub median_ns: u64,
    /// The nanoseconds per packet that 99 % of the batches did not exceed.
    pub p99_ns: u64,
    /// The nanoseconds per packet of the slowest batch.
    pub max_ns: u64,
}

impl Reason {
    /// Returns the reason for which a module is denied what it had, with one text for everybody.
    pub fn denied(text: impl Into<String>) -> Self {
        let public = text.into();
        Self::Denied { operator: public.clone(), public }
    }

    /// Returns the text for the node's operator.
    pub fn operator(&self) -> String {
        match self {
            Self::Denied { operator, .. } => operator.clone(),
            other => other.to_string(),
        }
    }

    /// Returns the reason without numbers that the module can influence, such as the times of its batches.
    pub fn without_measurements(&self) -> String {
        match self {
            Self::Overrun(o) => format!("took more than {} ns a packet too often", o.limit_ns),
            Self::Calls { share_per_mille, .. } => {
                format!(
                    "calls besides batches took more than {} % of a processor",
                    *share_per_mille as f64 / 10.0
                )
            }
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Narrowed => f.write_str("the policy grants less now: install it again"),
            Self::Denied { public, .. } => f.write_str(public),
            Self::CutOff(CutOff::Bound) => f.write_str("a call of this module violated its bound"),
            Self::CutOff(CutOff::Time) => f.write_str("a call of this module took too long"),
            Self::Unfinished => f.write_str("its last calls did not end in time after its removal"),
            Self::Calls { used_ms, elapsed_ms, share_per_mille } => write!(
                f,
                "calls besides batches took {used_ms} of {elapsed_ms} ms, {} % are allowed",
                *share_per_mille as f64 / 10.0
            ),
            Self::Overrun(o) => write!(
                f,
                "took more than {} ns a packet in {} of {} batches, {} in 1000 are allowed \
                 (half took up to {} ns, 99 % up to {}, the slowest up to {})",
                o.limit_ns, o.over, o.batches, o.allowed_per_mille, o.median_ns, o.p99_ns, o.max_ns,
            ),
        }
    }
}
